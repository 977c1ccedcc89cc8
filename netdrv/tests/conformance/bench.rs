//! What a driver brings to the suite, and the driver's side of every test.

use netdrv::device::{NetDevice, Queues, RxDrops, RxQueue, TxQueue};
use netdrv::packet::{Burst, Packet};
use netdrv::pool::{Pool, PoolCache};

use super::hal::TestHal;

/// A driver together with a fake device. The device checks all that the driver does, and panics where that
/// breaks the rules.
pub(crate) trait Bench {
    /// The driver's device.
    type Device: NetDevice;

    /// Descriptors of a ring that never hold a packet.
    const SPARE: usize;
    /// The shortest frame on the wire: what is shorter gets padded with zeros. And the longest that comes in.
    const SHORTEST: usize;
    const LONGEST: usize;
    /// Whether a frame without a byte can be sent.
    const SENDS_EMPTY: bool;
    /// Whether a frame can be sent that leaves no room in its buffer for a device's header.
    const SENDS_WHOLE_BUFFERS: bool;

    /// Frame number `number` of a test, as the wire has it: every byte depends on the number, so do the length and
    /// nothing else.
    fn frame(number: u32, max: usize) -> Vec<u8> {
        let mut frame = frame(number, max.min(Self::LONGEST));
        frame.resize(frame.len().max(Self::SHORTEST), 0);
        frame
    }

    /// The driver.
    fn device(&mut self) -> &mut Self::Device;

    /// Puts a frame on the wire, for receive queue `queue`.
    fn feed(&mut self, queue: usize, frame: Vec<u8>);

    /// Frames that were fed and have found no buffer yet.
    fn pending(&self, queue: usize) -> usize;

    /// Lets the device work until nothing is left that it knows of.
    fn run(&mut self);

    /// What has left through transmit queue `queue` since the last call.
    fn collect(&mut self, queue: usize) -> Vec<Vec<u8>>;

    /// Has the device do something that no device may do. False where it can't, or has no buffer to do it with.
    fn misbehave(&mut self, misdeed: Misdeed) -> bool;
}

/// What a broken device does, on queue pair 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Misdeed {
    /// Completes a receive buffer with fewer bytes than its own header has.
    Truncated,
    /// Completes a receive buffer with more bytes than it has.
    Oversize,
    /// Completes a receive descriptor that does not exist.
    UnknownDescriptor,
    /// Completes a receive descriptor with fewer bytes than a header has, and then once more.
    DuplicateDescriptor,
    /// Claims to have completed more receive descriptors than it was given.
    ReceiveIndexJump,
    /// Completes a transmit descriptor that does not exist.
    TransmitUnknown,
    /// Claims to have completed more transmit descriptors than it was given.
    TransmitIndexJump,
    /// Reports that it has failed.
    NeedsReset,
    /// Does not confirm a reset.
    NeverStops,
}

/// Rounds without any progress after which traffic counts as stopped.
pub(crate) const PATIENCE: usize = 1_000;
/// Looks at a queue after which its driver has taken every frame that there was.
pub(crate) const LOOKS: usize = 100;

/// A driver with its queues taken: one core that does everything.
pub(crate) struct Rig<B: Bench> {
    pub(crate) bench: B,
    pub(crate) pool: &'static Pool,
    pub(crate) cache: PoolCache,
    pub(crate) queues: Queues<<B::Device as NetDevice>::Rx, <B::Device as NetDevice>::Tx>,
    /// Received and not yet sent, by queue.
    pub(crate) bursts: Vec<Burst>,
}

impl<B: Bench> Rig<B> {
    /// Takes the queues of a fresh device, with a pool that fills its rings and leaves a few buffers.
    pub(crate) fn new(mut bench: B) -> Rig<B> {
        let pool = Pool::new::<TestHal>(bench.device().shape().buffers() + 256).expect("memory");
        Rig::with_pool(bench, pool)
    }

