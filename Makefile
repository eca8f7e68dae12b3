# headstart. `make demo` shows what it is for, `make test` proves it; both install what they need (as root, by apt).
# `make test` takes some 25 minutes on two processors, once all is compiled; `make test-all` does more of the same for longer.

JOBS ?= 2
CARGO := cargo
# What is installed stands alone: no library of its own kind to find at boot. See .cargo/config.toml.
# The machine to build for, by its own name or Debian's: make deb ARCH=arm64.
ARCH ?= $(shell uname -m)
MACHINE := $(patsubst arm64,aarch64,$(patsubst amd64,x86_64,$(ARCH)))
DEBIAN := $(patsubst aarch64,arm64,$(patsubst x86_64,amd64,$(MACHINE)))
TRIPLE := $(MACHINE)-unknown-linux-gnu
STATIC := target/$(TRIPLE)/release
BIN := $(STATIC)/headstart
# What it executes for what people call, to move files (docs/decisions/0034-three-programs.md), and to touch a volume (0048-hydrate.md).
PARTS := $(BIN)-inspect $(BIN)-layout $(BIN)-hydrate
# Where crates were fetched to, and from which registry, stays out of the program: of two that match rustc takes the last.
CRATES := $(or $(CARGO_HOME),$(HOME)/.cargo)
REMAPPED = --config "target.$(TRIPLE).rustflags=['--remap-path-prefix=$(CRATES)=/cargo',$(patsubst %,'--remap-path-prefix=%=/cargo'$(COMMA),$(wildcard $(CRATES)/registry/src/*/))]"
COMMA := ,
CROSS := $(filter-out $(shell uname -m),$(MACHINE))
# Found in the order of .cargo/config.toml, a library would be this machine's.
FOR_MACHINE := $(if $(CROSS),LIBBPF_SYS_LIBRARY_PATH=/usr/lib/$(MACHINE)-linux-gnu)
export ARCH
LAB := target/release/headstart-lab

.PHONY: all deps deps-cross deps-build deps-test deps-kernels deps-packages deps-live deps-arm64 crates crates-md build build-lab build-static order build-dynamic check lint man install-files deb rpm test-packages test-packages-vm test-packages-kills test-image test-live test-golden test-layout test-arm64 test-reproducible test test-all test-kernels \
	deps-dynamic deps-consumers test-consumers fleet test-fleet bench-fleet deps-fleet test-debian13 test-dynamic test-cases test-storm test-silent-server fuzz fuzz-structured demo bench measure install clean

all: build

# ---- what is needed -------------------------------------------------------------------------------------------------
APT := DEBIAN_FRONTEND=noninteractive apt-get
# COMMAND:PACKAGE is installed where there is no such command: on Debian 12 rustup brings Rust's.
BUILD_PACKAGES := clang llvm gcc libc6-dev make pkg-config libelf-dev zlib1g-dev git ca-certificates cargo:cargo rustc:rustc
DYNAMIC_PACKAGES := libbpf-dev libzstd-dev
TEST_PACKAGES := e2fsprogs xfsprogs btrfs-progs squashfs-tools squashfs-tools-ng xorriso erofs-utils casync mount util-linux attr python3 mandoc fio \
	fuse3 mmdebstrap systemd-container libcap2-bin procps shellcheck g++ chromium strace \
	cargo-fmt:rustfmt cargo-clippy:rust-clippy
PACKAGE_PACKAGES := debhelper dpkg-dev lintian rpm rpmlint python3
# A live medium's: what makes it, and what makes its file systems.
LIVE_PACKAGES := live-build qemu-system-x86 squashfs-tools erofs-utils xorriso
KERNEL_PACKAGES := qemu-system-x86 qemu-utils ovmf mtools fdisk busybox-static cpio jq kmod xz-utils

# Go fetches the version that tests/consumers/go/go.mod names by itself, from 1.21 on.
CONSUMER_PACKAGES := go:golang-go

