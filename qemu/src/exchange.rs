//! Traffic between endpoints, in several directions at once.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::poll::PollFlags;

use crate::endpoint::{self, Endpoint, LONGEST_FRAME};
use crate::flows::Source;
use crate::frames;
use crate::tally::{Counts, Tally};

/// How many frames of one direction may be under way: fewer than the smallest ring that the image uses by default
/// (256), so that no ring overflows, however long the host keeps a core from running.
const WINDOW: u64 = 192;
/// When frames that do not come out are given up: generous, since the host may be busy. Only a stopped image or a lost
/// frame makes anyone wait for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// After so many silences in a row the image does not forward any more, and sending more would only take time.
const LAST_SILENCE: u32 = 2;
/// How often progress is reported.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// How many frames are taken from one socket before the next is served.
const BURST: usize = 64;

/// One direction: what goes in at one endpoint and is expected at another, or at the same.
pub struct Lane<'a> {
    source: &'a mut dyn Source,
    from: usize,
    to: usize,
    tally: Tally,
    /// The next frame to send; empty when none is waiting.
    waiting: Vec<u8>,
    exhausted: bool,
    /// Outstanding frames that nobody waits for any more.
    given_up: u64,
}

/// How far an exchange is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Frames that came out.
    pub received: u64,
    /// Frames that will be sent.
    pub total: u64,
}

/// What an exchange led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The counts of each lane, in the order in which they were added.
    pub lanes: Vec<Counts>,
    /// Frames that came out where no lane ends.
    pub strays: u64,
    /// Probes that came out, anywhere.
    pub probes: u64,
    /// From the first frame in to the last frame out.
    pub duration: Duration,
}

/// Traffic between endpoints, in several directions at once.
pub struct Exchange<'a> {
    endpoints: &'a [Endpoint],
    lanes: Vec<Lane<'a>>,
    lose: Option<u64>,
    patience: Duration,
    arrivals: u64,
    strays: u64,
    probes: u64,
    last_arrival: Instant,
    silence_since: Instant,
    /// Silences since the last frame came out.
    silences: u32,
    buffer: Vec<u8>,
}

impl<'a> Exchange<'a> {
    /// An exchange without lanes.
    pub fn new(endpoints: &'a [Endpoint]) -> Self {
        Self {
            endpoints,
            lanes: Vec::new(),
            lose: None,
            patience: PATIENCE,
            arrivals: 0,
            strays: 0,
            probes: 0,
            last_arrival: Instant::now(),
            silence_since: Instant::now(),
            silences: 0,
            buffer: vec![0; LONGEST_FRAME],
        }
    }

    /// Sends the frames of `source` in at endpoint `from` and expects them at endpoint `to`.
    ///
    /// # Panics
    /// When there is no such endpoint, or when another lane ends at `to`.
    #[must_use]
    pub fn lane(mut self, source: &'a mut dyn Source, from: usize, to: usize) -> Self {
        assert!(from < self.endpoints.len() && to < self.endpoints.len(), "no such endpoint");
        assert!(self.lanes.iter().all(|lane| lane.to != to), "two lanes end at endpoint {to}");
        let (tally, waiting) = (Tally::default(), Vec::new());
        self.lanes.push(Lane { source, from, to, tally, waiting, exhausted: false, given_up: 0 });
        self
    }

    /// Throws the n-th frame that comes out away, counted from 1, to see the check fail.
    #[must_use]
    pub fn lose(mut self, nth: Option<u64>) -> Self {
        self.lose = nth;
        self
    }

