#![allow(unsafe_code)] // Port output that resets the machine.
//! The ways to end: leave the emulator, restart, or sleep for ever.

use core::hint;
use core::sync::atomic::{AtomicBool, Ordering};

use hermit_sync::SpinMutex;
use x86_64::VirtAddr;
use x86_64::instructions::port::Port;
use x86_64::instructions::tables::lidt;
use x86_64::instructions::{hlt, interrupts};
use x86_64::structures::DescriptorTablePointer;

/// How the image ended, for whoever started the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Stopped in good order; QEMU exits with 33.
    Stopped = 0x10,
    /// A panic or an exception; QEMU exits with 35.
    Crashed = 0x11,
    /// The configuration or the boot information was refused; QEMU exits with 37.
    Refused = 0x12,
}

/// What happens after a crash (the word `on-panic=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPanic {
    /// Leave the emulator, or sleep where there is none.
    Exit,
    /// Restart the machine.
    Reboot,
}

static EXITS: AtomicBool = AtomicBool::new(false);

/// Sets what happens after a crash, and whether the other ends leave the emulator. At first it is
/// [`OnPanic::Reboot`].
pub fn set_on_panic(on_panic: OnPanic) {
    EXITS.store(on_panic == OnPanic::Exit, Ordering::Relaxed);
}

/// Looks for the word `on-panic=` alone, so that it holds before the command line is read in earnest. A value
/// that is not known changes nothing here; it is refused later.
pub(crate) fn set_on_panic_from(command_line: &str) {
    for word in command_line.split_ascii_whitespace() {
        match word {
            "on-panic=exit" => set_on_panic(OnPanic::Exit),
            "on-panic=reboot" => set_on_panic(OnPanic::Reboot),
            _ => {}
        }
    }
}

/// Ends for a reason other than a crash: leaves the emulator with `on-panic=exit`, and sleeps otherwise.
pub fn stop(code: Code) -> ! {
    if EXITS.load(Ordering::Relaxed) { exit(code) } else { halt_forever() }
}

/// Ends after a crash, as `on-panic=` says.
pub(crate) fn crash() -> ! {
    if EXITS.load(Ordering::Relaxed) { exit(Code::Crashed) } else { reboot() }
}

/// Leaves QEMU through its isa-debug-exit device; where there is none, sleeps for ever.
pub fn exit(code: Code) -> ! {
    /// The device's own default, and the place that many test runners use.
    const PORTS: [u16; 2] = [0x501, 0xf4];
    for port in PORTS {
        write_port(port, code as u8);
    }
    halt_forever()
}

/// Sleeps for ever, deaf to interrupts.
pub fn halt_forever() -> ! {
    loop {
        interrupts::disable();
        hlt();
    }
}

/// Where ACPI says that a write resets the machine: an I/O port and the value (ACPI 6.5, section 4.8.3.6).
static ACPI_RESET: SpinMutex<Option<(u16, u8)>> = SpinMutex::new(None);

/// Makes [`reboot`] try the reset port of ACPI first.
pub fn set_acpi_reset(port: u16, value: u8) {
    *ACPI_RESET.lock() = Some((port, value));
}

/// Restarts the machine: by ACPI where known, the reset control register, the keyboard controller, and in the
/// end a triple fault, which no processor survives.
pub fn reboot() -> ! {
    interrupts::disable();
    // The lock may be held by a core that has crashed.
    if let Some((port, value)) = ACPI_RESET.try_lock().and_then(|reset| *reset) {
        write_port(port, value);
        give_it_time();
    }
    /// Reset control register of Intel's chipsets (ICH9 datasheet, section 13.7.5): set SYS_RST, then RST_CPU
    /// too.
    const RESET_CONTROL: u16 = 0xcf9;
    write_port(RESET_CONTROL, 0x02);
    write_port(RESET_CONTROL, 0x06);
    give_it_time();
    /// Keyboard controller: pulse output line 0, which is the processor's reset line.
    const KEYBOARD_COMMAND: u16 = 0x64;
    const PULSE_RESET: u8 = 0xfe;
    write_port(KEYBOARD_COMMAND, PULSE_RESET);
    give_it_time();
    triple_fault()
}

/// Takes the handlers away and faults.
fn triple_fault() -> ! {
    // SAFETY: there is no way back from here, so nobody misses the handlers.
    unsafe { lidt(&DescriptorTablePointer { limit: 0, base: VirtAddr::zero() }) };
    interrupts::int3();
    halt_forever()
}

/// Some ten milliseconds, without a clock: it may be what crashed.
fn give_it_time() {
    for _ in 0..1_000_000 {
        hint::spin_loop();
    }
}

fn write_port(port: u16, value: u8) {
    // SAFETY: the ports used here reset the machine, end the emulator, or do nothing; none touches memory.
    unsafe { Port::new(port).write(value) }
}
