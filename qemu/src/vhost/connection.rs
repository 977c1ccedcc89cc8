//! A connected frontend and its messages.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};
use vhost::vhost_user::message::{FrontendReq, VhostUserHeaderFlag};
use vhost::vhost_user::{BackendReqHandler, Error, Result, VhostUserBackendReqHandlerMut};

use super::device::Device;
use super::service::lock;

/// Request, flags and length of what follows, in the machine's byte order (vhost-user, "Header").
const HEADER_WORDS: usize = 3;
/// The version of the protocol, the lowest bits of the flags.
const VERSION: u32 = 1;

/// A connected frontend.
pub(super) struct Connection {
    socket: UnixStream,
    requests: BackendReqHandler<Mutex<Device>>,
    device: Arc<Mutex<Device>>,
}

impl Connection {
    /// Serves the frontend on this socket; `None` when it has gone already.
    pub(super) fn new(socket: UnixStream, device: &Arc<Mutex<Device>>) -> Option<Self> {
        socket.set_nonblocking(false).ok()?;
        let requests = BackendReqHandler::from_stream(socket.try_clone().ok()?, Arc::clone(device));
        Some(Self { socket, requests, device: Arc::clone(device) })
    }

    /// Whether a message waits, or the frontend has left.
    pub(super) fn is_readable(&self) -> bool {
        poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) != Ok(0)
    }

    /// Carries out the next message and answers it.
    ///
    /// # Errors
    /// When the frontend has left, or the message cannot be understood or makes no sense; the connection is of no use
    /// then.
    pub(super) fn serve(&mut self) -> Result<()> {
        match self.early_enable() {
            Some(flags) => self.enable_early(flags),
            None => self.requests.handle_request(),
        }
    }

    // QEMU enables and disables the rings of a network card whenever the card is reset, also before the guest has
    // accepted any feature. It may ("Ring states"), but `vhost` takes the message for an error until then.

    /// The flags of the next message, if it enables or disables a ring before any feature was accepted.
    fn early_enable(&self) -> Option<u32> {
        if self.device().has_accepted_features() {
            return None;
        }
        let mut header = [0; 4 * HEADER_WORDS];
        let length = recv(self.socket.as_raw_fd(), &mut header, MsgFlags::MSG_PEEK).ok()?;
        let [request, flags, _] = words(&header);
        (length == header.len() && request == FrontendReq::SET_VRING_ENABLE as u32).then_some(flags)
    }

    fn enable_early(&mut self, flags: u32) -> Result<()> {
        let mut message = [0; 4 * (HEADER_WORDS + 2)];
        self.socket.read_exact(&mut message).map_err(Error::SocketBroken)?;
        let [request, _, length, index, enable] = words(&message);
        let outcome = match (length, enable) {
            (8, 0 | 1) => self.device().set_vring_enable(index, enable == 1),
            _ => Err(Error::InvalidMessage),
        };
        if flags & VhostUserHeaderFlag::NEED_REPLY.bits() != 0 {
            let failed = u32::from(outcome.is_err());
            let reply = [request, VERSION | VhostUserHeaderFlag::REPLY.bits(), 8, failed, 0];
            self.socket.write_all(&reply.map(u32::to_ne_bytes).concat()).map_err(Error::SocketBroken)?;
        }
        outcome
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        lock(&self.device)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The first words of a message.
fn words<const N: usize>(message: &[u8]) -> [u32; N] {
    let (words, _) = message.as_chunks();
    std::array::from_fn(|index| u32::from_ne_bytes(words[index]))
}
