//! A driver of the physical function, so that a virtual one has somebody to talk to.
//!
//! It uses the card's registers as any driver does, and does what the ones on SR-IOV hosts do: a pool and an address for
//! each function, and answers to the mailbox's messages up to version 1.3 of their protocol.

use super::queues_per_pool;
use crate::card::Card;
use crate::options::Model;
use crate::registers::*;

/// Words of a message.
const WORDS: usize = 16;
/// Bits 31 to 29 of an answer: success, failure, and that requests are welcome.
const SUCCESS: u32 = 1 << 31;
const FAILURE: u32 = 1 << 30;
const CLEAR_TO_SEND: u32 = 1 << 29;
/// A message from the host that asks for nothing: look at the link, or begin anew.
const CONTROL: u32 = 0x0100;

/// Messages of a virtual function: the lowest 16 bits of the first word.
const RESET: u32 = 0x01;
const SET_ADDRESS: u32 = 0x02;
const SET_MULTICAST: u32 = 0x03;
const SET_VLAN: u32 = 0x04;
const SET_LONGEST_FRAME: u32 = 0x05;
const NEGOTIATE_VERSION: u32 = 0x08;
const GET_QUEUES: u32 = 0x09;
const UPDATE_MODE: u32 = 0x0c;
const GET_LINK_STATE: u32 = 0x10;

/// Versions 1.0 to 1.3 by the numbers that messages have for them.
const VERSIONS: [u32; 4] = [0, 2, 3, 4];
/// What came with which of them, by their place in the list.
const HAS_QUEUES: usize = 1;
const HAS_MODES: usize = 2;
const HAS_PROMISCUITY: usize = 3;

/// Modes of a function: multicasts that it lists, every multicast, everything.
const LISTED_MULTICASTS: u32 = 1;
const MULTICASTS: u32 = 2;
const EVERYTHING: u32 = 3;

/// PFMAILBOX.
const STS: u32 = 1 << 0;
const ACK: u32 = 1 << 1;
const PFU: u32 = 1 << 3;

/// VMOLR: untagged frames, multicasts of the table, broadcasts.
const USUAL: u32 = 1 << 24 | 1 << 25 | 1 << 27;
/// VMOLR: every multicast, every unicast.
const EVERY_MULTICAST: u32 = 1 << 28;
const EVERY_UNICAST: u32 = 1 << 22;

/// What functions are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Queues of each function: 2 or 4.
    pub queues: usize,
    /// The newest version of the protocol that is known: 0 for 1.0, up to 3 for 1.3.
    pub version: usize,
    /// Where a function's address comes from.
    pub address: AddressFrom,
    /// What a function may ask for.
    pub trust: Trust,
    /// Whether anybody is there to answer.
    pub presence: Presence,
}

/// Where a function's address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFrom {
    /// From the list.
    Host,
    /// From the function itself, as where no operator has chosen one.
    Function,
}

/// What a function may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// What is its own.
    None,
    /// Every multicast, and everything where the card can do that: an 82599 can't.
    Full,
    /// Nothing: what could be refused is.
    Refusal,
}

/// What a function may do with the card's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Send and receive.
    Given,
    /// Nothing.
    Taken,
}

/// Whether functions hear of a reset before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// As Linux's driver does.
    Given,
    /// As from a card that has failed.
    None,
}

/// Whether the driver answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It does.
    Present,
    /// It does not.
    Absent,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            queues: 2,
            version: HAS_PROMISCUITY,
            address: AddressFrom::Host,
            trust: Trust::Full,
            presence: Presence::Present,
        }
    }
}

/// The driver.
pub struct HostDriver {
    /// What it grants from now on; as many queues as in the beginning.
    pub policy: Policy,
    functions: Vec<Function>,
    is_resetting: bool,
}

/// What it knows of a virtual function.
#[derive(Clone, Copy)]
struct Function {
    address: [u8; 6],
    /// It has been reset since the host came up: its requests are welcome.
    welcome: bool,
    /// The version that was agreed upon, by its place in the list.
    version: usize,
    /// It may use the link.
    has_link: bool,
}

