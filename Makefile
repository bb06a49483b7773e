# wall: `make help` lists the targets. Everything works from a fresh clone on Debian or Ubuntu with only Go, git and make.
SHELL := /bin/sh
GO ?= go
PREFIX ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
# The version is the newest one that the change log names.
VERSION := $(shell sed -n 's/^\#\# \([0-9][^ ]*\).*/\1/p' CHANGELOG.md | head -n 1)
INSTALL = PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' sh scripts/install.sh
# Tests send signals, which a caller may ignore (nohup); where env can, it gives them their default actions back.
DEFAULTS := $(shell env --default-signal true 2>/dev/null && echo env --default-signal)
GOTEST := $(DEFAULTS) $(GO) test
STATICCHECK := $(GO) tool -modfile=tools/go.mod staticcheck # its own module file: nothing of it is wall's

export PATH := $(PATH):/usr/local/go/bin
# The commit, "unknown" outside of a git work tree; the same commit gives the same bytes.
COMMIT := $(shell git rev-parse HEAD 2>/dev/null && { git diff --quiet HEAD 2>/dev/null || echo -dirty; })
BUILDFLAGS := -trimpath -buildvcs=false -tags netgo,osusergo
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(subst $(subst ,, ),,$(COMMIT))

.PHONY: help setup build build-pure demo test race vet fmt staticcheck lint golden fuzz integration kernels bench check cover install uninstall clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what the build, the tests and the benchmark need (apt-get; nothing when all is there)
	@sh scripts/setup.sh all

build: ## build bin/wall: static, with libseccomp inside
	@sh scripts/setup.sh build
	$(GO) build $(BUILDFLAGS) -ldflags '$(LDFLAGS) -linkmode external -extldflags "-static"' -o bin/wall ./cmd/wall

build-pure: ## build bin/wall without cgo: built-in system call filters only
	CGO_ENABLED=0 $(GO) build $(BUILDFLAGS) -ldflags '$(LDFLAGS)' -o bin/wall ./cmd/wall

demo: ## box a real command of this repository, and show what it could and could not do
	@sh scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@sh scripts/demo.sh

test: ## run every test; as root twice, as root and as the ordinary user wall-test
	@sh scripts/setup.sh test
	@$(MAKE) --no-print-directory build vet
	@$(DEFAULTS) sh scripts/test.sh

integration: ## run only the tests of the built binary on this kernel, like test
	@sh scripts/setup.sh test
	@$(MAKE) --no-print-directory build
	@$(DEFAULTS) sh scripts/test.sh ./integration/...

race: ## run the tests of the packages with the race detector
	@sh scripts/setup.sh build
	GORACE=atexit_sleep_ms=0 $(GOTEST) -race -timeout=15m $$($(GO) list ./... | grep -v /integration)

kernels: ## run wall on other kernels, in qemu (amd64)
	@sh scripts/setup.sh test
	@$(MAKE) --no-print-directory build
	WALL_BIN=$(CURDIR)/bin/wall $(GOTEST) -count=1 -v ./integration/kernels

golden: ## compare the golden plans; rewrite them with: go test ./profile -run Golden -update
	$(GO) test ./profile -run Golden

fuzz: ## run every fuzz target for a few seconds
	@sh scripts/setup.sh build
	@sh scripts/fuzz.sh

vet: ## go vet
	$(GO) vet ./...

fmt: ## fail when a file is not in gofmt's form, and name it
	@list=$$(gofmt -l .); [ -z "$$list" ] || { printf 'not in the form of gofmt:\n%s\n' "$$list"; exit 1; }

staticcheck: ## staticcheck, with the checks of staticcheck.conf
	$(STATICCHECK) ./...

lint: ## fmt, vet and staticcheck
	@sh scripts/setup.sh build
	@$(MAKE) --no-print-directory fmt vet staticcheck

check: lint race golden fuzz test ## everything that a change must pass

bench: ## compare the launch cost with bubblewrap's, and the network wall with loopback
	@sh scripts/setup.sh all
	@$(MAKE) --no-print-directory build
	@sh scripts/bench.sh

cover: ## test coverage per function, without the tests of the built binary
	@sh scripts/setup.sh build
	$(GOTEST) -coverprofile=cover.out $$($(GO) list ./... | grep -v /integration)
	$(GO) tool cover -func=cover.out

install: ## install under PREFIX (/usr/local as root, else ~/.local)
	@$(INSTALL) check
	@$(MAKE) --no-print-directory build
	@$(INSTALL) install

uninstall: ## remove what install installed
	@$(INSTALL) uninstall

clean: ## remove what make made here
	rm -rf bin cover.out
