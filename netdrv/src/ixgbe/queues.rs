//! The queues of a function until they are handed out, and what its owner keeps of them then.

use alloc::vec::Vec;

use super::access::ReadWrite;
use super::descriptor::DESCRIPTOR_SIZE;
use super::enable::RingPlace;
use super::error::IxgbeError;
use super::gate::Gates;
use super::interrupt::{Entry, Interrupt};
use super::registers::{RDT, TxRings};
use super::ring::PacketRing;
use super::rx::IxgbeRx;
use super::tx::IxgbeTx;
use super::tx_mode::TxMode;
use super::wait::{Clock, MILLISECOND};
use crate::device::{QueueShape, Queues, Quiesced};
use crate::hal::Hal;
use crate::mmio::Bar;
use crate::pool::Pool;

/// How long a stop waits for queues to leave their registers: they are there for some instructions.
const LEAVE_PATIENCE: u64 = 100 * MILLISECOND;

/// What queues differ in by the kind of function that has them.
pub(super) struct Wiring {
    pub(super) tx_rings: &'static TxRings,
    pub(super) tx_mode: TxMode,
    /// The interrupt of a receive queue.
    pub(super) entry: fn(usize) -> Entry,
    /// Free bytes before a received frame.
    pub(super) headroom: usize,
}

/// The queues of one function.
pub(super) struct QueueSet<B: Bar> {
    /// Those that are not handed out.
    queues: Option<Queues<IxgbeRx<B>, IxgbeTx<B>>>,
    pub(super) gates: Gates,
    quiesced: Quiesced,
    /// Where their rings are.
    pub(super) rx: Vec<RingPlace>,
    pub(super) tx: Vec<RingPlace>,
}

impl<B: Bar> QueueSet<B> {
    /// Makes queues for a card that is being reset: they begin with its next life. The first `interrupts` receive queues
    /// interrupt.
    pub(super) fn new<H: Hal>(
        bar: &B,
        shape: QueueShape,
        wiring: &Wiring,
        interrupts: usize,
    ) -> Result<QueueSet<B>, IxgbeError> {
        let mut set = QueueSet {
            queues: None,
            gates: Gates::default(),
            quiesced: Quiesced::default(),
            rx: Vec::new(),
            tx: Vec::new(),
        };
        set.gates.close();
        let mut queues = Queues { rx: Vec::new(), tx: Vec::new() };
        let outcome = set.make::<H>(&mut queues, bar, shape, wiring, interrupts);
        if outcome.is_err() {
            // The card has not heard of any ring.
            set.confirm_stopped();
        }
        set.queues = Some(queues);
        outcome.map(|()| set)
    }

    fn make<H: Hal>(
        &mut self,
        queues: &mut Queues<IxgbeRx<B>, IxgbeTx<B>>,
        bar: &B,
        shape: QueueShape,
        wiring: &Wiring,
        interrupts: usize,
    ) -> Result<(), IxgbeError> {
        for queue in 0..shape.rx {
            let (ring, place) = self.ring::<H>(bar, shape.rx_ring, RDT.row(queue))?;
            let entry = (queue < interrupts).then(|| (wiring.entry)(queue));
            queues.rx.push(IxgbeRx::new(ring, Interrupt::new(bar.clone(), entry), wiring.headroom));
            self.rx.push(place);
        }
        for queue in 0..shape.tx {
            let (ring, place) =
                self.ring::<H>(bar, shape.tx_ring, wiring.tx_rings.tdt.row(wiring.tx_mode.queue(queue)))?;
            queues.tx.push(IxgbeTx::new(ring));
            self.tx.push(place);
        }
        Ok(())
    }

    fn ring<H: Hal>(
        &mut self,
        bar: &B,
        size: usize,
        tail: ReadWrite,
    ) -> Result<(PacketRing<B>, RingPlace), IxgbeError> {
        let gate = self.gates.add();
        let ring = PacketRing::new::<H>(size, bar.clone(), tail, gate, self.quiesced.clone())?;
        let place = RingPlace { address: ring.address(), len: (size * DESCRIPTOR_SIZE) as u32 };
        Ok((ring, place))
    }

    /// Whether somebody else has the queues.
    pub(super) fn are_taken(&self) -> bool {
        self.queues.is_none()
    }

    /// Hands the queues out, with their receive rings full. `None` where that was done before.
    pub(super) fn take(&mut self, pool: &'static Pool) -> Option<Queues<IxgbeRx<B>, IxgbeTx<B>>> {
        let mut queues = self.queues.take()?;
        let mut cache = pool.cache();
        queues.rx.iter_mut().for_each(|queue| queue.fill(&mut cache));
        Some(queues)
    }

    /// Frames that the card had and did not report before it was reset.
    pub(super) fn lost(&self) -> u64 {
        self.gates.notices().map(|notice| notice.lost()).sum()
    }

    /// Keeps queues off their registers from now on, and waits until they have left.
    pub(super) fn keep_off(&self, clock: Clock) {
        self.gates.close();
        let started = clock();
        while !self.gates.are_free() && clock().saturating_sub(started) < LEAVE_PATIENCE {
            core::hint::spin_loop();
        }
    }

    /// The card has let go of the rings and of all buffers in them.
    pub(super) fn confirm_stopped(&self) {
        self.quiesced.confirm();
    }
}
