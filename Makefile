# Everything a developer runs. One gate: `make test check` (see .ci/run). Tools are pinned here.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO           ?= go
STATICCHECK  := $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
TEST_TIMEOUT ?= 20m
# What must also build for WebAssembly, as far as it exists yet.
WASM := $(patsubst %,./%,$(wildcard eventstore eventstore/schema eventstore/memlog aggregate projector))

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

ifneq ($(wildcard cmd/wattle),)
.PHONY: demo
demo: ## the main job on generated loan applications, in memory; needs nothing but Go
	@$(GO) run ./cmd/wattle demo
endif

.PHONY: test
test: postgres ## every test, with the race detector; sets up PostgreSQL if it may
	$(GO) test -race -timeout $(TEST_TIMEOUT) ./...

.PHONY: check
check: check-format check-vet check-static check-wasm check-modules ## the gate beside the tests: format, vet, static checks, wasm builds, modules

.PHONY: check-format
check-format:
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not formatted (make fmt):"; echo "$$files"; exit 1; fi

.PHONY: check-vet
check-vet:
	$(GO) vet ./...

.PHONY: check-static
check-static:
	$(STATICCHECK) ./...

.PHONY: check-wasm
check-wasm:
	GOOS=wasip1 GOARCH=wasm $(GO) build $(WASM)
	GOOS=js GOARCH=wasm $(GO) build $(WASM)

.PHONY: check-modules
check-modules:
	$(GO) mod verify
	$(GO) mod tidy -diff

.PHONY: fmt
fmt: ## format the Go files
	gofmt -w .

.PHONY: bench
bench: postgres ## benchmarks: ratios within one run, against a bare INSERT, SELECT or COPY
	$(GO) test -run '^$$' -bench . -benchmem -timeout 1h ./...

.PHONY: bench-layout
bench-layout: postgres ## one entries table, partitions or tables per category: the figures behind the choice (3 minutes)
	$(GO) run ./internal/bench/layout $(LAYOUT)

# The tests find the server's executables themselves (migrations/pgtest) and fail without; this installs them first
# where it may: as root, with apt-get.
.PHONY: postgres
postgres:
	@found() { compgen -G '/usr/lib/postgresql/*/bin/postgres' || compgen -G '/usr/pgsql-*/bin/postgres' || \
	  compgen -G '/opt/homebrew/opt/postgresql@*/bin/postgres' || compgen -G '/usr/local/opt/postgresql@*/bin/postgres' || \
	  { command -v postgres && command -v initdb; }; }; \
	if [ -n "$${WATTLE_TEST_DSN:-}" ] || found >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "no PostgreSQL server found: installing Debian's"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get -qq update && apt-get -qq install -y --no-install-recommends postgresql >/dev/null && found >/dev/null && exit 0; \
	fi; \
	echo "The tests need the PostgreSQL server, 14 or newer; there is none on PATH nor in the usual places. Install it:" >&2; \
	echo "  Debian, Ubuntu:  apt-get install postgresql      (as root; make test then does it itself)" >&2; \
	echo "  Fedora, RHEL:    dnf install postgresql-server" >&2; \
	echo "  macOS:           brew install postgresql@18" >&2; \
	echo "or set WATTLE_TEST_DSN to a server whose role may create schemas." >&2; \
	exit 1
