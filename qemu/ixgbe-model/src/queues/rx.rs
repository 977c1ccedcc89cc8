//! From the packet buffer into rings: put the frame in the host's memory, write descriptors back (datasheet 7.1).

use std::borrow::Cow;
use std::time::Duration;

use super::arrival::{PacketBuffer, Waiting};
use super::steer::Route;
use super::{Layout, Ring, check_ring_write, check_withdrawn, is_enabled, offload};
use crate::core::Core;
use crate::descriptor::Received;
use crate::fault::Corruption;
use crate::filter::Cast;
use crate::headers::{Headers, SCTP, TAG_LEN, TCP, UDP, Version};
use crate::host::{Memory, Unmapped, Wire};
use crate::interrupt::Interrupts;
use crate::registers::*;
use crate::stats;
use crate::strict::Rule;

/// Frames that are received in one run, so that the rest of the card gets its turn.
const BURST: usize = 256;

const LAYOUT: Layout = Layout {
    base_low: Register::RDBAL,
    base_high: Register::RDBAH,
    len: Register::RDLEN,
    head: Register::RDH,
    tail: Register::RDT,
    control: Register::RXDCTL,
};

/// The receive side.
#[derive(Default)]
pub(crate) struct Receive {
    pub(crate) buffer: PacketBuffer,
    /// Rings whose descriptors or buffers cannot be reached: they stand still until they are enabled anew.
    broken: u128,
    /// Since when the frame in front has found no descriptor.
    dry_since: Option<Duration>,
    /// Rings whose tail has not come in time: they drop at once, until it does.
    dry: u128,
}

/// The bits of a tail that can be written (8.2.3.8.5).
const TAIL: u32 = 0xffff;

impl Receive {
    pub(crate) fn reset(&mut self) {
        *self = Receive::default();
    }

    pub(crate) fn write(&mut self, core: &mut Core, register: Register, queue: usize, value: u32) {
        check_write(core, register, queue, value);
        match register {
            Register::RXDCTL => {
                if value & DCTL_ENABLE != 0 && !is_enabled(core, &LAYOUT, queue) {
                    check_buffers(core, queue);
                    self.broken &= !(1 << queue);
                }
                core.values.set_at(register, queue, value);
            }
            Register::RDT => {
                self.dry &= !(1 << queue);
                let ring = Ring::of(core, &LAYOUT, queue);
                // Silicon runs off the ring; here the ring stands still.
                if is_enabled(core, &LAYOUT, queue) && value >= ring.size {
                    self.broken |= 1 << queue;
                }
                core.values.set_at(register, queue, value & TAIL);
            }
            Register::RXCTRL => {
                check_receiver(core, value);
                core.values.set(register, value);
            }
            _ => core.values.set_at(register, queue, value),
        }
    }

    pub(crate) fn withdrawn(&self, core: &mut Core, range: &std::ops::Range<u64>) {
        check_withdrawn(core, &LAYOUT, range);
    }

    /// What is sent in loop-back mode arrives.
    pub(crate) fn loop_back(&mut self, core: &mut Core, frame: &[u8]) {
        self.buffer.loop_back(core, frame);
    }

    /// What one pool sends to others arrives there.
    pub(crate) fn switch(&mut self, core: &mut Core, frame: &[u8], headers: Headers, pools: u64) {
        self.buffer.switch(core, frame, headers, pools);
    }

    /// Moves frames from the wire into rings, or as far as they come; the number that moved.
    pub(crate) fn run(
        &mut self,
        core: &mut Core,
        interrupts: &mut Interrupts,
        memory: &dyn Memory,
        wire: &mut dyn Wire,
    ) -> usize {
        let mut moved = 0;
        while moved < BURST {
            let arrived = self.buffer.arrive(core, interrupts, wire);
            let delivered = may_receive(core) && self.deliver_front(core, interrupts, memory);
            if !arrived && !delivered {
                break;
            }
            moved += 1;
        }
        moved
    }

