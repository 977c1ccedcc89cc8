//! Transmitting: fetch descriptors, put frames together, send them, report completion (datasheet 7.2).

use super::offload::{self, Checksums};
use super::{Layout, QUEUES, Ring, check_ring_write, check_withdrawn, is_enabled};
use crate::core::Core;
use crate::descriptor::{self, Advanced, Context, Data, Form, Legacy, Raw, Transmit as Descriptor};
use crate::filter::Cast;
use crate::headers::{Headers, VLAN_ETHERTYPE};
use crate::host::{Memory, Unmapped, Wire};
use crate::interrupt::Interrupts;
use crate::options::MAX_FRAME;
use crate::pools;
use crate::registers::*;
use crate::stats;
use crate::strict::Rule;

use super::rx::Receive;

/// Descriptors that are fetched at a time, and the most that are cached on chip (7.2.3.4).
const CACHED: usize = 40;
/// Descriptors of a queue that are worked on in one run, so that other queues get their turn.
const BURST: u32 = 512;
/// Descriptors of one frame (7.2.1.1).
const MOST_PER_FRAME: usize = 40;
/// The shortest frame that a descriptor may describe (7.2.1.1).
const LEAST: usize = 17;
/// The longest that segmentation takes (7.2.4.2).
const MOST_TO_SEGMENT: usize = 256 * 1024;
/// The least frame on a wire, without its CRC.
const MIN_FRAME: usize = 60;

const LAYOUT: Layout = Layout {
    base_low: Register::TDBAL,
    base_high: Register::TDBAH,
    len: Register::TDLEN,
    head: Register::TDH,
    tail: Register::TDT,
    control: Register::TXDCTL,
};

/// The transmit side.
pub(crate) struct Transmit {
    queues: Vec<Queue>,
    /// Queues whose tail was moved, and that have not been worked off.
    pending: u128,
    /// Rings that made a mistake: they hang, as on silicon, until they are enabled anew.
    broken: u128,
}

/// What the card keeps of a queue between descriptors.
#[derive(Clone, Default)]
struct Queue {
    contexts: [Option<Context>; 2],
    /// The frame so far.
    frame: Vec<u8>,
    /// Its first descriptor, whose options count.
    first: Option<Data>,
    descriptors: usize,
}

/// Why a queue stops.
enum Stop {
    Broken(Rule, u64),
    Unmapped(Unmapped),
}

impl From<Unmapped> for Stop {
    fn from(unmapped: Unmapped) -> Stop {
        Stop::Unmapped(unmapped)
    }
}

impl Transmit {
    pub(crate) fn new() -> Transmit {
        Transmit { queues: vec![Queue::default(); QUEUES], pending: 0, broken: 0 }
    }

    pub(crate) fn reset(&mut self) {
        *self = Transmit::new();
    }

    pub(crate) fn write(&mut self, core: &mut Core, register: Register, queue: usize, value: u32) {
        match register {
            Register::TXDCTL => self.control(core, queue, value),
            Register::TDT => self.tail(core, queue, value),
            Register::MTQC => {
                if core.values.get(Register::MTQC) != value
                    && !core.values.has(Register::RTTDCS, RTTDCS_ARBDIS)
                {
                    core.report(Rule::MtqcWhileArbitrating, register, queue, u64::from(value));
                }
                core.values.set(register, value);
            }
            _ => {
                check_ring_write(core, &LAYOUT, register, queue, value);
                core.values.set_at(register, queue, value);
            }
        }
    }

    fn control(&mut self, core: &mut Core, queue: usize, value: u32) {
        check_ring_write(core, &LAYOUT, Register::TXDCTL, queue, value);
        let enabled = is_enabled(core, &LAYOUT, queue);
        let enables = value & DCTL_ENABLE != 0;
        if (value & 0x7f) + (value >> 16 & 0x7f) > CACHED as u32 {
            core.report(Rule::ThresholdsTooHigh, Register::TXDCTL, queue, u64::from(value));
        }
        if enables && !enabled {
            if !core.values.has(Register::DMATXCTL, DMATXCTL_TE) {
                core.report(Rule::EnabledBeforeTransmitter, Register::TXDCTL, queue, u64::from(value));
            }
            if queue >= usable(core) {
                core.report(Rule::QueueOutsideMode, Register::TXDCTL, queue, u64::from(value));
            } else if core.values.at(Register::TXPBSIZE, class_of(core, queue)) == 0 {
                core.report(Rule::ClassWithoutBuffer, Register::TXDCTL, queue, u64::from(value));
            }
            self.queues[queue] = Queue::default();
            self.broken &= !(1 << queue);
        }
        // SWFLSH clears itself: nothing is ever held back here.
        core.values.set_at(Register::TXDCTL, queue, value & !TXDCTL_SWFLSH);
    }

