//! The order in which a card is brought up: our own list, line by line, and what it has in common with Linux's.

use ixgbe_model::CardOptions;
use netdrv::device::QueueWish;

use super::IxgbeBench;
use super::bar::Write;
use crate::bench::Rig;

/// Some equal writes to neighbouring registers.
pub(super) struct Line {
    name: &'static str,
    offset: u32,
    /// `None` for a ring's address, which is any.
    value: Option<u32>,
    count: u32,
    why: &'static str,
}

pub(super) const fn line(
    name: &'static str,
    offset: u32,
    value: Option<u32>,
    count: u32,
    why: &'static str,
) -> Line {
    Line { name, offset, value, count, why }
}

/// An 82599 with an SFP+ cage, one queue pair, rings of 256, one interrupt: every write until frames come in.
#[rustfmt::skip]
const BRING_UP: &[Line] = &[
    line("EIMC", 0x00888, Some(0x7fffffff), 1, "4.6.3.1: no interrupt from here on"),
    line("EIMC_EX", 0x00ab0, Some(0xffffffff), 2, "nor of any other entry"),
    line("RXCTRL", 0x03000, Some(0x0), 1, "no frame comes in"),
    line("CTRL", 0x00000, Some(0x4), 1, "5.2.5.3.2: no access to memory is started; STATUS says when the last is over"),
    line("CTRL", 0x00000, Some(0x4000004), 1, "4.6.3.2: the reset, and nothing else for 10 ms"),
    line("EIMC", 0x00888, Some(0x7fffffff), 1, "4.6.3.1: again, since the reset has unmasked what the EEPROM says"),
    line("EIMC_EX", 0x00ab0, Some(0xffffffff), 2, "likewise"),
    line("CTRL_EXT", 0x00018, Some(0x10010000), 1, "the firmware learns of a driver; no no-snoop accesses (4.6.7)"),
    line("FCCFG", 0x03d00, Some(0x0), 1, "no flow control is sent"),
    line("MFLCN", 0x04294, Some(0x2), 1, "none is obeyed, and PAUSE frames end here"),
    line("ESDP", 0x00020, Some(0x4), 1, "4.6.4: the module's laser on"),
    line("AUTOC2", 0x042a8, Some(0x20000), 1, "the serial link is SFI"),
    line("AUTOC", 0x042a0, Some(0x6000), 1, "10 Gb/s, serial"),
    line("AUTOC", 0x042a0, Some(0x7000), 1, "and start over with that"),
    line("RQSMR", 0x02300, Some(0x3020100), 1, "4.6.5: each receive queue counts apart"),
    line("GPIE", 0x00898, Some(0xc0000030), 1, "4.6.6: MSI-X, pending bits, EIAM counts, causes of others stay"),
    line("EIAM_EX", 0x00ad0, Some(0xffffffff), 2, "an entry masks itself when it is sent"),
    line("EIAC", 0x00810, Some(0xffff), 1, "and clears its cause"),
    line("IVAR", 0x00900, Some(0x80), 1, "receive queue 0 has entry 0"),
    line("RXCTRL", 0x03000, Some(0x0), 1, "4.6.7: off while it is set up"),
    line("FCTRL", 0x05080, Some(0x700), 1, "frames for anyone"),
    line("VLNCTRL", 0x05088, Some(0x8100), 1, "of any VLAN"),
    line("HLREG0", 0x04240, Some(0x807), 1, "without CRC, up to MAXFRS"),
    line("MAXFRS", 0x04268, Some(0x7000000), 1, "1792 bytes: a buffer, less a VLAN tag, and the CRC"),
    line("RDRXCTL", 0x02f00, Some(0x600000a), 1, "without CRC here as well; the fields that must have these values"),
    line("RXPBSIZE", 0x03c00, Some(0x80000), 1, "512 KB for the first packet buffer"),
    line("RXPBSIZE", 0x03c04, Some(0x0), 7, "none for the others"),
    line("MRQC", 0x05818, Some(0x0), 1, "one queue: nothing to choose"),
    line("RDBAL", 0x01000, None, 1, "4.6.7.1.1: the ring, while it is off"),
    line("RDBAH", 0x01004, None, 1, "its upper half"),
    line("RDLEN", 0x01008, Some(0x1000), 1, "256 descriptors"),
    line("SRRCTL", 0x01014, Some(0x12000002), 1, "2 KB a buffer, one each, drop without"),
    line("DCA_RXCTRL", 0x0100c, Some(0xa200), 1, "the bit that must be 0"),
    line("RDH", 0x01010, Some(0x0), 1, "an empty ring"),
    line("RDT", 0x01018, Some(0x0), 1, "likewise"),
    line("RXDCTL", 0x01028, Some(0x2000000), 1, "enabled, tags stay"),
    line("HLREG0", 0x04240, Some(0xc07), 1, "4.6.8: with CRC and padding"),
    line("RTTDCS", 0x04900, Some(0x40), 1, "8.2.3.9.15: the arbiter stands while MTQC changes"),
    line("MTQC", 0x08120, Some(0x0), 1, "64 queues, no classes"),
    line("TXPBSIZE", 0x0cc00, Some(0x28000), 1, "160 KB for the first packet buffer"),
    line("TXPBSIZE", 0x0cc04, Some(0x0), 7, "none for the others"),
    line("TXPBTHRESH", 0x04950, Some(0x96), 1, "stop at 150 KB"),
    line("TXPBTHRESH", 0x04954, Some(0x0), 7, "none"),
    line("DTXMXSZRQ", 0x08100, Some(0xfff), 1, "as many requests as there can be"),
    line("RTTDCS", 0x04900, Some(0x0), 1, "the arbiter runs"),
    line("DMATXCTL", 0x04a80, Some(0x81000001), 1, "the transmitter is on before any of its queues"),
    line("TDBAL", 0x06000, None, 1, "4.6.8.1: the ring"),
    line("TDBAH", 0x06004, None, 1, "its upper half"),
    line("TDLEN", 0x06008, Some(0x1000), 1, "256 descriptors"),
    line("TDH", 0x06010, Some(0x0), 1, "an empty ring"),
    line("TDT", 0x06018, Some(0x0), 1, "likewise"),
    line("TXDCTL", 0x06028, Some(0x2000120), 1, "enabled; PTHRESH 32, HTHRESH 1, WTHRESH 0"),
    line("RDT", 0x01018, Some(0xff), 1, "255 buffers, after the queue is enabled"),
    line("SECRXCTRL", 0x08d00, Some(0x3), 1, "4.6.7: the path from the MAC is held"),
    line("RXCTRL", 0x03000, Some(0x1), 1, "while receiving is switched on"),
    line("SECRXCTRL", 0x08d00, Some(0x1), 1, "and let go"),
];

