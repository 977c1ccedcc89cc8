//! The round that moves frames: out of the transmit rings into the sink, out of the source into the receive rings.

use std::collections::VecDeque;

use super::counts::{Fault, PairCounts};
use super::device::{Device, Direction, HEADER, LEGACY_HEADER};
use super::ring::Put;
use super::steering::Steerer;
use super::wire::Wire;
use super::{Offer, Sink, Source, TrafficConfig, Window};

/// How many frames a ring moves before the next one has its turn.
pub(super) const BATCH: usize = 32;
/// The longest frame that is taken from a guest: the largest IP packet in an Ethernet frame with a VLAN tag.
const MAX_FRAME: usize = 65_535 + 18;

/// The frames on their way, and where they come from and go to.
pub(super) struct Traffic {
    source: Option<Box<dyn Source>>,
    sink: Option<Box<dyn Sink>>,
    /// Frames that were injected by hand; they go before those of the source.
    injected: VecDeque<Vec<u8>>,
    /// Frames that wait for a buffer, by receive queue; when flooding, none but injected ones.
    backlog: Vec<VecDeque<Vec<u8>>>,
    steerer: Steerer,
    offer: Offer,
    takes: Option<Window>,
    gives: Option<Window>,
    /// How fast frames may come out, by transmit queue.
    wires: Vec<Wire>,
    counts: Vec<PairCounts>,
    /// The frame at hand on its way in.
    frame: Vec<u8>,
    /// The frame at hand on its way out, with its header.
    buffer: Box<[u8]>,
}

impl Traffic {
    pub(super) fn new(config: &TrafficConfig) -> Self {
        let pairs = usize::from(config.queue_pairs);
        Self {
            source: None,
            sink: None,
            injected: VecDeque::new(),
            backlog: vec![VecDeque::new(); pairs],
            steerer: Steerer::new(config.steering),
            offer: config.offer,
            takes: config.takes.clone(),
            gives: config.gives.clone(),
            wires: vec![Wire::new(config.line_rate); pairs],
            counts: vec![PairCounts::default(); pairs],
            frame: Vec::new(),
            buffer: vec![0; HEADER.len() + MAX_FRAME].into(),
        }
    }

    pub(super) fn counts(&self) -> &[PairCounts] {
        &self.counts
    }

    pub(super) fn start(&mut self, source: Box<dyn Source>, sink: Box<dyn Sink>) {
        self.source = Some(source);
        self.sink = Some(sink);
    }

    pub(super) fn inject(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        self.injected.extend(frames);
    }

    /// Whether there may be a frame to offer without anybody's telling: from the source, or when the window opens.
    pub(super) fn may_have_frames(&self) -> bool {
        self.source.is_some() || !self.injected.is_empty()
    }

    /// Whether a frame waits for a buffer of this receive queue.
    pub(super) fn waits_for(&self, pair: usize) -> bool {
        !self.backlog[pair].is_empty()
    }

    /// Whether frames may wait in this transmit queue because its wire takes no more of them yet.
    pub(super) fn holds_back(&self, pair: usize) -> bool {
        self.wires[pair].room() == 0
    }

    /// Gives each ring a turn; returns how many frames moved.
    pub(super) fn round(&mut self, device: &mut Device) -> usize {
        let drained = self.drain_all(device);
        let fed = self.feed(device);
        self.announce(device);
        drained + fed
    }

    /// Takes a batch out of each transmit ring; returns how many frames came out.
    pub(super) fn drain_all(&mut self, device: &mut Device) -> usize {
        (0..device.pairs()).map(|pair| self.drain(device, pair)).sum()
    }

    fn announce(&self, device: &mut Device) {
        for pair in 0..device.pairs() {
            for direction in [Direction::Receive, Direction::Transmit] {
                if let Some((ring, memory)) = device.running(pair, direction) {
                    ring.announce(memory);
                }
            }
        }
    }

    // ------------------------------------------------------------------------------------------ out of the guest

    /// Takes a batch out of one transmit ring.
    fn drain(&mut self, device: &mut Device, pair: usize) -> usize {
        let header = device.header_length();
        let batch = self.wires[pair].room();
        for moved in 0..batch {
            let Some((ring, memory)) = device.running(pair, Direction::Transmit) else { return moved };
            match ring.take(memory, &mut self.buffer) {
                Ok(None) => return moved,
                Ok(Some(length)) if asks_for_nothing(&self.buffer[..length], header) => {
                    self.deliver(pair, header, length);
                }
                Ok(Some(_)) => device.faults.record(Fault::Header),
                Err(fault) => device.faults.record(fault),
            }
        }
        batch
    }