impl HostDriver {
    /// Sets the card up for as many virtual functions as there are addresses.
    pub fn start(card: &mut Card, addresses: &[[u8; 6]], policy: Policy) -> HostDriver {
        card.set_virtual_functions(addresses.len());
        let function =
            |address: &[u8; 6]| Function { address: *address, welcome: false, version: 0, has_link: true };
        let functions = addresses.iter().map(function).collect();
        let host = HostDriver { policy, functions, is_resetting: false };
        host.set_up(card);
        host
    }

    /// Resets the card, which takes everything from the functions; what follows happens in [`HostDriver::serve`].
    pub fn reset(&mut self, card: &mut Card, notice: Notice) {
        self.functions.iter_mut().for_each(|function| function.welcome = false);
        if notice == Notice::Given {
            self.announce(card);
        }
        set(card, Register::CTRL, 0, CTRL_RST);
        self.is_resetting = true;
    }

    /// Gives the link to a function, or takes it, which makes the function begin anew.
    pub fn set_link(&mut self, card: &mut Card, function: usize, link: Link) {
        self.functions[function].has_link = link == Link::Given;
        self.functions[function].welcome = false;
        self.let_through(card, function);
        send(card, function, &[CONTROL]);
    }

    fn set_up(&self, card: &mut Card) {
        let (vt_mode, mrqe, table, mtqc) = match self.policy.queues {
            4 => (2, 0xa, 0x0302_0100, 0x2 | 0x8),
            _ => (3, 0xb, 0x0100_0100, 0x2 | 0x4),
        };
        set(card, Register::GCR_EXT, 0, 1 << 31 | vt_mode);
        for register in [Register::MTA, Register::VFTA, Register::MPSAR, Register::VLVF, Register::VLVFB] {
            (0..register.row().count()).for_each(|index| set(card, register, index, 0));
        }
        set(card, Register::HLREG0, 0, HLREG0_TXCRCEN | HLREG0_RXCRCSTRP | HLREG0_TXPADEN | HLREG0_JUMBOEN);
        set(card, Register::MAXFRS, 0, 1522 << 16);
        set(card, Register::RDRXCTL, 0, RDRXCTL_CRC_STRIP);
        let default_pool = self.functions.len() as u32;
        set(card, Register::VT_CTL, 0, VT_CTL_VT_ENA | VT_CTL_REPLICATION_EN | default_pool << 7);
        // A hash in each pool; on an X550 each pool has one of its own.
        let own = if card.core.options.model == Model::X550 { MRQC_MULTIPLE_RSS } else { 0 };
        set(card, Register::MRQC, 0, mrqe | MRQC_IPV4 | MRQC_UDP_IPV4 | MRQC_TCP_IPV4 | own);
        (0..32).for_each(|word| set(card, Register::RETA, word, table));
        (0..10).for_each(|word| set(card, Register::RSSRK, word, 0x6d5a_56da ^ (word as u32 * 0x0101_0101)));
        set(card, Register::RTTDCS, 0, RTTDCS_ARBDIS);
        set(card, Register::MTQC, 0, mtqc);
        set(card, Register::RTTDCS, 0, 0);
        // Functions reach each other.
        set(card, Register::PFDTXGSWC, 0, 1);
        set(card, Register::FCTRL, 0, FCTRL_BAM | FCTRL_MPE | FCTRL_UPE);
        set(card, Register::MCSTCTRL, 0, MCSTCTRL_MFE);
        set(card, Register::SECRXCTRL, 0, SEC_PATH_DIS);
        set(card, Register::RXCTRL, 0, RXCTRL_RXEN);
        set(card, Register::SECRXCTRL, 0, 0);
        set(card, Register::DMATXCTL, 0, DMATXCTL_TE);
        set(card, Register::CTRL_EXT, 0, CTRL_EXT_PFRSTD | CTRL_EXT_DRV_LOAD);
    }

