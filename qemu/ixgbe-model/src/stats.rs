//! Counters: what is counted when, and what a read clears (datasheet 8.2.3.23).

use crate::core::Core;
use crate::filter::Cast;
use crate::registers::Register;
use crate::registers::Register::*;
use crate::virtual_function::owner;

/// Bytes of the CRC, which counters of bytes include.
pub(crate) const CRC_LEN: usize = 4;
/// Counters of bytes have 36 bits.
const WIDE: u64 = (1 << 36) - 1;

/// The upper half of a count of bytes, with its lower half: reading the upper half clears both.
fn lower_half(register: Register) -> Option<Register> {
    Some(match register {
        GORCH => GORCL,
        GOTCH => GOTCL,
        TORH => TORL,
        QBRC_H => QBRC_L,
        QBTC_H => QBTC_L,
        RXNFGBCH => RXNFGBCL,
        RXDGBCH => RXDGBCL,
        TXDGBCH => TXDGBCL,
        _ => return None,
    })
}

fn is_lower_half(register: Register) -> bool {
    matches!(register, GORCL | GOTCL | TORL | QBRC_L | QBTC_L | RXNFGBCL | RXDGBCL | TXDGBCL)
}

/// Reads a counter.
pub(crate) fn read(core: &mut Core, register: Register, index: usize) -> u32 {
    if is_lower_half(register) {
        return core.values.at(register, index);
    }
    if let Some(lower) = lower_half(register) {
        core.values.take_at(lower, index);
    }
    core.values.take_at(register, index)
}

/// Counts one; a full counter stays full.
pub(crate) fn count(core: &mut Core, register: Register, index: usize) {
    let value = core.values.at(register, index);
    core.values.set_at(register, index, value.saturating_add(1));
}

/// Adds to a counter, or to a part of one that wraps.
pub(crate) fn add(core: &mut Core, register: Register, amount: u32) {
    core.values.set(register, core.values.get(register).wrapping_add(amount));
}

fn add_bytes(core: &mut Core, low: Register, high: Register, index: usize, bytes: usize) {
    let sum = (core.values.wide(low, high, index) + bytes as u64).min(WIDE);
    core.values.set_at(low, index, sum as u32);
    core.values.set_at(high, index, (sum >> 32) as u32);
}

/// A good frame arrived, whether it passes a filter or not.
pub(crate) fn arrived(core: &mut Core, len: usize) {
    count(core, TPR, 0);
    count(core, RXNFGPC, 0);
    add_bytes(core, TORL, TORH, 0, len + CRC_LEN);
    add_bytes(core, RXNFGBCL, RXNFGBCH, 0, len + CRC_LEN);
}

/// A good frame passed the filters.
pub(crate) fn passed(core: &mut Core, frame: &[u8]) {
    count(core, GPRC, 0);
    add_bytes(core, GORCL, GORCH, 0, frame.len() + CRC_LEN);
    count(core, by_size(frame.len() + CRC_LEN, [PRC64, PRC127, PRC255, PRC511, PRC1023, PRC1522]), 0);
    match Cast::of(frame) {
        Cast::Broadcast => count(core, BPRC, 0),
        Cast::Multicast => count(core, MPRC, 0),
        Cast::Unicast => {}
    }
}

/// A frame is in the memory of the host.
pub(crate) fn delivered(core: &mut Core, queue: usize, len: usize, cast: Cast) {
    count(core, RXDGPC, 0);
    add_bytes(core, RXDGBCL, RXDGBCH, 0, len);
    let counter = mapped(core, RQSMR, queue);
    count(core, QPRC, counter);
    add_bytes(core, QBRC_L, QBRC_H, counter, len);
    if let Some((function, _)) = owner(core, queue) {
        let counts = &mut core.pool_counts[function];
        counts.received = counts.received.wrapping_add(1);
        counts.received_bytes += len as u64;
        let multicast = u32::from(cast == Cast::Multicast);
        counts.received_multicast = counts.received_multicast.wrapping_add(multicast);
    }
}