    fn tail(&mut self, core: &mut Core, queue: usize, value: u32) {
        check_ring_write(core, &LAYOUT, Register::TDT, queue, value);
        if value >= core.values.at(Register::TDLEN, queue) / descriptor::LEN as u32 && value != 0 {
            self.broken |= 1 << queue;
            return;
        }
        core.values.set_at(Register::TDT, queue, value);
        self.pending |= 1 << queue;
    }

    pub(crate) fn withdrawn(&self, core: &mut Core, range: &std::ops::Range<u64>) {
        check_withdrawn(core, &LAYOUT, range);
    }

    /// Works off the rings; the number of frames that were sent.
    pub(crate) fn run(
        &mut self,
        core: &mut Core,
        interrupts: &mut Interrupts,
        receive: &mut Receive,
        memory: &dyn Memory,
        wire: &mut dyn Wire,
    ) -> usize {
        if !may_transmit(core) {
            return 0;
        }
        let mut work = Work { core, interrupts, receive, memory, wire, sent: 0 };
        let mut left = self.pending & !self.broken & !work.core.faults.hung;
        while left != 0 {
            let queue = left.trailing_zeros() as usize;
            left &= left - 1;
            let may = queue < usable(work.core) && pools::may_transmit(work.core, queue);
            if !may || !is_enabled(work.core, &LAYOUT, queue) {
                continue;
            }
            match work.ring(&mut self.queues[queue], queue) {
                Ok(true) => {}
                Ok(false) => self.pending &= !(1 << queue),
                Err(stop) => {
                    let (rule, value) = match stop {
                        Stop::Broken(rule, value) => (rule, value),
                        Stop::Unmapped(Unmapped { address, .. }) => (Rule::OutsideMemory, address),
                    };
                    work.core.report(rule, Register::TDT, queue, value);
                    self.broken |= 1 << queue;
                }
            }
        }
        work.sent
    }
}

/// Transmit queues in the mode that MTQC sets (8.2.3.9.15): 64 without classes and pools.
fn usable(core: &Core) -> usize {
    const CLASSES_OR_POOLS: u32 = 0x3;
    if core.values.has(Register::MTQC, CLASSES_OR_POOLS) { QUEUES } else { 64 }
}

/// The traffic class of a transmit queue (7.2.1.2.1): the first half of the queues is class 0's, or the first two classes' where
/// there are eight, and so on with what is left.
fn class_of(core: &Core, queue: usize) -> usize {
    const CLASSES: u32 = 0x1;
    const POOLS: u32 = 0x2;
    let mode = core.values.get(Register::MTQC);
    if mode & CLASSES == 0 {
        return 0;
    }
    if mode & POOLS != 0 {
        // Each pool has queues of all classes.
        return if mode >> 2 & 0b11 == 0b11 { queue % 8 } else { queue % 4 };
    }
    match (mode >> 2 & 0b11, queue) {
        (0b11, ..64) => queue / 32,
        (0b11, 64..96) => 2 + (queue - 64) / 16,
        (0b11, _) => 4 + (queue - 96) / 8,
        (_, ..64) => 0,
        (_, 64..96) => 1,
        (_, _) => 2 + (queue - 96) / 16,
    }
}

/// Whether descriptors are fetched at all. Without a link the card stops: what is queued stays queued.
fn may_transmit(core: &Core) -> bool {
    let leads_somewhere =
        core.values.has(Register::LINKS, LINKS_UP) || core.values.has(Register::HLREG0, HLREG0_LPBK);
    core.now >= core.paused_until
        && core.values.has(Register::DMATXCTL, DMATXCTL_TE)
        && !core.values.has(Register::SECTXCTRL, SEC_PATH_DIS)
        && !core.values.has(Register::CTRL, CTRL_PCIE_MASTER_DISABLE)
        && leads_somewhere
}

