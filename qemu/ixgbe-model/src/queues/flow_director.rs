//! The flow director: filters that software adds flow by flow (datasheet 7.1.2.7).
//!
//! Signature filters are modelled: a filter is two hashes of a flow, one that finds its bucket and one that tells it
//! from others there. Perfect-match filters are not.

use std::collections::HashMap;

use crate::core::Core;
use crate::headers::{Headers, Ip, SCTP, TCP, UDP, Version, be16};
use crate::registers::*;
use crate::stats;
use crate::strict::Rule;

/// Bits of each hash.
const HASH: u32 = 0x7fff;
/// FDIRCMD.CMD: add, remove, query (8.2.3.21.17).
const COMMAND: u32 = 0x3;
const ADD: u32 = 1;
const REMOVE: u32 = 2;
const FILTER_VALID: u32 = 1 << 2;
const CLEAR_TABLE: u32 = 1 << 8;
const DROP: u32 = 1 << 9;
/// FDIRCTRL: perfect-match mode.
const PERFECT_MATCH: u32 = 1 << 4;

/// What becomes of the frames of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Queue(usize),
    Drop,
}

/// The filters.
#[derive(Default)]
pub(crate) struct FlowDirector {
    /// By bucket and signature, as FDIRHASH has them.
    filters: HashMap<(u16, u16), Verdict>,
}

impl FlowDirector {
    /// FDIRCTRL: the table is made anew, and is ready at once (8.2.3.21.1).
    pub(crate) fn write_control(&mut self, core: &mut Core, value: u32) {
        self.filters.clear();
        core.values.set(Register::FDIRCTRL, value | FDIRCTRL_INIT_DONE);
        core.values.set(Register::FDIRFREE, capacity(value) as u32);
    }

    /// FDIRCMD: a command is carried out at once; the bits read as zero then.
    pub(crate) fn write_command(&mut self, core: &mut Core, value: u32) {
        let hash = core.values.get(Register::FDIRHASH);
        let key = ((hash & HASH) as u16, (hash >> 16 & HASH) as u16);
        if value & CLEAR_TABLE != 0 {
            self.filters.clear();
        }
        if value & COMMAND != 0 && core.values.has(Register::FDIRCTRL, PERFECT_MATCH) {
            core.report(Rule::NotModelled, Register::FDIRCMD, 0, u64::from(value));
        }
        let known = self.filters.contains_key(&key);
        match value & COMMAND {
            ADD if known || self.filters.len() < capacity(core.values.get(Register::FDIRCTRL)) => {
                let queue = (value >> 16 & 0x7f) as usize;
                self.filters
                    .insert(key, if value & DROP != 0 { Verdict::Drop } else { Verdict::Queue(queue) });
                stats::add(core, Register::FDIRUSTAT, u32::from(!known));
            }
            ADD => stats::add(core, Register::FDIRFSTAT, 1),
            REMOVE if self.filters.remove(&key).is_some() => stats::add(core, Register::FDIRUSTAT, 1 << 16),
            REMOVE => stats::add(core, Register::FDIRFSTAT, 1 << 8),
            _ => {}
        }
        let valid = if self.filters.contains_key(&key) { FILTER_VALID } else { 0 };
        core.values.set(Register::FDIRCMD, value & !(COMMAND | FILTER_VALID) | valid);
        let free = capacity(core.values.get(Register::FDIRCTRL)).saturating_sub(self.filters.len());
        core.values.set(Register::FDIRFREE, free as u32);
    }

    /// What the filters say of a frame.
    pub(crate) fn verdict(&self, core: &mut Core, frame: &[u8], headers: &Headers) -> Option<Verdict> {
        if core.values.get(Register::FDIRCTRL) & 0x3 == 0 {
            return None;
        }
        let ip = headers.ip.filter(|ip| ip.ports(frame).is_some())?;
        let flow = Flow::of(core, frame, headers, &ip);
        let hash = |key| (flow.hash(core.values.get(key)) & HASH) as u16;
        let found = self.filters.get(&(hash(Register::FDIRHKEY), hash(Register::FDIRSKEY))).copied();
        stats::add(core, if found.is_some() { Register::FDIRMATCH } else { Register::FDIRMISS }, 1);
        found
    }
}

/// Filters that fit, by the memory that FDIRCTRL takes from the packet buffer (7.1.2.7.1).
fn capacity(fdirctrl: u32) -> usize {
    match fdirctrl & 0x3 {
        0 => 0,
        size => (4096 << size) - 2,
    }
}

/// What is hashed of a frame: a word with pool, kind of flow and VLAN, and one with all the others folded together.
struct Flow {
    kind: u32,
    folded: u32,
}

impl Flow {
    fn of(core: &Core, frame: &[u8], headers: &Headers, ip: &Ip) -> Flow {
        let l4 = match ip.protocol {
            UDP => 1,
            TCP => 2,
            SCTP => 3,
            _ => 0,
        };
        let v6 = if ip.version == Version::V6 { 4 } else { 0 };
        let vlan = u32::from(headers.vlan.unwrap_or(0) & 0xfff);
        // Two bytes from anywhere in the first 64: FDIRCTRL.Flex_Offset counts in words.
        let flexible =
            be16(frame, 2 * (core.values.get(Register::FDIRCTRL) >> 16 & 0x1f) as usize).unwrap_or(0);
        let words =
            |bytes: &[u8]| bytes.as_chunks().0.iter().fold(0, |sum, word| sum ^ u32::from_be_bytes(*word));
        let folded = words(ip.addresses(frame))
            ^ words(ip.ports(frame).unwrap_or_default())
            ^ u32::from(flexible) << 16;
        Flow { kind: (l4 | v6) << 16 | vlan, folded }
    }

