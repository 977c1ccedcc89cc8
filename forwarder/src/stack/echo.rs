//! The echo service (RFC 862), on TCP and UDP: it sends back what it gets. It is there to show that the stack works.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use netdrv::packet::FRAME_CAPACITY;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{self, CongestionControl, State};
use smoltcp::socket::udp;
use smoltcp::time::{Duration, Instant};

use super::counters::StackDrop;
use super::inspect::{Content, MAX_DATAGRAM};

/// The service's port.
pub const PORT: u16 = 7;
/// TCP connections served at a time. One more is refused with a reset.
pub const CONNECTIONS: usize = 64;
/// Sockets of the service: the connections, and one for all datagrams.
pub(super) const SOCKETS: usize = CONNECTIONS + 1;

/// Bytes of a connection that wait in either direction. With it all connections take 1 MiB, and a sender may still have
/// five full segments under way, enough to tell a lost one by three acknowledgements of the one before.
const STREAM_BUFFER: usize = 8 * 1024;
/// How long a connection may take to be opened. Senders that only pretend to open one are rid of soon.
const HANDSHAKE_TIME: Duration = Duration::from_secs(4);
/// How long a peer may be silent, although it is asked every [`KEEP_ALIVE`]. Less than the minute for which smoltcp
/// remembers its station, so that the reset still reaches it.
const SILENCE: Duration = Duration::from_secs(50);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Datagrams that wait to be sent back.
const DATAGRAMS: usize = 32;
/// What the socket holds of them: each as long as a buffer's frame, one of them put together from fragments, and the gap
/// at the end where the next would not fit.
const DATAGRAM_BUFFER: usize = MAX_DATAGRAM + DATAGRAMS * FRAME_CAPACITY;
/// Bytes of all buffers.
pub(super) const HEAP: usize = (2 * CONNECTIONS + 1) * STREAM_BUFFER + 2 * DATAGRAM_BUFFER;

/// How long the first of them waits for its sender's station to say where it is. smoltcp asks for one station a second,
/// so this leaves one question to each of two.
const RESOLVE_TIME: Duration = Duration::from_secs(2);

/// Both services.
pub(super) struct EchoService {
    pub(super) streams: StreamEcho,
    pub(super) datagrams: DatagramEcho,
}

impl EchoService {
    pub(super) fn new(sockets: &mut SocketSet<'static>) -> EchoService {
        EchoService { streams: StreamEcho::new(sockets), datagrams: DatagramEcho::new(sockets) }
    }
}

/// The service on TCP.
pub(super) struct StreamEcho {
    sockets: Vec<SocketHandle>,
    /// Bytes on their way from one buffer of a socket to the other.
    transfer: Box<[u8]>,
}

impl StreamEcho {
    fn new(sockets: &mut SocketSet<'static>) -> StreamEcho {
        let buffer = || tcp::SocketBuffer::new(vec![0; STREAM_BUFFER]);
        let mut open = || {
            let mut socket = tcp::Socket::new(buffer(), buffer());
            listen(&mut socket);
            sockets.add(socket)
        };
        let sockets = (0..CONNECTIONS).map(|_| open()).collect();
        StreamEcho { sockets, transfer: vec![0; STREAM_BUFFER].into() }
    }

    /// Moves every connection on as far as it goes.
    pub(super) fn serve(&mut self, sockets: &mut SocketSet<'static>) {
        for &handle in &self.sockets {
            let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
            match socket.state() {
                State::Closed => listen(socket),
                State::Established | State::CloseWait => echo(socket, &mut self.transfer),
                _ => {}
            }
        }
    }
}

fn listen(socket: &mut tcp::Socket<'_>) {
    socket.set_timeout(Some(HANDSHAKE_TIME));
    socket.set_keep_alive(Some(KEEP_ALIVE));
    // Small answers leave at once, not when the one before is acknowledged.
    socket.set_nagle_enabled(false);
    // Also forgets what the last connection had learned of its path.
    socket.set_congestion_control(CongestionControl::Reno);
    // Neither reason to refuse can be: the port is not 0 and the socket is closed.
    let listening = socket.listen(PORT);
    debug_assert_eq!(listening, Ok(()));
}

