//! The local stack of a port: smoltcp over the port's packets, with a budget.
//!
//! A [`Stack`] answers ARP, neighbour discovery and pings, and serves [echo](ECHO_PORT) on TCP and UDP. A worker asks the
//! stack's [`LocalFilter`] about every frame, puts those that are the stack's into a bounded queue, and calls
//! [`Stack::poll`] between bursts:
//!
//! - A call takes at most [`Budget::rx`] frames and hands out at most [`Budget::tx`], so a flood to the stack costs
//!   the worker a bounded time. What does not fit waits in the stack or in the queue before it, which is bounded too.
//! - Answers to frames and what sockets have to send wait in two lanes, which are handed out in turn. Neither a flood
//!   of pings nor a full load of connections keeps the other from its half; and every socket that has something to send
//!   sends one frame a round, so none of them starves behind the others.
//!
//! Packets move: a frame taken goes home when it was looked at, an answer is a fresh buffer. Every frame taken is
//! [counted](StackCounters) as handled or as dropped for one reason.
//!
//! # Limits
//! - There is no gateway: the stack speaks with stations of its own networks only.
//! - IPv4 fragments are put together, and answers fragmented, up to [`MAX_DATAGRAM`] bytes. IPv6 fragments are refused
//!   with a parameter problem: smoltcp has neither half of it.
//! - Nothing is reported to multicast routers (MLD, RFC 3810). A switch that snoops, and has a querier, may keep
//!   questions for our IPv6 addresses from us.

mod config;
mod conflict;
mod counters;
mod device;
mod echo;
mod filter;
mod frames;
mod inspect;
mod setup;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use netdrv::device::Mac;
use netdrv::packet::{Burst, FRAME_CAPACITY, MAX_BURST, Packet};
use netdrv::pool::{Pool, PoolCache};
use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::wire::{ETHERNET_HEADER_LEN, EthernetAddress, IpAddress};

pub use smoltcp::time::{Duration, Instant};
pub use smoltcp::wire::IpCidr;

pub use config::{ALLOWED, Fault, MAX_ADDRESSES, PortAddress, StackError, StackSetting, parse};
pub(crate) use counters::StackStats;
pub use counters::{Drops, StackCounters, StackDrop};
pub use echo::{CONNECTIONS, PORT as ECHO_PORT};
pub use filter::{Destination, LocalFilter};
pub use inspect::MAX_DATAGRAM;
pub use setup::{SetupError, StackConfig};

use conflict::Tentative;
use device::{LANE_CAPACITY, Lane, StackDevice};
use echo::EchoService;
use frames::{Stations, write_introduction};
use inspect::{Content, Inspected, inspect};

/// Frames of a lane that wait before no more are made for it.
const WAITING_LIMIT: usize = MAX_BURST;

/// How long fragments wait for the others. All senders are on the link, so those come soon or never; and there is room
/// for few.
const REASSEMBLY_TIME: Duration = Duration::from_secs(5);

/// What one call of [`Stack::poll`] may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// The most frames taken.
    pub rx: usize,
    /// The most frames handed out.
    pub tx: usize,
}

impl Default for Budget {
    /// A burst in each direction.
    fn default() -> Budget {
        Budget { rx: 32, tx: 32 }
    }
}

/// The stack of one port.
pub struct Stack {
    mac: Mac,
    frame_limit: usize,
    filter: LocalFilter,
    tentative: Tentative,
    interface: Box<Interface>,
    sockets: SocketSet<'static>,
    echo: EchoService,
    /// Answers to frames.
    answers: Lane,
    /// What sockets have to send.
    segments: Lane,
    /// Whether the interface is in the middle of a fragmented datagram: the next one would overwrite the rest.
    mid_datagram: bool,
    poll_at: Option<Instant>,
    counters: StackCounters,
}

impl Stack {
    /// The most buffers that a stack holds between two calls of [`poll`](Self::poll): what a pool must have for it.
    pub const MAX_BUFFERS: usize = 2 * LANE_CAPACITY;

    /// The most bytes of the heap that a stack takes, fragments included: buffers of the services, lanes, and the interface.
    pub const HEAP: usize = echo::HEAP + 2 * LANE_CAPACITY * size_of::<Packet>() + (128 << 10);

    /// Makes a stack; it speaks when it is first polled. Allocates all that it will ever use, except what fragments
    /// are put together in. `pool` is the one that its frames are made of.
    pub fn new(config: &StackConfig<'_>, pool: &'static Pool, now: Instant) -> Result<Stack, SetupError> {
        let addresses = config.checked_addresses()?;
        let frame_limit = FRAME_CAPACITY.min(ETHERNET_HEADER_LEN + usize::from(config.mtu));
        let mut counters = StackCounters::default();
        let mut answers = Lane::with_capacity(LANE_CAPACITY);
        let mut interface = {
            let mut settings = Config::new(EthernetAddress(config.mac.0).into());
            settings.random_seed = config.seed;
            let mut cache = pool.cache();
            let mut device = StackDevice::new(frame_limit, &mut answers, &mut cache, &mut counters);
            Box::new(Interface::new(settings, &mut device, now))
        };
        interface.update_ip_addrs(|list| list.extend(addresses.iter().copied()));
        interface.set_reassembly_timeout(REASSEMBLY_TIME);
        let mut sockets = SocketSet::new(Vec::with_capacity(echo::SOCKETS));
        Ok(Stack {
            mac: config.mac,
            frame_limit,
            filter: LocalFilter::new(config.mac, &addresses),
            tentative: Tentative::new(&addresses),
            interface,
            echo: EchoService::new(&mut sockets),
            sockets,
            answers,
            segments: Lane::with_capacity(LANE_CAPACITY),
            mid_datagram: false,
            poll_at: Some(now),
            counters,
        })
    }

