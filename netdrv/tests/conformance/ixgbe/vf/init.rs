//! The order in which a function is brought up, line by line.

use ixgbe_model::{Model, Policy};
use netdrv::device::QueueWish;

use super::VfBench;
use crate::bench::Rig;
use crate::ixgbe::init::{Line, check, line};
use crate::ixgbe::lock;

/// A function of an 82599, one queue pair, rings of 256, one interrupt: every write until frames come in.
#[rustfmt::skip]
const BRING_UP: &[Line] = &[
    line("VTEIMC", 0x0010c, Some(0x7), 1, "no interrupt from here on"),
    line("VFCTRL", 0x00000, Some(0x4000000), 1, "7.10.2.4: the reset of the function"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "7.10.2.9: the mailbox is ours"),
    line("VFMBMEM", 0x00200, Some(0x1), 1, "a reset: which address is ours?"),
    line("VFMBMEM", 0x00204, Some(0x0), 2, "no more words"),
    line("VFMAILBOX", 0x002fc, Some(0x1), 1, "sent"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "ours while we read"),
    line("VFMAILBOX", 0x002fc, Some(0x2), 1, "read"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "ours"),
    line("VFMBMEM", 0x00200, Some(0x8), 1, "let's agree on a version"),
    line("VFMBMEM", 0x00204, Some(0x4), 1, "1.3"),
    line("VFMBMEM", 0x00208, Some(0x0), 1, "no more words"),
    line("VFMAILBOX", 0x002fc, Some(0x1), 1, "sent"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "ours while we read"),
    line("VFMAILBOX", 0x002fc, Some(0x2), 1, "read"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "ours"),
    line("VFMBMEM", 0x00200, Some(0x9), 1, "how many queues are ours?"),
    line("VFMBMEM", 0x00204, Some(0x0), 2, "no more words"),
    line("VFMAILBOX", 0x002fc, Some(0x1), 1, "sent"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "ours while we read"),
    line("VFMAILBOX", 0x002fc, Some(0x2), 1, "read"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "ours"),
    line("VFMBMEM", 0x00200, Some(0x5), 1, "frames are up to so many bytes long"),
    line("VFMBMEM", 0x00204, Some(0x5ee), 1, "1518"),
    line("VFMBMEM", 0x00208, Some(0x0), 1, "no more words"),
    line("VFMAILBOX", 0x002fc, Some(0x1), 1, "sent"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "ours while we read"),
    line("VFMAILBOX", 0x002fc, Some(0x2), 1, "read"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "ours"),
    line("VFMBMEM", 0x00200, Some(0xc), 1, "which frames may come in?"),
    line("VFMBMEM", 0x00204, Some(0x3), 1, "all, we hope: refused, this is an 82599"),
    line("VFMBMEM", 0x00208, Some(0x0), 1, "no more words"),
    line("VFMAILBOX", 0x002fc, Some(0x1), 1, "sent"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "ours while we read"),
    line("VFMAILBOX", 0x002fc, Some(0x2), 1, "read"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "ours"),
    line("VFMBMEM", 0x00200, Some(0xc), 1, "and without those to others' addresses?"),
    line("VFMBMEM", 0x00204, Some(0x2), 1, "every multicast"),
    line("VFMBMEM", 0x00208, Some(0x0), 1, "no more words"),
    line("VFMAILBOX", 0x002fc, Some(0x1), 1, "sent"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "ours while we read"),
    line("VFMAILBOX", 0x002fc, Some(0x2), 1, "read"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "ours"),
    line("VFMBMEM", 0x00200, Some(0x10), 1, "may we use the link?"),
    line("VFMBMEM", 0x00204, Some(0x0), 2, "no more words"),
    line("VFMAILBOX", 0x002fc, Some(0x1), 1, "sent"),
    line("VFMAILBOX", 0x002fc, Some(0x4), 1, "ours while we read"),
    line("VFMAILBOX", 0x002fc, Some(0x2), 1, "read"),
    line("VTEIMC", 0x0010c, Some(0x7), 1, "no interrupt yet"),
    line("VTEIAM", 0x00114, Some(0x7), 1, "an entry masks itself when it is sent"),
    line("VTEIAC", 0x00110, Some(0x7), 1, "and clears its cause"),
    line("VTIVAR", 0x00120, Some(0x80), 1, "receive queue 0 has entry 0"),
    line("VFPSRTYPE", 0x00300, Some(0x0), 1, "one queue: no bit of the hash counts"),
    line("VFRDBAL", 0x01000, None, 1, "4.6.7.1.1: the ring, while it is off"),
    line("VFRDBAH", 0x01004, None, 1, "its upper half"),
    line("VFRDLEN", 0x01008, Some(0x1000), 1, "256 descriptors"),
    line("VFSRRCTL", 0x01014, Some(0x12000002), 1, "2 KB a buffer, one each, drop without"),
    line("VFDCA_RXCTRL", 0x0100c, Some(0xa200), 1, "the bit that must be 0"),
    line("VFRDH", 0x01010, Some(0x0), 1, "an empty ring"),
    line("VFRDT", 0x01018, Some(0x0), 1, "likewise"),
    line("VFRXDCTL", 0x01028, Some(0x2000000), 1, "enabled, tags stay"),
    line("VFTDBAL", 0x02000, None, 1, "4.6.8.1: the ring"),
    line("VFTDBAH", 0x02004, None, 1, "its upper half"),
    line("VFTDLEN", 0x02008, Some(0x1000), 1, "256 descriptors"),
    line("VFTDH", 0x02010, Some(0x0), 1, "an empty ring"),
    line("VFTDT", 0x02018, Some(0x0), 1, "likewise"),
    line("VFTXDCTL", 0x02028, Some(0x2000120), 1, "enabled; PTHRESH 32, HTHRESH 1, WTHRESH 0"),
    line("VFRDT", 0x01018, Some(0xff), 1, "255 buffers: frames come in"),
];

#[test]
fn a_function_is_brought_up_line_by_line() {
    let wish = QueueWish { pairs: 1, ring: 256, interrupts: 1, tx_needed: 0 };
    let bench = VfBench::new(Model::Sfp82599, Policy::default(), wish).expect("a sane function");
    let rig = Rig::new(bench);
    let writes = std::mem::take(&mut *lock(&rig.bench.bar.writes));
    rig.finish();
    check(BRING_UP, writes);
}
