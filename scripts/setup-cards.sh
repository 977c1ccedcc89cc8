#!/usr/bin/env bash
# Fetches what the tests of the ixgbe driver need, and leaves the system as it is: nothing is installed.
#
#   qemu/    a QEMU that can plug in a card from another process (vfio-user-pci: QEMU 10.1 and later); absent where the
#            system's own QEMU can
#   guest/   a Linux guest with Debian's kernel and its ixgbe, iperf3, ethtool and DPDK's testpmd: drivers that others
#            wrote, which judge the model of the card
#
# Both come from Debian's archive (also on Ubuntu, whose own QEMU is too old), checked with Debian's keys, unpacked into
# ${SLUICE_CACHE:-~/.cache/sluice}, and made again when they are absent or when this script has changed.
set -euo pipefail

readonly CACHE=${SLUICE_CACHE:-$HOME/.cache/sluice}
readonly RELEASE=trixie
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
# Debian's libraries, and the loader that finds them wherever they lie.
readonly LIBRARIES=usr/lib/x86_64-linux-gnu
readonly LOADER=usr/lib64/ld-linux-x86-64.so.2

# What goes into the guest: packages, the programs of them, and kernel modules with those that they need.
readonly GUEST_PACKAGES="linux-image-amd64 busybox-static iperf3 ethtool dpdk-dev"
readonly GUEST_PROGRAMS="usr/bin/iperf3 usr/sbin/ethtool"
readonly GUEST_MODULES="ixgbe ixgbevf 8021q uio_pci_generic"

main() {
    trap 'rm -rf "${scratch:-}"' EXIT
    if ! takes_cards qemu-system-x86_64; then
        make_once qemu "QEMU 10.1 or later"
    fi
    make_once guest "the Linux guest"
}

say() { echo "setup: $*"; }
fail() { echo "setup: error: $*" >&2; exit 1; }

# Whether this QEMU has the device. It lists the options of one that it has, and ends without failure in any case.
takes_cards() {
    "$1" -nodefaults -display none -device vfio-user-pci,help 2>/dev/null | grep -q socket
}

# Makes $CACHE/$1 by the function make_$1, unless it is there as this script makes it. It appears whole or not at all.
make_once() {
    local recipe
    recipe=$(sha256sum <"${BASH_SOURCE[0]}")
    [[ $(cat "$CACHE/$1/recipe" 2>/dev/null) != "$recipe" ]] || return 0
    say "making $2 in $CACHE/$1 from Debian's packages"
    mkdir -p "$CACHE"
    scratch=$(mktemp -d "$CACHE/making-$1.XXXXXX")
    mkdir "$scratch/result"
    "make_$1"
    echo "$recipe" >"$scratch/result/recipe"
    rm -rf "${CACHE:?}/$1"
    mv "$scratch/result" "$CACHE/$1"
    rm -rf "$scratch"
}

# ------------------------------------------------------------------------------------------------------------- QEMU

make_qemu() {
    unpack "$scratch/result" --target-release "$RELEASE-backports" qemu-system-x86
    cat >"$scratch/result/qemu-system-x86_64" <<'END'
#!/bin/sh
# QEMU with the libraries that were unpacked beside it.
here=$(dirname "$(readlink -f "$0")")
exec "$here/usr/lib64/ld-linux-x86-64.so.2" --library-path "$here/usr/lib/x86_64-linux-gnu" \
    --argv0 qemu-system-x86_64 "$here/usr/bin/qemu-system-x86_64" -L "$here/usr/share/qemu" -L "$here/usr/share/seabios" "$@"
END
    chmod +x "$scratch/result/qemu-system-x86_64"
    takes_cards "$scratch/result/qemu-system-x86_64" ||
        fail "the QEMU of $RELEASE-backports has no vfio-user-pci"
}

# ---------------------------------------------------------------------------------------------------- the Linux guest

make_guest() {
    local root=$scratch/root tree=$scratch/tree
    # shellcheck disable=SC2086 # one word a package
    unpack "$root" $GUEST_PACKAGES
    cp "$root"/boot/vmlinuz-* "$scratch/result/vmlinuz"

    make_tree "$root" "$tree"
    # shellcheck disable=SC2086 # one word a module
    add_modules "$root" "$tree" $GUEST_MODULES
    # shellcheck disable=SC2086 # one word a file
    add_programs "$root" "$tree" $GUEST_PROGRAMS
    pack "$tree" >"$scratch/result/linux.initrd"
    # testpmd links to the driver of the card; the pools of its buffers, and what ends a thread, are
    # looked for when it runs.
    add_programs "$root" "$tree" usr/bin/dpdk-testpmd "$LIBRARIES"/{librte_mempool_ring.so,libgcc_s.so.1}
    pack "$tree" >"$scratch/result/dpdk.initrd"
}

