# Everything a developer runs. One gate: `make test check` (see .ci/run). Tools are pinned here.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO           ?= go
STATICCHECK  := $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
BUF          := $(GO) run github.com/bufbuild/buf/cmd/buf@v1.75.0
TEST_TIMEOUT ?= 20m
# Modules of their own, so that what they depend on stays out of the product's go.mod.
PEERS_MODULE := cmd/wattle-bench
MODULES      := $(PEERS_MODULE) handler/httpcarrier/cetest examples/functions/lambda internal/foreign/grpcurl
# What must also build for WebAssembly, as far as it exists yet.
WASM := $(patsubst %,./%,$(wildcard eventstore eventstore/schema eventstore/memlog eventstore/filelog eventstore/wasm internal/vfs \
  aggregate aggregate/guest handler handler/httpcarrier handler/connectcarrier projector projector/guest projector/timer eventstore/pglog internal/wire eventstore/remotelog eventstore/remotelog/lean))

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

ifneq ($(wildcard cmd/wattle),)
.PHONY: demo
demo: ## the main job on generated loan applications, in files in your state folder; needs nothing but Go
	@$(GO) run ./cmd/wattle demo
endif

.PHONY: test
test: postgres guests ## every test, with the race detector; sets up PostgreSQL and the guests' compilers if it may
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; $(GO) build -o "$$dir/testlog" ./internal/testlog; set -x; \
	  $(GO) test -race -json -timeout $(TEST_TIMEOUT) ./... | "$$dir/testlog"; \
	  for m in $(MODULES); do (cd $$m && $(GO) test -race -json -count=1 -timeout $(TEST_TIMEOUT) ./... | "$$dir/testlog"); done

.PHONY: test-matrix
test-matrix: postgres ## what talks to PostgreSQL, on 14, 15, 16, 17 and 18 (fetches them with npm)
	internal/pgmatrix/run.sh $(VERSIONS)

# What also runs its tests as WebAssembly: -short, and without the race detector, which does not exist there.
WASM_TESTS := ./eventstore ./eventstore/schema ./eventstore/memlog ./aggregate ./aggregate/guest ./handler

.PHONY: test-wasm
test-wasm: ## the tests of the core as WebAssembly: js in Node.js, wasip1 in wazero (1 minute, on two cores)
	@command -v node >/dev/null || { echo "The js tests need Node.js 20 or newer on PATH (apt-get install nodejs, brew install node)." >&2; exit 1; }
	GOOS=js GOARCH=wasm $(GO) test -short -timeout $(TEST_TIMEOUT) -exec "$$($(GO) env GOROOT)/lib/wasm/go_js_wasm_exec" $(WASM_TESTS) ./examples/edge/worker
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; $(GO) build -o "$$dir/wazero" github.com/tetratelabs/wazero/cmd/wazero; set -x; \
	  GOOS=wasip1 GOARCH=wasm $(GO) test -short -timeout $(TEST_TIMEOUT) -exec "$$dir/wazero run -mount=/:/ -env-inherit -cachedir=$$dir/cache" $(WASM_TESTS)

.PHONY: test-edge
test-edge: postgres ## the loan process as Cloudflare Workers, in workerd from npm, which needs Node.js (1 minute)
	@command -v npm >/dev/null || { echo "workerd comes from npm, and there is none on PATH: install Node.js 20 or newer with npm (apt-get install nodejs npm, brew install node)." >&2; exit 1; }
	$(GO) vet -tags edge ./examples/edge && $(STATICCHECK) -tags edge ./examples/edge
	cd examples/edge && npm ci --ignore-scripts --no-audit --no-fund && npm run build && $(GO) test -tags edge -count=1 -v -timeout $(TEST_TIMEOUT) .

.PHONY: check
check: check-format check-vet check-static check-wasm test-wasm check-modules check-nested check-generate ## the gate beside the tests: format, vet, static checks, wasm builds and tests, modules

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
	GOOS=js GOARCH=wasm $(GO) vet ./examples/edge/...

.PHONY: check-modules
check-modules:
	$(GO) mod verify
	$(GO) mod tidy -diff

.PHONY: check-nested
check-nested:
	for m in $(MODULES); do (cd $$m && $(GO) vet ./... && $(GO) build -o /dev/null ./... && $(STATICCHECK) ./... && $(GO) mod verify && $(GO) mod tidy -diff); done

# Folders with a buf.yaml; the code is generated into handlerv1 beside it and the like.
PROTO := handler/connectcarrier eventstore/remotelog

.PHONY: generate
generate: ## the Go code of the protobuf files, with plugins of the versions in go.mod (builds buf: minutes, once)
	for d in $(PROTO); do (cd $$d && $(BUF) generate); done

# What clients of releases speak is in released.binpb: a change that breaks them fails the gate. What is added is
# added there by a release.
.PHONY: release-proto
release-proto: ## has the protobuf files as they are count as released
	for d in $(PROTO); do (cd $$d && $(BUF) breaking --against released.binpb && $(BUF) build --exclude-source-info -o released.binpb); done