    /// Puts the frame in front of the packet buffer into its ring; false when there is none, or it has to wait.
    fn deliver_front(&mut self, core: &mut Core, interrupts: &mut Interrupts, memory: &dyn Memory) -> bool {
        let Some(waiting) = self.buffer.front() else { return false };
        let queue = waiting.queue;
        let stuck = (self.broken | core.faults.stalled) >> queue & 1 == 1;
        if stuck || !is_enabled(core, &LAYOUT, queue) {
            stats::dropped(core, queue);
        } else if !has_room(core, queue, waiting.frame.len()) {
            if !drops(core, queue) || self.tail_may_come(core, queue) {
                // Nothing behind it moves either (7.1.9, DROP_EN).
                return false;
            }
            stats::dropped(core, queue);
        } else if let Err(Unmapped { address, .. }) = deliver(core, interrupts, memory, waiting) {
            core.report(Rule::OutsideMemory, Register::RDT, queue, address);
            self.broken |= 1 << queue;
        }
        self.dry_since = None;
        self.buffer.pop();
        true
    }

    /// Whether the tail of a dry ring may still be on its way.
    fn tail_may_come(&mut self, core: &Core, queue: usize) -> bool {
        let since = *self.dry_since.get_or_insert(core.now);
        if core.now - since >= core.options.write_delay {
            self.dry |= 1 << queue;
        }
        self.dry >> queue & 1 == 0
    }
}

/// Puts a frame into its ring.
fn deliver(
    core: &mut Core,
    interrupts: &mut Interrupts,
    memory: &dyn Memory,
    waiting: &Waiting,
) -> Result<(), Unmapped> {
    let Waiting { frame, headers, queue, route } = waiting;
    let len = put(core, memory, *queue, frame, headers, route)?;
    stats::delivered(core, *queue, len, Cast::of(frame));
    interrupts.received(core, *queue);
    Ok(())
}

/// What a write to a receive register breaks.
fn check_write(core: &mut Core, register: Register, queue: usize, value: u32) {
    let differs = core.values.at(register, queue) ^ value;
    match register {
        // Whether to drop may change at any time.
        Register::SRRCTL if differs & !SRRCTL_DROP_EN == 0 => {}
        Register::RXCTRL => {}
        _ => check_ring_write(core, &LAYOUT, register, queue, value),
    }
}

/// What a ring's buffers have to be when it is enabled (8.2.3.8.7).
fn check_buffers(core: &mut Core, queue: usize) {
    const ADVANCED_ONE_BUFFER: u32 = 1;
    let srrctl = core.values.at(Register::SRRCTL, queue);
    if !(1..=16).contains(&(srrctl & 0x1f)) {
        core.report(Rule::EnabledUnprogrammed, Register::SRRCTL, queue, u64::from(srrctl));
    }
    if srrctl >> 25 & 7 > ADVANCED_ONE_BUFFER {
        // Split headers.
        core.report(Rule::NotModelled, Register::SRRCTL, queue, u64::from(srrctl));
    }
}

/// What has to hold when the receiver is switched on.
fn check_receiver(core: &mut Core, value: u32) {
    if value & RXCTRL_RXEN == 0 || core.values.has(Register::RXCTRL, RXCTRL_RXEN) {
        return;
    }
    if !core.values.has(Register::SECRXCTRL, SEC_PATH_DIS) {
        core.report(Rule::ReceiverEnabledUnderTraffic, Register::RXCTRL, 0, u64::from(value));
    }
    let strips = core.values.has(Register::HLREG0, HLREG0_RXCRCSTRP);
    if strips != core.values.has(Register::RDRXCTL, RDRXCTL_CRC_STRIP) {
        core.report(
            Rule::CrcStripDiffers,
            Register::RDRXCTL,
            0,
            u64::from(core.values.get(Register::RDRXCTL)),
        );
    }
}

/// Whether anything may move from the packet buffer into memory.
pub(super) fn may_receive(core: &Core) -> bool {
    core.values.has(Register::RXCTRL, RXCTRL_RXEN)
        && !core.values.has(Register::SECRXCTRL, SEC_PATH_DIS)
        && !core.values.has(Register::CTRL, CTRL_PCIE_MASTER_DISABLE)
}

/// Bytes of a buffer: SRRCTL.BSIZEPACKET counts kilobytes (8.2.3.8.7).
fn buffer_len(core: &Core, queue: usize) -> usize {
    ((core.values.at(Register::SRRCTL, queue) & 0x1f) as usize * 1024).max(1024)
}

