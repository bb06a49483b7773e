#!/bin/sh
# Sees to it that what wall needs is installed; where all of it is there already, nothing is run and no network is needed.
#
#   scripts/setup.sh [build|demo|test|all]     what for (default: all)
#   scripts/setup.sh apparmor BINARY      let BINARY make user namespaces where AppArmor keeps them from unprivileged users
#
# Missing packages come through apt-get: as root directly, otherwise through sudo where it works without a password or a
# person is at the terminal to type one. Where neither is possible it prints the command to run as root, and fails.
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/local/go/bin:/usr/sbin:/sbin # useradd and friends are not on every user's PATH

say() { printf 'setup: %s\n' "$*" >&2; }

person=no
if [ -t 0 ] && [ -t 2 ]; then person=yes; fi # somebody who can type a password

# Runs a command as root, or fails when this user cannot.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ "$person" = yes ]; }; then
		sudo "$@"
	else
		return 1
	fi
}

# Adds PACKAGE to $missing unless the check that follows it succeeds. The checks look for the thing itself and not for the
# package, so that a system with other packages, or none, is as good.
need() {
	package=$1
	shift
	"$@" >/dev/null 2>&1 || missing="$missing $package"
}
command_exists() { command -v "$1"; }
in_system_path() { (PATH=/usr/local/bin:/usr/bin:/bin && command -v "$1"); }
static_library() { path=$(gcc -print-file-name="$1") && [ "$path" != "$1" ]; } # gcc answers with the bare name when it has no such file

find_missing() {
	missing=''
	need gcc command_exists gcc
	need libc6-dev static_library libc.a
	need make command_exists make
	need pkg-config command_exists pkg-config
	need libseccomp-dev pkg-config --exists libseccomp
	need libseccomp-dev static_library libseccomp.a
	need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
	[ "$1" = build ] && return
	need git command_exists git
	need python3 command_exists python3
	need curl command_exists curl
	need procps command_exists ps
	need util-linux command_exists setpriv
	need passwd command_exists useradd
	[ "$1" = demo ] && return
	need tmux command_exists tmux
	need screen command_exists screen
	need less command_exists less
	need vim-tiny command_exists vi
	need cargo in_system_path cargo # an ordinary user cannot use what root has in its home
	need npm in_system_path npm
	need nodejs in_system_path node
	# The clients and servers of the tests of the network.
	need iproute2 command_exists ip
	need nftables command_exists nft
	need wget command_exists wget
	need openssh-client command_exists ssh
	need dropbear-bin command_exists dropbear # a server that comes without a service
	need netcat-openbsd command_exists nc
	need busybox-static command_exists busybox
	need musl-tools command_exists musl-gcc
	need default-jre-headless in_system_path keytool
	need dbus command_exists dbus-daemon
	need gnome-keyring command_exists gnome-keyring-daemon # a Secret Service
	[ "$(uname -m)" != x86_64 ] || need qemu-system-x86 command_exists qemu-system-x86_64 # other kernels
	need chromium command_exists chromium # opens the page of wall env ui
	[ "$1" = test ] && return
	need bubblewrap command_exists bwrap # make bench compares with it
}

install_missing() {
	find_missing "$1"
	[ -n "$missing" ] || return 0
	missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
	if ! command -v apt-get >/dev/null; then
		say "this machine lacks what these Debian packages hold: $missing"
		say "install their counterparts with your package manager, then try again"
		exit 1
	fi
	say "installing $missing"
	if ! { as_root apt-get -q update && as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $missing; } </dev/null >&2; then
		say "could not install what is missing; run this as root, then try again:"
		say "  apt-get update && apt-get install -y --no-install-recommends $missing"
		exit 1
	fi
	find_missing "$1"
	[ -z "$missing" ] || { say "still missing after the installation: $missing"; exit 1; }
}

check_go() {
	command -v go >/dev/null || { say "go is not in PATH; install Go 1.26 or newer from https://go.dev/dl/"; exit 1; }
	go version >/dev/null || { say "this Go cannot build the module; install Go 1.26 or newer from https://go.dev/dl/"; exit 1; }
}

# Ubuntu 23.10 and later let an unprivileged process make a user namespace but give it no capability there, unless an AppArmor
# profile names the program. The profile written here names one file, and gives it that and nothing else.
apparmor() {
	switch=/proc/sys/kernel/apparmor_restrict_unprivileged_userns
	if [ ! -r "$switch" ] || [ "$(cat "$switch")" != 1 ]; then
		say "AppArmor does not restrict user namespaces here; nothing to do"
		return 0
	fi
	binary=$(readlink -f "$1")
	case $binary in
	*[!A-Za-z0-9/._+-]*) say "cannot write an AppArmor rule for $binary: move it to a path of plain letters"; return 1 ;;
	esac
	name=wall-sandbox$(printf %s "$binary" | tr / .)
	rule="/etc/apparmor.d/$name"
	[ ! -e "$rule" ] || return 0
	say "letting $binary make user namespaces: $rule"
	printf 'abi <abi/4.0>,\ninclude <tunables/global>\nprofile %s %s flags=(unconfined) {\n  userns,\n}\n' "$name" "$binary" |
		as_root tee "$rule" >/dev/null && as_root apparmor_parser -r "$rule" || {
		say "could not; as root, write to $rule:"
		say "  abi <abi/4.0>, include <tunables/global> profile $name $binary flags=(unconfined) { userns, }"
		say "and load it with: apparmor_parser -r $rule"
		return 1
	}
}

case ${1:-all} in
build | demo | test | all)
	install_missing "${1:-all}"
	check_go
	;;
apparmor)
	[ $# -eq 2 ] && [ -f "$2" ] || { say "usage: scripts/setup.sh apparmor BINARY"; exit 2; }
	apparmor "$2"
	;;
*)
	say "usage: scripts/setup.sh [build|demo|test|all] | apparmor BINARY"
	exit 2
	;;
esac
