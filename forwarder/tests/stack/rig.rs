//! A stack, a peer that is smoltcp too, and a wire between them in virtual time.

use std::collections::VecDeque;

use forwarder::stack::{Budget, Duration, Instant, IpCidr, Stack, StackConfig};
use netdrv::device::Mac;
use netdrv::packet::Burst;
use netdrv::pool::{Pool, PoolCache};
use netdrv::process::ProcessHal;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, RxToken, TxToken};
use smoltcp::socket::{AnySocket, icmp, tcp, udp};
use smoltcp::wire::{EthernetAddress, IpAddress};

use crate::in_queue::InQueue;

pub(crate) const STACK_MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
pub(crate) const PEER_MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 2]);
pub(crate) const STACK_IPV4: IpAddress = IpAddress::v4(192, 0, 2, 1);
pub(crate) const PEER_IPV4: IpAddress = IpAddress::v4(192, 0, 2, 2);
pub(crate) const STACK_IPV6: IpAddress = IpAddress::v6(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub(crate) const PEER_IPV6: IpAddress = IpAddress::v6(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
/// Made of [`STACK_MAC`] (RFC 4291, appendix A).
pub(crate) const STACK_LINK_LOCAL: IpAddress = IpAddress::v6(0xfe80, 0, 0, 0, 0x5054, 0x00ff, 0xfe00, 1);
const MTU: u16 = 1500;
/// More than queue, stack and cache can hold.
pub(crate) const POOL: usize = 1024;
const IN_QUEUE: usize = 256;

/// How long a frame is under way.
const DELAY: Duration = Duration::from_micros(50);

/// Frames lost: one in so many, by a generator that every run starts alike.
pub(crate) struct Loss {
    one_in: u64,
    state: u64,
}

impl Loss {
    pub(crate) const NONE: Loss = Loss { one_in: u64::MAX, state: 1 };

    pub(crate) fn one_in(count: u64) -> Loss {
        Loss { one_in: count, state: 0x9e37_79b9_7f4a_7c15 }
    }

    fn strikes(&mut self) -> bool {
        // xorshift64
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.one_in != u64::MAX && self.state.is_multiple_of(self.one_in)
    }
}

/// Everything in one place.
pub(crate) struct Rig {
    pub(crate) now: Instant,
    pub(crate) stack: Stack,
    pub(crate) queue: InQueue,
    pub(crate) peer: Peer,
    pub(crate) budget: Budget,
    pub(crate) loss: Loss,
    pub(crate) pool: &'static Pool,
    pub(crate) cache: PoolCache,
    /// Frames that the stack sent in the last step, before any was lost.
    pub(crate) sent: Vec<Vec<u8>>,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        Rig::over(Pool::new::<ProcessHal>(POOL).expect("memory"))
    }

    /// A rig whose packets are of `pool`, for tests that make so many rigs that pools, which stay, would fill the memory.
    pub(crate) fn over(pool: &'static Pool) -> Rig {
        let now = Instant::from_millis(1_000);
        let addresses = [IpCidr::new(STACK_IPV4, 24), IpCidr::new(STACK_IPV6, 64)];
        let config = StackConfig { mac: STACK_MAC, mtu: MTU, addresses: &addresses, seed: 1 };
        Rig {
            now,
            stack: Stack::new(&config, pool, now).expect("a stack"),
            queue: InQueue::new(IN_QUEUE),
            peer: Peer::new(now),
            budget: Budget::default(),
            loss: Loss::NONE,
            pool,
            cache: pool.cache(),
            sent: Vec::new(),
        }
    }

    /// A rig whose stack has probed its addresses and has nothing to do.
    pub(crate) fn settled() -> Rig {
        let mut rig = Rig::new();
        rig.settle();
        rig
    }

    /// Lets the peer act, carries frames both ways, lets the stack act. Time goes on to when either has something to do.
    pub(crate) fn step(&mut self) {
        let heard = !self.peer.device.received.is_empty();
        self.peer.interface.poll(self.now, &mut self.peer.device, &mut self.peer.sockets);
        for frame in std::mem::take(&mut self.peer.device.sent) {
            if !self.loss.strikes() {
                self.offer(&frame);
            }
        }
        self.poll_stack();
        for frame in &self.sent {
            if !self.loss.strikes() {
                self.peer.device.received.push_back(frame.clone());
            }
        }
        // Whoever uses the peer's sockets may have something to do after it has heard something.
        self.now = if heard { self.now + DELAY } else { self.next_event() };
    }

    /// Puts a frame before the stack.
    pub(crate) fn offer(&mut self, frame: &[u8]) {
        let mut packet = self.cache.take().expect("a buffer");
        assert!(packet.copy_from(frame));
        self.queue.offer(packet, &mut self.cache);
    }

    /// One call, as a worker makes it; what the stack sends is in [`sent`](Self::sent).
    pub(crate) fn poll_stack(&mut self) {
        let mut out = Burst::new();
        let before = (self.stack.counters().frames_in, self.stack.counters().frames_out);
        self.stack.poll(self.now, &mut self.queue, &mut self.cache, &mut out, self.budget);
        let counters = self.stack.counters();
        assert!(counters.frames_in - before.0 <= self.budget.rx as u64);
        assert!(counters.frames_out - before.1 <= self.budget.tx as u64);
        assert_eq!(counters.frames_out - before.1, out.len() as u64);
        assert_eq!(counters.frames_in, counters.handled + counters.drops.sum());
        assert_eq!(counters.frames_made, counters.frames_out + self.stack.waiting() as u64);
        assert_eq!(counters.oversize, 0);
        self.sent.clear();
        for packet in out {
            assert!(packet.len() <= 14 + usize::from(MTU));
            self.sent.push(packet.bytes().to_vec());
            self.cache.put(packet);
        }
    }

    /// A frame and what the stack sends for it at once.
    pub(crate) fn ask(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.offer(frame);
        self.poll_stack();
        self.sent.clone()
    }

    /// Polls until nothing waits. Returns what the stack sent meanwhile.
    pub(crate) fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        for _ in 0..1_000 {
            if self.stack.waiting() == 0
                && self.queue.is_empty()
                && self.stack.poll_at().is_none_or(|at| at > self.now)
            {
                return sent;
            }
            self.poll_stack();
            sent.append(&mut self.sent);
        }
        panic!("frames wait for ever: {:?}", self.stack);
    }

    fn next_event(&mut self) -> Instant {
        let soon = self.now + DELAY;
        if !self.queue.is_empty() || !self.peer.device.received.is_empty() {
            return soon;
        }
        let peer = self.peer.interface.poll_at(self.now, &self.peer.sockets);
        let next = [peer, self.stack.poll_at()].into_iter().flatten().min();
        next.map_or(soon, |next| next.max(soon))
    }

    /// Steps until `done` says so.
    ///
    /// # Panics
    /// When `limit` of virtual time has passed before.
    pub(crate) fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Rig) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            assert!(self.now < end, "not done after {limit}: {:?}", self.stack);
            self.step();
        }
    }

    /// Steps until so much virtual time has passed.
    pub(crate) fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.step();
        }
    }

    /// Sends the probes of our IPv6 addresses, and forgets them.
    fn settle(&mut self) {
        let end = self.now + Duration::from_secs(2);
        while self.now < end && self.stack.poll_at().is_some() {
            self.step();
            self.peer.device.received.clear();
        }
        assert_eq!(self.stack.poll_at(), None, "{:?}", self.stack);
    }

    /// Ends everything and counts the buffers.
    pub(crate) fn finish(self) {
        let Rig { stack, queue, cache, pool, .. } = self;
        drop((stack, queue, cache));
        assert_eq!(pool.in_depot(), pool.count());
    }
}

