//! The port's thread: messages of the frontend, rounds of traffic, and sleep.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use vhost::vhost_user::Error;

use super::connection::Connection;
use super::counts::Fault;
use super::device::{Device, Direction};
use super::port::Shared;
use super::traffic::Traffic;
use super::{Drive, TrafficConfig};

/// Rounds between two looks at the socket: each costs a system call, as much as some dozen frames.
const ROUNDS: usize = 64;
/// How long an idle port sleeps at most, in milliseconds, when frames may turn up that nobody tells it of: those of a
/// source, those that a slow wire has held back, and those of a guest that gives no file for its kicks.
const TICK: u8 = 1;

/// What the port's thread owns.
pub(super) struct Service {
    listener: UnixListener,
    connection: Option<Connection>,
    /// Shared with the connection, which is served by this thread too: nobody ever waits for the lock.
    device: Arc<Mutex<Device>>,
    traffic: Traffic,
    drive: Drive,
    shared: Arc<Shared>,
}

impl Service {
    pub(super) fn new(listener: UnixListener, config: &TrafficConfig, shared: Arc<Shared>) -> Self {
        Self {
            listener,
            connection: None,
            device: Arc::new(Mutex::new(Device::new(config))),
            traffic: Traffic::new(config),
            drive: config.drive,
            shared,
        }
    }

    /// Serves frontends, one after the other, until it is told to stop.
    pub(super) fn run(mut self) {
        while !self.shared.is_stopping() {
            if let Some(orders) = self.shared.take_orders() {
                self.traffic.inject(orders.injected);
                if let Some((source, sink)) = orders.traffic {
                    self.traffic.start(source, sink);
                }
            }
            self.serve_frontend();
            if self.drive == Drive::PollKicked {
                self.ask_for_kicks();
            }
            let moved = self.rounds();
            self.publish();
            if moved == 0 {
                self.rest();
            }
            if self.polls() {
                // Another port that looks all the time may share the core, and rings run full or dry in a time slice.
                thread::yield_now();
            }
        }
        // What has come out by now still counts; nothing more goes in.
        for _ in 0..ROUNDS {
            self.traffic.drain_all(&mut lock(&self.device));
        }
        self.publish();
    }

    /// Whether the port looks all the time.
    fn polls(&self) -> bool {
        self.drive != Drive::Event
    }

    /// Asks for kicks of all rings, and hears none of them.
    fn ask_for_kicks(&mut self) {
        let mut device = lock(&self.device);
        let pairs = 0..device.pairs();
        let rings = pairs.flat_map(|pair| [(pair, Direction::Receive), (pair, Direction::Transmit)]);
        arm(&mut device, &rings.collect::<Vec<_>>());
    }

    /// A number of rounds without a look at anything else; a port that may sleep ends them when nothing moves.
    fn rounds(&mut self) -> usize {
        let mut device = lock(&self.device);
        let moved = (0..ROUNDS).map(|_| self.traffic.round(&mut device));
        match self.drive {
            Drive::Poll | Drive::PollKicked => moved.sum(),
            Drive::Event => moved.take_while(|&moved| moved > 0).sum(),
        }
    }

    fn publish(&mut self) {
        let mut device = lock(&self.device);
        let running_pairs = device.running_pairs();
        self.shared.publish(|seen| {
            seen.connected = self.connection.is_some();
            seen.running_pairs = running_pairs;
            seen.report.pairs.clear();
            seen.report.pairs.extend_from_slice(self.traffic.counts());
            seen.report.faults = device.faults;
        });
    }

    // ------------------------------------------------------------------------------------------ the frontend

    /// Answers what the frontend has asked so far.
    fn serve_frontend(&mut self) {
        if self.connection.is_none() {
            self.connection =
                self.listener.accept().ok().and_then(|(socket, _)| Connection::new(socket, &self.device));
        }
        while let Some(connection) = &mut self.connection
            && connection.is_readable()
        {
            if let Err(error) = connection.serve() {
                self.hang_up(&error);
            }
        }
    }

