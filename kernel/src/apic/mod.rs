//! The local APIC of each core: interrupts between cores, and the timer (Intel SDM volume 3, chapter 11).
//!
//! x2APIC mode is used where the processor has it: it reaches cores whose id does not fit into a byte, and its
//! registers need no mapping.

mod registers;
pub mod timer;

use core::time::Duration;

use hermit_sync::OnceCell;
use log::warn;
use raw_cpuid::CpuId;
use x86_64::instructions::interrupts::without_interrupts;

use self::registers::Registers;
use crate::cpu::{Frame, interrupts};
use crate::{acpi, paging, time};

/// The interrupt vectors in use. Devices may have those from 0x40 to 0xef.
pub mod vector {
    /// The timer of the core.
    pub const TIMER: u8 = 0xf0;
    /// Another core wants this one to wake up.
    pub const WAKE: u8 = 0xf1;
    /// What the APIC raises when the interrupt vanished meanwhile; it has no handler and gets no end of interrupt.
    pub const SPURIOUS: u8 = 0xff;
}

/// The APIC's mode, the same on all cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Memory-mapped registers, ids of 8 bits.
    Xapic,
    /// Registers as MSRs, ids of 32 bits.
    X2apic,
}

impl core::fmt::Display for Mode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Xapic => "xapic",
            Self::X2apic => "x2apic",
        })
    }
}

/// A message to another core (11.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// An interrupt with this vector.
    Fixed(u8),
    /// A non-maskable interrupt.
    NonMaskable,
    /// Resets the core, which then waits for [`Message::StartUp`].
    Init,
    /// Starts the core in real mode, at the first byte of this page below 1 MiB.
    StartUp {
        /// The page's number: its address divided by 4096.
        page: u8,
    },
}

static APIC: OnceCell<Registers> = OnceCell::new();

/// Finds the APIC and turns that of the boot core on. It needs [`acpi::init`] and [`time::init`].
///
/// A machine whose APIC cannot be used runs on with one core; messages then go nowhere.
pub fn init() {
    let registers = match choose_registers() {
        Ok(registers) => registers,
        Err(why) => return warn!("{why}: one core, and no timer"),
    };
    // A second call finds the same.
    let _ = APIC.set(registers);
    interrupts::set_handler(vector::TIMER, acknowledge);
    interrupts::set_handler(vector::WAKE, acknowledge);
    init_core();
    timer::init();
}

fn choose_registers() -> Result<Registers, &'static str> {
    let features = CpuId::new().get_feature_info().ok_or("cpuid says nothing")?;
    if !features.has_apic() {
        return Err("the processor has no local apic");
    }
    if features.has_x2apic() {
        return Ok(Registers::Msrs);
    }
    let base = registers::apic_base() & registers::BASE_ADDRESS;
    let page = paging::map_mmio(base, registers::PAGE_SIZE);
    page.map(Registers::Memory).map_err(|_| "the registers of the local apic cannot be mapped")
}

/// Turns on the APIC of the calling core.
pub fn init_core() {
    let Some(&apic) = APIC.get() else { return };
    let base = registers::apic_base() | registers::GLOBAL_ENABLE;
    match apic {
        Registers::Memory(_) => registers::set_apic_base(base),
        Registers::Msrs => {
            // x2APIC mode is entered from xAPIC mode only (11.12.5).
            registers::set_apic_base(base);
            registers::set_apic_base(base | registers::X2APIC_ENABLE);
        }
    }
    apic.write(&registers::TASK_PRIORITY, 0);
    init_pins(apic);
    apic.write(&registers::SPURIOUS_VECTOR, registers::SOFTWARE_ENABLE | u32::from(vector::SPURIOUS));
    timer::init_core(apic);
}

/// Lets NMIs in where the firmware says that they arrive. What else the pins bring, the old interrupt controller's
/// line on LINT0, is not listened to.
fn init_pins(apic: Registers) {
    let id = id();
    let pins = [&registers::LVT_LINT0, &registers::LVT_LINT1];
    for (number, pin) in (0..).zip(pins) {
        let is_nmi = acpi::platform()
            .nmi_pins
            .iter()
            .any(|nmi| nmi.pin == number && nmi.apic_id.is_none_or(|concerned| concerned == id));
        let entry = if is_nmi { registers::LVT_DELIVER_NMI } else { registers::LVT_MASKED };
        apic.write(pin, entry);
    }
}