    /// How long nothing may come out until what is under way is taken for lost.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends everything, and receives until everything has come out or nothing comes any more.
    ///
    /// # Errors
    /// When QEMU goes away.
    pub fn run(mut self, mut report: impl FnMut(Progress)) -> Result<Outcome> {
        ensure!(!self.lanes.is_empty(), "an exchange without lanes");
        let started = Instant::now();
        let mut reported = started;
        (self.last_arrival, self.silence_since) = (started, started);
        while !self.is_done() {
            let received = self.receive()?;
            let sent = self.send()?;
            if received + sent == 0 {
                self.wait()?;
                self.give_up_after_silence();
            }
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                report(self.progress());
            }
        }
        report(self.progress());
        let lanes = self.lanes.iter().map(|lane| lane.tally.counts()).collect();
        let duration = self.last_arrival - started;
        Ok(Outcome { lanes, strays: self.strays, probes: self.probes, duration })
    }

    fn is_done(&self) -> bool {
        self.silences == LAST_SILENCE || self.lanes.iter().all(|lane| lane.exhausted && lane.in_flight() == 0)
    }

    fn progress(&self) -> Progress {
        let received = self.lanes.iter().map(|lane| lane.tally.counts().received).sum();
        Progress { received, total: self.lanes.iter().map(|lane| lane.source.total()).sum() }
    }

    /// Takes a burst from every endpoint; returns how many frames came.
    fn receive(&mut self) -> Result<usize> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut received = 0;
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            for _ in 0..BURST {
                let Some(length) = endpoint.try_receive(&mut buffer)? else { break };
                self.arrived(index, &buffer[..length]);
                received += 1;
            }
        }
        self.buffer = buffer;
        if received > 0 {
            self.last_arrival = Instant::now();
            self.silence_since = self.last_arrival;
            self.silences = 0;
        }
        Ok(received)
    }

    fn arrived(&mut self, endpoint: usize, frame: &[u8]) {
        if frames::is_probe(frame) {
            self.probes += 1;
            return;
        }
        self.arrivals += 1;
        if self.lose == Some(self.arrivals) {
            return;
        }
        match self.lanes.iter_mut().find(|lane| lane.to == endpoint) {
            Some(lane) => lane.tally.arrived(lane.source.recognise(frame)),
            None => self.strays += 1,
        }
    }

    /// Sends on every lane as much as its window and its socket take; returns how many frames went.
    fn send(&mut self) -> Result<usize> {
        let mut sent = 0;
        for lane in &mut self.lanes {
            while lane.has_frame() && self.endpoints[lane.from].try_send(&lane.waiting)? {
                lane.waiting.clear();
                lane.tally.sent();
                sent += 1;
            }
        }
        Ok(sent)
    }

    /// Sleeps until a frame comes, or until a socket with a waiting frame takes it.
    fn wait(&self) -> Result<()> {
        let wanted = self.endpoints.iter().enumerate().map(|(index, endpoint)| {
            let blocked = self.lanes.iter().any(|lane| lane.from == index && !lane.waiting.is_empty());
            let output = if blocked { PollFlags::POLLOUT } else { PollFlags::empty() };
            (endpoint, PollFlags::POLLIN | output)
        });
        endpoint::wait(&wanted.collect::<Vec<_>>(), REPORT_EVERY)
    }

    /// Opens the windows again after a long silence.
    fn give_up_after_silence(&mut self) {
        if self.silence_since.elapsed() >= self.patience {
            self.silence_since = Instant::now();
            self.silences += 1;
            for lane in &mut self.lanes {
                lane.given_up = lane.tally.outstanding();
            }
        }
    }
}

