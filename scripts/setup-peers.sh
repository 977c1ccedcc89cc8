#!/usr/bin/env bash
# Fetches what the benchmarks measure Sluice against with `--peers`, and leaves the system as it is: nothing is installed.
#
#   peers/   for `bench vm`: a Linux guest with Debian's kernel for clouds, the smallest that it has, and XDP programs that do
#            what Sluice's own do, on the kernel's virtio-net driver
#   dpdk/    for `bench native`: DPDK's testpmd with its vhost-user drivers
#
# Both are made of Debian's packages in ${SLUICE_CACHE:-~/.cache/sluice}, and made again when they are absent or when this script
# has changed.
set -euo pipefail
# shellcheck source=scripts/debian.sh
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

main() {
    make_once peers "a Linux guest with XDP"
    make_once dpdk "DPDK's testpmd"
}

# The drivers and the pools of buffers that testpmd looks for when it runs. Loaded as plugins they would have to lie in a
# folder that only their owner writes to, as would all above it.
readonly TESTPMD_DRIVERS="librte_net_virtio.so librte_net_vhost.so librte_mempool_ring.so"

make_dpdk() {
    local root=$scratch/root result=$scratch/result driver
    local -a files=(usr/bin/dpdk-testpmd "$LIBRARIES/libgcc_s.so.1")
    unpack "$root" dpdk-dev
    for driver in $TESTPMD_DRIVERS; do files+=("$LIBRARIES/$driver"); done
    mkdir -p "$result/usr/lib64" "$result/$LIBRARIES"
    cp "$root/$LOADER" "$result/$LOADER"
    add_programs "$root" "$result" "${files[@]}"
    cat >"$result/testpmd" <<END
#!/bin/sh
# testpmd with the libraries that were unpacked beside it.
here=\$(dirname "\$(readlink -f "\$0")")
exec "\$here/$LOADER" --library-path "\$here/$LIBRARIES" --preload "$TESTPMD_DRIVERS" "\$here/usr/bin/dpdk-testpmd" "\$@"
END
    chmod +x "$result/testpmd"
}

make_peers() {
    local root=$scratch/root tree=$scratch/tree
    unpack "$root" linux-image-cloud-amd64 busybox-static iproute2 binutils-bpf
    cp "$root"/boot/vmlinuz-* "$scratch/result/vmlinuz"

    # As little as there can be between the kernel's start and the first frame: that is measured too.
    make_tree "$root" "$tree" <<'END'
#!/bin/busybox sh
# Attaches the XDP program that the command line names to every port, compiled, in the driver.
/bin/busybox mount -t proc none /proc
# With /proc the shell finds its commands in itself, and a smaller `ip`, which knows nothing of XDP.
mount -t sysfs none /sys
modprobe virtio_net
for word in $(cat /proc/cmdline); do case $word in program=*) program=${word#program=} ;; esac; done
echo 1 >/proc/sys/net/core/bpf_jit_enable
for port in /sys/class/net/eth*; do
    port=${port##*/}
    /usr/bin/ip link set dev "$port" up
    /usr/bin/ip link set dev "$port" xdpdrv object /xdp.o section "xdp/$program" || echo "peer failed: no XDP on $port"
done
echo "peer ready"
exec sleep 1000000
END
    add_modules "$root" "$tree" virtio_net
    add_programs "$root" "$tree" usr/bin/ip
    assemble_programs "$root" "$tree/xdp.o"
    pack "$tree" >"$scratch/result/linux.initrd"
}

# The programs, one a section. Register 1 points to `struct xdp_md` of Linux's bpf.h: where the frame begins, where it ends, a
# word that is not used here, and the number of the port that it came in at.
assemble_programs() {
    local root=$1 object=$2
    "$root/$LOADER" --library-path "$root/$LIBRARIES" "$root/usr/bin/bpf-as" -EL -o "$object" <<'END'
        .set XDP_DROP, 1
        .set XDP_TX, 3
        .set bpf_redirect, 23

        # Back with its addresses swapped.
        .section "xdp/reflect", "ax", @progbits
        .globl reflect
        .type reflect, @function
reflect:
        ldxw %r2, [%r1+0]
        ldxw %r3, [%r1+4]
        mov %r4, %r2
        add %r4, 14
        jgt %r4, %r3, 1f
        ldxw %r5, [%r2+0]
        ldxh %r6, [%r2+4]
        ldxw %r7, [%r2+6]
        ldxh %r8, [%r2+10]
        stxw [%r2+0], %r7
        stxh [%r2+4], %r8
        stxw [%r2+6], %r5
        stxh [%r2+10], %r6
        mov %r0, XDP_TX
        exit
1:      mov %r0, XDP_DROP
        exit
        .size reflect, . - reflect

        # Out of the other port: they have the numbers 2 and 3, after that of the loopback.
        .section "xdp/forward", "ax", @progbits
        .globl forward
        .type forward, @function
forward:
        ldxw %r1, [%r1+12]
        xor %r1, 1
        mov %r2, 0
        call bpf_redirect
        exit
        .size forward, . - forward

        .section "xdp/drop", "ax", @progbits
        .globl drop
        .type drop, @function
drop:
        mov %r0, XDP_DROP
        exit
        .size drop, . - drop

        .section "license", "aw", @progbits
        .asciz "GPL"
END
}

main "$@"