fn has_room(core: &Core, queue: usize, len: usize) -> bool {
    let crc = if core.values.has(Register::HLREG0, HLREG0_RXCRCSTRP) { 0 } else { stats::CRC_LEN };
    let needed = (len + crc).div_ceil(buffer_len(core, queue));
    Ring::of(core, &LAYOUT, queue).available() as usize >= needed
}

fn drops(core: &Core, queue: usize) -> bool {
    core.values.at(Register::SRRCTL, queue) & SRRCTL_DROP_EN != 0
}

/// Writes a frame and its descriptors to memory; the bytes of it that the host gets.
fn put(
    core: &mut Core,
    memory: &dyn Memory,
    queue: usize,
    frame: &[u8],
    headers: &Headers,
    route: &Route,
) -> Result<usize, Unmapped> {
    let mut template = describe(frame, headers, route);
    let strips_tag = template.tagged && core.values.at(Register::RXDCTL, queue) & RXDCTL_VME != 0;
    if strips_tag {
        template.vlan = headers.vlan.unwrap_or(0);
    }
    let strips_crc = core.values.has(Register::HLREG0, HLREG0_RXCRCSTRP);
    let data = delivered_bytes(frame, strips_tag, strips_crc);
    let descriptor_type = core.values.at(Register::SRRCTL, queue) >> 25 & 7;
    let ring = Ring::of(core, &LAYOUT, queue);
    let mut head = ring.head;
    let capacity = buffer_len(core, queue);
    let parts = data.len().div_ceil(capacity);
    for (part, bytes) in data.chunks(capacity).enumerate() {
        let raw = ring.read(memory, head)?;
        memory.write(raw.low, bytes)?;
        let mut received = Received { len: bytes.len() as u16, end: part + 1 == parts, ..template };
        corrupt(core, queue, capacity, &mut received);
        let back = if descriptor_type == 0 { received.legacy(raw.low) } else { received.advanced() };
        ring.write(memory, head, back)?;
        head = ring.after(head);
        core.values.set_at(Register::RDH, queue, head);
    }
    Ok(data.len())
}

/// The bytes of a frame that the host gets.
fn delivered_bytes(frame: &[u8], strips_tag: bool, strips_crc: bool) -> Cow<'_, [u8]> {
    if !strips_tag && strips_crc {
        return Cow::Borrowed(frame);
    }
    let mut data = frame.to_vec();
    if strips_tag {
        data.drain(12..12 + TAG_LEN);
    }
    if !strips_crc {
        data.extend(crc32fast::hash(frame).to_le_bytes());
    }
    Cow::Owned(data)
}

/// What every descriptor of the frame says.
fn describe(frame: &[u8], headers: &Headers, route: &Route) -> Received {
    let mut received = Received {
        tagged: headers.vlan.is_some(),
        hash_type: route.hash.kind as u8,
        hash: route.hash.value,
        flow_matched: route.flow_matched,
        ..Received::default()
    };
    let Some(ip) = headers.ip else { return received };
    let bit = |set: bool, bit: u16| u16::from(set) << bit;
    let whole = !ip.fragment;
    received.packet_type = bit(ip.version == Version::V4, 0)
        | bit(ip.version == Version::V4 && ip.extended, 1)
        | bit(ip.version == Version::V6, 2)
        | bit(ip.version == Version::V6 && ip.extended, 3)
        | bit(whole && ip.protocol == TCP, 4)
        | bit(whole && ip.protocol == UDP, 5)
        | bit(whole && ip.protocol == SCTP, 6);
    received.udp = ip.protocol == UDP;
    received.ip_checksum = offload::ip_checksum_is_right(frame, &ip);
    received.l4_checksum = if whole { offload::l4_checksum_is_right(frame, &ip) } else { None };
    received
}

/// The injector's hand.
fn corrupt(core: &mut Core, queue: usize, capacity: usize, received: &mut Received) {
    match core.faults.corruption(queue as u16) {
        None => {}
        Some(Corruption::LengthTooLong) => received.len = (capacity + 64).min(usize::from(u16::MAX)) as u16,
        Some(Corruption::LengthZero) => received.len = 0,
        Some(Corruption::ErrorBits) => received.error = true,
        Some(Corruption::NoEnd) => received.end = false,
    }
}