    /// Answers what has come in.
    pub fn serve(&mut self, card: &mut Card) {
        if self.policy.presence == Presence::Absent {
            return;
        }
        if self.is_resetting {
            if get(card, Register::RDRXCTL, 0) & RDRXCTL_DMAIDONE == 0 {
                return;
            }
            self.is_resetting = false;
            self.set_up(card);
            self.announce(card);
        }
        for function in 0..self.functions.len() {
            let (word, bit) = (function / 32, 1 << (function % 32));
            if get(card, Register::PFVFLRE, word) & bit != 0 {
                set(card, Register::PFVFLREC, word, bit);
                self.functions[function].welcome = false;
            }
            let request = 1 << (function % 16);
            let acknowledgement = request << 16;
            if get(card, Register::PFMBICR, function / 16) & request != 0 {
                set(card, Register::PFMBICR, function / 16, request);
                self.answer(card, function);
            }
            if get(card, Register::PFMBICR, function / 16) & acknowledgement != 0 {
                set(card, Register::PFMBICR, function / 16, acknowledgement);
                // Who may not ask should not listen either, but begin anew.
                if !self.functions[function].welcome {
                    send(card, function, &[FAILURE]);
                }
            }
        }
    }

    /// Tells every function to look at its link.
    pub fn announce(&mut self, card: &mut Card) {
        for function in 0..self.functions.len() {
            let welcome = if self.functions[function].welcome { CLEAR_TO_SEND } else { 0 };
            send(card, function, &[CONTROL | welcome]);
        }
    }

    fn answer(&mut self, card: &mut Card, function: usize) {
        let mut message = [0; WORDS];
        for (word, value) in message.iter_mut().enumerate() {
            *value = get(card, Register::PFMBMEM, function * WORDS + word);
        }
        set(card, Register::PFMAILBOX, function, ACK);
        let answer = match message[0] & 0xffff {
            RESET => self.reset_function(card, function),
            _ if !self.functions[function].welcome => vec![message[0] | FAILURE],
            code if self.refuses(function, code, message[1]) => vec![message[0] | FAILURE | CLEAR_TO_SEND],
            SET_ADDRESS => {
                self.functions[function].address = address_of(&message[1..3]);
                self.let_address_in(card, function);
                vec![message[0] | SUCCESS | CLEAR_TO_SEND]
            }
            NEGOTIATE_VERSION => {
                self.functions[function].version = version_of(message[1]).unwrap_or(0);
                vec![message[0] | SUCCESS | CLEAR_TO_SEND, message[1]]
            }
            GET_QUEUES => {
                let queues = queues_per_pool(&card.core).unwrap_or(1) as u32;
                vec![message[0] | SUCCESS | CLEAR_TO_SEND, queues, queues, 0, 0]
            }
            UPDATE_MODE if message[1] >= EVERYTHING && card.core.options.model.is_82599() => {
                vec![message[0] | FAILURE | CLEAR_TO_SEND]
            }
            UPDATE_MODE => {
                let mode = if self.policy.trust == Trust::Full {
                    message[1]
                } else {
                    message[1].min(LISTED_MULTICASTS)
                };
                let multicasts = if mode >= MULTICASTS { EVERY_MULTICAST } else { 0 };
                let unicasts = if mode >= EVERYTHING { EVERY_UNICAST } else { 0 };
                set(card, Register::VMOLR, function, USUAL | multicasts | unicasts);
                vec![message[0] | SUCCESS | CLEAR_TO_SEND, mode]
            }
            GET_LINK_STATE => {
                vec![message[0] | SUCCESS | CLEAR_TO_SEND, self.functions[function].has_link.into()]
            }
            SET_MULTICAST => {
                self.let_multicast_in(card, &message);
                vec![message[0] | SUCCESS | CLEAR_TO_SEND]
            }
            SET_VLAN => {
                self.let_vlan_in(card, function, message[1] & 0xfff);
                vec![message[0] | SUCCESS | CLEAR_TO_SEND]
            }
            SET_LONGEST_FRAME => {
                let wanted = message[1].clamp(1518, 9728);
                let now = get(card, Register::MAXFRS, 0) >> 16;
                set(card, Register::MAXFRS, 0, wanted.max(now) << 16);
                vec![message[0] | SUCCESS | CLEAR_TO_SEND]
            }
            _ => vec![message[0] | FAILURE | CLEAR_TO_SEND],
        };
        send(card, function, &answer);
    }

