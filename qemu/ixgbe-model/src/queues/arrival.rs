//! From the wire into the packet buffer: what is let in, and for which queues (datasheet 7.1.1, 7.1.2).

use std::collections::VecDeque;

use super::flow_director::FlowDirector;
use super::rx::may_receive;
use super::steer::{self, Route};
use crate::core::Core;
use crate::filter;
use crate::headers::{Headers, TAG_LEN};
use crate::host::Wire;
use crate::interrupt::Interrupts;
use crate::options::Overrun;
use crate::pause;
use crate::pools;
use crate::registers::*;
use crate::stats;

/// The least frame on a wire, without its CRC.
const MIN_FRAME: usize = 60;
/// The longest frame without HLREG0.JUMBOEN, CRC included and tag not.
const STANDARD_FRAME: usize = 1518;

/// A frame that was let in, on its way to one ring.
pub(super) struct Waiting {
    pub(super) frame: Vec<u8>,
    pub(super) headers: Headers,
    pub(super) queue: usize,
    pub(super) route: Route,
}

/// The packet buffer, and the filters before it.
#[derive(Default)]
pub(crate) struct PacketBuffer {
    waiting: VecDeque<Waiting>,
    /// Bytes of the frames that wait.
    bytes: usize,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
    pub(crate) flow_director: FlowDirector,
}

impl PacketBuffer {
    /// Takes the next frame from the wire, if the card listens and there is one.
    pub(super) fn arrive(
        &mut self,
        core: &mut Core,
        interrupts: &mut Interrupts,
        wire: &mut dyn Wire,
    ) -> bool {
        let link =
            core.values.has(Register::LINKS, LINKS_UP) && !core.values.has(Register::HLREG0, HLREG0_LPBK);
        let waits = core.options.overrun == Overrun::Wait;
        if !link || waits && (!self.waiting.is_empty() || !may_receive(core)) {
            return false;
        }
        let mut frame = self.spare();
        if !wire.receive(&mut frame) {
            self.spare.push(frame);
            return false;
        }
        if frame.len() < MIN_FRAME {
            // The partner's MAC pads.
            frame.resize(MIN_FRAME, 0);
        }
        if !core.values.has(Register::RXCTRL, RXCTRL_RXEN) {
            stats::count(core, Register::RXMPC, 0);
            self.spare.push(frame);
        } else if !self.has_room(core, frame.len()) {
            interrupts.other(EICR_RX_MISS);
            self.spare.push(frame);
        } else {
            self.admit(core, frame);
        }
        true
    }

    /// Whether a frame fits in; one that does not is counted as missed.
    fn has_room(&self, core: &mut Core, len: usize) -> bool {
        let fits = self.bytes + len <= core.values.at(Register::RXPBSIZE, 0) as usize;
        if !fits {
            stats::count(core, Register::MPC, 0);
        }
        fits
    }

    /// What is sent in loop-back mode arrives.
    pub(super) fn loop_back(&mut self, core: &mut Core, frame: &[u8]) {
        if !self.has_room(core, frame.len()) {
            return;
        }
        let mut copy = self.spare();
        copy.extend_from_slice(frame);
        self.admit(core, copy);
    }

    /// A frame of one pool goes to others.
    pub(super) fn switch(&mut self, core: &mut Core, frame: &[u8], headers: Headers, pools: u64) {
        for pool in (0..u64::BITS as usize).filter(|pool| pools >> pool & 1 == 1) {
            if !self.has_room(core, frame.len()) {
                return;
            }
            let mut copy = self.spare();
            copy.extend_from_slice(frame);
            self.store(core, copy, headers, pool);
        }
    }

    /// Counts and filters a frame, and finds its queues.
    fn admit(&mut self, core: &mut Core, frame: Vec<u8>) {
        let headers = Headers::parse(&frame, core.values.get(Register::VLNCTRL) as u16);
        if is_oversize(core, frame.len(), &headers) {
            stats::count(core, Register::ROC, 0);
            self.spare.push(frame);
            return;
        }
        stats::arrived(core, frame.len());
        if pause::absorbs(core, &frame, &headers) {
            self.spare.push(frame);
            return;
        }
        let passes = filter::passes(core, &frame, &headers);
        let mut pools = if passes { pools::of(core, &frame, &headers) } else { 0 };
        if pools != 0 {
            stats::passed(core, &frame);
        }
        // A copy for each pool but the last, which gets the frame itself.
        while pools.count_ones() > 1 {
            let mut copy = self.spare();
            copy.extend_from_slice(&frame);
            self.store(core, copy, headers, pools.trailing_zeros() as usize);
            pools &= pools - 1;
        }
        match pools {
            0 => self.spare.push(frame),
            _ => self.store(core, frame, headers, pools.trailing_zeros() as usize),
        }
    }

    fn store(&mut self, core: &mut Core, frame: Vec<u8>, headers: Headers, pool: usize) {
        let route = steer::route(core, &self.flow_director, &frame, &headers, pool);
        match route.queue {
            Some(queue) => {
                self.bytes += frame.len();
                self.waiting.push_back(Waiting { frame, headers, queue, route });
            }
            None => self.spare.push(frame),
        }
    }

    pub(super) fn front(&self) -> Option<&Waiting> {
        self.waiting.front()
    }

    /// The frame in front is done with.
    pub(super) fn pop(&mut self) {
        if let Some(Waiting { frame, .. }) = self.waiting.pop_front() {
            self.bytes -= frame.len();
            self.spare.push(frame);
        }
    }

    fn spare(&mut self) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }
}

fn is_oversize(core: &Core, len: usize, headers: &Headers) -> bool {
    let limit = if core.values.has(Register::HLREG0, HLREG0_JUMBOEN) {
        (core.values.get(Register::MAXFRS) >> 16) as usize
    } else {
        STANDARD_FRAME
    };
    let tag = if headers.vlan.is_some() { TAG_LEN } else { 0 };
    len + stats::CRC_LEN > limit + tag
}