impl Lane<'_> {
    /// Frames under way that may still come out.
    fn in_flight(&self) -> u64 {
        self.tally.outstanding().saturating_sub(self.given_up)
    }

    /// Whether a frame waits to be sent and the window is open; fetches the next one.
    fn has_frame(&mut self) -> bool {
        if self.in_flight() >= WINDOW {
            return false;
        }
        if self.waiting.is_empty() && !self.exhausted {
            self.exhausted = !self.source.next(&mut self.waiting);
            if self.exhausted {
                self.waiting.clear();
            }
        }
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::thread::{self, JoinHandle};

    use tempfile::TempDir;

    use super::*;
    use crate::PortSpec;
    use crate::flows::{Flows, Transform};

    /// Enough where the peer is known to have sent everything before the wait begins, or never to send.
    const BRIEF: Duration = Duration::from_millis(300);

    /// Two endpoints, and QEMU's ends of them.
    struct Rig {
        endpoints: Vec<Endpoint>,
        peers: Vec<UnixDatagram>,
        _directory: TempDir,
    }

    fn rig() -> Rig {
        let directory = tempfile::tempdir().unwrap();
        let endpoints: Vec<_> = (0..2).map(|port| Endpoint::bind(directory.path(), port).unwrap()).collect();
        let peers = endpoints.iter().map(peer).collect();
        for endpoint in &endpoints {
            endpoint.connect(Duration::from_secs(60)).unwrap();
        }
        Rig { endpoints, peers, _directory: directory }
    }

    fn peer(endpoint: &Endpoint) -> UnixDatagram {
        let PortSpec::Dgram { local, remote } = endpoint.spec() else { panic!("not a dgram port") };
        let peer = UnixDatagram::bind(local).unwrap();
        peer.connect(remote).unwrap();
        peer
    }

    /// Forwards `count` frames from one peer to another, with something done to each.
    fn forward(from: &UnixDatagram, to: &UnixDatagram, count: u64, work: fn(&mut [u8])) -> JoinHandle<()> {
        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || {
            let mut buffer = [0; LONGEST_FRAME];
            for _ in 0..count {
                let length = from.recv(&mut buffer).unwrap();
                work(&mut buffer[..length]);
                to.send(&buffer[..length]).unwrap();
            }
        })
    }

    #[test]
    fn both_directions_at_once_lose_nothing() {
        let rig = rig();
        let (mut there, mut back) = (Flows::new(0, 10, 3000), Flows::new(1, 7, 2000));
        let forwarders = [
            forward(&rig.peers[0], &rig.peers[1], 3000, |_| {}),
            forward(&rig.peers[1], &rig.peers[0], 2000, |_| {}),
        ];
        let exchange = Exchange::new(&rig.endpoints).lane(&mut there, 0, 1).lane(&mut back, 1, 0);
        let mut last = None;
        let outcome = exchange.run(|progress| last = Some(progress)).unwrap();
        forwarders.into_iter().for_each(|forwarder| forwarder.join().unwrap());
        let clean = |total| Counts { sent: total, received: total, ..Counts::default() };
        assert_eq!(outcome.lanes, [clean(3000), clean(2000)]);
        assert_eq!((outcome.strays, outcome.probes), (0, 0));
        assert_eq!(last, Some(Progress { received: 5000, total: 5000 }));
    }

    #[test]
    fn a_reflected_lane_starts_and_ends_at_one_endpoint() {
        let rig = rig();
        let mut flows = Flows::new(0, 3, 500).expect(Transform::MacsSwapped);
        let reflector = forward(&rig.peers[0], &rig.peers[0], 500, frames::swap_macs);
        let outcome = Exchange::new(&rig.endpoints).lane(&mut flows, 0, 0).run(|_| {}).unwrap();
        reflector.join().unwrap();
        assert_eq!(outcome.lanes, [Counts { sent: 500, received: 500, ..Counts::default() }]);
    }

    #[test]
    fn a_frame_that_is_thrown_away_is_lost() {
        let rig = rig();
        let mut flows = Flows::new(0, 3, 500);
        let forwarder = forward(&rig.peers[0], &rig.peers[1], 500, |_| {});
        let exchange = Exchange::new(&rig.endpoints).lane(&mut flows, 0, 1).lose(Some(5));
        let outcome = exchange.run(|_| {}).unwrap();
        forwarder.join().unwrap();
        assert_eq!(outcome.lanes, [Counts { sent: 500, received: 499, lost: 1, ..Counts::default() }]);
    }

    #[test]
    fn a_dead_image_ends_the_exchange_early() {
        let rig = rig();
        let mut flows = Flows::new(0, 3, 1_000_000);
        let exchange = Exchange::new(&rig.endpoints).lane(&mut flows, 0, 1).patience(BRIEF);
        let outcome = exchange.run(|_| {}).unwrap();
        let [counts] = outcome.lanes[..] else { panic!("one lane") };
        assert!(counts.sent < 1000 && counts.lost == counts.sent, "{counts:?}");
    }

    #[test]
    fn frames_where_none_is_expected_are_strays_and_probes_are_apart() {
        let rig = rig();
        rig.peers[0].send(&[0xff; 60]).unwrap();
        rig.peers[1].send(&frames::probe()).unwrap();
        let mut flows = Flows::new(0, 1, 10);
        let forwarder = forward(&rig.peers[0], &rig.peers[1], 10, |_| {});
        let outcome = Exchange::new(&rig.endpoints).lane(&mut flows, 0, 1).run(|_| {}).unwrap();
        forwarder.join().unwrap();
        assert_eq!((outcome.strays, outcome.probes), (1, 1));
        assert_eq!(outcome.lanes, [Counts { sent: 10, received: 10, ..Counts::default() }]);
    }
}
