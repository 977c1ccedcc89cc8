#![allow(unsafe_code)] // Port input and output.
//! The 16550 UART (National Semiconductor PC16550D datasheet), polled.

use x86_64::instructions::port::Port;

/// COM1 of every PC.
const COM1: u16 = 0x3f8;

/// Register offsets (datasheet, table II).
mod register {
    /// Receiver buffer (read), transmitter holding (write); divisor latch low while DLAB is set.
    pub(super) const DATA: u16 = 0;
    /// Interrupt enable; divisor latch high while DLAB is set.
    pub(super) const INTERRUPT_ENABLE: u16 = 1;
    pub(super) const FIFO_CONTROL: u16 = 2;
    pub(super) const LINE_CONTROL: u16 = 3;
    pub(super) const MODEM_CONTROL: u16 = 4;
    pub(super) const LINE_STATUS: u16 = 5;
    pub(super) const SCRATCH: u16 = 7;
}

const LINE_CONTROL_DLAB: u8 = 1 << 7;
const LINE_CONTROL_8N1: u8 = 0b11;
/// Enable both FIFOs and clear them.
const FIFO_ENABLE_AND_CLEAR: u8 = 0b111;
/// Data terminal ready, request to send.
const MODEM_DTR_RTS: u8 = 0b11;
const STATUS_DATA_READY: u8 = 1 << 0;
const STATUS_TRANSMITTER_EMPTY: u8 = 1 << 5;

/// Bytes that the transmitter takes once it says that it is empty.
const FIFO_LENGTH: usize = 16;
/// Polls until a transmitter counts as stuck. A port access takes about a microsecond on a PC and 16 bytes
/// take 1.4 ms at this speed, so this is generous.
const MAX_POLLS: u32 = 100_000;

/// COM1 at 115200 baud, 8 data bits, no parity, 1 stop bit.
pub(super) struct Uart {
    /// The transmitter stopped taking bytes; it is asked only once per write from then on.
    stuck: bool,
}

impl Uart {
    /// Sets COM1 up; `None` where there is none.
    pub(super) fn detect() -> Option<Self> {
        // Nothing but a UART keeps what is written to the scratch register.
        let keeps = |value| {
            write(register::SCRATCH, value);
            read(register::SCRATCH) == value
        };
        if !(keeps(0x5a) && keeps(0xa5)) {
            return None;
        }
        write(register::INTERRUPT_ENABLE, 0);
        write(register::LINE_CONTROL, LINE_CONTROL_DLAB);
        // 115200 baud: divisor 1.
        write(register::DATA, 1);
        write(register::INTERRUPT_ENABLE, 0);
        write(register::LINE_CONTROL, LINE_CONTROL_8N1);
        write(register::FIFO_CONTROL, FIFO_ENABLE_AND_CLEAR);
        write(register::MODEM_CONTROL, MODEM_DTR_RTS);
        Some(Self { stuck: false })
    }

    /// Sends `bytes`; what a stuck transmitter does not take is dropped.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        for burst in bytes.chunks(FIFO_LENGTH) {
            if self.wait_until_empty() {
                burst.iter().for_each(|byte| write(register::DATA, *byte));
            }
        }
    }

    /// The next byte that came in, if any.
    pub(super) fn receive(&mut self) -> Option<u8> {
        let status = read(register::LINE_STATUS);
        // All ones: the device has gone.
        (status != 0xff && status & STATUS_DATA_READY != 0).then(|| read(register::DATA))
    }

    fn wait_until_empty(&mut self) -> bool {
        let polls = if self.stuck { 1 } else { MAX_POLLS };
        let empty = (0..polls).any(|_| read(register::LINE_STATUS) & STATUS_TRANSMITTER_EMPTY != 0);
        self.stuck = !empty;
        empty
    }
}

fn read(register: u16) -> u8 {
    // SAFETY: the ports of COM1 belong to this driver; reading them touches no memory.
    unsafe { Port::new(COM1 + register).read() }
}

fn write(register: u16, value: u8) {
    // SAFETY: the ports of COM1 belong to this driver; writing them touches no memory.
    unsafe { Port::new(COM1 + register).write(value) }
}
