#!/usr/bin/env bash
# Installs what this machine lacks to build, run and test Sluice: Debian 12 and 13, Ubuntu 24.04.
#
#   scripts/setup.sh            what `cargo run --release -- demo` needs: a linker and QEMU
#   scripts/setup.sh --tests    also what `cargo test` needs: firmware, GRUB, network tools, valgrind; and, unpacked into
#                               the cache, a QEMU that takes cards and a Linux guest (scripts/setup-cards.sh)
#   scripts/setup.sh --peers    also, unpacked into the cache, what `bench vm` and `bench native` measure with `--peers`: a Linux
#                               guest, and DPDK's testpmd (scripts/setup-peers.sh)
#   scripts/setup.sh --lint     also cargo-deny, built into ${SLUICE_CACHE:-~/.cache/sluice}
#
# Only what is missing is installed, as root or through sudo, and printed first. A machine that has everything is
# left alone: nothing is downloaded, and the script ends at once.
set -euo pipefail

readonly RUST_MINIMUM=1.95
readonly CARGO_DENY_VERSION=0.20.2
readonly CACHE=${SLUICE_CACHE:-$HOME/.cache/sluice}

# What is needed: the command or the file that shows it is there, and the package that brings it. The names are the
# same in Debian 12, Debian 13 and Ubuntu 24.04. What counts is the command, not the package, so that a QEMU built by
# hand or a toolchain from elsewhere is used as it is.
readonly FOR_DEMO="
cc                                        gcc
objcopy                                   binutils
/usr/lib/x86_64-linux-gnu/crt1.o          libc6-dev
qemu-system-x86_64                        qemu-system-x86
/etc/ssl/certs/ca-certificates.crt        ca-certificates
"
readonly FOR_TESTS="
/usr/share/OVMF/OVMF_CODE_4M.fd          ovmf
grub-mkrescue                             grub-common
/usr/lib/grub/i386-pc/multiboot2.mod      grub-pc-bin
/usr/lib/grub/x86_64-efi/multiboot2.mod   grub-efi-amd64-bin
xorriso                                   xorriso
mformat                                   mtools
ip                                        iproute2
ping                                      iputils-ping
iperf3                                    iperf3
curl                                      curl
python3                                   python3
/usr/share/keyrings/debian-archive-keyring.gpg  debian-archive-keyring
valgrind                                  valgrind
"
readonly FOR_PEERS="
/usr/share/keyrings/debian-archive-keyring.gpg  debian-archive-keyring
"
readonly FOR_LINT="
git                                       git
"

main() {
    local needs=$FOR_DEMO lint='' tests='' peers=''
    for option in "$@"; do
        case $option in
            --tests) needs+=$FOR_TESTS tests=yes ;;
            --peers) needs+=$FOR_PEERS peers=yes ;;
            --lint) needs+=$FOR_LINT lint=yes ;;
            -h | --help) usage; exit 0 ;;
            *) usage >&2; fail "unknown option $option" ;;
        esac
    done

    # Commands such as `ip` live in /usr/sbin, which is not on every user's PATH.
    PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
    install_missing_packages "$needs"
    check_rust
    if [[ $tests ]]; then
        "$(dirname "${BASH_SOURCE[0]}")/setup-cards.sh"
    fi
    if [[ $peers ]]; then
        "$(dirname "${BASH_SOURCE[0]}")/setup-peers.sh"
    fi
    if [[ $lint ]]; then
        install_cargo_deny
    fi
    say "everything is there"
}

say() { echo "setup: $*"; }
fail() { echo "setup: error: $*" >&2; exit 1; }
usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

# ---------------------------------------------------------------------------------------------- Debian packages