    /// A frontend that left, or one that cannot be understood any more.
    fn hang_up(&mut self, reason: &Error) {
        self.connection = None;
        let mut device = lock(&self.device);
        device.forget_frontend();
        if !matches!(reason, Error::Disconnected | Error::SocketBroken(_) | Error::PartialMessage) {
            device.faults.record(Fault::Request);
            self.shared.publish(|seen| seen.report.last_refusal = Some(reason.to_string()));
        }
    }

    // ------------------------------------------------------------------------------------------ rest

    /// Nothing moved: sleeps until something may, unless the port is to look all the time.
    fn rest(&mut self) {
        let mut device = lock(&self.device);
        let running = device.running_pairs() > 0;
        if self.polls() && running {
            return;
        }
        let rings = rings_to_wait_for(&mut device, &self.traffic);
        if arm(&mut device, &rings) {
            // Nobody may kick for what the guest did in the meantime.
            disarm(&mut device, &rings);
            return;
        }
        let has_kicks = rings.iter().all(|&(pair, direction)| device.kick(pair, direction).is_some());
        let holds_back = (0..device.pairs()).any(|pair| self.traffic.holds_back(pair));
        let timeout = match self.traffic.may_have_frames() && running || holds_back || !has_kicks {
            true => PollTimeout::from(TICK),
            false => PollTimeout::NONE,
        };
        self.sleep(&device, &rings, timeout);
        disarm(&mut device, &rings);
    }

    /// Sleeps until the handle, the frontend or one of the rings has something to say, and takes their words as heard.
    fn sleep(&self, device: &Device, rings: &[RingName], timeout: PollTimeout) {
        let socket = self.connection.as_ref().map_or(self.listener.as_fd(), AsFd::as_fd);
        let kicks = rings.iter().filter_map(|&(pair, direction)| device.kick(pair, direction));
        let mut waiting: Vec<_> = [socket, self.shared.bell().as_fd()]
            .into_iter()
            .chain(kicks.clone().map(AsFd::as_fd))
            .map(|file| PollFd::new(file, PollFlags::POLLIN))
            .collect();
        // Whatever woke it, an interrupt included: the next round finds out what there is to do.
        let _ = poll(&mut waiting, timeout);
        let rang: Vec<_> = waiting.iter().skip(1).map(|file| file.any().unwrap_or(true)).collect();
        if rang[0] {
            self.shared.silence_bell();
        }
        for (mut kick, _) in kicks.zip(&rang[1..]).filter(|(_, rang)| **rang) {
            // It was readable, and nobody else reads it; how often it was kicked tells nothing.
            let _ = kick.read(&mut [0; 8]);
        }
    }
}

/// A ring by its queue pair and direction.
type RingName = (usize, Direction);

/// The rings that the guest has to do something with before the port can go on: what it sends may come on any whose wire
/// takes it, buffers matter where frames wait for them.
fn rings_to_wait_for(device: &mut Device, traffic: &Traffic) -> Vec<RingName> {
    let pairs = 0..device.pairs();
    let transmit = pairs.clone().filter(|&pair| !traffic.holds_back(pair));
    let transmit = transmit.map(|pair| (pair, Direction::Transmit));
    let receive = pairs.filter(|&pair| traffic.waits_for(pair)).map(|pair| (pair, Direction::Receive));
    transmit.chain(receive).filter(|&(pair, direction)| device.running(pair, direction).is_some()).collect()
}

/// Asks for kicks of these rings; `true` if one of them has something by now.
fn arm(device: &mut Device, rings: &[RingName]) -> bool {
    rings.iter().fold(false, |any, &(pair, direction)| {
        any | device.running(pair, direction).is_some_and(|(ring, memory)| ring.arm(memory))
    })
}

/// Asks for no more kicks of these rings.
fn disarm(device: &mut Device, rings: &[RingName]) {
    for &(pair, direction) in rings {
        if let Some((ring, memory)) = device.running(pair, direction) {
            ring.disarm(memory);
        }
    }
}

pub(super) fn lock(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().expect("only this thread locks the device")
}
