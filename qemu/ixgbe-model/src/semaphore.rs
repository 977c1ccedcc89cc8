//! Semaphores between drivers, and between driver and firmware (datasheet 10.5.4).

use crate::core::Core;
use crate::registers::*;

/// SWSM.SMBI: a read sees whether somebody has it, and takes it.
pub(crate) fn read_swsm(core: &mut Core) -> u32 {
    let value = core.values.get(Register::SWSM);
    core.values.insert(Register::SWSM, SWSM_SMBI);
    value
}

/// SWESMBI sticks while the firmware does not hold it, which it never does here; SMBI is given back by a zero.
pub(crate) fn write_swsm(core: &mut Core, value: u32) {
    let held = core.values.get(Register::SWSM) & SWSM_SMBI;
    core.values.set(Register::SWSM, value & (held | !SWSM_SMBI));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::CardOptions;

    #[test]
    fn the_first_reader_has_it_until_it_writes_zero() {
        let mut core = Core::new(CardOptions::default());
        assert_eq!(read_swsm(&mut core) & SWSM_SMBI, 0);
        assert_eq!(read_swsm(&mut core) & SWSM_SMBI, SWSM_SMBI);
        write_swsm(&mut core, SWSM_SMBI | SWSM_SWESMBI);
        assert_eq!(read_swsm(&mut core), SWSM_SMBI | SWSM_SWESMBI);
        write_swsm(&mut core, 0);
        assert_eq!(read_swsm(&mut core), 0);
        write_swsm(&mut core, 0);
        write_swsm(&mut core, SWSM_SMBI);
        assert_eq!(read_swsm(&mut core), 0, "a write does not take it");
    }
}