/// The mode, or `None` where there is no APIC.
#[must_use]
pub fn mode() -> Option<Mode> {
    APIC.get().map(|apic| match apic {
        Registers::Memory(_) => Mode::Xapic,
        Registers::Msrs => Mode::X2apic,
    })
}

/// The APIC id of the calling core, 0 where there is no APIC.
#[must_use]
pub fn id() -> u32 {
    match APIC.get() {
        Some(apic @ Registers::Memory(_)) => apic.read(&registers::ID) >> 24,
        Some(apic @ Registers::Msrs) => apic.read(&registers::ID),
        None => 0,
    }
}

/// Whether messages reach a core with this APIC id.
#[must_use]
pub fn reaches(apic_id: u32) -> bool {
    const XAPIC_BROADCAST: u32 = 0xff;
    const X2APIC_BROADCAST: u32 = 0xffff_ffff;
    match mode() {
        Some(Mode::Xapic) => apic_id < XAPIC_BROADCAST,
        Some(Mode::X2apic) => apic_id < X2APIC_BROADCAST,
        None => false,
    }
}

/// Tells the APIC of this core that the handler of an interrupt is done.
#[inline]
pub fn end_of_interrupt() {
    if let Some(apic) = APIC.get() {
        apic.write(&registers::EOI, 0);
    }
}

/// All there is to do about an interrupt whose purpose is to end a sleep.
fn acknowledge(_: &Frame) {
    end_of_interrupt();
}

/// Sends a message to the core with this APIC id, which [`reaches`] says can be reached.
pub fn send(apic_id: u32, message: Message) {
    send_command(apic_id, command(message));
}

/// Sends a message to all cores but the calling one, also to those that were never started.
pub fn send_to_others(message: Message) {
    const ALL_BUT_SELF: u32 = 0b11 << 18;
    send_command(0, command(message) | ALL_BUT_SELF);
}

fn send_command(destination: u32, command: u32) {
    match APIC.get() {
        Some(apic @ Registers::Msrs) => apic.write_command64(destination, command),
        Some(apic @ Registers::Memory(_)) => {
            // The two halves are one message: no handler may send another in between.
            without_interrupts(|| {
                await_delivery(*apic);
                apic.write(&registers::INTERRUPT_DESTINATION, destination << 24);
                apic.write(&registers::INTERRUPT_COMMAND, command);
            });
        }
        None => {}
    }
}

/// Waits for the last message to be on its way. It always is within microseconds; an APIC that never says so must not
/// stop the core.
fn await_delivery(apic: Registers) {
    const PENDING: u32 = 1 << 12;
    time::wait_until(Duration::from_millis(1), || apic.read(&registers::INTERRUPT_COMMAND) & PENDING == 0);
}

/// The lower half of the interrupt command: delivery mode, vector, and level "assert" (figure 11-12).
fn command(message: Message) -> u32 {
    const ASSERT: u32 = 1 << 14;
    let (delivery_mode, vector) = match message {
        Message::Fixed(vector) => (0b000, vector),
        Message::NonMaskable => (0b100, 0),
        Message::Init => (0b101, 0),
        Message::StartUp { page } => (0b110, page),
    };
    ASSERT | delivery_mode << 8 | u32::from(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_manuals_values() {
        assert_eq!(command(Message::Fixed(0xf1)), 0x0000_40f1);
        assert_eq!(command(Message::NonMaskable), 0x0000_4400);
        assert_eq!(command(Message::Init), 0x0000_4500);
        assert_eq!(command(Message::StartUp { page: 0x9e }), 0x0000_469e);
    }

    #[test]
    fn without_an_apic_nothing_is_reached() {
        assert_eq!(mode(), None);
        assert!(!reaches(0));
        send_to_others(Message::NonMaskable);
        end_of_interrupt();
    }
}