/// Moves bytes from the receive to the send buffer, never more than there is room for: what can't be sent back yet isn't
/// read, so the window that the peer sees closes. When the peer has sent everything, and it is all on its way back, the
/// connection is closed from this side too.
fn echo(socket: &mut tcp::Socket<'_>, transfer: &mut [u8]) {
    socket.set_timeout(Some(SILENCE));
    let room = socket.send_capacity() - socket.send_queue();
    let room = room.min(transfer.len());
    if let Ok(length) = socket.recv_slice(&mut transfer[..room]) {
        let sent = socket.send_slice(&transfer[..length]);
        debug_assert_eq!(sent, Ok(length), "there was room");
    }
    if !socket.may_recv() {
        socket.close();
    }
}

/// The service on UDP.
pub(super) struct DatagramEcho {
    socket: SocketHandle,
    /// Datagrams in the socket's receive buffer, or fewer: it is admission that keeps the buffer from overflowing, since
    /// smoltcp would drop without a word.
    waiting: usize,
    /// Since when there has been a datagram in the send buffer.
    sending_since: Option<Instant>,
    /// The datagram on its way from one buffer to the other.
    transfer: Box<[u8]>,
}

impl DatagramEcho {
    fn new(sockets: &mut SocketSet<'static>) -> DatagramEcho {
        // Twice the entries: the gap at the buffer's end takes one too.
        let received =
            udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 2 * DATAGRAMS], vec![0; DATAGRAM_BUFFER]);
        // One at a time: the socket sends strictly in order, and what waits here can't be told from what is stuck.
        let to_send = udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 1], vec![0; MAX_DATAGRAM]);
        let mut socket = udp::Socket::new(received, to_send);
        bind(&mut socket);
        DatagramEcho {
            socket: sockets.add(socket),
            waiting: 0,
            sending_since: None,
            transfer: vec![0; MAX_DATAGRAM].into(),
        }
    }

    /// Whether the service can take what the frame holds, and a note that it did.
    pub(super) fn admit(&mut self, content: Content) -> Result<(), StackDrop> {
        match content {
            Content::Datagram { from: 0 | PORT, to: PORT } => Err(StackDrop::EchoLoop),
            Content::Datagram { to: PORT, .. } if self.waiting >= DATAGRAMS => Err(StackDrop::EchoBusy),
            // A whole one comes of fragments only while nothing else waits, so there is at most one.
            Content::DatagramFragment if self.waiting > 0 => Err(StackDrop::EchoBusy),
            Content::Datagram { to: PORT, .. } => {
                self.waiting += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sends the next datagram back once the one before has left. Returns how many were given up.
    pub(super) fn serve(&mut self, now: Instant, sockets: &mut SocketSet<'static>) -> u64 {
        let socket = sockets.get_mut::<udp::Socket<'_>>(self.socket);
        let mut lost = 0;
        if socket.can_send() {
            self.sending_since = None;
        } else if self.poll_at().is_some_and(|give_up_at| now >= give_up_at) {
            lost = abandon(socket);
            self.sending_since = None;
        }
        while socket.can_send()
            && let Ok((length, asker)) = socket.recv_slice(&mut self.transfer)
        {
            self.waiting = self.waiting.saturating_sub(1);
            self.sending_since = Some(now);
            if socket.send_slice(&self.transfer[..length], asker).is_err() {
                lost += 1;
            }
        }
        if !socket.can_recv() {
            self.waiting = 0;
        } else {
            self.waiting = self.waiting.max(1);
        }
        lost
    }

    /// When a datagram that has not left is to be given up.
    pub(super) fn poll_at(&self) -> Option<Instant> {
        self.sending_since.map(|since| since + RESOLVE_TIME)
    }
}

fn bind(socket: &mut udp::Socket<'_>) {
    // Neither reason to refuse can be: the port is not 0 and the socket is closed.
    let bound = socket.bind(PORT);
    debug_assert_eq!(bound, Ok(()));
}

/// Empties a socket whose first datagram can't leave. Returns how many that were.
fn abandon(socket: &mut udp::Socket<'_>) -> u64 {
    let mut lost = 1;
    while socket.recv().is_ok() {
        lost += 1;
    }
    socket.close();
    bind(socket);
    lost
}
