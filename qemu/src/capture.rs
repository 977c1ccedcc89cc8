//! Frames from a capture file, replayed and told by their content.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

use crate::flows::{Arrival, Source};
use crate::frames;

/// An Ethernet header: shorter frames are no frames.
const HEADER: usize = 14;
/// How much longer a frame with a VLAN tag may be (IEEE 802.3, clause 3.2.7).
const VLAN_TAG: usize = 4;
/// The longest block of a capture file that is read.
const LONGEST_BLOCK: usize = 1 << 20;

/// Frames from a capture file, in its order.
#[derive(Debug, Default)]
pub struct Capture {
    frames: Vec<Vec<u8>>,
    given: usize,
    /// Where in its flow each frame stands.
    places: Vec<Place>,
    /// Where each content occurs. A capture may hold the same bytes more than once.
    occurrences: HashMap<Vec<u8>, Occurrences>,
    /// What was left out.
    pub skipped: Skipped,
}

/// Packets of the file that are not replayed, or not in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Shorter than an Ethernet header: not replayed.
    pub short: u64,
    /// Longer than 1514 bytes (1518 with a VLAN tag), such as frames captured before segmentation: not replayed.
    pub long: u64,
    /// Of the frames that are replayed, those that the capture holds only the beginning of.
    pub cut: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    flow: u32,
    sequence: u32,
}

#[derive(Debug, Default)]
struct Occurrences {
    /// Frame numbers, ascending.
    frames: Vec<usize>,
    /// How many of them have come out.
    arrived: usize,
}

impl Capture {
    /// Reads a file in pcap or pcapng format.
    ///
    /// # Errors
    /// When the file cannot be read, is in neither format, is damaged, holds other packets than Ethernet frames, or
    /// holds none that can be replayed.
    pub fn read(path: &Path) -> Result<Self> {
        let mut capture = Self::default();
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        read_packets(file, |packet, cut| capture.add(packet, cut))
            .with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(!capture.frames.is_empty(), "{} holds no frame that can be replayed", path.display());
        capture.number();
        Ok(capture)
    }

    fn add(&mut self, packet: &[u8], is_cut: bool) {
        let is_tagged = packet.get(12..14) == Some(&[0x81, 0x00]);
        let longest = frames::MAX_FRAME + if is_tagged { VLAN_TAG } else { 0 };
        if packet.len() < HEADER {
            self.skipped.short += 1;
        } else if packet.len() > longest {
            self.skipped.long += 1;
        } else {
            self.skipped.cut += u64::from(is_cut);
            self.frames.push(packet.to_vec());
        }
    }

    /// Numbers the frames within their flows.
    fn number(&mut self) {
        let mut flows = HashMap::new();
        for (index, frame) in self.frames.iter().enumerate() {
            let next_flow = flows.len() as u32;
            let (flow, next) = flows.entry(flow_key(frame)).or_insert((next_flow, 0));
            self.places.push(Place { flow: *flow, sequence: *next });
            *next += 1;
            self.occurrences.entry(frame.clone()).or_default().frames.push(index);
        }
    }
}

impl Source for Capture {
    fn total(&self) -> u64 {
        self.frames.len() as u64
    }

    fn next(&mut self, frame: &mut Vec<u8>) -> bool {
        let Some(next) = self.frames.get(self.given) else { return false };
        frame.clone_from(next);
        self.given += 1;
        true
    }

    fn recognise(&mut self, frame: &[u8]) -> Arrival {
        // A changed frame cannot be told from a foreign one: nothing but its content marks it.
        let Some(occurrences) = self.occurrences.get_mut(frame) else { return Arrival::Changed };
        let given = occurrences.frames.partition_point(|index| *index < self.given);
        let Some(last) = given.checked_sub(1) else { return Arrival::Changed };
        // One more than were sent is the last one again: a duplicate.
        let index = occurrences.frames[occurrences.arrived.min(last)];
        occurrences.arrived += 1;
        let Place { flow, sequence } = self.places[index];
        Arrival::Intact { flow, sequence }
    }
}