    /// The same with a given pool, all of whose buffers are at home.
    pub(crate) fn with_pool(mut bench: B, pool: &'static Pool) -> Rig<B> {
        let shape = bench.device().shape();
        let queues = bench.device().take_queues(pool).expect("queues, the first time");
        assert_eq!((queues.rx.len(), queues.tx.len()), (shape.rx, shape.tx));
        assert!(bench.device().take_queues(pool).is_none(), "queues are handed out once");
        let bursts = (0..shape.rx).map(|_| Burst::new()).collect();
        Rig { bench, pool, cache: pool.cache(), queues, bursts }
    }

    /// Receives up to `batch` frames on `queue` and sends them back on the transmit queue of the same number.
    /// What the transmit ring does not take goes first the next time.
    pub(crate) fn echo(&mut self, queue: usize, batch: usize) {
        let (rx, tx) = (&mut self.queues.rx[queue], &mut self.queues.tx[queue]);
        let burst = &mut self.bursts[queue];
        tx.reclaim(&mut self.cache);
        if burst.is_empty() {
            let received = rx.receive(&mut self.cache, burst, batch);
            assert_eq!(received, burst.len());
            assert!(received <= batch);
        }
        let before = burst.len();
        let sent = tx.enqueue(burst);
        assert_eq!(burst.len(), before - sent);
        tx.flush();
    }

    /// Receives up to `batch` frames on `queue` and gives back their bytes.
    pub(crate) fn receive(&mut self, queue: usize, batch: usize) -> Vec<Vec<u8>> {
        let mut burst = Burst::new();
        // What a device has just written may be left to it for one look.
        for _ in 0..2 {
            let room = batch - burst.len();
            self.queues.rx[queue].receive(&mut self.cache, &mut burst, room);
        }
        let frames = burst.iter().map(|packet| packet.bytes().to_vec()).collect();
        burst.drain(..).for_each(|packet| self.cache.put(packet));
        frames
    }

    /// Looks at `queue`, where no frame is left, until its driver has come to rest: the device then knows of all buffers, and
    /// nobody waits any more for what might come behind a full burst.
    pub(crate) fn rest(&mut self, queue: usize) {
        for _ in 0..LOOKS {
            assert!(self.receive(queue, 1).is_empty(), "no frame is left");
        }
    }

    /// Sends one frame on `queue`. False where the ring is full.
    pub(crate) fn send(&mut self, queue: usize, frame: &[u8]) -> bool {
        let mut packet = self.cache.take().expect("a buffer");
        assert!(packet.copy_from(frame));
        self.send_packet(queue, packet)
    }

    /// The same for a packet made by the caller.
    pub(crate) fn send_packet(&mut self, queue: usize, packet: Packet) -> bool {
        let mut burst = Burst::new();
        burst.push(packet);
        let taken = self.queues.tx[queue].enqueue(&mut burst);
        self.queues.tx[queue].flush();
        burst.drain(..).for_each(|packet| self.cache.put(packet));
        taken == 1
    }

    /// Waits until everything that was sent on `queue` has been completed.
    pub(crate) fn drain(&mut self, queue: usize) {
        for _ in 0..PATIENCE {
            self.bench.run();
            self.queues.tx[queue].reclaim(&mut self.cache);
            if self.queues.tx[queue].waiting() == 0 {
                return;
            }
        }
        panic!("{} frames are never completed", self.queues.tx[queue].waiting());
    }

    /// Sends home what the device is done with, also what it has just written.
    pub(crate) fn reclaim(&mut self, queue: usize) -> usize {
        (0..2).map(|_| self.queues.tx[queue].reclaim(&mut self.cache)).sum()
    }

    pub(crate) fn drops(&self, queue: usize) -> RxDrops {
        self.queues.rx[queue].drops()
    }

    /// Stops the device and counts the buffers home.
    pub(crate) fn finish(mut self) {
        self.bench.device().stop();
        let pool = self.pool;
        drop(self);
        assert_eq!(pool.in_depot(), pool.count(), "every buffer comes home");
    }
}

fn frame(number: u32, max: usize) -> Vec<u8> {
    const LENGTHS: [usize; 9] = [14, 60, 61, 64, 65, 128, 590, 1514, 1792];
    let len = LENGTHS[number as usize % LENGTHS.len()].min(max);
    let mut bytes: Vec<u8> =
        (0..len).map(|index| (index as u32 ^ number.wrapping_mul(0x9e37)) as u8).collect();
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}
