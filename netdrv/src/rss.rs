//! Receive-side scaling: the Toeplitz hash that steers a flow to a queue, and the tables that a device is
//! given.

/// Bytes of a key: 16 address bytes twice, two ports, and the 32 bits that the last of them shifts in.
pub const KEY_LEN: usize = 40;

/// The key that drivers give to their devices. It is the one of Microsoft's published verification suite,
/// which spreads well and for which every implementation's hashes are known.
pub const KEY: [u8; KEY_LEN] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, //
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, //
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Entries of an indirection table: every device has at least as many, and 64 queues still differ by little
/// in their share.
pub const TABLE_LEN: u16 = 128;

/// The Toeplitz hash of `input`: source address, destination address, source port, destination port, each as
/// in the packet. Of an input longer than the key covers, only the first 36 bytes count.
pub fn toeplitz(key: &[u8; KEY_LEN], input: &[u8]) -> u32 {
    let mut hash = 0;
    for (byte, window) in input.iter().zip(key.windows(5)) {
        // The 32 key bits that a bit of this byte selects: one step further to the right for each bit.
        let bits = window.iter().fold(0u64, |bits, key| bits << 8 | u64::from(*key));
        for bit in 0..8 {
            if byte & (0x80 >> bit) != 0 {
                hash ^= (bits >> (8 - bit)) as u32;
            }
        }
    }
    hash
}

/// The queues of an indirection table with `len` entries: each queue in turn.
pub fn indirection(len: u16, queues: u16) -> impl Iterator<Item = u16> {
    (0..len).map(move |entry| entry % queues.max(1))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::{IpAddr, SocketAddr};

    use super::*;

    /// Destination, source, hash over addresses and ports, hash over addresses: Microsoft, "Verifying the RSS
    /// hash calculation".
    const VECTORS: [(&str, &str, u32, u32); 8] = [
        ("161.142.100.80:1766", "66.9.149.187:2794", 0x51cc_c178, 0x323e_8fc2),
        ("65.69.140.83:4739", "199.92.111.2:14230", 0xc626_b0ea, 0xd718_262a),
        ("12.22.207.184:38024", "24.19.198.95:12898", 0x5c2b_394a, 0xd2d0_a5de),
        ("209.142.163.6:2217", "38.27.205.30:48228", 0xafc7_327f, 0x8298_9176),
        ("202.188.127.2:1303", "153.39.163.191:44251", 0x10e8_28a2, 0x5d18_09c5),
        ("[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x4020_7d3d, 0x2cc1_8cd5),
        ("[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0xdde5_1bbf, 0x0f0c_461c),
        (
            "[fe80::200:f8ff:fe21:67cf]:38024",
            "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
            0x02d1_feef,
            0x4b61_e985,
        ),
    ];

    fn octets(address: IpAddr) -> Vec<u8> {
        match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        }
    }

    #[test]
    fn hashes_are_those_of_the_published_vectors() {
        for (destination, source, with_ports, addresses_only) in VECTORS {
            let destination: SocketAddr = destination.parse().expect("a destination");
            let source: SocketAddr = source.parse().expect("a source");
            let mut input = octets(source.ip());
            input.extend(octets(destination.ip()));
            assert_eq!(toeplitz(&KEY, &input), addresses_only, "{source} {destination}");
            input.extend(source.port().to_be_bytes());
            input.extend(destination.port().to_be_bytes());
            assert_eq!(toeplitz(&KEY, &input), with_ports, "{source} {destination}");
        }
    }

    #[test]
    fn shares_of_the_queues_differ_by_at_most_one_entry() {
        for queues in 1..=TABLE_LEN {
            let mut share = [0; TABLE_LEN as usize];
            indirection(TABLE_LEN, queues).for_each(|queue| share[usize::from(queue)] += 1);
            let used = &share[..usize::from(queues)];
            assert!(used.iter().max().unwrap() - used.iter().min().unwrap() <= 1, "{queues} queues");
            assert_eq!(used.iter().sum::<u16>(), TABLE_LEN);
        }
    }
}
