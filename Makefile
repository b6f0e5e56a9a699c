# Guideway. "make demo" shows it work, "make test" passes the tests; both set up what they need.

GO      ?= go
VERSION ?= 0.1.0
LDFLAGS := -s -w -X main.version=$(VERSION)

.PHONY: build demo test check generate check-generate race fuzz bench bench-peers install clean

build: bin/guideway

# Go decides whether there is anything to do.
.PHONY: bin/guideway
bin/guideway:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/guideway

# A balancer on loopback with three backends, a drain, and then it serves on.
demo: build
	bin/guideway demo

# Everything: installs a real Envoy to compare with and the tools the tests need, then tests.
# Without root, what needs root is skipped by name.
test:
	./.ci/install
	$(GO) vet ./...
	$(GO) test -timeout 20m ./...

# Formatting and vetting alone.
check:
	@test -z "$$(gofmt -l bench bpf cmd controlplane conntrack dataplane deploy docs maglev)" || { gofmt -l bench bpf cmd controlplane conntrack dataplane deploy docs maglev; exit 1; }
	$(GO) vet ./...

# The XDP programs, with Debian's clang-19 (apt-get install clang-19 llvm-19): another compiler makes other objects.
CLANG_VERSION := 19.1.7
generate:
	@clang-19 --version | grep -q 'version $(CLANG_VERSION)' || { echo "make generate: needs Debian's clang-19 $(CLANG_VERSION): apt-get install clang-19 llvm-19"; exit 1; }
	$(GO) generate ./bpf

# Fails when what is committed is not what the sources make.
check-generate: generate
	git diff --exit-code -- bpf

race:
	$(GO) test -race -timeout 40m ./maglev ./conntrack ./dataplane/... ./controlplane/...

# Each fuzz target for FUZZTIME.
FUZZTIME ?= 30s
fuzz:
	./.ci/fuzz $(FUZZTIME)

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./maglev ./conntrack ./dataplane/...

# This proxy beside HAProxy, nginx and Envoy, which are installed first. Takes some minutes; nothing else
# should run.
bench-peers: build
	./.ci/install peers
	bin/guideway bench peers

PREFIX ?= /usr/local
install: build
	install -D -m 755 bin/guideway $(DESTDIR)$(PREFIX)/bin/guideway
	install -D -m 644 deploy/systemd/guideway.service $(DESTDIR)/etc/systemd/system/guideway.service
	install -D -m 644 deploy/examples/tcp.yaml $(DESTDIR)/etc/guideway/envoy.yaml

clean:
	rm -rf bin
