//! What the card's cable leads to: a source and a sink of frames, a datagram socket, or a tap interface.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use anyhow::{Context, Result};
use ixgbe_model::{MAX_FRAME, Wire};
use nix::poll::PollFlags;

use super::tap;
use crate::vhost::{Sink, Source, Window};

/// The shortest frame on a wire, without its CRC: who sends a shorter one fills it up (IEEE 802.3, 3.2.8).
const MIN_FRAME: usize = 60;

/// What the cable of a card leads to.
#[derive(Clone, Debug)]
pub enum Cable {
    /// The source and the sink that [`CardPort::start`](super::CardPort::start) is given.
    Traffic {
        /// Each frame into the card needs room in this window.
        takes: Option<Window>,
        /// Each frame out of the card makes room in this window.
        gives: Option<Window>,
    },
    /// A datagram unix socket, one frame a datagram, as QEMU's own `dgram`.
    Dgram {
        /// The path that the cable's end is bound to.
        local: PathBuf,
        /// The path that frames are sent to.
        remote: PathBuf,
    },
    /// A tap interface, made here where it does not exist; usually needs root.
    Tap {
        /// The interface's name.
        name: String,
    },
}

/// Frames and their bytes, without CRC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossed {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Crossed {
    fn add(&mut self, frame: &[u8]) {
        self.frames += 1;
        self.bytes += frame.len() as u64;
    }
}

/// What crossed the cable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CableCounts {
    /// Into the card.
    pub into: Crossed,
    /// Out of the card, by transmit queue.
    pub out: Vec<Crossed>,
}

impl CableCounts {
    /// Frames out of the card, from all queues.
    pub fn frames_out(&self) -> u64 {
        self.out.iter().map(|queue| queue.frames).sum()
    }

    /// How many transmit queues sent anything.
    pub fn queues_out(&self) -> usize {
        self.out.iter().filter(|queue| queue.frames > 0).count()
    }
}

/// The cable as the card has it in hand.
pub(super) struct Plug {
    end: End,
    /// Frames that the other end does not take yet.
    backlog: VecDeque<Vec<u8>>,
    /// Whether the card asked for a frame last time and there was none.
    is_drained: bool,
    counts: CableCounts,
}

enum End {
    Traffic {
        traffic: Option<(Box<dyn Source>, Box<dyn Sink>)>,
        takes: Option<Window>,
        gives: Option<Window>,
    },
    Dgram {
        socket: UnixDatagram,
        local: PathBuf,
        remote: PathBuf,
    },
    Tap(File),
}

impl Plug {
    pub(super) fn new(cable: Cable) -> Result<Self> {
        let end = match cable {
            Cable::Traffic { takes, gives } => End::Traffic { traffic: None, takes, gives },
            Cable::Dgram { local, remote } => {
                let socket =
                    UnixDatagram::bind(&local).with_context(|| format!("cannot bind {}", local.display()))?;
                socket.set_nonblocking(true)?;
                End::Dgram { socket, local, remote }
            }
            Cable::Tap { name } => End::Tap(tap::open(&name)?),
        };
        Ok(Self { end, backlog: VecDeque::new(), is_drained: false, counts: CableCounts::default() })
    }

    /// From now on frames come from `source` and go to `sink`, if the cable leads to such.
    pub(super) fn start(&mut self, source: Box<dyn Source>, sink: Box<dyn Sink>) {
        if let End::Traffic { traffic, .. } = &mut self.end {
            *traffic = Some((source, sink));
        }
    }

    pub(super) fn counts(&self) -> &CableCounts {
        &self.counts
    }

    /// Sends what waits; `false` while the other end does not take it. The card is to be left alone until then, as if
    /// the other end had sent a pause frame.
    pub(super) fn is_clear(&mut self) -> bool {
        while let Some(frame) = self.backlog.front() {
            if !self.end.send(frame) {
                return false;
            }
            self.backlog.pop_front();
        }
        true
    }

    /// The file through which frames come and go, if there is one.
    pub(super) fn file(&self) -> io::Result<Option<OwnedFd>> {
        match &self.end {
            End::Traffic { .. } => Ok(None),
            End::Dgram { socket, .. } => socket.as_fd().try_clone_to_owned().map(Some),
            End::Tap(file) => file.as_fd().try_clone_to_owned().map(Some),
        }
    }

    /// What the file has to be ready for before the card can go on; nothing while the card does not ask for frames.
    pub(super) fn waits_for(&self) -> PollFlags {
        match self.backlog.is_empty() {
            false => PollFlags::POLLOUT,
            true if self.is_drained => PollFlags::POLLIN,
            true => PollFlags::empty(),
        }
    }
}