/// Another host on the wire.
pub(crate) struct Peer {
    pub(crate) interface: Interface,
    pub(crate) sockets: SocketSet<'static>,
    pub(crate) device: Wire,
}

impl Peer {
    fn new(now: Instant) -> Peer {
        let mut device = Wire::default();
        let mut config = Config::new(EthernetAddress(PEER_MAC.0).into());
        config.random_seed = 2;
        let mut interface = Interface::new(config, &mut device, now);
        interface.update_ip_addrs(|list| {
            list.extend([
                IpCidr::new(PEER_IPV4, 24),
                IpCidr::new(PEER_IPV6, 64),
                IpCidr::new(IpAddress::v6(0xfe80, 0, 0, 0, 0, 0, 0, 2), 64),
            ]);
        });
        Peer { interface, sockets: SocketSet::new(Vec::new()), device }
    }

    pub(crate) fn socket<T: AnySocket<'static>>(&mut self, handle: SocketHandle) -> &mut T {
        self.sockets.get_mut(handle)
    }

    /// A socket that pings with `ident`.
    pub(crate) fn open_icmp(&mut self, ident: u16) -> SocketHandle {
        let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 64], vec![0; 64 * 1024]);
        let mut socket = icmp::Socket::new(buffer(), buffer());
        socket.bind(icmp::Endpoint::Ident(ident)).expect("a free socket");
        self.sockets.add(socket)
    }

    pub(crate) fn open_udp(&mut self, port: u16) -> SocketHandle {
        let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 256], vec![0; 256 * 1024]);
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket.bind(port).expect("a free socket");
        self.sockets.add(socket)
    }

    /// A connection to `address`, port `remote`, with buffers of `size` bytes.
    pub(crate) fn connect(
        &mut self,
        address: IpAddress,
        remote: u16,
        local: u16,
        size: usize,
    ) -> SocketHandle {
        let buffer = || tcp::SocketBuffer::new(vec![0; size]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.connect(self.interface.context(), (address, remote), local).expect("a valid endpoint");
        self.sockets.add(socket)
    }
}

/// The peer's end of the wire.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) received: VecDeque<Vec<u8>>,
    pub(crate) sent: Vec<Vec<u8>>,
}

impl Device for Wire {
    type RxToken<'t> = Received;
    type TxToken<'t> = Sender<'t>;

    fn receive(&mut self, _now: Instant) -> Option<(Received, Sender<'_>)> {
        let frame = self.received.pop_front()?;
        Some((Received(frame), Sender(&mut self.sent)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Sender<'_>> {
        Some(Sender(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = 14 + usize::from(MTU);
        capabilities
    }
}

pub(crate) struct Received(Vec<u8>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(&self.0)
    }
}

pub(crate) struct Sender<'t>(&'t mut Vec<Vec<u8>>);

impl TxToken for Sender<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut frame = vec![0; len];
        let result = write(&mut frame);
        self.0.push(frame);
        result
    }
}