/// What the driver writes until frames come in.
fn bring_up() -> Vec<Write> {
    let wish = QueueWish { pairs: 1, ring: 256, interrupts: 1, tx_needed: 0 };
    let bench = IxgbeBench::new(CardOptions::default(), wish).expect("a sane card");
    let rig = Rig::new(bench);
    let writes = rig.bench.card.bar.take_writes();
    rig.finish();
    writes
}

#[test]
fn a_card_is_brought_up_line_by_line() {
    check(BRING_UP, bring_up());
}

/// Fails where a driver has written anything else than these lines.
pub(super) fn check(lines: &[Line], writes: Vec<Write>) {
    let mut writes = writes.into_iter();
    for Line { name, offset, value, count, why } in lines {
        for index in 0..*count {
            let (at, written) = writes.next().unwrap_or_else(|| panic!("{name} is not written: {why}"));
            let expected = (offset + 4 * index, value.unwrap_or(written));
            assert!(
                (at, written) == expected,
                "{at:#07x} = {written:#x}, not {name} = {expected:#x?}: {why}"
            );
        }
    }
    assert_eq!(writes.next(), None, "no write is left out of the list");
}

/// The same by Linux 6.12, of those registers that this driver writes as well: from our own recording.
fn linux() -> Vec<Write> {
    let number = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number");
    let lines = include_str!("linux-6.12.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split_once(' ').expect("two words"))
        .map(|(at, value)| (number(at), number(value)))
        .collect()
}

/// A write to the register at an offset of a value with these bits set, or of one without any of them.
#[derive(Clone, Copy, Debug)]
enum Step {
    Sets(u32, u32),
    Clears(u32, u32),
}

impl Step {
    fn is(self, (offset, value): Write) -> bool {
        match self {
            Step::Sets(at, bits) => offset == at && value & bits == bits,
            Step::Clears(at, bits) => offset == at && value & bits == 0,
        }
    }
}

/// What the silicon wants in this order, whoever the driver is.
#[test]
fn the_order_is_the_one_that_linux_keeps_too() {
    const RESET: Step = Step::Sets(0x00000, 1 << 26);
    const RX_QUEUE_ON: Step = Step::Sets(0x01028, 1 << 25);
    const TX_QUEUE_ON: Step = Step::Sets(0x06028, 1 << 25);
    const RX_ON: Step = Step::Sets(0x03000, 1);
    const BUFFERS: Step = Step::Sets(0x01018, 0xff);
    let before_reset =
        [(Step::Sets(0x00888, 0x7fff_ffff), "EIMC"), (Step::Sets(0x00000, 1 << 2), "master disable")];
    let after_reset = [
        (Step::Sets(0x03c00, 512 << 10), RX_ON, "the packet buffer before what comes in"),
        (Step::Sets(0x02f00, 1 << 1), RX_ON, "both registers strip the CRC"),
        (Step::Sets(0x04240, 1 << 1), RX_ON, "both registers strip the CRC"),
        (Step::Sets(0x01008, 0), RX_QUEUE_ON, "a ring is described before it is on"),
        (RX_QUEUE_ON, BUFFERS, "a queue is on before it is given buffers"),
        (BUFFERS, RX_ON, "buffers before frames"),
        (Step::Sets(0x08d00, 1 << 1), RX_ON, "the path is held when receiving begins"),
        (RX_ON, Step::Clears(0x08d00, 1 << 1), "and let go after that"),
        (Step::Sets(0x04900, 1 << 6), Step::Clears(0x08120, !0), "the arbiter stands when MTQC is written"),
        (Step::Clears(0x08120, !0), Step::Clears(0x04900, 1 << 6), "and runs after that"),
        (Step::Sets(0x04a80, 1), TX_QUEUE_ON, "the transmitter is on before its queues"),
        (Step::Sets(0x06008, 0), TX_QUEUE_ON, "a ring is described before it is on"),
        (Step::Sets(0x00898, 1 << 4), Step::Sets(0x00900, 1 << 7), "MSI-X before its entries"),
    ];
    for (whose, writes) in [("ours", bring_up()), ("Linux's", linux())] {
        let reset = writes.iter().position(|write| RESET.is(*write)).expect("a reset");
        for (step, name) in before_reset {
            assert!(writes[..reset].iter().any(|write| step.is(*write)), "{whose}: {name} before the reset");
        }
        let life = &writes[reset + 1..];
        for (first, then, why) in after_reset {
            let first = life.iter().position(|write| first.is(*write)).expect(why);
            let is_ordered = match then {
                // What is switched on was not on before.
                Step::Sets(..) => !life[..first].iter().any(|write| then.is(*write)),
                Step::Clears(..) => true,
            };
            let follows = life[first..].iter().any(|write| then.is(*write));
            assert!(is_ordered && follows, "{whose}: {why}");
        }
    }
}