install_missing_packages() {
    local packages
    packages=$(missing_packages "$1")
    [[ $packages ]] || return 0

    # shellcheck disable=SC2086 # one word a package
    say "installing" $packages
    command -v apt-get >/dev/null || fail "there is no apt-get here; install by hand what these packages bring"
    retry as_root apt-get "${APT_OPTIONS[@]}" update ||
        say "the package lists could not be renewed; trying with the old ones"
    local suite
    suite=$(suite_of_installed_qemu)
    if [[ $suite && " $packages " == *" qemu-system-x86 "* ]]; then
        apt_install --target-release "$suite" qemu-system-x86
    fi
    # shellcheck disable=SC2086
    apt_install $packages

    packages=$(missing_packages "$1")
    [[ ! $packages ]] || fail "installed, but not found where expected: $packages"
}

readonly APT_OPTIONS=(--quiet --option Acquire::Retries=3 --option DPkg::Lock::Timeout=300)

# The packages of those needs ($1: lines of probe and package) whose probe finds nothing.
missing_packages() {
    local probe package
    while read -r probe package; do
        case $probe in
            "") ;;
            /*) [[ -e $probe ]] || echo "$package" ;;
            *) command -v "$probe" >/dev/null || echo "$package" ;;
        esac
    done <<<"$1" | xargs
}

# Where parts of QEMU came from another suite than the default (backports, say), the emulator and what it depends on
# have to come from there as well, or apt finds no solution.
suite_of_installed_qemu() {
    local version
    version=$(dpkg-query --show --showformat='${db:Status-Status} ${Version}\n' \
        qemu-system-common qemu-system-data qemu-utils 2>/dev/null | sed -n 's/^installed //p' | head -n 1) || true
    [[ $version ]] || return 0
    # A line reads: package | version | http://mirror suite/component architecture Packages
    apt-cache madison qemu-system-x86 |
        awk -v version="$version" '$3 == version { sub("/.*", "", $6); print $6; exit }'
}

apt_install() {
    retry as_root apt-get "${APT_OPTIONS[@]}" install --yes --no-install-recommends "$@" ||
        fail "apt-get could not install: $*"
}

as_root() {
    if [[ $(id -u) == 0 ]]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    elif command -v sudo >/dev/null; then
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    else
        fail "packages are missing, and only root can install them: run this as root, or install sudo"
    fi
}

# Mirrors fail now and then: three tries, a little apart.
retry() {
    local try
    for try in 1 2 3; do
        "$@" && return 0
        say "try $try of 3 failed: $*"
        [[ $try == 3 ]] || sleep $((try * 5))
    done
    return 1
}

# ------------------------------------------------------------------------------------------------ Rust and its tools

check_rust() {
    local advice="Rust $RUST_MINIMUM or later is needed, and the distribution's own is older. Get it with rustup"
    advice+=" (https://rustup.rs; in Debian 13 and Ubuntu 24.04 also 'apt-get install rustup'),"
    advice+=" then run 'rustup default stable'"
    if ! command -v cargo >/dev/null; then
        [[ ! -x $HOME/.cargo/bin/cargo ]] ||
            fail "cargo is installed but not on the PATH: run '. ~/.cargo/env', then start this again"
        fail "there is no cargo. $advice"
    fi
    local version
    version=$(cargo --version | cut -d ' ' -f 2) || fail "cargo does not run. $advice"
    at_least "$version" $RUST_MINIMUM || fail "cargo is $version. $advice"
}

# Whether version $1 is $2 or later.
at_least() { [[ $(printf '%s\n' "$1" "$2" | sort --version-sort | head -n 1) == "$2" ]]; }

# Kept outside the checkout, so that a fresh clone finds it. Unoptimised: it runs for a second and builds for minutes.
install_cargo_deny() {
    local have
    have=$("$CACHE/bin/cargo-deny" --version 2>/dev/null) || true
    [[ $have != "cargo-deny $CARGO_DENY_VERSION" ]] || return 0
    say "building cargo-deny $CARGO_DENY_VERSION into $CACHE"
    retry cargo install --quiet --locked --debug --root "$CACHE" --version "=$CARGO_DENY_VERSION" cargo-deny ||
        fail "cargo-deny could not be built"
}

main "$@"
