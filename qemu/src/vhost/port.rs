//! The handle on a traffic port, for the thread that sets the traffic up and looks at what came of it.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, fs};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::device::MAX_QUEUE_PAIRS;
use super::service::Service;
use super::{Report, Sink, Source, TrafficConfig};
use crate::PortSpec;

/// A vhost-user backend that makes traffic; see [the module](super). Dropping it ends it.
pub struct TrafficPort {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
    queue_pairs: u16,
}

impl TrafficPort {
    /// Listens on a unix socket at `path` for a frontend.
    ///
    /// # Errors
    /// When there is something at `path` already, the folder cannot be written or the path is too long for a socket
    /// (108 bytes); when the number of queue pairs is none that a card can have.
    pub fn listen(path: impl Into<PathBuf>, config: TrafficConfig) -> Result<Self> {
        let path = path.into();
        let pairs = config.queue_pairs;
        ensure!((1..=MAX_QUEUE_PAIRS).contains(&pairs), "{pairs} queue pairs; 1 to {MAX_QUEUE_PAIRS} can be");
        let listener =
            UnixListener::bind(&path).with_context(|| format!("cannot listen on {}", path.display()))?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared::new()?);
        let service = Service::new(listener, &config, Arc::clone(&shared));
        let name = "traffic-port".to_owned();
        let thread = thread::Builder::new().name(name).spawn(|| service.run())?;
        Ok(Self { shared, thread: Some(thread), path, queue_pairs: pairs })
    }

    /// The port to give to the machine, with all queue pairs.
    pub fn spec(&self) -> PortSpec {
        PortSpec::VhostUser { socket: self.path.clone(), queues: self.queue_pairs }
    }

    /// Where the socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until a frontend is connected.
    ///
    /// # Errors
    /// When none is after `timeout`.
    pub fn wait_connected(&self, timeout: Duration) -> Result<()> {
        let connected = self.wait(timeout, |seen| seen.connected);
        ensure!(connected, "nobody has connected to {} after {timeout:?}", self.path.display());
        Ok(())
    }

    /// Waits until the guest uses so many queue pairs.
    ///
    /// # Errors
    /// When it uses fewer after `timeout`.
    pub fn wait_running(&self, pairs: usize, timeout: Duration) -> Result<()> {
        if self.wait(timeout, |seen| seen.running_pairs >= pairs) {
            return Ok(());
        }
        let (seen, path) = (self.shared.seen(), self.path.display());
        let refusal = seen.report.last_refusal.as_deref().unwrap_or("nothing was refused");
        bail!(
            "the guest uses {} of {pairs} queue pairs of {path} after {timeout:?} ({refusal})",
            seen.running_pairs
        )
    }

    fn wait(&self, timeout: Duration, reached: impl Fn(&Seen) -> bool) -> bool {
        let waiting =
            self.shared.changed.wait_timeout_while(self.shared.seen(), timeout, |seen| !reached(seen));
        !waiting.expect("no thread panics while it holds the counts").1.timed_out()
    }

    /// From now on frames come from `source` and go to `sink`, instead of those that were given before. They are called
    /// on the port's own thread.
    pub fn start(&self, source: impl Source, sink: impl Sink) {
        self.shared.orders(|orders| orders.traffic = Some((Box::new(source), Box::new(sink))));
    }

    /// Puts one frame into the guest, before those of the source. Frames wait, however many, until the guest takes
    /// them.
    pub fn inject(&self, frame: impl Into<Vec<u8>>) {
        self.shared.orders(|orders| orders.injected.push_back(frame.into()));
    }

    /// What was counted so far; up to a few hundred microseconds old while frames move.
    pub fn counts(&self) -> Report {
        self.shared.seen().report.clone()
    }

    /// Takes what has come out of the guest, ends the port with its connection, source and sink, and removes the socket.
    /// A guest that still runs has a card without a cable from then on.
    pub fn stop(mut self) -> Report {
        self.end();
        self.counts()
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.wake();
        let Some(thread) = self.thread.take() else { return };
        let outcome = thread.join();
        // It may be gone already, with its folder.
        let _ = fs::remove_file(&self.path);
        if let Err(panic) = outcome
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for TrafficPort {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for TrafficPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficPort").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What the handle and the port's thread share. The thread looks at it between rounds, never for a frame.
pub(super) struct Shared {
    stopping: AtomicBool,
    waiting_orders: AtomicBool,
    orders: Mutex<Orders>,
    seen: Mutex<Seen>,
    /// Somebody may wait for `seen` to change.
    changed: Condvar,
    /// Wakes the thread.
    bell: EventFd,
}

/// What the handle wants of the thread.
#[derive(Default)]
pub(super) struct Orders {
    pub(super) traffic: Option<(Box<dyn Source>, Box<dyn Sink>)>,
    pub(super) injected: VecDeque<Vec<u8>>,
}

/// What the thread has last said of itself.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) connected: bool,
    pub(super) running_pairs: usize,
    pub(super) report: Report,
}

impl Shared {
    fn new() -> io::Result<Self> {
        Ok(Self {
            stopping: AtomicBool::new(false),
            waiting_orders: AtomicBool::new(false),
            orders: Mutex::default(),
            seen: Mutex::default(),
            changed: Condvar::new(),
            bell: EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?,
        })
    }

    fn orders(&self, give: impl FnOnce(&mut Orders)) {
        give(&mut self.orders.lock().expect("no thread panics while it holds the orders"));
        self.waiting_orders.store(true, Ordering::Release);
        self.wake();
    }

    /// What was ordered since the last call.
    pub(super) fn take_orders(&self) -> Option<Orders> {
        let waiting = self.waiting_orders.swap(false, Ordering::Acquire);
        waiting.then(|| {
            std::mem::take(&mut *self.orders.lock().expect("no thread panics while it holds the orders"))
        })
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(super) fn bell(&self) -> &EventFd {
        &self.bell
    }

    pub(super) fn silence_bell(&self) {
        // It rang, and only the port's thread listens.
        let _ = self.bell.read();
    }

    fn wake(&self) {
        // A bell that cannot ring any louder has not been heard yet.
        let _ = self.bell.write(1);
    }

    /// Lets those who wait look at the state again.
    pub(super) fn publish(&self, update: impl FnOnce(&mut Seen)) {
        update(&mut self.seen());
        self.changed.notify_all();
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no thread panics while it holds the counts")
    }
}
