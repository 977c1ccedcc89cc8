//! What is plugged into an SFP+ port, by the module's own memory (SFF-8472, address A0h).

use core::fmt;

use super::access::Readable;
use super::error::IxgbeError;
use super::i2c::{I2c, I2cError};
use super::registers::*;
use super::wait::{self, Clock, MILLISECOND, SECOND};
use crate::mmio::Bar;

/// The seven-bit address of a module's identity.
const ADDRESS: u8 = 0x50;
/// Bytes of it that are read.
const LEN: usize = 56;
/// Byte 0: an SFP or SFP+ module.
const IDENTIFIER_SFP: u8 = 0x03;
/// Byte 3: kinds of 10-gigabit optics. Byte 6: kinds of gigabit ones. Byte 8: cables.
const KINDS: [(usize, u8, &str); 10] = [
    (3, 1 << 4, "10GBASE-SR"),
    (3, 1 << 5, "10GBASE-LR"),
    (3, 1 << 6, "10GBASE-LRM"),
    (3, 1 << 7, "10GBASE-ER"),
    (8, 1 << 2, "passive copper cable"),
    (8, 1 << 3, "active cable"),
    (6, 1 << 0, "1000BASE-SX"),
    (6, 1 << 1, "1000BASE-LX"),
    (6, 1 << 2, "1000BASE-CX"),
    (6, 1 << 3, "1000BASE-T"),
];

/// How long another user of the wires may keep them.
const SEMAPHORE_PATIENCE: u64 = SECOND;

/// What a port has in its cage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Module {
    /// Nothing, or nothing that answers.
    None,
    /// A module of this identity.
    Sfp(Identity),
}

/// A module's first 56 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity([u8; LEN]);

impl Identity {
    /// What it is, if that is known to this driver.
    pub fn kind(&self) -> Option<&'static str> {
        let is_sfp = self.0[0] == IDENTIFIER_SFP;
        KINDS.iter().find(|(byte, bit, _)| is_sfp && self.0[*byte] & bit != 0).map(|(_, _, kind)| *kind)
    }

    /// Who made it: bytes 20 to 35.
    pub fn vendor(&self) -> &str {
        text(&self.0[20..36])
    }

    /// The maker's part number: bytes 40 to 55.
    pub fn part(&self) -> &str {
        text(&self.0[40..56])
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, vendor {:?}, part {:?}",
            self.kind().unwrap_or("unknown kind"),
            self.vendor(),
            self.part()
        )
    }
}

/// ASCII, padded with spaces; nothing where it is not.
fn text(bytes: &[u8]) -> &str {
    let printable = bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
    core::str::from_utf8(bytes).ok().filter(|_| printable).map_or("", str::trim)
}

/// Asks the module who it is.
pub(super) fn identify<B: Bar>(bar: &B, clock: Clock) -> Result<Module, IxgbeError> {
    let part = lock(bar, clock)?;
    let mut bytes = [0; LEN];
    let result = I2c::new(bar, clock).read(ADDRESS, 0, &mut bytes);
    SW_FW_SYNC.clear(bar, part);
    match result {
        Ok(()) => Ok(Module::Sfp(Identity(bytes))),
        Err(I2cError::NoAnswer) => Ok(Module::None),
        Err(I2cError::Stuck) => {
            Err(IxgbeError::Timeout { register: "I2CCTL", awaited: "the module to let the clock rise" })
        }
    }
}

/// Takes the wires from the other port's driver and from the firmware (10.5.4). Returns the bit that stands for that.
fn lock<B: Bar>(bar: &B, clock: Clock) -> Result<u32, IxgbeError> {
    let is_port_1 = STATUS.read(bar) & status::LAN_ID != 0;
    let part = if is_port_1 { sw_fw_sync::SW_PHY_1 } else { sw_fw_sync::SW_PHY_0 };
    let both = part | part << sw_fw_sync::FIRMWARE_SHIFT;
    let started = clock();
    loop {
        // Reading 0 makes the bit 1, and ours.
        wait::until((bar, clock), SWSM, (swsm::DRIVERS, 0), SEMAPHORE_PATIENCE, "the other driver's leave")?;
        SWSM.set(bar, swsm::FIRMWARE);
        let firmware = (swsm::FIRMWARE, swsm::FIRMWARE);
        let mine = wait::until((bar, clock), SWSM, firmware, MILLISECOND, "the firmware's leave");
        let is_free = mine.is_ok() && SW_FW_SYNC.read(bar) & both == 0;
        if is_free {
            SW_FW_SYNC.set(bar, part);
        }
        SWSM.clear(bar, swsm::DRIVERS | swsm::FIRMWARE);
        if is_free {
            return Ok(part);
        }
        if clock().saturating_sub(started) > SEMAPHORE_PATIENCE {
            return Err(IxgbeError::Timeout { register: "SW_FW_SYNC", awaited: "the wires to the module" });
        }
        wait::pause(clock, MILLISECOND);
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn identity(fields: &[(usize, &[u8])]) -> Identity {
        let mut bytes = [0; LEN];
        fields.iter().for_each(|(at, field)| bytes[*at..*at + field.len()].copy_from_slice(field));
        Identity(bytes)
    }

    #[test]
    fn an_identity_reads_as_kind_vendor_and_part() {
        let module =
            identity(&[(0, &[3]), (3, &[0x10]), (20, b"Intel Corp      "), (40, b"FTLX8571D3BCV-IT")]);
        assert_eq!(module.to_string(), r#"10GBASE-SR, vendor "Intel Corp", part "FTLX8571D3BCV-IT""#);
        let cable = identity(&[(0, &[3]), (8, &[4]), (20, b"no name\0\0\0\0\0\0\0\0\0")]);
        assert_eq!(cable.to_string(), r#"passive copper cable, vendor "", part """#);
    }

    #[test]
    fn what_is_no_sfp_has_no_kind() {
        assert_eq!(identity(&[(0, &[0x0d]), (3, &[0x10])]).kind(), None);
        assert_eq!(identity(&[(0, &[3])]).kind(), None);
    }
}
