//! Receive-side scaling: a hash of addresses and ports picks a queue (datasheet 7.1.2.8).

use crate::core::Core;
use crate::headers::{Headers, Ip, TCP, UDP, Version};
use crate::registers::*;
use crate::virtual_function::PoolHash;

/// Bytes of the key.
const KEY_LEN: usize = 40;

/// What was hashed: the value of the RSS type field of a receive descriptor (7.1.6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum HashType {
    #[default]
    None = 0,
    TcpIpv4 = 1,
    Ipv4 = 2,
    TcpIpv6 = 3,
    Ipv6 = 5,
    UdpIpv4 = 7,
    UdpIpv6 = 8,
}

/// The hash of a frame, and over what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hash {
    pub(crate) kind: HashType,
    pub(crate) value: u32,
}

/// The hash of a frame by what MRQC says is to be hashed.
pub(crate) fn hash(core: &Core, frame: &[u8], headers: &Headers) -> Hash {
    hash_by(core.values.get(Register::MRQC), &key(core), frame, headers)
}

/// The same by what the function of a pool says, where it has a hash of its own.
pub(crate) fn hash_in_pool(core: &Core, frame: &[u8], headers: &Headers, pool: usize) -> Hash {
    match own_hash(core, pool) {
        Some(own) if own.control & FUNCTION_RSS_ENABLE == 0 => Hash::default(),
        Some(own) => hash_by(own.control, &key_of(|word| own.key[word]), frame, headers),
        None => hash(core, frame, headers),
    }
}

/// VFMRQC: there is a hash.
const FUNCTION_RSS_ENABLE: u32 = 1;

fn own_hash(core: &Core, pool: usize) -> Option<&PoolHash> {
    let has_own = core.values.has(Register::MRQC, MRQC_MULTIPLE_RSS) && pool < core.virtual_functions;
    has_own.then(|| &core.pool_hashes[pool])
}

fn hash_by(control: u32, key: &[u8; KEY_LEN], frame: &[u8], headers: &Headers) -> Hash {
    let Some(ip) = headers.ip else { return Hash::default() };
    let kind = kind(control, &ip, frame);
    let (mut input, mut len) = ([0; 36], 0);
    let ports = match kind {
        HashType::None => return Hash::default(),
        HashType::Ipv4 | HashType::Ipv6 => None,
        HashType::TcpIpv4 | HashType::TcpIpv6 | HashType::UdpIpv4 | HashType::UdpIpv6 => ip.ports(frame),
    };
    for part in [ip.addresses(frame), ports.unwrap_or_default()] {
        input[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    Hash { kind, value: toeplitz(key, &input[..len]) }
}

/// The most that can be hashed of this packet and that is enabled.
fn kind(mrqc: u32, ip: &Ip, frame: &[u8]) -> HashType {
    let (tcp, udp, addresses) = match ip.version {
        Version::V4 => (
            (MRQC_TCP_IPV4, HashType::TcpIpv4),
            (MRQC_UDP_IPV4, HashType::UdpIpv4),
            (MRQC_IPV4, HashType::Ipv4),
        ),
        Version::V6 => (
            (MRQC_TCP_IPV6, HashType::TcpIpv6),
            (MRQC_UDP_IPV6, HashType::UdpIpv6),
            (MRQC_IPV6, HashType::Ipv6),
        ),
    };
    let with_ports = ip.ports(frame).and(match ip.protocol {
        TCP => Some(tcp),
        UDP => Some(udp),
        _ => None,
    });
    with_ports
        .into_iter()
        .chain([addresses])
        .find(|(enabled, _)| mrqc & enabled != 0)
        .map_or(HashType::None, |(_, kind)| kind)
}

fn key(core: &Core) -> [u8; KEY_LEN] {
    key_of(|word| core.values.at(Register::RSSRK, word))
}

/// The key is in its registers byte by byte, the first of them lowest.
fn key_of(word: impl Fn(usize) -> u32) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    for (index, bytes) in key.chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&word(index).to_le_bytes());
    }
    key
}

/// The queue that the table of a pool has for a hash, where it has one; the card's otherwise.
pub(crate) fn queue_in_pool(core: &Core, hash: Hash, pool: usize) -> usize {
    match own_hash(core, pool) {
        Some(_) if hash.kind == HashType::None => 0,
        Some(own) => {
            let entry = hash.value as usize % 64;
            (own.table[entry / 4] >> (entry % 4 * 8)) as usize & 0x3f
        }
        None => queue(core, hash),
    }
}

/// The queue that the indirection table has for a hash.
pub(crate) fn queue(core: &Core, hash: Hash) -> usize {
    if hash.kind == HashType::None {
        return 0;
    }
    let entry = hash.value as usize % core.options.model.reta_entries();
    let word = match entry / 4 {
        index @ 0..32 => core.values.at(Register::RETA, index),
        index => core.values.at(Register::ERETA, index - 32),
    };
    (word >> (entry % 4 * 8)) as usize & ((1 << core.options.model.reta_bits()) - 1)
}

