//! What is asked of the physical function's driver after each reset, and what it grants.
//!
//! The words are those of Intel's drivers, versions 1.0 to 1.3 of their protocol; no datasheet has them. Every driver of a
//! physical function answers so: Linux's, FreeBSD's, DPDK's.

use super::mailbox::{Mailbox, WORDS};
use super::registers::QUEUES;
use crate::device::Mac;
use crate::ixgbe::error::IxgbeError;
use crate::ixgbe::wait::SECOND;
use crate::mmio::Bar;

/// How long an answer may take, and how long it may take until everything is settled.
const PATIENCE: u64 = SECOND;
const PATIENCE_IN_ALL: u64 = 10 * SECOND;
/// The longest frame that is asked for, with its CRC and without VLAN tag: what plain Ethernet has. Whoever asks for more gets
/// no frames at all on an 82599 whose physical function has not.
const LONGEST_FRAME: u32 = 1518;

/// Bits of an answer: granted, refused, and that requests are welcome.
const GRANTED: u32 = 1 << 31;
const REFUSED: u32 = 1 << 30;
const WELCOME: u32 = 1 << 29;

/// Versions of the protocol by their numbers in a request, newest first: 1.3 has promiscuity, 1.2 the link's state and
/// multicasts, 1.1 queues, 1.0 the rest.
const VERSIONS: [u32; 4] = [V1_3, V1_2, V1_1, V1_0];
const V1_3: u32 = 4;
const V1_2: u32 = 3;
const V1_1: u32 = 2;
const V1_0: u32 = 0;

/// Which frames are let in, beside those to the function's own address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Reach {
    /// Broadcasts.
    Broadcasts = 0,
    /// Multicasts that were listed: none was.
    ListedMulticasts = 1,
    /// Every multicast.
    Multicasts = 2,
    /// Everything without a VLAN tag.
    Everything = 3,
}

/// What the physical function has granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    version: u32,
    /// The function's address.
    pub(super) mac: Mac,
    pub(super) rx_queues: usize,
    pub(super) tx_queues: usize,
    pub(super) reach: Reach,
    /// The link may be used when it is up.
    pub(super) has_link: bool,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    Reset,
    Version(usize),
    SetAddress,
    Queues,
    LongestFrame,
    Reach(Reach),
    LinkState,
}

/// The conversation from a reset until everything is settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Talk {
    request: Request,
    /// The request is on its way.
    is_sent: bool,
    since: u64,
    begun: u64,
    terms: Terms,
}

/// What became of a conversation.
pub(super) enum Outcome {
    /// It goes on.
    Goes(Talk),
    /// Everything is settled.
    Settled(Terms),
}

impl Talk {
    /// Begins at `now`. `own` is the address that the function has where the other side gives it none.
    pub(super) fn new(now: u64, own: Mac) -> Talk {
        let terms = Terms {
            version: V1_0,
            mac: own,
            rx_queues: 1,
            tx_queues: 1,
            reach: Reach::Broadcasts,
            has_link: true,
        };
        Talk { request: Request::Reset, is_sent: false, since: now, begun: now, terms }
    }

    /// The next step, as far as the other side has come.
    ///
    /// # Errors
    /// Where it does not answer, refuses what the function can't do without, or never comes to an end.
    pub(super) fn step(
        mut self,
        bar: &impl Bar,
        mailbox: &mut Mailbox,
        now: u64,
    ) -> Result<Outcome, IxgbeError> {
        let message = if self.is_sent { mailbox.receive(bar) } else { None };
        let request = self.request.words(&self.terms);
        match message {
            Some(answer) if is_answer(answer[0], request[0]) => return self.settle(answer, now),
            // The two sides share the memory: what answers nothing may have overwritten the request, or its answer.
            Some(_) => self.is_sent = false,
            None => {}
        }
        if now.saturating_sub(self.since) > PATIENCE {
            return Err(IxgbeError::Timeout { register: "VFMAILBOX", awaited: self.request.awaited() });
        }
        if !self.is_sent {
            self.is_sent = mailbox.send(bar, &request);
        }
        Ok(Outcome::Goes(self))
    }

