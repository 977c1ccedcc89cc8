//! Our end of a port: frames in and frames out over a datagram unix socket.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::PortSpec;

/// The longest frame that is received whole; QEMU's own limit is 68 KiB, and no port has an MTU beyond this.
pub const LONGEST_FRAME: usize = 16 * 1024;
/// How often a socket that QEMU has not bound yet is tried.
const CONNECT_POLL: Duration = Duration::from_micros(500);

/// Our end of a `dgram` port. Frames carry no checksum, length or other header.
#[derive(Debug)]
pub struct Endpoint {
    socket: UnixDatagram,
    ours: PathBuf,
    theirs: PathBuf,
}

impl Endpoint {
    /// Binds our end of port `port` in `directory`; QEMU will bind its own beside it.
    ///
    /// # Errors
    /// When the directory cannot be written, or its path is too long for a unix socket (108 bytes).
    pub fn bind(directory: &Path, port: usize) -> Result<Self> {
        let ours = directory.join(format!("port{port}.host"));
        let theirs = directory.join(format!("port{port}.guest"));
        let socket = UnixDatagram::bind(&ours).with_context(|| format!("cannot bind {}", ours.display()))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, ours, theirs })
    }

    /// The port to give to the machine.
    pub fn spec(&self) -> PortSpec {
        PortSpec::Dgram { local: self.theirs.clone(), remote: self.ours.clone() }
    }

    /// Waits until QEMU has bound its end, and connects to it.
    ///
    /// # Errors
    /// When it has not after `timeout`.
    pub fn connect(&self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.socket.connect(&self.theirs) {
                Ok(()) => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot reach {}", self.theirs.display()));
                }
            }
            if Instant::now() >= deadline {
                bail!("QEMU has not bound {} after {timeout:?}", self.theirs.display());
            }
            thread::sleep(CONNECT_POLL);
        }
    }

    /// Sends one frame if the socket takes it now; `false` when it is full.
    ///
    /// # Errors
    /// When QEMU has gone.
    pub fn try_send(&self, frame: &[u8]) -> Result<bool> {
        match self.socket.send(frame) {
            Ok(_) => Ok(true),
            Err(error) if is_full(&error) => Ok(false),
            Err(error) => Err(error).context("QEMU does not take frames any more"),
        }
    }

    /// Sends one frame, waiting until the socket takes it.
    ///
    /// # Errors
    /// When QEMU has gone, or has taken no frame for the whole `timeout`.
    pub fn send(&self, frame: &[u8], timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        while !self.try_send(frame)? {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("QEMU has not taken a frame for {timeout:?}");
            }
            wait(&[(self, PollFlags::POLLOUT)], left)?;
        }
        Ok(())
    }

    /// Takes one frame into `buffer` if there is one now; returns its length.
    ///
    /// # Errors
    /// When the socket is broken.
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        match self.socket.recv(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).context("cannot receive frames"),
        }
    }

    /// Takes one frame, waiting for it; `None` when the time is over.
    ///
    /// # Errors
    /// When the socket is broken.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + timeout;
        let mut buffer = vec![0; LONGEST_FRAME];
        loop {
            if let Some(length) = self.try_receive(&mut buffer)? {
                buffer.truncate(length);
                return Ok(Some(buffer));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            wait(&[(self, PollFlags::POLLIN)], left)?;
        }
    }
}

/// Waits until one of the endpoints is ready for what is asked of it, at most `timeout`.
pub(crate) fn wait(wanted: &[(&Endpoint, PollFlags)], timeout: Duration) -> Result<()> {
    let mut descriptors: Vec<_> =
        wanted.iter().map(|(endpoint, flags)| PollFd::new(endpoint.socket.as_fd(), *flags)).collect();
    // Rounded up, so that a wait of less than a millisecond is not a busy loop.
    let milliseconds = PollTimeout::try_from(timeout.as_millis() + 1).unwrap_or(PollTimeout::MAX);
    match poll(&mut descriptors, milliseconds) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for frames"),
    }
}

/// The receiver's queue is full (`EAGAIN`), or the kernel is short of memory for a moment (`ENOBUFS`).
fn is_full(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(nix::libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    /// Stands in for QEMU: binds the path that QEMU would bind.
    fn peer(endpoint: &Endpoint) -> UnixDatagram {
        let peer = UnixDatagram::bind(&endpoint.theirs).unwrap();
        peer.connect(&endpoint.ours).unwrap();
        peer
    }

    #[test]
    fn frames_cross_in_both_directions() {
        let directory = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::bind(directory.path(), 0).unwrap();
        let peer = peer(&endpoint);
        endpoint.connect(SOON).unwrap();
        endpoint.send(b"ping", SOON).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(peer.recv(&mut buffer).unwrap(), 4);
        peer.send(b"pong!").unwrap();
        assert_eq!(endpoint.receive(SOON).unwrap().unwrap(), b"pong!");
        assert_eq!(endpoint.receive(Duration::ZERO).unwrap(), None);
    }

    #[test]
    fn a_full_socket_says_so_and_loses_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::bind(directory.path(), 3).unwrap();
        let peer = peer(&endpoint);
        endpoint.connect(SOON).unwrap();
        let mut sent = 0_u32;
        while endpoint.try_send(&sent.to_be_bytes()).unwrap() {
            sent += 1;
        }
        assert!(endpoint.send(b"one too many", Duration::from_millis(10)).is_err());
        for expected in 0..sent {
            let mut buffer = [0; 16];
            assert_eq!(peer.recv(&mut buffer).unwrap(), 4);
            assert_eq!(buffer[..4], expected.to_be_bytes());
        }
    }

    #[test]
    fn an_end_that_nobody_binds_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::bind(directory.path(), 0).unwrap();
        let error = endpoint.connect(Duration::from_millis(5)).unwrap_err().to_string();
        assert!(error.contains("port0.guest"), "{error}");
    }
}
