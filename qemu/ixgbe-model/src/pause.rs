//! PAUSE frames of the partner: the transmitter stops for as long as they say (datasheet 3.7.7.3; IEEE 802.3 annex 31B).

use std::time::Duration;

use crate::core::Core;
use crate::headers::{Headers, be16};
use crate::registers::*;
use crate::stats;

const DESTINATION: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x01];
const MAC_CONTROL: u16 = 0x8808;
const PAUSE: u16 = 0x0001;
/// The unit of a pause: 512 bits, in tenths of a nanosecond at 10 Gb/s.
const QUANTUM_TENTHS_OF_NS: u64 = 512;

/// Looks at a frame that arrives; whether it stays in the MAC.
pub(crate) fn absorbs(core: &mut Core, frame: &[u8], headers: &Headers) -> bool {
    if headers.ethertype != MAC_CONTROL {
        return false;
    }
    let control = core.values.get(Register::MFLCN);
    if frame.first_chunk() != Some(&DESTINATION) || be16(frame, 14) != Some(PAUSE) {
        return control & MFLCN_PMCF == 0;
    }
    let quanta = be16(frame, 16).unwrap_or(0);
    stats::count(core, if quanta == 0 { Register::LXONRXCNT } else { Register::LXOFFRXCNT }, 0);
    if control & MFLCN_RFCE == 0 {
        return false;
    }
    let pause = Duration::from_nanos(u64::from(quanta) * QUANTUM_TENTHS_OF_NS / 10);
    core.paused_until = core.now + pause;
    control & MFLCN_DPF != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, REPORT, WHOLE, payload};
    use crate::options::CardOptions;

    fn pause(quanta: u16) -> Vec<u8> {
        let mut frame = DESTINATION.to_vec();
        frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0x08, 0x00, 0x01]);
        frame.extend(quanta.to_be_bytes());
        frame.resize(60, 0);
        frame
    }

    fn bench(mflcn: u32) -> Bench {
        let mut bench = Bench::running(CardOptions::default(), 1);
        bench.write(Register::MFLCN, 0, mflcn);
        bench
    }

    fn send(bench: &mut Bench) -> usize {
        bench.put_tx(0, 0, &[0xa5; 60], WHOLE | REPORT | payload(60));
        bench.write(Register::TDT, 0, 1);
        bench.run();
        bench.cable.from_card.len()
    }

    #[test]
    fn the_transmitter_stops_for_as_long_as_it_is_told() {
        let mut bench = bench(MFLCN_RFCE | MFLCN_DPF);
        bench.cable.to_card.push_back(pause(1000));
        bench.run();
        assert_eq!(send(&mut bench), 0);
        bench.pass(Duration::from_micros(51));
        bench.run();
        assert_eq!(bench.cable.from_card.len(), 0);
        bench.pass(Duration::from_micros(1));
        bench.run();
        assert_eq!(bench.cable.from_card.len(), 1);
        assert_eq!(bench.read(Register::LXOFFRXCNT, 0), 1);
        assert_eq!(bench.read(Register::GPRC, 0), 0, "the host does not see it");
    }

    #[test]
    fn a_pause_of_nothing_ends_the_pause() {
        let mut bench = bench(MFLCN_RFCE | MFLCN_DPF);
        bench.cable.to_card.extend([pause(u16::MAX), pause(0)]);
        bench.run();
        assert_eq!(send(&mut bench), 1);
        assert_eq!((bench.read(Register::LXOFFRXCNT, 0), bench.read(Register::LXONRXCNT, 0)), (1, 1));
    }

    #[test]
    fn a_card_that_does_not_obey_passes_it_on() {
        let mut bench = bench(0);
        bench.cable.to_card.push_back(pause(u16::MAX));
        bench.run();
        assert_eq!(send(&mut bench), 1);
        assert_eq!(bench.read(Register::GPRC, 0), 1);
    }

    #[test]
    fn other_control_frames_pass_on_request() {
        for (mflcn, passed) in [(0, 0), (MFLCN_PMCF, 1)] {
            let mut bench = bench(mflcn);
            let mut other = pause(0);
            other[15] = 0x02;
            bench.cable.to_card.push_back(other);
            bench.run();
            assert_eq!(bench.read(Register::GPRC, 0), passed);
        }
    }
}