    /// Takes an answer in, and goes on with the next request.
    fn settle(self, answer: [u32; WORDS], now: u64) -> Result<Outcome, IxgbeError> {
        let is_granted = answer[0] & GRANTED != 0;
        let mut terms = self.terms;
        let next = match self.request {
            Request::Reset if is_granted => {
                terms.mac = given_address(&answer)?;
                Some(Request::Version(0))
            }
            // No address: the function has one of its own, of which the other side has to know.
            Request::Reset => Some(Request::SetAddress),
            // It wants to begin anew, as it has other terms by now.
            _ if answer[0] & WELCOME == 0 => Some(Request::Reset),
            Request::SetAddress if is_granted => Some(Request::Version(0)),
            Request::SetAddress => return Err(IxgbeError::Refused("an address of our own")),
            Request::Version(index) if is_granted => {
                terms.version = VERSIONS[index];
                Some(if terms.version == V1_0 { Request::LongestFrame } else { Request::Queues })
            }
            // The oldest needs no consent.
            Request::Version(index) if index + 1 == VERSIONS.len() => Some(Request::LongestFrame),
            Request::Version(index) => Some(Request::Version(index + 1)),
            Request::Queues => {
                if is_granted {
                    terms.tx_queues = (answer[1] as usize).clamp(1, QUEUES);
                    terms.rx_queues = (answer[2] as usize).clamp(1, QUEUES);
                }
                Some(Request::LongestFrame)
            }
            Request::LongestFrame if is_granted => terms.widest_reach().map(Request::Reach),
            Request::LongestFrame => return Err(IxgbeError::Refused("frames of 1518 bytes")),
            Request::Reach(wanted) if is_granted => {
                // What was granted may be less than what was asked for.
                terms.reach = Reach::of(answer[1]).min(wanted);
                Some(Request::LinkState)
            }
            Request::Reach(Reach::Everything) => Some(Request::Reach(Reach::Multicasts)),
            Request::Reach(_) => Some(Request::LinkState),
            // Older drivers do not know the question, nor how to take a link away.
            Request::LinkState => {
                terms.has_link = !is_granted || answer[1] != 0;
                None
            }
        };
        Ok(match next {
            Some(_) if now.saturating_sub(self.begun) > PATIENCE_IN_ALL => {
                return Err(IxgbeError::NoAgreement);
            }
            Some(request) => Outcome::Goes(Talk { request, is_sent: false, since: now, terms, ..self }),
            None => Outcome::Settled(terms),
        })
    }
}

impl Terms {
    /// The most that can be asked for.
    fn widest_reach(&self) -> Option<Reach> {
        match self.version {
            V1_3 => Some(Reach::Everything),
            V1_2 => Some(Reach::Multicasts),
            _ => None,
        }
    }
}

impl Reach {
    fn of(mode: u32) -> Reach {
        match mode {
            0 => Reach::Broadcasts,
            1 => Reach::ListedMulticasts,
            2 => Reach::Multicasts,
            _ => Reach::Everything,
        }
    }
}

impl Request {
    /// The message; its first word is the code.
    fn words(self, terms: &Terms) -> [u32; 3] {
        let Mac([a, b, c, d, e, f]) = terms.mac;
        match self {
            Request::Reset => [0x01, 0, 0],
            Request::SetAddress => {
                [0x02, u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]).into()]
            }
            Request::LongestFrame => [0x05, LONGEST_FRAME, 0],
            Request::Version(index) => [0x08, VERSIONS[index], 0],
            Request::Queues => [0x09, 0, 0],
            Request::Reach(reach) => [0x0c, reach as u32, 0],
            Request::LinkState => [0x10, 0, 0],
        }
    }

    fn awaited(self) -> &'static str {
        match self {
            Request::Reset => "the physical function to answer a reset",
            Request::SetAddress => "the physical function to take an address",
            Request::Version(_) => "the physical function to agree on a version",
            Request::Queues => "the physical function to count queues",
            Request::LongestFrame => "the physical function to agree on a length of frames",
            Request::Reach(_) => "the physical function to say which frames come in",
            Request::LinkState => "the physical function to say whether there is a link",
        }
    }
}

/// Whether a message says that requests are not welcome any more: the physical function has been reset, or wants to begin anew.
pub(super) fn is_farewell(message: [u32; WORDS]) -> bool {
    message[0] & WELCOME == 0
}

fn is_answer(word: u32, code: u32) -> bool {
    word & 0xffff == code && word & (GRANTED | REFUSED) != 0
}

fn given_address(answer: &[u32; WORDS]) -> Result<Mac, IxgbeError> {
    let [a, b, c, d] = answer[1].to_le_bytes();
    let [e, f, ..] = answer[2].to_le_bytes();
    let mac = [a, b, c, d, e, f];
    let is_one = mac != [0; 6] && a & 1 == 0;
    if is_one { Ok(Mac(mac)) } else { Err(IxgbeError::NoAddress) }
}