/// What the order of frames is kept within: addresses, and ports where there are some.
fn flow_key(frame: &[u8]) -> Vec<u8> {
    let mut key = frame[..HEADER].to_vec();
    let Ok(packet) = LaxSlicedPacket::from_ethernet(frame) else { return key };
    match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            key.extend([header.source(), header.destination()].concat());
            key.push(header.protocol().0);
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            key.extend([header.source(), header.destination()].concat());
            key.push(header.next_header().0);
        }
        _ => {}
    }
    let ports = match &packet.transport {
        Some(TransportSlice::Udp(udp)) => [udp.source_port(), udp.destination_port()],
        Some(TransportSlice::Tcp(tcp)) => [tcp.source_port(), tcp.destination_port()],
        _ => return key,
    };
    key.extend(ports.map(u16::to_be_bytes).concat());
    key
}

/// Hands over every packet of a file, and whether it was cut when it was captured.
fn read_packets(file: File, mut packet: impl FnMut(&[u8], bool)) -> Result<()> {
    let mut reader = create_reader(LONGEST_BLOCK, file).map_err(|error| explain(&error))?;
    let mut links = Links::default();
    loop {
        match reader.next() {
            Ok((length, block)) => {
                read_block(&block, &mut links, &mut packet)?;
                reader.consume(length);
            }
            Err(PcapError::Eof) => return Ok(()),
            Err(PcapError::Incomplete(_)) => reader.refill().map_err(|error| explain(&error))?,
            Err(error) => return Err(explain(&error)),
        }
    }
}

/// The link types of the interfaces of a section (pcapng), or of the file (pcap).
#[derive(Default)]
struct Links(Vec<Linktype>);

impl Links {
    fn check(&self, interface: u32) -> Result<()> {
        match self.0.get(interface as usize) {
            Some(&Linktype::ETHERNET) => Ok(()),
            Some(other) => bail!("its packets are no Ethernet frames (link type {})", other.0),
            None => bail!("a packet names interface {interface}, which the file does not describe"),
        }
    }
}

fn read_block(block: &PcapBlockOwned, links: &mut Links, packet: &mut impl FnMut(&[u8], bool)) -> Result<()> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => links.0.push(header.network),
        PcapBlockOwned::Legacy(block) => {
            links.check(0)?;
            packet(block.data, block.caplen < block.origlen);
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => links.0.clear(),
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => links.0.push(interface.linktype),
        PcapBlockOwned::NG(Block::EnhancedPacket(block)) => {
            links.check(block.if_id)?;
            packet(block.packet_data(), block.caplen < block.origlen);
        }
        PcapBlockOwned::NG(Block::SimplePacket(block)) => {
            links.check(0)?;
            let data = &block.data[..block.data.len().min(block.origlen as usize)];
            packet(data, data.len() < block.origlen as usize);
        }
        PcapBlockOwned::NG(_) => {}
    }
    Ok(())
}