impl Wire for Plug {
    fn transmit(&mut self, queue: u16, frame: &[u8]) {
        let queue_index = usize::from(queue);
        if self.counts.out.len() <= queue_index {
            self.counts.out.resize(queue_index + 1, Crossed::default());
        }
        self.counts.out[queue_index].add(frame);
        if let End::Traffic { traffic, gives, .. } = &mut self.end {
            if let Some((_, sink)) = traffic {
                sink.frame(queue, frame);
            }
            if let Some(window) = gives {
                window.give();
            }
        } else if !self.backlog.is_empty() || !self.end.send(frame) {
            self.backlog.push_back(frame.to_vec());
        }
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        let found = self.end.receive(frame);
        self.is_drained = !found;
        if found {
            frame.resize(frame.len().max(MIN_FRAME), 0);
            self.counts.into.add(frame);
        }
        found
    }
}

impl End {
    /// `false` if the other end has no room at present. A frame for an end that is not there is lost, as on a wire.
    fn send(&mut self, frame: &[u8]) -> bool {
        let sent = match self {
            Self::Traffic { .. } => return true,
            Self::Dgram { socket, remote, .. } => socket.send_to(frame, remote),
            Self::Tap(file) => file.write(frame),
        };
        !sent.is_err_and(|error| is_full(&error))
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        match self {
            Self::Traffic { traffic: None, .. } => false,
            Self::Traffic { traffic: Some((source, _)), takes, .. } => {
                if takes.as_ref().is_some_and(|window| !window.take()) {
                    return false;
                }
                frame.clear();
                let found = source.next(frame);
                if !found && let Some(window) = takes {
                    window.give();
                }
                found
            }
            Self::Dgram { socket, .. } => read_into(frame, |buffer| socket.recv(buffer)),
            Self::Tap(file) => read_into(frame, |buffer| file.read(buffer)),
        }
    }
}

/// Fills `frame` by one read, if there is something to read.
fn read_into(frame: &mut Vec<u8>, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> bool {
    frame.resize(MAX_FRAME, 0);
    let length = read(frame).unwrap_or(0);
    frame.truncate(length);
    length > 0
}

/// The receiver's queue is full (`EAGAIN`), or the kernel is short of memory for a moment (`ENOBUFS`).
fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(nix::libc::ENOBUFS)
}

impl Drop for End {
    fn drop(&mut self) {
        if let Self::Dgram { local, .. } = self {
            // It may be gone already, with its folder.
            let _ = fs::remove_file(local);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(plug: &mut Plug) -> Option<Vec<u8>> {
        let mut frame = Vec::new();
        plug.receive(&mut frame).then_some(frame)
    }

    #[test]
    fn a_source_and_a_sink_are_bounded_by_windows() {
        let window = Window::new(1);
        let cable = Cable::Traffic { takes: Some(window.clone()), gives: Some(window) };
        let mut plug = Plug::new(cable).unwrap();
        assert_eq!(receive(&mut plug), None);
        let (seen, queues) = std::sync::mpsc::channel();
        let source = |frame: &mut Vec<u8>| {
            frame.extend([7; 64]);
            true
        };
        plug.start(Box::new(source), Box::new(move |queue: u16, _: &[u8]| seen.send(queue).unwrap()));
        assert_eq!(receive(&mut plug), Some(vec![7; 64]));
        assert_eq!(receive(&mut plug), None, "the window is full");
        plug.transmit(3, &[7; 64]);
        assert_eq!(queues.try_recv(), Ok(3));
        assert!(receive(&mut plug).is_some());
        let counts = plug.counts();
        assert_eq!((counts.into.frames, counts.frames_out(), counts.queues_out()), (2, 1, 1));
        assert_eq!(counts.out[3], Crossed { frames: 1, bytes: 64 });
    }

    #[test]
    fn a_socket_that_is_full_holds_the_card_and_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let mut plug = Plug::new(Cable::Dgram { local: theirs.clone(), remote: ours.clone() }).unwrap();
        plug.transmit(0, b"nobody is there yet");
        assert!(plug.is_clear(), "it is lost");

        let socket = UnixDatagram::bind(&ours).unwrap();
        let mut sent = 0_u32;
        while plug.is_clear() {
            plug.transmit(0, &sent.to_be_bytes());
            sent += 1;
        }
        assert_eq!(plug.waits_for(), PollFlags::POLLOUT);
        for expected in 0..sent {
            let mut bytes = [0; 64];
            assert_eq!(socket.recv(&mut bytes).unwrap(), 4);
            assert_eq!(bytes[..4], expected.to_be_bytes());
            plug.is_clear();
        }
        assert_eq!(plug.waits_for(), PollFlags::empty(), "the card has not asked yet");
        assert_eq!(receive(&mut plug), None);
        assert_eq!(plug.waits_for(), PollFlags::POLLIN);
        socket.send_to(b"short", &theirs).unwrap();
        let mut filled = b"short".to_vec();
        filled.resize(MIN_FRAME, 0);
        assert_eq!(receive(&mut plug), Some(filled));
        drop(plug);
        assert!(!theirs.exists());
    }
}