# The least that Linux starts from: busybox, and an init that does what it is told on the serial console.
make_tree() {
    local root=$1 tree=$2
    mkdir -p "$tree"/{bin,dev,etc,proc,run,sys,tmp,var/run,usr/bin,usr/sbin,usr/lib64,"$LIBRARIES"}
    ln -s usr/lib usr/lib64 "$tree"
    cp "$root/usr/bin/busybox" "$tree/bin/busybox"
    cp "$root/$LOADER" "$tree/$LOADER"
    cat >"$tree/init" <<'END'
#!/bin/busybox sh
# Carries out each line of the serial console, and prints `status N` behind what it printed.
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/usr/sbin HOME=/tmp
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mount -t tmpfs none /run
stty -F /dev/ttyS0 -echo
echo "guest ready"
while read -r line; do eval "$line" </dev/null 2>&1; echo "status $?"; done </dev/ttyS0
END
    chmod +x "$tree/init"
}

# The modules by name with those that they need, and the index that modprobe finds them by.
add_modules() {
    local root=$1 tree=$2 version
    version=$(ls "$root/usr/lib/modules")
    mkdir -p "$tree/usr/lib/modules/$version"
    add_modules_to "$root" "$tree/usr/lib/modules/$version" "${@:3}"
    "$tree/bin/busybox" depmod -b "$tree" "$version"
}

add_modules_to() {
    local root=$1 folder=$2 name file
    for name in "${@:3}"; do
        [[ ! -e $folder/$name.ko ]] || continue
        file=$(find "$root/usr/lib/modules" -name "${name//_/[_-]}.ko.xz")
        [[ -f $file ]] || fail "the kernel has no module $name"
        "$root/usr/bin/busybox" xz -dc "$file" >"$folder/$name.ko"
        # shellcheck disable=SC2046 # one word a module
        add_modules_to "$root" "$folder" $(needs_of "$folder/$name.ko")
    done
}

# The modules that a module needs, as its section .modinfo tells.
needs_of() {
    tr '\0' '\n' <"$1" | sed -n 's/^depends=//p' | tr ',' ' '
}

# The programs, and the libraries that they link to.
add_programs() {
    local root=$1 tree=$2 file
    for file in "${@:3}"; do
        mkdir -p "$tree/$(dirname "$file")"
        cp -L "$root/$file" "$tree/$file"
        "$root/$LOADER" --library-path "$root/$LIBRARIES" --list "$root/$file" | sed -n 's/.* => \([^ ]*\) .*/\1/p'
    done | sort -u | xargs cp -L --target-directory "$tree/$LIBRARIES"
}

# An archive as Linux unpacks it at its start; uncompressed, because an emulated processor takes long to decompress.
pack() {
    (cd "$1" && find . | "$1/bin/busybox" cpio -o -H newc 2>/dev/null)
}

# ------------------------------------------------------------------------------------------------- Debian's packages

# Unpacks packages of Debian with all that they depend on into $1; the other words are for `apt-get install`.
unpack() {
    local into=$1 apt=$scratch/apt package
    shift
    mkdir -p "$into" "$apt"/{lists/partial,archives/partial}
    command -v apt-get >/dev/null || fail "there is no apt-get here, and only with it can Debian's packages be fetched"
    [[ -e $KEYRING ]] || fail "$KEYRING is missing (package debian-archive-keyring)"
    # As if nothing were installed, so that every library comes along.
    : >"$apt/status"
    for suite in $RELEASE $RELEASE-updates $RELEASE-backports; do
        echo "deb [arch=amd64 signed-by=$KEYRING] $(mirror) $suite main"
    done >"$apt/sources.list"

    say "fetching $*"
    private_apt update
    private_apt install --yes --no-install-recommends --download-only "$@"
    for package in "$apt"/archives/*.deb; do
        dpkg-deb --extract "$package" "$into"
    done
    rm -r "$apt/archives"
}

# apt-get with lists, a cache and a state of its own.
private_apt() {
    local apt=$scratch/apt
    local -a options=(
        --quiet=2 -o Acquire::Retries=3 -o Acquire::Languages=none -o APT::Architecture=amd64 -o APT::Sandbox::User=
        -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=- -o Dir::Etc::Preferences=- -o Dir::Etc::PreferencesParts=-
        -o Dir::State="$apt" -o Dir::State::Lists="$apt/lists" -o Dir::State::Status="$apt/status"
        -o Dir::Cache="$apt" -o Dir::Cache::Archives="$apt/archives" -o Debug::NoLocking=1
    )
    apt-get "${options[@]}" "$@" >"$scratch/apt.log" 2>&1 || { cat "$scratch/apt.log" >&2; fail "apt-get $* failed"; }
}

# The mirror of Debian that this machine uses; elsewhere the one that everybody can reach.
mirror() {
    local own
    own=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 2>/dev/null | head -n 1) || true
    echo "${own:-http://deb.debian.org/debian}"
}

main "$@"
