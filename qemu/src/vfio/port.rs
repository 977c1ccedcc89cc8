//! The handle on a card, for the thread that plugs it in and looks at what came of it.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{fmt, fs};

use anyhow::{Context, Result};
use ixgbe_model::{Card, CardOptions, HostDriver, Policy};
use nix::sys::socket::{Shutdown, shutdown};
use vfio_user::Server;

use super::cable::{Cable, CableCounts};
use super::engine::Engine;
use super::function::Function;
use super::server::{self, Backend};
use crate::PortSpec;
use crate::vhost::{Sink, Source};

/// An 82599 that waits for a machine to be plugged into; see [the module](super). Dropping it cuts its cable.
pub struct CardPort {
    engine: Arc<Engine>,
    /// Moves frames.
    mover: Option<JoinHandle<()>>,
    listener: UnixListener,
    path: PathBuf,
}

/// What became of a card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardReport {
    /// What crossed its cable.
    pub cable: CableCounts,
    /// What a driver did that the card punishes.
    pub violations: Vec<String>,
    /// Accesses to registers that the model does not know.
    pub unknown: Vec<String>,
}

impl CardPort {
    /// Waits on a unix socket at `path` for a machine.
    ///
    /// # Errors
    /// When there is something at `path` already, the folder cannot be written or the path is too long for a socket
    /// (108 bytes); when the cable leads to nothing.
    pub fn listen(path: impl Into<PathBuf>, options: CardOptions, cable: Cable) -> Result<Self> {
        Self::listen_as(path.into(), Function::physical(options), cable)
    }

    /// The same with a virtual function of the card, which has the card's address; this process is the host that lends it.
    ///
    /// # Errors
    /// As for [`CardPort::listen`].
    pub fn listen_virtual(
        path: impl Into<PathBuf>,
        options: CardOptions,
        policy: Policy,
        cable: Cable,
    ) -> Result<Self> {
        Self::listen_as(path.into(), Function::lent(options, policy), cable)
    }

    fn listen_as(path: PathBuf, (card, function): (Card, Function), cable: Cable) -> Result<Self> {
        let layout = function.layout();
        let engine = Engine::new(card, function, cable)?;
        let listener =
            UnixListener::bind(&path).with_context(|| format!("cannot listen on {}", path.display()))?;
        let server = Server::from_owned_fd(
            listener.try_clone()?.into(),
            true,
            server::interrupts(layout),
            server::regions(layout),
        );
        let served = Arc::clone(&engine);
        // It cannot be joined: it sleeps in a read of QEMU's socket, until QEMU goes.
        thread::Builder::new().name("card-server".into()).spawn(move || serve(&server, served))?;
        let moved = Arc::clone(&engine);
        let mover = thread::Builder::new().name("card".into()).spawn(move || moved.run())?;
        Ok(Self { engine, mover: Some(mover), listener, path })
    }

    /// The port to give to the machine.
    pub fn spec(&self) -> PortSpec {
        PortSpec::VfioUser { socket: self.path.clone() }
    }

    /// Where the socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on frames come from `source` and go to `sink`; both are called on the card's own thread.
    pub fn start(&self, source: impl Source, sink: impl Sink) {
        self.engine.slot().plug.start(Box::new(source), Box::new(sink));
        self.engine.wake();
    }

    /// Does something with the card itself, such as to break it.
    pub fn with_card<T>(&self, act: impl FnOnce(&mut Card) -> T) -> T {
        let outcome = act(&mut self.engine.slot().card);
        self.engine.wake();
        outcome
    }

    /// Has the host that lends a virtual function do something; nothing where the machine has the whole card.
    pub fn with_host<T>(&self, act: impl FnOnce(&mut HostDriver, &mut Card) -> T) -> Option<T> {
        let slot = &mut *self.engine.slot();
        let outcome = match &mut slot.function {
            Function::Physical => None,
            Function::Virtual(host) => Some(act(host, &mut slot.card)),
        };
        self.engine.wake();
        outcome
    }

    /// What has come of the card so far.
    pub fn report(&self) -> CardReport {
        let slot = self.engine.slot();
        CardReport {
            cable: slot.plug.counts().clone(),
            violations: slot.card.violations().iter().map(ToString::to_string).collect(),
            unknown: slot
                .card
                .unknown()
                .iter()
                .map(|(offset, access)| format!("{offset:#x}: {access:?}"))
                .collect(),
        }
    }

    /// Takes what has come out of the card, cuts its cable, and removes the socket.
    pub fn stop(mut self) -> CardReport {
        self.end();
        self.report()
    }

    fn end(&mut self) {
        self.engine.stop();
        // Wakes the server where it waits for a machine.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        let Some(mover) = self.mover.take() else { return };
        let outcome = mover.join();
        // It may be gone already, with its folder.
        let _ = fs::remove_file(&self.path);
        if let Err(panic) = outcome
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Serves machines, one after the other, until the card is stopped.
fn serve(server: &Server, engine: Arc<Engine>) {
    let mut backend = Backend::new(Arc::clone(&engine));
    while !engine.is_stopping() {
        // An error ends one connection; the next machine begins anew.
        let _ = server.run(&mut backend);
        engine.slot().unplug();
    }
}

impl Drop for CardPort {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for CardPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CardPort").field("path", &self.path).finish_non_exhaustive()
    }
}

impl fmt::Display for CardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let out: u64 = self.cable.out.iter().map(|queue| queue.bytes).sum();
        writeln!(f, "in: {} frames, {} bytes", self.cable.into.frames, self.cable.into.bytes)?;
        write!(
            f,
            "out: {} frames, {out} bytes, from {} queues",
            self.cable.frames_out(),
            self.cable.queues_out()
        )?;
        self.violations.iter().try_for_each(|violation| write!(f, "\nviolation: {violation}"))?;
        self.unknown.iter().try_for_each(|access| write!(f, "\nunknown register {access}"))
    }
}