.PHONY: check-generate
check-generate:
	@for d in $(PROTO); do (cd $$d && $(BUF) lint && $(BUF) breaking --against released.binpb && fresh=$$(mktemp -d) && trap 'rm -r $$fresh' EXIT && $(BUF) generate -o $$fresh && \
	  for out in $$fresh/*; do diff -r $$out $$(basename $$out) || { echo "$$d: not what is generated (make generate)"; exit 1; }; done); done

.PHONY: fmt
fmt: ## format the Go files
	gofmt -w .

.PHONY: bench
bench: postgres bench-file bench-projection bench-carrier bench-server ## ratios within one run: appends, loads, the loan example end to end (BENCH='-xes FILE' for a real log)
	$(GO) run ./internal/bench/store $(BENCH)

.PHONY: bench-file
bench-file: ## the file store beside pwrite, fdatasync and sequential reads; 5 GB of disk (FILE='-entries 1000000' for less)
	$(GO) run ./internal/bench/file $(FILE)

.PHONY: bench-projection
bench-projection: postgres ## projections beside a bare loop of the same SQL, workers, latency, idle leases (PROJECTION='-entries 200000' for more)
	$(GO) run ./internal/bench/projection $(PROJECTION)

.PHONY: bench-carrier
bench-carrier: postgres ## a decision through each carrier beside the native call, WebAssembly guests, cold starts (CARRIER='-calls 20000' for more)
	$(GO) run ./internal/bench/carrier $(CARRIER)
	$(GO) test -run '^$$' -bench . -benchmem ./eventstore/wasm
	$(GO) test -run TestColdStart -count 1 -v ./examples/functions
	cd examples/functions/lambda && $(GO) test -run TestFunctionURL -count 1 -v .

.PHONY: bench-server
bench-server: postgres ## the server beside the embedded store and NATS JetStream; how soon a follower has what was acked (SERVER='-duration 5s')
	$(GO) run ./internal/bench/server $(SERVER)

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
museum: postgres guests ## plants known bugs, one at a time, and shows that the suite catches each (MUSEUM='-bug NAME' for some)
	$(GO) run ./internal/museum $(MUSEUM)

.PHONY: soak-log
soak-log: postgres ## the conformance suite with ten times the rounds, wide random histories and long probes (30 minutes)
	WATTLE_SOAK=1 $(GO) test -timeout 60m -count=1 -skip 'TestLinear|TestHammer|TestCut' ./eventstore/memlog ./eventstore/pglog -args -rapid.checks=2000
	WATTLE_SOAK=1 $(GO) test -timeout 60m -count=1 -run 'TestLog|TestRandom' ./eventstore/filelog -args -rapid.checks=2000

.PHONY: soak-linear
soak-linear: postgres ## thousands of concurrent histories checked to be linearizable, with faults; many processes (30 minutes)
	WATTLE_SOAK=1 $(GO) test -v -timeout 60m -count=1 -run 'TestLinear|TestHammer' ./eventstore/memlog ./eventstore/filelog ./eventstore/pglog ./eventstore/remotelog

.PHONY: soak-cut
soak-cut: postgres ## the link cut at every byte of appends, reads and projections, in every way (30 minutes)
	WATTLE_SOAK=1 $(GO) test -v -timeout 60m -count=1 -run 'Cut' ./eventstore/pglog ./eventstore/remotelog ./projector/pgcheckpoint ./internal/workers

.PHONY: soak-cluster
soak-cluster: postgres ## crashes of a whole server under load, ten rounds of each
	WATTLE_SOAK=1 $(GO) test -timeout 30m -count=1 -v ./internal/cluster

.PHONY: soak-workers
soak-workers: postgres ## processes that share the lanes of a projector, killed, frozen, their number of lanes changed (40 minutes)
	WATTLE_SOAK=1 $(GO) test -timeout 90m -count=1 -v -skip 'Cut' ./internal/workers

.PHONY: soak-files
soak-files: postgres ## the file store crashed at every operation, every disk a crash may leave, every bit flipped, kills (30 minutes)
	WATTLE_SOAK=1 $(GO) test -v -timeout 90m -count=1 -skip 'TestLog|TestRandom|TestLinear|TestWasip1' ./eventstore/filelog
	$(GO) test -timeout 30m -count=1 -run 'TestEqual|TestDurable' ./internal/vfs -args -vfs.histories 1500

.PHONY: soak-fuzz
soak-fuzz: guests ## every fuzz target for a minute
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

# The tests build the guests that are not Go and fail without the compilers. This installs them first where it may: AssemblyScript's with npm,
# Rust's as root with apt-get.
GUEST_AS := examples/guest/assemblyscript

.PHONY: guests
guests:
	@if ! [ $(GUEST_AS)/node_modules/.package-lock.json -nt $(GUEST_AS)/package-lock.json ]; then \
	  command -v npm >/dev/null || { echo "The tests need Node.js 20 or newer with npm (https://nodejs.org), for the guest in AssemblyScript." >&2; exit 1; }; \
	  echo "installing AssemblyScript in $(GUEST_AS)"; \
	  npm ci --prefix $(GUEST_AS) --no-audit --no-fund --loglevel=error >/dev/null && touch $(GUEST_AS)/node_modules/.package-lock.json; \
	fi
	@rust() { for r in /usr/bin/rustc rustc; do \
	    d=$$($$r --print target-libdir --target wasm32-unknown-unknown 2>/dev/null) && [ -d "$$d" ] && return 0; done; return 1; }; \
	if rust; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "no rustc for WebAssembly found: installing Debian's"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get -qq update && apt-get -qq install -y --no-install-recommends rustc libstd-rust-dev-wasm32 lld >/dev/null && rust && exit 0; \
	fi; \
	echo "The tests need rustc, 1.63 or newer, with the target wasm32-unknown-unknown, for the guest in Rust. Install it:" >&2; \
	echo "  Debian, Ubuntu:  apt-get install rustc libstd-rust-dev-wasm32 lld      (as root; make test then does it itself)" >&2; \
	echo "  with rustup:     rustup target add wasm32-unknown-unknown" >&2; \
	exit 1
