# Everything a developer runs. One gate: `make test check` (see .ci/run). Tools are pinned here.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO           ?= go
STATICCHECK  := $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
TEST_TIMEOUT ?= 20m
# A module of its own, so that what the peers depend on stays out of the product's go.mod.
PEERS_MODULE := cmd/wattle-bench
# What must also build for WebAssembly, as far as it exists yet.
WASM := $(patsubst %,./%,$(wildcard eventstore eventstore/schema eventstore/memlog eventstore/filelog internal/vfs aggregate projector))

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

ifneq ($(wildcard cmd/wattle),)
.PHONY: demo
demo: ## the main job on generated loan applications, in files in your state folder; needs nothing but Go
	@$(GO) run ./cmd/wattle demo
endif

.PHONY: test
test: postgres ## every test, with the race detector; sets up PostgreSQL if it may
	$(GO) test -race -timeout $(TEST_TIMEOUT) ./...
	cd $(PEERS_MODULE) && $(GO) test -race -timeout $(TEST_TIMEOUT) ./...

.PHONY: test-matrix
test-matrix: postgres ## what talks to PostgreSQL, on 14, 15, 16, 17 and 18 (fetches them with npm)
	internal/pgmatrix/run.sh $(VERSIONS)

.PHONY: check
check: check-format check-vet check-static check-wasm check-modules check-bench ## the gate beside the tests: format, vet, static checks, wasm builds, modules

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

.PHONY: check-bench
check-bench:
	cd $(PEERS_MODULE) && $(GO) vet ./... && $(GO) build -o /dev/null . && $(STATICCHECK) ./... && $(GO) mod verify && $(GO) mod tidy -diff

.PHONY: fmt
fmt: ## format the Go files
	gofmt -w .

.PHONY: bench
bench: postgres bench-file ## ratios within one run: appends, loads, the loan example end to end (BENCH='-xes FILE' for a real log)
	$(GO) run ./internal/bench/store $(BENCH)

.PHONY: bench-file
bench-file: ## the file store beside pwrite, fdatasync and sequential reads; 5 GB of disk (FILE='-entries 1000000' for less)
	$(GO) run ./internal/bench/file $(FILE)

.PHONY: bench-peers
bench-peers: postgres bench-peers-file ## Wattle beside other event stores on one server; Node.js for those of npm (PEERS='-only floor,wattle' for some)
	cd $(PEERS_MODULE) && $(GO) run -ldflags "-X 'main.commit=$$(git describe --always --dirty 2>/dev/null)'" . $(PEERS)

.PHONY: bench-peers-file
bench-peers-file: ## the file store beside bbolt, tidwall/wal and JetStream's, each append synced (FILES='-seconds 2' for longer)
	cd $(PEERS_MODULE) && $(GO) run . files $(FILES)

.PHONY: bench-go
bench-go: postgres ## the Go benchmarks of every package
	$(GO) test -run '^$$' -bench . -benchmem -timeout 1h ./...

.PHONY: museum
museum: postgres ## plants known bugs, one at a time, and shows that the suite catches each (MUSEUM='-bug NAME' for some)
	$(GO) run ./internal/museum $(MUSEUM)

.PHONY: soak-log
soak-log: postgres ## the conformance suite with ten times the rounds, wide random histories and long probes (30 minutes)
	WATTLE_SOAK=1 $(GO) test -timeout 60m -count=1 -skip 'TestLinear|TestHammer|TestCut' ./eventstore/memlog ./eventstore/pglog -args -rapid.checks=2000
	WATTLE_SOAK=1 $(GO) test -timeout 60m -count=1 -run 'TestLog|TestRandom' ./eventstore/filelog -args -rapid.checks=2000

.PHONY: soak-linear
soak-linear: postgres ## thousands of concurrent histories checked to be linearizable, with faults; many processes (30 minutes)
	WATTLE_SOAK=1 $(GO) test -v -timeout 60m -count=1 -run 'TestLinear|TestHammer' ./eventstore/memlog ./eventstore/filelog ./eventstore/pglog

.PHONY: soak-cut
soak-cut: postgres ## the link cut at every byte of appends, reads and projections, in every way (30 minutes)
	WATTLE_SOAK=1 $(GO) test -v -timeout 60m -count=1 -run 'Cut' ./eventstore/pglog ./projector/pgcheckpoint

.PHONY: soak-cluster
soak-cluster: postgres ## crashes of a whole server under load, ten rounds of each
	WATTLE_SOAK=1 $(GO) test -timeout 30m -count=1 -v ./internal/cluster

.PHONY: soak-files
soak-files: postgres ## the file store crashed at every operation, every disk a crash may leave, every bit flipped, kills (30 minutes)
	WATTLE_SOAK=1 $(GO) test -v -timeout 90m -count=1 -skip 'TestLog|TestRandom|TestLinear|TestWasip1' ./eventstore/filelog
	$(GO) test -timeout 30m -count=1 -run 'TestEqual|TestDurable' ./internal/vfs -args -vfs.histories 1500

.PHONY: soak-fuzz
soak-fuzz: ## every fuzz target for a minute
	@set -o pipefail; for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p 2>/dev/null | grep '^Fuzz' || true); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime 1m $$p; done; done

.PHONY: bench-layout
bench-layout: postgres ## one entries table, partitions or tables per category: the figures behind the choice (3 minutes)
	$(GO) run ./internal/bench/layout $(LAYOUT)

.PHONY: bench-decay
bench-decay: postgres ## what a session with an old snapshot does to appends to a hot stream (4 minutes; DECAY='-held 20s')
	$(GO) run ./internal/bench/decay $(DECAY)

# The tests find the server's executables, PgBouncer, libfaketime and strace themselves and fail without; this installs them first where it
# may: as root, with apt-get. A server of one's own (WATTLE_TEST_DSN) does not replace them: some tests kill servers.
.PHONY: postgres
postgres:
	@server() { compgen -G '/usr/lib/postgresql/*/bin/postgres' || compgen -G '/usr/pgsql-*/bin/postgres' || \
	  compgen -G '/opt/homebrew/opt/postgresql@*/bin/postgres' || compgen -G '/usr/local/opt/postgresql@*/bin/postgres' || \
	  { command -v postgres && command -v initdb; }; }; \
	bouncer() { command -v pgbouncer || compgen -G '/usr/sbin/pgbouncer'; }; \
	faketime() { compgen -G '/usr/lib/*/faketime/libfaketimeMT*' || compgen -G '/usr/lib*/faketime/libfaketimeMT*' || \
	  compgen -G '/usr/local/lib/faketime/libfaketimeMT*' || compgen -G '/opt/homebrew/lib/faketime/libfaketime*'; }; \
	found() { server && bouncer && faketime && { [ "$$(uname)" != Linux ] || command -v strace; }; }; \
	if found >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "no PostgreSQL server, PgBouncer, libfaketime or strace found: installing Debian's"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get -qq update && apt-get -qq install -y --no-install-recommends postgresql pgbouncer faketime strace >/dev/null && \
	  found >/dev/null && exit 0; \
	fi; \
	echo "The tests need the PostgreSQL server, 14 or newer, PgBouncer, libfaketime and (on Linux) strace; they are not on PATH nor in the usual places. Install them:" >&2; \
	echo "  Debian, Ubuntu:  apt-get install postgresql pgbouncer faketime strace      (as root; make test then does it itself)" >&2; \
	echo "  Fedora, RHEL:    dnf install postgresql-server pgbouncer libfaketime strace" >&2; \
	echo "  macOS:           brew install postgresql@18 pgbouncer libfaketime" >&2; \
	exit 1