    /// Which frames are this stack's. Workers keep copies; one that is older than a [conflict](StackCounters::conflicts)
    /// costs them a few frames that the stack then drops.
    pub fn filter(&self) -> &LocalFilter {
        &self.filter
    }

    /// What the stack has counted so far.
    pub fn counters(&self) -> &StackCounters {
        &self.counters
    }

    /// Frames that the stack has made and not handed out yet.
    pub fn waiting(&self) -> usize {
        self.answers.len() + self.segments.len()
    }

    /// When to call [`poll`](Self::poll) again, if no frame comes in before; `None` is never. A time that has passed
    /// means at once. Frames that `poll` left in its queue are for the caller to see.
    pub fn poll_at(&self) -> Option<Instant> {
        self.poll_at
    }

    /// Takes frames from `inbound`, lets sockets and timers do what is due at `now`, and appends frames to send to
    /// `out`, within `budget` and `out`'s room. With nothing to do it returns at once.
    pub fn poll(
        &mut self,
        now: Instant,
        inbound: &mut dyn Iterator<Item = Packet>,
        cache: &mut PoolCache,
        out: &mut Burst,
        budget: Budget,
    ) {
        let due = self.poll_at.is_some_and(|poll_at| poll_at <= now);
        if due {
            self.resume(now, cache);
        }
        let taken = self.take_frames(now, inbound, cache, budget.rx);
        if !due && taken == 0 {
            return;
        }
        self.serve_sockets(now, cache, budget.tx);
        self.hand_out(out, budget.tx);
        self.poll_at = self.next_poll(now);
    }

    /// Does what an earlier call had no room for, and asks for addresses of ours that may be another's.
    fn resume(&mut self, now: Instant, cache: &mut PoolCache) {
        let mut device = StackDevice::new(self.frame_limit, &mut self.answers, cache, &mut self.counters);
        self.mid_datagram = !send_fragments(&mut self.interface, now, &mut device);
        self.tentative.poll(now, self.mac, &mut device);
    }

    /// Takes at most `limit` frames. Returns how many.
    fn take_frames(
        &mut self,
        now: Instant,
        inbound: &mut dyn Iterator<Item = Packet>,
        cache: &mut PoolCache,
        limit: usize,
    ) -> usize {
        let mut taken = 0;
        while taken < limit && self.answers.len() < WAITING_LIMIT && !self.mid_datagram {
            let Some(packet) = inbound.next() else { break };
            taken += 1;
            self.counters.frames_in += 1;
            match self.admit(packet.bytes(), cache) {
                Ok(inspected) => {
                    self.counters.handled += 1;
                    self.handle(now, inspected, packet, cache);
                }
                Err(reason) => {
                    self.counters.drops[reason] += 1;
                    cache.put(packet);
                }
            }
        }
        taken
    }

    /// Decides whether a frame is to be handled; there is a buffer for its answer then.
    fn admit(&mut self, frame: &[u8], cache: &mut PoolCache) -> Result<Inspected, StackDrop> {
        if !self.filter.is_local(frame) {
            return Err(StackDrop::NotLocal);
        }
        let inspected = inspect(frame)?;
        match inspected.content {
            // Who asks for an address has none yet, and who objects to ours has the same.
            Content::Probe(_) => {}
            Content::Advertisement(address) if self.tentative.contains(address) => {}
            _ => self.check_source(&inspected.source)?,
        }
        // Without one the frame is dropped rather than kept: its own buffer is then there for the next.
        let spare = cache.take().ok_or(StackDrop::NoBuffer)?;
        cache.put(spare);
        self.echo.datagrams.admit(inspected.content)?;
        Ok(inspected)
    }

    fn check_source(&self, source: &IpAddress) -> Result<(), StackDrop> {
        if self.interface.has_ip_addr(*source) {
            Err(StackDrop::Impostor)
        } else if self.interface.ip_addrs().iter().any(|cidr| cidr.contains_addr(source)) {
            Ok(())
        } else {
            Err(StackDrop::OffLink)
        }
    }