    /// Each bit of the key that is set adds the flow, turned by as much (7.1.2.7.4).
    fn hash(&self, key: u32) -> u32 {
        let high = self.folded ^ self.kind ^ self.kind >> 16;
        let low = self.folded.rotate_left(16);
        (0..16).fold(0, |hash, bit| {
            // Of the lower half, kind and VLAN are not part of the first bit.
            let low = if bit == 0 { low } else { low ^ self.kind ^ self.kind << 16 };
            let of = |set: u32, word: u32| if set & 1 == 1 { word >> bit } else { 0 };
            hash ^ of(key >> bit, low) ^ of(key >> (bit + 16), high)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::VLAN_ETHERTYPE;
    use crate::headers::tests::ipv4;
    use crate::options::CardOptions;

    /// 64 KB, flexible bytes at offset 12.
    const CONTROL: u32 = 1 | 6 << 16;

    fn card() -> (Core, FlowDirector) {
        let (mut core, mut director) = (Core::new(CardOptions::default()), FlowDirector::default());
        core.values.set(Register::FDIRHKEY, 0x3dad_14e2);
        core.values.set(Register::FDIRSKEY, 0x174d_3614);
        director.write_control(&mut core, CONTROL);
        (core, director)
    }

    fn tcp(flow: u8) -> Vec<u8> {
        let mut header = vec![0x1f, 0x90, 0xc0, 0x00];
        header.resize(20, 0);
        ipv4([10, 0, 0, flow], [10, 0, 1, 1], TCP, &header)
    }

    fn hashes(core: &Core, frame: &[u8]) -> u32 {
        let headers = Headers::parse(frame, VLAN_ETHERTYPE);
        let flow = Flow::of(core, frame, &headers, &headers.ip.expect("an IP header"));
        let hash = |key| flow.hash(core.values.get(key)) & HASH;
        hash(Register::FDIRSKEY) << 16 | hash(Register::FDIRHKEY)
    }

    fn command(core: &mut Core, director: &mut FlowDirector, hash: u32, command: u32) {
        core.values.set(Register::FDIRHASH, hash);
        director.write_command(core, command);
        assert!(!core.values.has(Register::FDIRCMD, COMMAND), "done");
    }

    fn verdict(core: &mut Core, director: &FlowDirector, frame: &[u8]) -> Option<Verdict> {
        director.verdict(core, frame, &Headers::parse(frame, VLAN_ETHERTYPE))
    }

    /// By hand: with one bit of the key set, the hash is the flow's words turned by that much.
    #[test]
    fn the_hash_is_linear_in_its_key() {
        let flow = Flow { kind: 0x0002_0000, folded: 0x1234_5678 };
        assert_eq!(flow.hash(0), 0);
        assert_eq!(flow.hash(1), 0x5678_1234);
        assert_eq!(flow.hash(1 << 16), 0x1234_5678 ^ 0x0002_0000 ^ 0x2);
        assert_eq!(flow.hash(1 << 4), (0x5678_1234 ^ 0x0002_0000) >> 4);
        assert_eq!(flow.hash(0x0001_0011), flow.hash(1) ^ flow.hash(1 << 16) ^ flow.hash(1 << 4));
    }

    #[test]
    fn a_flow_goes_where_its_filter_says() {
        let (mut core, mut director) = card();
        let (wanted, other) = (tcp(1), tcp(2));
        let hash = hashes(&core, &wanted);
        command(&mut core, &mut director, hash, ADD | 9 << 16);
        assert_eq!(verdict(&mut core, &director, &wanted), Some(Verdict::Queue(9)));
        assert_eq!(verdict(&mut core, &director, &other), None);
        assert_eq!((core.values.get(Register::FDIRMATCH), core.values.get(Register::FDIRMISS)), (1, 1));
        command(&mut core, &mut director, hash, ADD | DROP);
        assert_eq!(verdict(&mut core, &director, &wanted), Some(Verdict::Drop));
        command(&mut core, &mut director, hash, REMOVE);
        assert_eq!(verdict(&mut core, &director, &wanted), None);
        command(&mut core, &mut director, hash, REMOVE);
        assert_eq!(core.values.get(Register::FDIRUSTAT), 1 << 16 | 1);
        assert_eq!(core.values.get(Register::FDIRFSTAT), 1 << 8);
    }

    #[test]
    fn the_table_has_an_end() {
        let (mut core, mut director) = card();
        let capacity = core.values.get(Register::FDIRFREE);
        assert_eq!(capacity, 8190);
        (0..capacity).for_each(|hash| command(&mut core, &mut director, hash, ADD));
        assert_eq!(core.values.get(Register::FDIRFREE), 0);
        command(&mut core, &mut director, capacity, ADD);
        assert_eq!(core.values.get(Register::FDIRFSTAT), 1);
        director.write_control(&mut core, CONTROL);
        assert_eq!(core.values.get(Register::FDIRFREE), 8190);
    }
}
