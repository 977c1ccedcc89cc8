#!/usr/bin/env bash
# Fetches what the tests of the ixgbe driver need, and leaves the system as it is: nothing is installed.
#
#   qemu/    a QEMU that can plug in a card from another process (vfio-user-pci: QEMU 10.1 and later); absent where the
#            system's own QEMU can
#   guest/   a Linux guest with Debian's kernel and its ixgbe, iperf3, ethtool and DPDK's testpmd: drivers that others
#            wrote, which judge the model of the card
#
# Both are made of Debian's packages (also on Ubuntu, whose own QEMU is too old) in ${SLUICE_CACHE:-~/.cache/sluice}, and made
# again when they are absent or when this script has changed.
set -euo pipefail
# shellcheck source=scripts/debian.sh
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

# What goes into the guest: packages, the programs of them, and kernel modules with those that they need.
readonly GUEST_PACKAGES="linux-image-amd64 busybox-static iperf3 ethtool dpdk-dev"
readonly GUEST_PROGRAMS="usr/bin/iperf3 usr/sbin/ethtool"
readonly GUEST_MODULES="ixgbe ixgbevf 8021q uio_pci_generic"

main() {
    if ! takes_cards qemu-system-x86_64; then
        make_once qemu "QEMU 10.1 or later"
    fi
    make_once guest "the Linux guest"
}

# Whether this QEMU has the device. It lists the options of one that it has, and ends without failure in any case.
takes_cards() {
    "$1" -nodefaults -display none -device vfio-user-pci,help 2>/dev/null | grep -q socket
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

    make_tree "$root" "$tree" <<'END'
#!/bin/busybox sh
# Carries out each line of the serial console, and prints `status N` behind what it printed.
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/usr/sbin HOME=/tmp
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mount -t tmpfs none /run
stty -F /dev/ttyS0 -echo
echo "guest ready"
while read -r line; do eval "$line" </dev/null 2>&1; echo "status $?"; done </dev/ttyS0
END
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

main "$@"
