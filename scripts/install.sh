#!/bin/sh
# Installs bin/wall with its manual pages and completions below $DESTDIR$PREFIX, or removes them again. `make install` runs it.
#
#   PREFIX=DIR [DESTDIR=DIR] scripts/install.sh check|install|uninstall
#
# util-linux has a program of the same name, which answers "wall run -- COMMAND" with status 0 and runs nothing. So no wall
# that is not this one is replaced or removed, a second name is installed that it does not have, and PATH is looked at.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'install: %s\n' "$*" >&2; }

case ${PREFIX:-} in
/*) ;;
*) say "PREFIX must be an absolute path, not '${PREFIX:-}'"; exit 2 ;;
esac
root=${DESTDIR:-}$PREFIX
bin=$PREFIX/bin
share=$root/share

# Asks the file and does not run it: util-linux's program would write to every terminal.
ours() { LC_ALL=C grep -aq github.com/wallsandbox/wall "$1"; }

check() {
	if { [ -e "$root/bin/wall" ] || [ -L "$root/bin/wall" ]; } && ! ours "$root/bin/wall"; then
		say "$root/bin/wall is another program, probably that of util-linux; leaving it alone. Choose another PREFIX."
		exit 1
	fi
	if [ -e "$root/bin/wallbox" ] || [ -L "$root/bin/wallbox" ]; then
		[ "$(readlink "$root/bin/wallbox")" = wall ] || { say "$root/bin/wallbox is another program; leaving it alone"; exit 1; }
	fi
}

completion() { # SHELL FILE
	mkdir -p "${2%/*}"
	bin/wall completion "$1" >"$2"
	chmod 644 "$2"
}

tell_path() {
	first=$(command -v wall || :)
	if [ "$first" = "$bin/wall" ]; then
		say "\"wall\" in PATH is this one, $first; \"hash -r\" makes a shell look again that ran another before"
	elif [ -n "$first" ]; then
		say "\"wall\" in PATH is NOT this one but $first. The program of util-linux, /usr/bin/wall, answers"
		say "\"wall run -- COMMAND\" with status 0 and runs nothing. Put $bin first in PATH, or write"
		say "$bin/wall, or wallbox, its second name."
	else
		say "$bin is not in PATH: write $bin/wall, or add it"
	fi
}

case ${1:-} in
check) check ;;
install)
	check
	install -D -m 755 bin/wall "$root/bin/wall"
	ln -sfn wall "$root/bin/wallbox"
	for page in docs/man/*.[17]; do
		install -D -m 644 "$page" "$share/man/man${page##*.}/${page##*/}"
	done
	completion bash "$share/bash-completion/completions/wall"
	completion zsh "$share/zsh/site-functions/_wall"
	completion fish "$share/fish/vendor_completions.d/wall.fish"
	say "installed $root/bin/wall and wallbox"
	[ -n "${DESTDIR:-}" ] || tell_path
	;;
uninstall)
	check
	rm -f "$root/bin/wall" "$root/bin/wallbox"
	for page in docs/man/*.[17]; do
		rm -f "$share/man/man${page##*.}/${page##*/}"
	done
	rm -f "$share/bash-completion/completions/wall" "$share/zsh/site-functions/_wall" "$share/fish/vendor_completions.d/wall.fish"
	;;
*)
	say "usage: PREFIX=DIR scripts/install.sh check|install|uninstall"
	exit 2
	;;
esac
