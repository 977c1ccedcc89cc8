//! The device's side of the control queue.

use netdrv::rss::KEY;
use netdrv::virtio::Features;
use vm_memory::GuestMemoryMmap;

use super::memory;
use super::profile::Profile;
use super::ring::Ring;

/// How a device treats commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// Does as it is told.
    Obeys,
    /// Refuses the RSS configuration and does the rest.
    RefusesRss,
    /// Refuses everything.
    RefusesAll,
    /// Takes commands and never answers.
    Silent,
    /// Uses the buffers and writes no answer to them.
    Mute,
    /// Completes a descriptor that it was not given.
    Confused,
}

pub(crate) struct Controller {
    ring: Ring,
    manner: Manner,
    claimed_pairs: u16,
    rss: (u8, u16, u32),
    /// Pairs in use.
    pub(crate) pairs: u16,
    /// Whether all frames are let in.
    pub(crate) promiscuous: bool,
    /// The last RSS indirection table.
    pub(crate) table: Vec<u16>,
    /// Commands heard.
    pub(crate) commands: usize,
}

impl Controller {
    pub(super) fn new(ring: Ring, profile: &Profile) -> Controller {
        Controller {
            ring,
            manner: profile.control,
            claimed_pairs: profile.claimed_pairs,
            rss: profile.rss,
            pairs: 1,
            promiscuous: false,
            table: Vec::new(),
            commands: 0,
        }
    }

    pub(super) fn run(&mut self, map: &GuestMemoryMmap, accepted: Features) {
        for chain in self.ring.take(map) {
            self.commands += 1;
            let (answer, command) = chain.parts.split_last().expect("a chain has parts");
            assert!(answer.writable && answer.len == 1, "{chain:?}: one byte for the answer, at the end");
            assert!(command.iter().all(|part| !part.writable), "{chain:?}: the command is to read");
            let bytes: Vec<u8> =
                command.iter().flat_map(|part| memory::read(map, part.address, part.len as usize)).collect();
            let obeyed = match self.manner {
                Manner::Silent => continue,
                Manner::Confused => {
                    self.ring.complete_wrong(map, u32::from(chain.id) + 1);
                    continue;
                }
                Manner::RefusesAll => false,
                Manner::RefusesRss if bytes[..2] == [4, 1] => false,
                _ => self.execute(&bytes, accepted),
            };
            if self.manner != Manner::Mute {
                memory::write(map, answer.address, &[u8::from(!obeyed)]);
            }
            self.ring.complete(chain.id, 1, false);
            self.ring.publish(map);
        }
    }

    /// Does what the command says if it is one that the device takes (5.1.6.5).
    fn execute(&mut self, command: &[u8], accepted: Features) -> bool {
        match command {
            [0, 0, on] => {
                assert!(accepted.contains(Features::CTRL_RX), "CTRL_RX is negotiated");
                self.promiscuous = *on == 1;
                true
            }
            [4, 0, low, high] => {
                assert!(accepted.contains(Features::MQ), "MQ is negotiated");
                self.pairs = u16::from_le_bytes([*low, *high]);
                assert!((1..=self.claimed_pairs).contains(&self.pairs), "as many pairs as there are");
                true
            }
            [4, 1, config @ ..] => {
                assert!(accepted.contains(Features::RSS), "RSS is negotiated");
                self.configure_rss(config);
                true
            }
            _ => panic!("{command:?} is no command that was negotiated"),
        }
    }

    /// Checks `struct virtio_net_rss_config` against the limits that the device has announced (5.1.6.5.7.1).
    fn configure_rss(&mut self, config: &[u8]) {
        let (max_key, max_table, hash_types) = self.rss;
        let word = |at: usize| u16::from_le_bytes([config[at], config[at + 1]]);
        let types = u32::from(word(0)) | u32::from(word(2)) << 16;
        assert!(types != 0 && types & !hash_types == 0, "hashes that the device has: {types:#x}");
        let entries = usize::from(word(4)) + 1;
        assert!(entries.is_power_of_two() && entries <= usize::from(max_table), "a table of {entries}");
        assert_eq!(word(6), 0, "frames without a hash go to the first queue");
        self.table = (0..entries).map(|entry| word(8 + 2 * entry)).collect();
        let at = 8 + 2 * entries;
        self.pairs = word(at);
        assert!((1..=self.claimed_pairs).contains(&self.pairs), "as many pairs as there are");
        assert!(self.table.iter().all(|queue| *queue < self.pairs), "flows go to queues that are in use");
        let (key_len, key) = (config[at + 2], &config[at + 3..]);
        assert!(usize::from(key_len) == key.len() && key_len <= max_key, "a key of {key_len} bytes");
        assert_eq!(key, KEY);
    }
}