fn explain<I>(error: &PcapError<I>) -> anyhow::Error {
    anyhow::anyhow!(match error {
        PcapError::Eof => "it is empty",
        PcapError::UnexpectedEof | PcapError::Incomplete(_) => "it ends in the middle of a packet",
        PcapError::BufferTooSmall => "it has a block of more than 1 MiB",
        PcapError::ReadError => "the file system reports an error",
        PcapError::HeaderNotRecognized => "it is neither pcap nor pcapng",
        PcapError::NomError(..) | PcapError::OwnedNomError(..) => "it is damaged",
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use tempfile::NamedTempFile;

    use super::*;
    use crate::frames::Tag;

    const ETHERNET: u32 = 1;
    const RAW_IP: u32 = 101;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A file in the classic format; each frame with the length it had on the wire.
    fn pcap(link: u32, frames: &[(Vec<u8>, usize)]) -> Vec<u8> {
        let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 0xffff, link]);
        for (frame, wire_length) in frames {
            file.extend(words(&[0, 0, frame.len() as u32, *wire_length as u32]));
            file.extend(frame);
        }
        file
    }

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = 12 + body.len() as u32;
        [words(&[kind, length]), body.to_vec(), words(&[length])].concat()
    }

    /// A file in the next-generation format: one section with one interface.
    fn pcapng(link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
        let mut file = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]));
        file.extend(block(1, &words(&[link, 0])));
        for frame in frames {
            let length = frame.len() as u32;
            let padding = vec![0; frame.len().next_multiple_of(4) - frame.len()];
            file.extend(block(6, &[words(&[0, 0, 0, length, length]), frame.clone(), padding].concat()));
        }
        file
    }

    fn read(bytes: &[u8]) -> Result<Capture> {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Capture::read(file.path())
    }

    fn frame(flow: u32, sequence: u32) -> Vec<u8> {
        let mut frame = Vec::new();
        Tag { direction: 0, flow, sequence }.write(&mut frame);
        frame
    }

    fn whole(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, usize)> {
        frames.iter().map(|frame| (frame.clone(), frame.len())).collect()
    }

    /// Sends everything, so that everything may arrive.
    fn send_all(capture: &mut Capture) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        let mut frame = Vec::new();
        while capture.next(&mut frame) {
            sent.push(frame.clone());
        }
        sent
    }

    #[test]
    fn both_formats_give_the_same_frames() {
        let frames: Vec<_> = (0..100).map(|index| frame(index % 7, index)).collect();
        for file in [pcap(ETHERNET, &whole(&frames)), pcapng(ETHERNET, &frames)] {
            let mut capture = read(&file).unwrap();
            assert_eq!(capture.total(), 100);
            assert_eq!(send_all(&mut capture), frames);
            assert_eq!(capture.skipped, Skipped::default());
        }
    }

    #[test]
    fn frames_are_told_by_content_and_numbered_within_their_flows() {
        let frames = [frame(5, 0), frame(9, 0), frame(5, 1)];
        let mut capture = read(&pcap(ETHERNET, &whole(&frames))).unwrap();
        assert_eq!(capture.recognise(&frames[0]), Arrival::Changed, "it was not sent yet");
        send_all(&mut capture);
        let arrivals: Vec<_> = frames.iter().map(|frame| capture.recognise(frame)).collect();
        let intact = |flow, sequence| Arrival::Intact { flow, sequence };
        assert_eq!(arrivals, [intact(0, 0), intact(1, 0), intact(0, 1)]);
        assert_eq!(capture.recognise(&frame(5, 2)), Arrival::Changed);
    }

    #[test]
    fn the_same_bytes_twice_are_two_frames_and_three_times_are_a_duplicate() {
        let frames = [frame(5, 0), frame(5, 0)];
        let mut capture = read(&pcap(ETHERNET, &whole(&frames))).unwrap();
        send_all(&mut capture);
        let arrivals = [0; 3].map(|_| capture.recognise(&frames[0]));
        let intact = |sequence| Arrival::Intact { flow: 0, sequence };
        assert_eq!(arrivals, [intact(0), intact(1), intact(1)]);
    }

    #[test]
    fn what_is_not_replayed_is_counted() {
        let tagged = |length: usize| {
            let mut frame = vec![0; length];
            frame[12] = 0x81;
            frame
        };
        let frames = [vec![0; 13], vec![0; 14], vec![0; 1514], vec![0; 1515], tagged(1518), tagged(1519)];
        let mut frames = whole(&frames);
        frames[1].1 = 99;
        let capture = read(&pcap(ETHERNET, &frames)).unwrap();
        assert_eq!(capture.skipped, Skipped { short: 1, long: 2, cut: 1 });
        assert_eq!(capture.total(), 3);
    }

    #[test]
    fn a_file_that_cannot_be_replayed_is_refused_with_the_reason() {
        let good = pcap(ETHERNET, &whole(&[frame(0, 0)]));
        for (file, reason) in [
            (Vec::new(), "empty"),
            (b"neither of the two formats".to_vec(), "neither pcap nor pcapng"),
            (good[..good.len() - 1].to_vec(), "in the middle of a packet"),
            (pcap(RAW_IP, &whole(&[frame(0, 0)])), "link type 101"),
            (pcapng(RAW_IP, &[frame(0, 0)]), "link type 101"),
            (pcap(ETHERNET, &[]), "no frame"),
        ] {
            let error = format!("{:#}", read(&file).unwrap_err());
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_damaged_file_is_read_or_refused(
            is_new_format: bool, damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            length: prop::sample::Index,
        ) {
            let frames: Vec<_> = (0..3).map(|index| frame(index, 0)).collect();
            let mut file = if is_new_format { pcapng(ETHERNET, &frames) } else { pcap(ETHERNET, &whole(&frames)) };
            for (at, byte) in damage {
                let at = at.index(file.len());
                file[at] = byte;
            }
            file.truncate(length.index(file.len() + 1));
            if let Ok(capture) = read(&file) {
                prop_assert!((1..=3).contains(&capture.total()));
            }
        }
    }
}
