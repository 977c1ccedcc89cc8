//! A driver of the physical function, so that a virtual one has somebody to talk to.
//!
//! It uses the card's registers as any driver does, and does what the ones on SR-IOV hosts do: a pool and an address for
//! each function, and answers to the mailbox's messages up to version 1.3 of their protocol.

use super::queues_per_pool;
use crate::card::Card;
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

/// Versions 1.0 to 1.3 by the numbers that messages have for them.
const VERSIONS: [u32; 4] = [0, 2, 3, 4];

/// PFMAILBOX.
const STS: u32 = 1 << 0;
const ACK: u32 = 1 << 1;
const PFU: u32 = 1 << 3;

/// VMOLR: untagged frames, multicasts of the table, broadcasts.
const USUAL: u32 = 1 << 24 | 1 << 25 | 1 << 27;
/// VMOLR: every multicast.
const EVERY_MULTICAST: u32 = 1 << 28;

/// The driver.
pub struct HostDriver {
    functions: Vec<Function>,
}

/// What it knows of a virtual function.
#[derive(Clone, Copy)]
struct Function {
    address: [u8; 6],
    /// It has been reset since the host came up: its requests are welcome.
    welcome: bool,
}

impl HostDriver {
    /// Sets the card up for as many virtual functions as there are addresses, two queues each.
    pub fn start(card: &mut Card, addresses: &[[u8; 6]]) -> HostDriver {
        card.set_virtual_functions(addresses.len());
        set(card, Register::GCR_EXT, 0, 1 << 31 | 3);
        for register in [Register::MTA, Register::VFTA, Register::MPSAR, Register::VLVF, Register::VLVFB] {
            (0..register.row().count()).for_each(|index| set(card, register, index, 0));
        }
        set(card, Register::HLREG0, 0, HLREG0_TXCRCEN | HLREG0_RXCRCSTRP | HLREG0_TXPADEN | HLREG0_JUMBOEN);
        set(card, Register::MAXFRS, 0, 1522 << 16);
        set(card, Register::RDRXCTL, 0, RDRXCTL_CRC_STRIP);
        let default_pool = addresses.len() as u32;
        set(card, Register::VT_CTL, 0, VT_CTL_VT_ENA | VT_CTL_REPLICATION_EN | default_pool << 7);
        // 64 pools of two queues, with a hash in each.
        set(card, Register::MRQC, 0, 0xb | MRQC_IPV4 | MRQC_UDP_IPV4 | MRQC_TCP_IPV4);
        (0..32).for_each(|word| set(card, Register::RETA, word, 0x0100_0100));
        (0..10).for_each(|word| set(card, Register::RSSRK, word, 0x6d5a_56da ^ (word as u32 * 0x0101_0101)));
        set(card, Register::RTTDCS, 0, RTTDCS_ARBDIS);
        set(card, Register::MTQC, 0, 0x2 | 0x4);
        set(card, Register::RTTDCS, 0, 0);
        // Functions reach each other.
        set(card, Register::PFDTXGSWC, 0, 1);
        set(card, Register::FCTRL, 0, FCTRL_BAM | FCTRL_MPE);
        set(card, Register::MCSTCTRL, 0, MCSTCTRL_MFE);
        set(card, Register::SECRXCTRL, 0, SEC_PATH_DIS);
        set(card, Register::RXCTRL, 0, RXCTRL_RXEN);
        set(card, Register::SECRXCTRL, 0, 0);
        set(card, Register::DMATXCTL, 0, DMATXCTL_TE);
        set(card, Register::CTRL_EXT, 0, CTRL_EXT_PFRSTD | CTRL_EXT_DRV_LOAD);
        let functions =
            addresses.iter().map(|address| Function { address: *address, welcome: false }).collect();
        HostDriver { functions }
    }

    /// Answers what has come in.
    pub fn serve(&mut self, card: &mut Card) {
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
            set(card, Register::PFMBICR, function / 16, acknowledgement);
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
            RESET => self.reset(card, function),
            _ if !self.functions[function].welcome => vec![message[0] | FAILURE],
            SET_ADDRESS => {
                self.functions[function].address = address_of(&message[1..3]);
                self.let_address_in(card, function);
                vec![message[0] | SUCCESS | CLEAR_TO_SEND]
            }
            NEGOTIATE_VERSION if VERSIONS.contains(&message[1]) => {
                vec![message[0] | SUCCESS | CLEAR_TO_SEND, message[1]]
            }
            GET_QUEUES => {
                let queues = queues_per_pool(&card.core).unwrap_or(1) as u32;
                vec![message[0] | SUCCESS | CLEAR_TO_SEND, queues, queues, 0, 0]
            }
            UPDATE_MODE => {
                // None, multicast, every multicast; promiscuity is not for functions.
                let mode = message[1].min(2);
                let every = if mode == 2 { EVERY_MULTICAST } else { 0 };
                set(card, Register::VMOLR, function, USUAL | every);
                vec![message[0] | SUCCESS | CLEAR_TO_SEND, mode]
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

    /// A function begins anew: it gets its pool back, and is told its address.
    fn reset(&mut self, card: &mut Card, function: usize) -> Vec<u32> {
        self.functions[function].welcome = true;
        self.let_address_in(card, function);
        set(card, Register::VMOLR, function, USUAL);
        for register in [Register::VFRE, Register::VFTE] {
            let pools = get(card, register, function / 32);
            set(card, register, function / 32, pools | 1 << (function % 32));
        }
        let [a, b, c, d, e, f] = self.functions[function].address;
        // The last word: which bits of a multicast address are hashed, as MCSTCTRL has it.
        vec![
            RESET | SUCCESS | CLEAR_TO_SEND,
            u32::from_le_bytes([a, b, c, d]),
            u32::from(u16::from_le_bytes([e, f])),
            0,
        ]
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