    fn handle(&mut self, now: Instant, inspected: Inspected, packet: Packet, cache: &mut PoolCache) {
        // What we asked or said ourselves came back: there is a loop, or another port of ours on the same link.
        let from_us = inspected.station.0 == self.mac.0;
        match inspected.content {
            Content::Probe(_) | Content::Advertisement(_) if from_us => cache.put(packet),
            Content::Probe(address) | Content::Advertisement(address) if self.tentative.contains(address) => {
                cache.put(packet);
                self.give_up(address);
            }
            Content::Probe(address) => {
                cache.put(packet);
                if self.interface.has_ip_addr(address) {
                    let mut device =
                        StackDevice::new(self.frame_limit, &mut self.answers, cache, &mut self.counters);
                    conflict::defend(self.mac, address, inspected.station, &mut device);
                }
            }
            Content::Ping => {
                self.introduce(now, &inspected, cache);
                self.receive(now, packet, cache);
            }
            _ => self.receive(now, packet, cache),
        }
    }

    /// Gives a frame to the interface, which may answer it.
    fn receive(&mut self, now: Instant, packet: Packet, cache: &mut PoolCache) {
        let mut device = StackDevice::new(self.frame_limit, &mut self.answers, cache, &mut self.counters);
        device.deliver(packet);
        self.interface.poll_ingress_single(now, &mut device, &mut self.sockets);
        self.mid_datagram = !send_fragments(&mut self.interface, now, &mut device);
        drop(device);
        self.serve_datagrams(now);
    }

    /// Tells the interface where the sender of a ping is. It would find that out by asking, and throw the echo away, when
    /// it has not heard of the sender for a minute.
    fn introduce(&mut self, now: Instant, inspected: &Inspected, cache: &mut PoolCache) {
        let stations = Stations { from: inspected.station, to: EthernetAddress(self.mac.0) };
        if let Some(mut letter) = cache.take() {
            if write_introduction(&mut letter, stations, inspected.source, inspected.target) {
                self.receive(now, letter, cache);
            } else {
                cache.put(letter);
            }
        }
    }

    /// Leaves an address to the station that had it first.
    fn give_up(&mut self, address: IpAddress) {
        log::warn!("{}: another station has {address}; it is not used here", self.mac);
        self.counters.conflicts += 1;
        self.tentative.remove(address);
        self.interface.update_ip_addrs(|list| list.retain(|cidr| cidr.address() != address));
        self.filter = LocalFilter::new(self.mac, self.interface.ip_addrs());
    }

    /// Lets every socket send in turn, a frame a round, until `limit` frames wait or no socket has anything to send.
    fn serve_sockets(&mut self, now: Instant, cache: &mut PoolCache, limit: usize) {
        let limit = limit.min(WAITING_LIMIT);
        self.serve_echo(now);
        while !self.mid_datagram && self.segments.len() < limit {
            // A lane has room for a whole round beyond the limit.
            let mut device =
                StackDevice::new(self.frame_limit, &mut self.segments, cache, &mut self.counters);
            let result = self.interface.poll_egress(now, &mut device, &mut self.sockets);
            self.mid_datagram = !send_fragments(&mut self.interface, now, &mut device);
            drop(device);
            if result == PollResult::None {
                break;
            }
            // Also after the last round: sockets that have made room may have more to send, and only then say so.
            self.serve_echo(now);
        }
    }

    fn serve_echo(&mut self, now: Instant) {
        self.echo.streams.serve(&mut self.sockets);
        self.serve_datagrams(now);
    }

    fn serve_datagrams(&mut self, now: Instant) {
        self.counters.unresolved += self.echo.datagrams.serve(now, &mut self.sockets);
    }

    /// Moves at most `limit` frames to `out`, from the two lanes in turn; where one is empty the other has its share.
    fn hand_out(&mut self, out: &mut Burst, limit: usize) {
        for _ in 0..limit.min(out.remaining_capacity()) {
            // Turns are counted over all calls, so that a budget of one frame is shared too.
            let (first, second) = match self.counters.frames_out % 2 {
                0 => (&mut self.answers, &mut self.segments),
                _ => (&mut self.segments, &mut self.answers),
            };
            let Some(packet) = first.pop_front().or_else(|| second.pop_front()) else { break };
            out.push(packet);
            self.counters.frames_out += 1;
        }
    }

    fn next_poll(&mut self, now: Instant) -> Option<Instant> {
        if self.mid_datagram || self.waiting() > 0 {
            return Some(now);
        }
        let timers = [
            self.interface.poll_at(now, &self.sockets),
            self.echo.datagrams.poll_at(),
            self.tentative.poll_at(),
        ];
        timers.into_iter().flatten().min()
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("mac", &self.mac)
            .field("addresses", &self.interface.ip_addrs())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// Sends what is left of the datagram that `interface` is in the middle of. Says whether nothing is, so that it may begin
/// the next one; there is no room for the rest otherwise.
fn send_fragments(interface: &mut Interface, now: Instant, device: &mut StackDevice<'_>) -> bool {
    // Without sockets the interface has nothing to send but fragments, and nothing else to be polled for.
    let mut no_sockets = SocketSet::new(Vec::new());
    while interface.poll_at(now, &no_sockets).is_some() {
        let before = device.counters.frames_made;
        interface.poll_egress(now, device, &mut no_sockets);
        if device.counters.frames_made == before {
            break;
        }
    }
    interface.poll_at(now, &no_sockets).is_none()
}