ARM64_PACKAGES := qemu-system-arm qemu-efi-aarch64 qemu-user-static binfmt-support arch-test

deps: deps-build deps-test

deps-fleet:
	@packaging/debian-deps python3 python3-venv

deps-build deps-dynamic deps-test deps-kernels deps-packages deps-live deps-arm64 deps-consumers:
	@packaging/debian-deps $(if $(filter deps-dynamic,$@),$(DYNAMIC_PACKAGES))$(if $(filter deps-live,$@),$(LIVE_PACKAGES))$(if $(filter deps-arm64,$@),$(ARM64_PACKAGES))$(if $(filter deps-consumers,$@),$(CONSUMER_PACKAGES))$(if $(filter deps-packages,$@),$(PACKAGE_PACKAGES))$(if $(filter deps-build,$@),$(BUILD_PACKAGES))$(if $(filter deps-test,$@),$(TEST_PACKAGES))$(if $(filter deps-kernels,$@),$(KERNEL_PACKAGES))

# What building for the other machine takes. Debian's Rust has its library in a package, rustup's fetches its own.
deps-cross: deps-build
	@packaging/debian-deps gcc-$(MACHINE)-linux-gnu libelf-dev:$(DEBIAN) zlib1g-dev:$(DEBIAN)
	@[ -d "$$(rustc --print target-libdir --target $(TRIPLE))" ] || { \
		if command -v rustup >/dev/null; then rustup target add $(TRIPLE); else packaging/debian-deps libstd-rust-dev:$(DEBIAN); fi; }

# ---- building -------------------------------------------------------------------------------------------------------
build: build-lab build-static

build-lab: deps-build
	$(CARGO) build -j$(JOBS) --release --locked -p headstart-lab

# Fetched and unpacked, so that REMAPPED finds them. What is missing, and needed, the build itself tells.
crates: deps-build
	$(CARGO) fetch --quiet --locked --target $(TRIPLE) || true

# The same programs with libbpf, libelf, zlib and libzstd of the machine, as distributions build them: libbpf 1.4 or later, as Debian 13 has.
# headstart-init links none of these, and is static in any case.
DYNAMIC := target/dynamic/release
build-dynamic: crates deps-dynamic
	$(CARGO) build -j$(JOBS) --release --locked --target-dir target/dynamic -p headstart --no-default-features --features system-libs $(DYNAMIC_OPTIONS)

# What is shipped. STATIC_OPTIONS are further options of cargo, which override those of .cargo/config.toml.
# Cargo says where it made headstart-init, the program that is in it, and headstart-hydrate.
build-static: crates $(if $(CROSS),deps-cross)
	mkdir -p target/$(TRIPLE)
	$(FOR_MACHINE) $(CARGO) static -j$(JOBS) --locked --target $(TRIPLE) -p headstart $(REMAPPED) $(STATIC_OPTIONS) \
		--message-format=json-render-diagnostics >$(STATIC).messages || { rm -f $(STATIC).messages; exit 1; }
	init=$$(sed -n 's|.*headstart-boot.*"out_dir":"\([^"]*\)".*|\1/headstart-init|p' $(STATIC).messages) && cp "$$init" "$$(dirname "$$init")/headstart-hydrate" $(STATIC)/

# The order of the functions of the program that starts read, anew (docs/decisions/0018-own-time.md): after changes of what a start needs before its replay.
# It makes the lab's image of Python, if that is not there.
ORDERED := --target-dir target/order --config 'target.$(TRIPLE).rustflags=["-Clink-arg=-Wl,-Map=$(CURDIR)/target/order/map"]' \
	--config 'profile.release.strip="none"' --config 'profile.release.package.headstart.strip="none"'