    fn deliver(&mut self, pair: usize, header: usize, length: usize) {
        let frame = &self.buffer[header..length];
        self.wires[pair].carry();
        self.counts[pair].frames_out += 1;
        self.counts[pair].bytes_out += frame.len() as u64;
        if let Some(sink) = &mut self.sink {
            sink.frame(pair as u16, frame);
        }
        if let Some(window) = &self.gives {
            window.give();
        }
    }

    // ------------------------------------------------------------------------------------------ into the guest

    /// Offers what waits, then a batch of new frames.
    fn feed(&mut self, device: &mut Device) -> usize {
        if self.steerer.follow(device) {
            self.steer_backlog_anew();
        }
        if self.steerer.active().is_empty() {
            return 0;
        }
        let mut moved = self.feed_backlog(device);
        let mut frame = std::mem::take(&mut self.frame);
        for _ in 0..BATCH {
            if self.backlog.iter().any(|waiting| waiting.len() >= BATCH) {
                break;
            }
            let Some(offer) = self.next_frame(&mut frame) else { break };
            let pair = self.steerer.queue(&frame);
            if self.waits_for(pair) || self.put(device, pair, &frame) == Put::NoBuffer {
                match offer {
                    Offer::Lossless => self.backlog[pair].push_back(frame.clone()),
                    Offer::Flood => {
                        self.counts[pair].no_buffer += 1;
                        self.give_room_back();
                    }
                }
            } else {
                moved += 1;
            }
        }
        self.frame = frame;
        moved
    }

    /// The guest uses other queues than before: what waits has to wait for those.
    fn steer_backlog_anew(&mut self) {
        if self.steerer.active().is_empty() {
            return;
        }
        let waiting: Vec<_> = self.backlog.iter_mut().flat_map(std::mem::take).collect();
        for frame in waiting {
            self.backlog[self.steerer.queue(&frame)].push_back(frame);
        }
    }

    fn feed_backlog(&mut self, device: &mut Device) -> usize {
        let mut moved = 0;
        for pair in 0..self.backlog.len() {
            while let Some(frame) = self.backlog[pair].pop_front() {
                if self.put(device, pair, &frame) == Put::NoBuffer {
                    self.backlog[pair].push_front(frame);
                    break;
                }
                moved += 1;
            }
        }
        moved
    }

    /// Fills `frame` with the next frame, if there is one and the window has room for it; returns how it is offered.
    fn next_frame(&mut self, frame: &mut Vec<u8>) -> Option<Offer> {
        if self.takes.as_ref().is_some_and(|window| !window.take()) {
            return None;
        }
        frame.clear();
        if let Some(injected) = self.injected.pop_front() {
            *frame = injected;
            return Some(Offer::Lossless);
        }
        if self.source.as_mut().is_some_and(|source| source.next(frame)) {
            return Some(self.offer);
        }
        self.give_room_back();
        None
    }

    /// The frame for which the window had room does not go in.
    fn give_room_back(&self) {
        if let Some(window) = &self.takes {
            window.give();
        }
    }

    /// Writes the frame to the next buffer of a receive ring that is one. A frame that no buffer of the guest can hold
    /// is counted and thrown away.
    fn put(&mut self, device: &mut Device, pair: usize, frame: &[u8]) -> Put {
        let header = &HEADER[..device.header_length()];
        loop {
            let Some((ring, memory)) = device.running(pair, Direction::Receive) else { return Put::NoBuffer };
            match ring.put(memory, header, frame) {
                Ok(Put::Done) => break,
                Ok(Put::NoBuffer) => return Put::NoBuffer,
                Err(fault) => {
                    device.faults.record(fault);
                    if fault == Fault::Oversize {
                        self.give_room_back();
                        return Put::Done;
                    }
                }
            }
        }
        self.counts[pair].frames_in += 1;
        self.counts[pair].bytes_in += frame.len() as u64;
        Put::Done
    }
}

/// Whether the header before a frame is whole and asks for no offload: all but `num_buffers`, which means nothing on
/// this way (virtio 1.2, 5.1.6.2), is zero.
fn asks_for_nothing(bytes: &[u8], header: usize) -> bool {
    bytes.len() >= header && bytes[..LEGACY_HEADER].iter().all(|&byte| byte == 0)
}