/// The Toeplitz hash: for each bit of the input that is set, the 32 bits of the key that begin there.
pub(crate) fn toeplitz(key: &[u8; KEY_LEN], input: &[u8]) -> u32 {
    let mut window = u64::from_be_bytes([key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]]);
    let mut hash = 0;
    for (index, byte) in input.iter().enumerate() {
        for bit in (0..8).rev() {
            if byte >> bit & 1 == 1 {
                hash ^= (window >> 32) as u32;
            }
            window <<= 1;
        }
        window |= u64::from(key.get(index + 8).copied().unwrap_or(0));
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::VLAN_ETHERTYPE;
    use crate::headers::tests::{ipv4, ipv6};
    use crate::options::{CardOptions, Model};

    /// The key of the published verification suite.
    const KEY: [u8; KEY_LEN] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, //
        0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2,
        0x0c, //
        0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn card(model: Model, mrqc: u32) -> Core {
        let mut core = Core::new(CardOptions { model, ..CardOptions::default() });
        for (index, bytes) in KEY.chunks_exact(4).enumerate() {
            core.values.set_at(
                Register::RSSRK,
                index,
                u32::from_le_bytes(bytes.try_into().expect("four bytes")),
            );
        }
        core.values.set(Register::MRQC, mrqc);
        core
    }

    fn hash_of(core: &Core, frame: &[u8]) -> Hash {
        hash(core, frame, &Headers::parse(frame, VLAN_ETHERTYPE))
    }

    fn tcp(source: u16, destination: u16) -> Vec<u8> {
        let mut header = vec![0; 20];
        header[..2].copy_from_slice(&source.to_be_bytes());
        header[2..4].copy_from_slice(&destination.to_be_bytes());
        header
    }

    /// Microsoft, "Verifying the RSS hash calculation": destination, source, hash with ports, hash without.
    #[test]
    fn hashes_are_those_of_the_published_vectors() {
        type V4 = ([u8; 4], u16, [u8; 4], u16, u32, u32);
        const V4: [V4; 5] = [
            ([161, 142, 100, 80], 1766, [66, 9, 149, 187], 2794, 0x51cc_c178, 0x323e_8fc2),
            ([65, 69, 140, 83], 4739, [199, 92, 111, 2], 14230, 0xc626_b0ea, 0xd718_262a),
            ([12, 22, 207, 184], 38024, [24, 19, 198, 95], 12898, 0x5c2b_394a, 0xd2d0_a5de),
            ([209, 142, 163, 6], 2217, [38, 27, 205, 30], 48228, 0xafc7_327f, 0x8298_9176),
            ([202, 188, 127, 2], 1303, [153, 39, 163, 191], 44251, 0x10e8_28a2, 0x5d18_09c5),
        ];
        for (destination, to, source, from, with_ports, without) in V4 {
            let frame = ipv4(source, destination, TCP, &tcp(from, to));
            let full = card(Model::Sfp82599, MRQC_TCP_IPV4 | MRQC_IPV4);
            assert_eq!(hash_of(&full, &frame), Hash { kind: HashType::TcpIpv4, value: with_ports });
            let addresses = card(Model::Sfp82599, MRQC_IPV4);
            assert_eq!(hash_of(&addresses, &frame), Hash { kind: HashType::Ipv4, value: without });
        }
        const V6: [(&str, u16, &str, u16, u32, u32); 3] = [
            ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x4020_7d3d, 0x2cc1_8cd5),
            ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0xdde5_1bbf, 0x0f0c_461c),
            (
                "fe80::200:f8ff:fe21:67cf",
                38024,
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                44251,
                0x02d1_feef,
                0x4b61_e985,
            ),
        ];
        for (destination, to, source, from, with_ports, without) in V6 {
            let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").octets();
            let frame = ipv6(octets(source), octets(destination), TCP, &tcp(from, to));
            let full = card(Model::Sfp82599, MRQC_TCP_IPV6 | MRQC_IPV6);
            assert_eq!(hash_of(&full, &frame), Hash { kind: HashType::TcpIpv6, value: with_ports });
            let addresses = card(Model::Sfp82599, MRQC_IPV6);
            assert_eq!(hash_of(&addresses, &frame), Hash { kind: HashType::Ipv6, value: without });
        }
    }

    #[test]
    fn udp_has_its_own_switch() {
        let frame = ipv4([1, 2, 3, 4], [5, 6, 7, 8], UDP, &[0, 1, 0, 2, 0, 8, 0, 0]);
        assert_eq!(hash_of(&card(Model::Sfp82599, MRQC_TCP_IPV4), &frame).kind, HashType::None);
        assert_eq!(
            hash_of(&card(Model::Sfp82599, MRQC_UDP_IPV4 | MRQC_IPV4), &frame).kind,
            HashType::UdpIpv4
        );
        assert_eq!(hash_of(&card(Model::Sfp82599, MRQC_TCP_IPV4 | MRQC_IPV4), &frame).kind, HashType::Ipv4);
    }

    #[test]
    fn the_table_has_as_many_queues_as_the_model() {
        let hash = |value| Hash { kind: HashType::Ipv4, value };
        let mut old = card(Model::Sfp82599, MRQC_IPV4);
        old.values.set_at(Register::RETA, 31, 0x2a00_0000);
        assert_eq!(queue(&old, hash(127)), 10, "four bits, and 128 entries");
        assert_eq!(queue(&old, hash(0xffff_ffff)), 10);

        let mut new = card(Model::X550, MRQC_IPV4);
        new.values.set_at(Register::ERETA, 95, 0x2a00_0000);
        assert_eq!(queue(&new, hash(511)), 42, "six bits, and 512 entries");
        assert_eq!(queue(&new, Hash::default()), 0, "what was not hashed goes to queue 0");
    }
}