/// One run over the rings.
struct Work<'a> {
    core: &'a mut Core,
    interrupts: &'a mut Interrupts,
    receive: &'a mut Receive,
    memory: &'a dyn Memory,
    wire: &'a mut dyn Wire,
    sent: usize,
}

impl Work<'_> {
    /// Works on a ring; whether more is left.
    fn ring(&mut self, state: &mut Queue, queue: usize) -> Result<bool, Stop> {
        let ring = Ring::of(self.core, &LAYOUT, queue);
        let mut head = ring.head;
        let mut left = ring.available().min(BURST);
        let more = ring.available() > left;
        let mut bytes = [0; CACHED * descriptor::LEN];
        while left > 0 {
            let count = left.min(CACHED as u32).min(ring.size - head);
            let bytes = &mut bytes[..count as usize * descriptor::LEN];
            self.memory.read(ring.address(head), bytes)?;
            let (descriptors, _) = bytes.as_chunks();
            for raw in descriptors {
                let index = head;
                head = ring.after(head);
                let reports = self.descriptor(state, queue, Raw::from_bytes(raw))?;
                self.core.values.set_at(Register::TDH, queue, head);
                if reports {
                    self.complete(&ring, queue, index, head)?;
                }
            }
            left -= count;
        }
        Ok(more)
    }

    /// Takes one descriptor; whether its completion is to be reported.
    fn descriptor(&mut self, state: &mut Queue, queue: usize, raw: Raw) -> Result<bool, Stop> {
        match Descriptor::parse(raw) {
            Descriptor::Context { index, context } => {
                state.contexts[index] = Some(context);
                Ok(false)
            }
            Descriptor::Unknown => Err(Stop::Broken(Rule::BadTransmitDescriptor, raw.high)),
            Descriptor::Data(data) => self.data(state, queue, data),
        }
    }

    fn data(&mut self, state: &mut Queue, queue: usize, data: Data) -> Result<bool, Stop> {
        if data.len == 0 {
            return Err(Stop::Broken(Rule::BadTransmitDescriptor, 0));
        }
        state.descriptors += 1;
        let start = state.frame.len();
        if state.descriptors > MOST_PER_FRAME {
            return Err(Stop::Broken(Rule::TooManyDescriptors, state.descriptors as u64));
        }
        if start + data.len > MOST_TO_SEGMENT {
            return Err(Stop::Broken(Rule::FrameLength, (start + data.len) as u64));
        }
        state.first.get_or_insert(data);
        state.frame.resize(start + data.len, 0);
        self.memory.read(data.address, &mut state.frame[start..])?;
        if data.end {
            self.frame(state, queue)?;
            state.frame.clear();
            state.first = None;
            state.descriptors = 0;
        } else if data.report && matches!(data.form, Form::Advanced(_)) {
            self.core.report(Rule::StatusBeforeEnd, Register::TDT, queue, data.address);
        }
        Ok(data.report)
    }

    /// A frame is complete.
    fn frame(&mut self, state: &mut Queue, queue: usize) -> Result<(), Stop> {
        let Some(first) = state.first else { return Ok(()) };
        let len = state.frame.len();
        if !first.crc {
            self.core.report(Rule::FrameWithoutCrc, Register::TDT, queue, len as u64);
        }
        match first.form {
            Form::Legacy(legacy) => self.legacy(state, queue, first, legacy),
            Form::Advanced(advanced) if advanced.segment => self.segments(state, queue, first, advanced),
            Form::Advanced(advanced) => self.advanced(state, queue, first, advanced),
        }
    }

    fn legacy(&mut self, state: &mut Queue, queue: usize, first: Data, legacy: Legacy) -> Result<(), Stop> {
        check_len(state.frame.len())?;
        if legacy.insert_checksum {
            let (start, at) = (usize::from(legacy.checksum_start), usize::from(legacy.checksum_offset));
            if !offload::insert_checksum(&mut state.frame, start, at) {
                return Err(Stop::Broken(Rule::MissingContext, at as u64));
            }
        }
        self.send(queue, &mut state.frame, first.insert_vlan.then_some(legacy.vlan));
        Ok(())
    }

    fn advanced(
        &mut self,
        state: &mut Queue,
        queue: usize,
        first: Data,
        advanced: Advanced,
    ) -> Result<(), Stop> {
        let len = state.frame.len();
        check_len(len)?;
        self.check_payload(queue, advanced.payload, len);
        let wanted = Checksums { ip: advanced.insert_ip_checksum, l4: advanced.insert_l4_checksum };
        let context = match state.contexts[advanced.context] {
            Some(context) => context,
            None if advanced.check_context || wanted.ip || wanted.l4 || first.insert_vlan => {
                return Err(Stop::Broken(Rule::MissingContext, advanced.context as u64));
            }
            None => Context::default(),
        };
        offload::finish(&mut state.frame, &context, wanted)
            .map_err(|_| Stop::Broken(Rule::MissingContext, len as u64))?;
        self.send(queue, &mut state.frame, first.insert_vlan.then_some(context.vlan));
        Ok(())
    }

    /// One descriptor, several frames (7.2.4).
    fn segments(
        &mut self,
        state: &mut Queue,
        queue: usize,
        first: Data,
        advanced: Advanced,
    ) -> Result<(), Stop> {
        let missing = Stop::Broken(Rule::MissingContext, advanced.context as u64);
        let Some(context) = state.contexts[advanced.context] else { return Err(missing) };
        let header = context.mac_len + context.ip_len + context.l4_len;
        self.check_payload(queue, advanced.payload, state.frame.len().saturating_sub(header));
        let vlan = first.insert_vlan.then_some(context.vlan);
        offload::segment(&state.frame, &context, |part| self.send(queue, part, vlan)).map_err(|_| missing)
    }

    fn check_payload(&mut self, queue: usize, payload: usize, actual: usize) {
        if payload != actual {
            self.core.report(Rule::PayloadLength, Register::TDT, queue, payload as u64);
        }
    }

    /// A frame leaves the card.
    fn send(&mut self, queue: usize, frame: &mut Vec<u8>, vlan: Option<u16>) {
        if let Some(tag) = vlan {
            let [high, low] = tag.to_be_bytes();
            let [type_high, type_low] = VLAN_ETHERTYPE.to_be_bytes();
            frame.splice(12..12, [type_high, type_low, high, low]);
        }
        if frame.len() < MIN_FRAME && self.core.values.has(Register::HLREG0, HLREG0_TXPADEN) {
            frame.resize(MIN_FRAME, 0);
        }
        stats::sent(self.core, queue, frame);
        self.sent += 1;
        if self.core.values.has(Register::HLREG0, HLREG0_LPBK) {
            self.receive.loop_back(self.core, frame);
            return;
        }
        let headers = Headers::parse(frame, VLAN_ETHERTYPE);
        let pools = pools::local(self.core, queue, frame, &headers);
        self.receive.switch(self.core, frame, headers, pools);
        // A frame for one pool of this card has arrived; others go out as well.
        if pools == 0 || Cast::of(frame) != Cast::Unicast {
            self.wire.transmit(queue as u16, frame);
        }
    }

    /// Reports that all descriptors up to this one are done: in the descriptor, or by the head in memory (7.2.3.5).
    fn complete(&mut self, ring: &Ring, queue: usize, index: u32, head: u32) -> Result<(), Stop> {
        if self.core.faults.loses_completion(queue as u16) {
            return Ok(());
        }
        let head_address = self.core.values.wide(Register::TDWBAL, Register::TDWBAH, queue);
        if head_address & u64::from(TDWBAL_HEAD_WB_EN) != 0 {
            self.memory.write(head_address & !3, &head.to_le_bytes())?;
        } else {
            ring.write(self.memory, index, descriptor::TRANSMITTED)?;
        }
        self.interrupts.transmitted(self.core, queue);
        Ok(())
    }
}

fn check_len(len: usize) -> Result<(), Stop> {
    if (LEAST..=MAX_FRAME).contains(&len) { Ok(()) } else { Err(Stop::Broken(Rule::FrameLength, len as u64)) }
}