/// A frame had no descriptor, and its queue drops.
pub(crate) fn dropped(core: &mut Core, queue: usize) {
    let counter = mapped(core, RQSMR, queue);
    count(core, QPRDC, counter);
}

/// A frame left.
pub(crate) fn sent(core: &mut Core, queue: usize, frame: &[u8]) {
    for counter in [TPT, GPTC, TXDGPC] {
        count(core, counter, 0);
    }
    add_bytes(core, GOTCL, GOTCH, 0, frame.len() + CRC_LEN);
    add_bytes(core, TXDGBCL, TXDGBCH, 0, frame.len());
    count(core, by_size(frame.len() + CRC_LEN, [PTC64, PTC127, PTC255, PTC511, PTC1023, PTC1522]), 0);
    match Cast::of(frame) {
        Cast::Broadcast => count(core, BPTC, 0),
        Cast::Multicast => count(core, MPTC, 0),
        Cast::Unicast => {}
    }
    let counter = mapped(core, TQSM, queue);
    count(core, QPTC, counter);
    add_bytes(core, QBTC_L, QBTC_H, counter, frame.len() + CRC_LEN);
    if let Some((function, _)) = owner(core, queue) {
        let counts = &mut core.pool_counts[function];
        counts.sent = counts.sent.wrapping_add(1);
        counts.sent_bytes += frame.len() as u64;
    }
}

/// The counter of a queue: four queues a register, four bits each (8.2.3.23.71, 8.2.3.23.73).
fn mapped(core: &Core, map: Register, queue: usize) -> usize {
    (core.values.at(map, queue / 4) >> (queue % 4 * 8)) as usize & 0xf
}

/// The counter of a frame with this many bytes, CRC included.
fn by_size(bytes: usize, counters: [Register; 6]) -> Register {
    counters[[64, 127, 255, 511, 1023].iter().filter(|limit| bytes > **limit).count()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::CardOptions;

    #[test]
    fn a_read_clears() {
        let mut core = Core::new(CardOptions::default());
        passed(&mut core, &[0xff; 60]);
        passed(&mut core, &[0xff; 61]);
        for (counter, expected) in [(GPRC, 2), (BPRC, 2), (MPRC, 0), (PRC64, 1), (PRC127, 1)] {
            assert_eq!(read(&mut core, counter, 0), expected, "{counter:?}");
            assert_eq!(read(&mut core, counter, 0), 0, "{counter:?}");
        }
    }

    #[test]
    fn the_upper_half_of_a_count_of_bytes_clears_both() {
        let mut core = Core::new(CardOptions::default());
        core.values.set(GOTCL, 0xffff_ffff);
        sent(&mut core, 0, &[0; 60]);
        assert_eq!(read(&mut core, GOTCL, 0), 63);
        assert_eq!(read(&mut core, GOTCL, 0), 63);
        assert_eq!(read(&mut core, GOTCH, 0), 1);
        assert_eq!((read(&mut core, GOTCL, 0), read(&mut core, GOTCH, 0)), (0, 0));
    }

    #[test]
    fn a_queue_counts_where_its_map_says() {
        let mut core = Core::new(CardOptions::default());
        core.values.set_at(RQSMR, 127 / 4, 0x0f00_0000);
        delivered(&mut core, 127, 60, Cast::Unicast);
        delivered(&mut core, 126, 100, Cast::Unicast);
        dropped(&mut core, 127);
        assert_eq!((read(&mut core, QPRC, 15), read(&mut core, QBRC_L, 15)), (1, 60));
        assert_eq!((read(&mut core, QPRC, 0), read(&mut core, QBRC_L, 0)), (1, 100));
        assert_eq!(read(&mut core, QPRDC, 15), 1);
    }

    #[test]
    fn a_full_counter_stays_full() {
        let mut core = Core::new(CardOptions::default());
        core.values.set(GPRC, u32::MAX);
        count(&mut core, GPRC, 0);
        assert_eq!(core.values.get(GPRC), u32::MAX);
    }
}