    /// Whether a request is one that was not agreed upon, or that policy does not allow.
    fn refuses(&self, function: usize, code: u32, word: u32) -> bool {
        let version = self.functions[function].version;
        match code {
            NEGOTIATE_VERSION => version_of(word).is_none_or(|version| version > self.policy.version),
            GET_QUEUES => version < HAS_QUEUES,
            UPDATE_MODE if word >= EVERYTHING => {
                version < HAS_PROMISCUITY || self.policy.trust == Trust::Refusal
            }
            UPDATE_MODE => version < HAS_MODES || self.policy.trust == Trust::Refusal,
            GET_LINK_STATE => version < HAS_MODES,
            SET_ADDRESS | SET_LONGEST_FRAME => self.policy.trust == Trust::Refusal,
            _ => false,
        }
    }

    /// A function begins anew: it gets its pool back, and is told its address. The answer does not say that it is clear to send.
    fn reset_function(&mut self, card: &mut Card, function: usize) -> Vec<u32> {
        (self.functions[function].welcome, self.functions[function].version) = (true, 0);
        set(card, Register::VMOLR, function, USUAL);
        self.let_through(card, function);
        // The last word: which bits of a multicast address are hashed, as MCSTCTRL has it.
        if self.policy.address == AddressFrom::Function {
            return vec![RESET | FAILURE, 0, 0, 0];
        }
        self.let_address_in(card, function);
        let [a, b, c, d, e, f] = self.functions[function].address;
        vec![RESET | SUCCESS, u32::from_le_bytes([a, b, c, d]), u32::from(u16::from_le_bytes([e, f])), 0]
    }

    /// Opens a function's pool both ways, or closes it.
    fn let_through(&self, card: &mut Card, function: usize) {
        let bit = 1 << (function % 32);
        for register in [Register::VFRE, Register::VFTE] {
            let others = get(card, register, function / 32) & !bit;
            let own = if self.functions[function].has_link { bit } else { 0 };
            set(card, register, function / 32, others | own);
        }
    }

    /// A receive address register for each function, after the host's own.
    fn let_address_in(&self, card: &mut Card, function: usize) {
        let [a, b, c, d, e, f] = self.functions[function].address;
        let entry = function + 1;
        set(card, Register::RAL, entry, u32::from_le_bytes([a, b, c, d]));
        set(card, Register::RAH, entry, RAH_AV | u32::from(u16::from_le_bytes([e, f])));
        set(card, Register::MPSAR, 2 * entry + function / 32, 1 << (function % 32));
    }

    fn let_multicast_in(&self, card: &mut Card, message: &[u32; WORDS]) {
        let count = (message[0] >> 16 & 0xff).min(30) as usize;
        let hashes = message[1..].iter().flat_map(|word| [word & 0xffff, word >> 16]);
        for hash in hashes.take(count) {
            let word = (hash >> 5 & 0x7f) as usize;
            let table = get(card, Register::MTA, word);
            set(card, Register::MTA, word, table | 1 << (hash & 31));
        }
    }

    fn let_vlan_in(&self, card: &mut Card, function: usize, id: u32) {
        let entry = function;
        set(card, Register::VLVF, entry, 1 << 31 | id);
        set(card, Register::VLVFB, 2 * entry + function / 32, 1 << (function % 32));
    }
}

/// Of the number in a message: its place in the list.
fn version_of(number: u32) -> Option<usize> {
    VERSIONS.iter().position(|version| *version == number)
}

fn address_of(words: &[u32]) -> [u8; 6] {
    let [a, b, c, d] = words[0].to_le_bytes();
    let [e, f, ..] = words[1].to_le_bytes();
    [a, b, c, d, e, f]
}

/// Sends a message, unless the function holds the mailbox: it will ask again then.
fn send(card: &mut Card, function: usize, message: &[u32]) {
    set(card, Register::PFMAILBOX, function, PFU);
    if get(card, Register::PFMAILBOX, function) & PFU == 0 {
        return;
    }
    for (word, value) in message.iter().enumerate() {
        set(card, Register::PFMBMEM, function * WORDS + word, *value);
    }
    set(card, Register::PFMAILBOX, function, STS);
}

fn get(card: &mut Card, register: Register, index: usize) -> u32 {
    card.read(register.offset(index))
}

fn set(card: &mut Card, register: Register, index: usize, value: u32) {
    card.write(register.offset(index), value);
}