order: build-static
	mkdir -p target/order
	$(CARGO) static -j$(JOBS) --locked --target $(TRIPLE) -p headstart --bin headstart $(REMAPPED) $(ORDERED)
	cp $(PARTS) target/order/$(TRIPLE)/release/
	$(CARGO) build -q -j$(JOBS) --release --locked -p headstart-system --example used
	HEADSTART_BIN=target/order/$(TRIPLE)/release/headstart $(CARGO) run -q --release --locked -p headstart-acceptance --example order -- \
		$(CURDIR)/target/release/examples/used target/order/map >target/order/order.ld
	cp target/order/order.ld crates/headstart/order.ld

# What is installed beside the program is made of the program's own definitions, by an example of its crate. Where all tests are compiled
# anyway, SELECTED=--workspace takes what they were compiled from: of the one crate its libraries would have other features, and be others.
SELECTED ?= -p headstart
man: deps-build
	$(CARGO) build -q -j$(JOBS) --locked $(SELECTED) --example generate
	target/debug/examples/generate target/generated
	cp docs/man/*.[58] target/generated/man/

install: build-static man install-files

# What is built already, below DESTDIR.
install-files:
	install -D -m 755 $(BIN) $(DESTDIR)/usr/bin/headstart
	install -D -m 755 $(STATIC)/headstart-init $(DESTDIR)/usr/sbin/headstart-init
	install -D -m 755 -t $(DESTDIR)/usr/libexec/headstart $(PARTS)
	install -d $(DESTDIR)/usr/share/man/man1 $(DESTDIR)/usr/share/man/man5 $(DESTDIR)/usr/share/man/man8
	install -m 644 target/generated/man/*.1 $(DESTDIR)/usr/share/man/man1/
	install -m 644 target/generated/man/*.5 $(DESTDIR)/usr/share/man/man5/
	install -m 644 target/generated/man/*.8 $(DESTDIR)/usr/share/man/man8/
	install -D -m 644 -t $(DESTDIR)/usr/lib/systemd/system target/generated/systemd/*.service target/generated/systemd/*.socket
	install -D -m 644 packaging/systemd/50-headstart.preset $(DESTDIR)/usr/lib/systemd/system-preset/50-headstart.preset
	install -D -m 755 packaging/initramfs-tools/scripts/local-bottom/headstart \
		$(DESTDIR)/usr/share/initramfs-tools/scripts/local-bottom/headstart
	install -D -m 755 packaging/initramfs-tools/scripts/local-bottom/headstart \
		$(DESTDIR)/usr/share/initramfs-tools/scripts/live-bottom/headstart
	install -D -m 755 packaging/initramfs-tools/hooks/headstart $(DESTDIR)/usr/share/initramfs-tools/hooks/headstart
	install -D -m 755 packaging/initramfs-tools/scripts/local-premount/headstart \
		$(DESTDIR)/usr/share/initramfs-tools/scripts/local-premount/headstart
	install -D -m 755 packaging/initramfs-tools/scripts/local-premount/headstart $(DESTDIR)/usr/lib/dracut/modules.d/90headstart/hydrate.sh
	install -D -m 755 packaging/dracut/90headstart/module-setup.sh $(DESTDIR)/usr/lib/dracut/modules.d/90headstart/module-setup.sh
	install -D -m 755 packaging/dracut/90headstart/headstart.sh $(DESTDIR)/usr/lib/dracut/modules.d/90headstart/headstart.sh
	install -D -m 644 target/generated/completions/headstart.bash $(DESTDIR)/usr/share/bash-completion/completions/headstart
	install -D -m 644 target/generated/completions/_headstart $(DESTDIR)/usr/share/zsh/vendor-completions/_headstart
	install -D -m 644 target/generated/completions/headstart.fish $(DESTDIR)/usr/share/fish/vendor_completions.d/headstart.fish
	install -D -m 755 packaging/examples/golden-image $(DESTDIR)/usr/share/doc/headstart/examples/golden-image
	cp -r packaging/examples/live packaging/examples/profiles $(DESTDIR)/usr/share/doc/headstart/examples/
	install -D -m 644 -t $(DESTDIR)/usr/share/doc/headstart docs/charts.md docs/cases.md docs/measurements.md docs/never-slower.md docs/sandboxing.md
	install -D -m 644 -t $(DESTDIR)/usr/share/doc/headstart/guide docs/guide/*.md
	install -D -m 644 -t $(DESTDIR)/usr/share/doc/headstart/measurements $(filter-out %.in.md,$(wildcard docs/measurements/*.md))
	packaging/doc-links $(DESTDIR)/usr/share/doc/headstart
	[ -e $(DESTDIR)/etc/headstart/headstart.toml ] || \
		install -D -m 644 packaging/headstart.toml $(DESTDIR)/etc/headstart/headstart.toml

# Which of the crates Debian has not: from an index of its packages, as apt keeps it on Debian 13.
crates-md:
	packaging/crates $(or $(PACKAGES),$(firstword $(wildcard /var/lib/apt/lists/*trixie_main_binary-amd64_Packages))) >packaging/debian/crates.md

# ---- packages -------------------------------------------------------------------------------------------------------
# target/deb/headstart_VERSION_ARCH.deb, for another machine with ARCH=arm64 (or amd64), and target/rpm/headstart-VERSION-1.ARCH.rpm.
# VERSION is for tests of upgrades.
deb: deps-packages build-static man
	packaging/licences target/generated/copyright target/generated/THIRD-PARTY
	packaging/deb $(VERSION)

rpm: deps-packages build-static man
	packaging/licences target/generated/copyright target/generated/THIRD-PARTY
	packaging/rpm

# What lintian and rpm's own tools say of the packages, whether a second packing gives the same bits, and what the .deb does and leaves
# in minimal Debians, the SUITES, and the .rpm in one.
SUITES ?= bookworm trixie
test-packages: deps-test deb rpm
	packaging/check
	tests/packages/rpm
	tests/packages/run $(SUITES)

# Whether another build of the same sources, in another directory, gives the same packages, bit by bit.
# TWICE=programs is quicker: only the programs are built again.
TWICE ?= packages
test-reproducible: deps-packages deb rpm
	tests/packages/twice $(TWICE)

# What the .deb does in virtual machines, some quarter of an hour each: MACHINES is a list, see tests/packages/disk. So not in test-all.
MACHINES ?= bookworm trixie bookworm+guarded+var trixie+guarded+var bookworm+luks trixie+luks bookworm+dracut trixie+dracut+systemd-boot
test-packages-vm: deps-test deps-kernels deb
	tests/packages/vm $(MACHINES)

# dpkg killed so often on a machine of each Debian, and as often at work on a full disk, half a minute to a minute each: it boots, and is mended.
KILLS ?= 50
FULL ?= 8
test-packages-kills: deps-test deps-kernels deps-packages deb
	KILLS=$(KILLS) FULL=$(FULL) tests/packages/kills

# The recipe for image builders: what it makes is read ahead at the first boot of another machine.
test-image: deps-test deps-packages deb
	tests/packages/image

# A live system by packaging/examples/live, booted in virtual machines: FILESYSTEMS is a list. Half an hour each where processors are emulated.
FILESYSTEMS ?= squashfs erofs
test-live: deps-live deb
	for filesystem in $(FILESYSTEMS); do tests/packages/live $$filesystem || exit; done

# How much of what the third boot of a machine gains the first boot of a captured image does, on a lazily filled and a cloud volume, ROUNDS times.
ROUNDS ?= 5
test-golden: deps-test build-static
	HEADSTART_BIN=$(abspath $(BIN)) $(CARGO) run -j$(JOBS) --release --locked -p headstart-acceptance --example golden -- $(ROUNDS)

# Whether moving files harms one, at length: WHAT is a list. COUNT says how many cases of the matrix, kills or power cuts, or how many seconds of the
# others: all cases, 300 kills, 100 cuts, 60 seconds without it.
WHAT ?= matrix swaps beside kills cuts
test-layout: deps-test build-static
	for what in $(WHAT); do HEADSTART_BIN=$(abspath $(BIN)) $(CARGO) run -j$(JOBS) --release --locked -p headstart-acceptance --example layout -- $$what $(COUNT) || exit; done

test-arm64: deps-test deps-kernels deps-arm64
	$(MAKE) deb ARCH=arm64
	tests/packages/vm trixie+arm64

# ---- proving --------------------------------------------------------------------------------------------------------
# A test that cannot be made here, for want of root or of a kernel feature, fails and names what is missing;
# HEADSTART_TESTS_SKIP=1 leaves such tests out.

# Before every commit: form, lints (of the fuzzers too, which are a workspace of their own), and all tests but those that need the static binary, boot kernels or fuzz.
check: lint
	$(CARGO) test -j$(JOBS) --locked --workspace --exclude headstart-acceptance

# The lints are those of a current clippy: Debian 13's (1.85) warns of what later ones have dropped or mended, and no more is asked of it.
DENY = $(shell $(CARGO) --version | awk '{ split($$2, version, "."); if (version[2] > 85) print "-D warnings" }')
lint: deps-build deps-test
	$(CARGO) fmt --check
	$(CARGO) fmt --check --manifest-path fuzz/Cargo.toml
	$(CARGO) fmt --check --manifest-path tests/consumers/Cargo.toml
	rustfmt --check --edition 2024 crates/boot/init/main.rs crates/boot/hydrate/main.rs
	$(CARGO) clippy -j$(JOBS) --locked --workspace --all-targets -- $(DENY)
	$(CARGO) clippy -j$(JOBS) --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz --all-targets -- $(DENY)
	@! grep -rnE '&& let ' --include=*.rs crates lab tests fuzz/src fuzz/targets || \
		{ echo "lint: Debian 13's Rust 1.85, which is to build this, has no let chains" >&2; exit 1; }
	shellcheck -x .ci/run fuzz/run lab/bench lab/live lab/measure lab/over-read packaging/check packaging/deb packaging/debian-deps packaging/examples/golden-image packaging/examples/live/build \
		packaging/rpm tests/acceptance/run tests/cases/run tests/consumers/run tests/debian13/run tests/debian13/inside tests/first-program/run tests/first-program/guest tests/kernels/run tests/kernels/over-read tests/kernels/remote \
		tests/packages/*
	@for script in $$(find .ci fuzz lab packaging tests -name target -prune -o -type f -print); do \
		head -n 1 "$$script" | grep -qax '#!/bin/sh' || continue; dash -n "$$script" || exit 1; done
	shellcheck -s sh packaging/debian/headstart.p* packaging/debian/tests/first-steps
	shellcheck -e SC2154 -e SC1091 packaging/initramfs-tools/hooks/headstart packaging/initramfs-tools/scripts/*/headstart packaging/dracut/90headstart/*.sh
	mandoc -T lint -W warning docs/man/*.[58]

test: check build-static
	HEADSTART_BIN=$(abspath $(BIN)) tests/acceptance/run

# What takes longer too: 200 kills, thirty starts, six minutes of each fuzzer, all kernels, another build of the packages, and the tests on Debian 13.
test-all: export HEADSTART_TESTS_LONG = 1
test-all: test test-kernels test-packages test-image test-reproducible test-consumers test-fleet
	HEADSTART_BIN=$(abspath $(BIN)) tests/acceptance/run --ignored
	$(CARGO) test -j$(JOBS) --locked -p headstart-inspect --test report -- --ignored
	$(CARGO) test -j$(JOBS) --locked -p headstart --test early -- --ignored
	HEADSTART=$(abspath $(BIN)) tests/cases/run 6.1 6.12
	$(MAKE) test-silent-server
	fuzz/run 360
	tests/debian13/run
	tests/debian13/run make lint
	$(MAKE) test-dynamic
	tests/debian13/run cargo test -j$(JOBS) --locked --workspace --no-run

# The program of fleet/, installed as a user installs it, and its tests.
FLEET := target/fleet/bin
fleet: deps-fleet
	python3 -m venv target/fleet
	$(FLEET)/pip install -q --disable-pip-version-check ./fleet[test]

test-fleet: fleet
	cd fleet && ../$(FLEET)/pytest

# What merging MACHINES_OF_FLEET machines takes, on a machine that does nothing else; fleet/SCALE.md has the figures. Some 3 GB of disk.
MACHINES_OF_FLEET ?= 10000
bench-fleet: test-fleet
	$(FLEET)/python fleet/bench/scale.py $(MACHINES_OF_FLEET) target/fleet/bench

# The lists of `headstart export --for`, read by the code of the programs that they are for, which Go and cargo fetch.
test-consumers: build-static deps-consumers
	HEADSTART_BIN=$(abspath $(BIN)) tests/consumers/run

# What public reports about tools like this one describe (docs/cases.md): tried on this machine, and in virtual machines with Debian's KERNEL.
# CASES are names of tests/cases/vm; all without.
test-cases: build-static deps-test deps-kernels deb
	$(CARGO) test -j$(JOBS) --locked -p headstart --test cases
	HEADSTART=$(abspath $(BIN)) tests/cases/run $(or $(KERNEL),6.1 6.12) $(CASES)

# Hostile and odd starts, drawn at random, for SECONDS; SEED does the same again.
test-storm: build-static deps-test
	python3 tests/cases/storm --seconds $(or $(SECONDS),3600) $(if $(SEED),--seed $(SEED)) --program $(BIN)

# A server that falls silent amid starts, ROUNDS times in each phase of one.
test-silent-server: build-static deps-test
	python3 tests/silent-server $(BIN) $(if $(ROUNDS),--rounds $(ROUNDS))

test-kernels: build-static deps-kernels
	HEADSTART=$(abspath $(BIN)) tests/kernels/run $(KERNEL)
	HEADSTART=$(abspath $(BIN)) tests/kernels/remote

# Debian 13 is the one whose own Rust serves: the static binary and the dynamic one are built in a minimal root of it, with its packages, and run there.
# ONLY is one of static and dynamic.
test-debian13: deps-build deps-test
	tests/debian13/run tests/debian13/inside $(ONLY)

# The acceptance tests, in the same Debian, of the programs that link its libraries.
test-dynamic: deps-build deps-test
	tests/debian13/run sh -c 'make -s build-dynamic && HEADSTART_BIN=$$PWD/$(DYNAMIC)/headstart tests/acceptance/run'

FUZZ_EACH ?= 60
fuzz: deps-build deps-test
	fuzz/run $(FUZZ_EACH)

# Files that say anything, with their checksums right: nothing that is done with one takes more than 64 MiB or a second.
FUZZ_SECONDS ?= 600
fuzz-structured: deps-build deps-test
	fuzz/run $(FUZZ_SECONDS) structured

# ---- showing --------------------------------------------------------------------------------------------------------
DEMO ?= libreoffice
demo: deps-test build
	$(LAB) demo --workload $(DEMO) --headstart $(BIN)

# A program cold, with headstart, and warm, on a machine that does nothing else: `headstart-lab bench --help` has what else it compares.
bench: deps-test build
	$(LAB) bench --headstart $(BIN)

# The figures of docs/measurements.md, of the pages behind it and of the README, on a machine that does nothing else: all, which takes a day, or
# PARTS (lab/measure). EARLIER names an earlier binary to measure in the same rounds, EARLIER_COMMIT what it was built from.
measure: deps-test build
	lab/measure $(BIN) $(EARLIER) $(EARLIER_COMMIT)

clean:
	-test ! -x $(LAB) || $(LAB) clean
	$(CARGO) clean
