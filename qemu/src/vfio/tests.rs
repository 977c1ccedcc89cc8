//! A card and a machine that is no QEMU: the other side of the protocol by the same crate, and a driver by hand.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use tempfile::TempDir;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::Client;

use super::{Cable, CardOptions, CardPort, Policy};

/// How long anything may take that happens at once on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The machine's memory: a ring, and a frame.
const MEMORY_SIZE: u64 = 0x1_0000;
const RING: u64 = 0x1000;
const FRAME: u64 = 0x2000;

// Registers by their offsets (82599 datasheet, 8.2).
const STATUS: u64 = 0x0008;
const EICS: u64 = 0x0808;
const EIMS: u64 = 0x0880;
const GPIE: u64 = 0x0898;
const LINKS: u64 = 0x42a4;
const DMATXCTL: u64 = 0x4a80;
const TDBAL: u64 = 0x6000;
const TDLEN: u64 = 0x6008;
const TDT: u64 = 0x6018;
const TXDCTL: u64 = 0x6028;

/// A machine with a card plugged in.
struct Machine {
    client: Client,
    memory: File,
}

impl Machine {
    fn plug_in(card: &CardPort) -> Self {
        let mut client = Client::new(card.path()).unwrap();
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(MEMORY_SIZE).unwrap();
        client.dma_map(0, 0, MEMORY_SIZE, memory.as_raw_fd()).unwrap();
        Self { client, memory }
    }

    fn read(&mut self, register: u64) -> u32 {
        let mut bytes = [0; 4];
        self.client.region_read(VFIO_PCI_BAR0_REGION_INDEX, register, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    fn write(&mut self, register: u64, value: u32) {
        self.client.region_write(VFIO_PCI_BAR0_REGION_INDEX, register, &value.to_le_bytes()).unwrap();
    }

    fn command(&mut self) -> u16 {
        let mut bytes = [0; 2];
        self.client.region_read(VFIO_PCI_CONFIG_REGION_INDEX, 4, &mut bytes).unwrap();
        u16::from_le_bytes(bytes)
    }

    fn device_id(&mut self) -> u16 {
        let mut bytes = [0; 2];
        self.client.region_read(VFIO_PCI_CONFIG_REGION_INDEX, 2, &mut bytes).unwrap();
        u16::from_le_bytes(bytes)
    }

    fn become_bus_master(&mut self) {
        self.client.region_write(VFIO_PCI_CONFIG_REGION_INDEX, 4, &6_u16.to_le_bytes()).unwrap();
    }

    /// Connects vector 0; returns what it rings.
    fn connect_interrupt(&mut self) -> File {
        let bell = OwnedFd::from(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap());
        let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
        self.client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, flags, 0, 1, &[bell.as_raw_fd()]).unwrap();
        bell.into()
    }

    /// Hands over one frame by a legacy descriptor (7.2.3.2.2): end of packet, insert the CRC, report status.
    fn send(&mut self, frame: &[u8]) {
        const COMMAND: u64 = (1 << 3 | 1 << 1 | 1) << 24;
        wait_until(|| self.read(LINKS) & 1 << 30 != 0);
        self.memory.write_all_at(frame, FRAME).unwrap();
        self.memory.write_all_at(&FRAME.to_le_bytes(), RING).unwrap();
        self.memory.write_all_at(&(frame.len() as u64 | COMMAND).to_le_bytes(), RING + 8).unwrap();
        self.write(DMATXCTL, 1);
        self.write(TDBAL, RING as u32);
        self.write(TDLEN, 128);
        self.write(TXDCTL, 1 << 25);
        self.write(TDT, 1);
    }

    fn is_sent(&self) -> bool {
        let mut status = [0];
        self.memory.read_exact_at(&mut status, RING + 12).unwrap();
        status[0] & 1 != 0
    }
}

fn wait_until(mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A card, and the frames that come out of it.
fn card(folder: &TempDir) -> (CardPort, Receiver<Vec<u8>>) {
    let cable = Cable::Traffic { takes: None, gives: None };
    let card = CardPort::listen(folder.path().join("card"), CardOptions::default(), cable).unwrap();
    let (sender, frames) = channel();
    card.start(|_: &mut Vec<u8>| false, move |_: u16, frame: &[u8]| drop(sender.send(frame.to_vec())));
    (card, frames)
}

#[test]
fn a_frame_goes_from_the_machines_memory_to_the_cable() {
    let folder = tempfile::tempdir().unwrap();
    let (card, frames) = card(&folder);
    let mut machine = Machine::plug_in(&card);
    machine.become_bus_master();
    machine.send(&[0x5a; 80]);
    assert_eq!(frames.recv_timeout(PATIENCE).unwrap(), [0x5a; 80]);
    wait_until(|| machine.is_sent());
    let report = card.stop();
    assert_eq!((report.cable.frames_out(), report.cable.queues_out()), (1, 1));
    assert_eq!((report.violations, report.unknown), (Vec::new(), Vec::new()));
}

#[test]
fn a_card_that_is_no_bus_master_moves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (card, frames) = card(&folder);
    let mut machine = Machine::plug_in(&card);
    machine.send(&[0x5a; 80]);
    assert!(frames.recv_timeout(Duration::from_millis(50)).is_err() && !machine.is_sent());
    machine.become_bus_master();
    assert!(frames.recv_timeout(PATIENCE).is_ok());
}

#[test]
fn an_interrupt_reaches_who_has_connected_it() {
    let folder = tempfile::tempdir().unwrap();
    let (card, _frames) = card(&folder);
    let mut machine = Machine::plug_in(&card);
    let mut bell = machine.connect_interrupt();
    machine.become_bus_master();
    machine.write(GPIE, 1 << 4);
    machine.write(EICS, 1);
    assert_eq!(machine.read(EIMS), 0);
    assert!(bell.read(&mut [0; 8]).is_err(), "the cause is masked");
    machine.write(EIMS, 1);
    wait_until(|| bell.read(&mut [0; 8]).is_ok());
}

/// Reset, answer, interrupt: all that a virtual function has of its own goes through its own registers (8.3.5).
#[test]
fn a_virtual_function_talks_to_its_host_and_interrupts() {
    const VFMBMEM: u64 = 0x200;
    const VFMAILBOX: u64 = 0x2fc;
    const VTEICS: u64 = 0x104;
    const VTEIMS: u64 = 0x108;
    let folder = tempfile::tempdir().unwrap();
    let options = CardOptions { mac: [2, 0, 0, 0, 7, 9], ..CardOptions::default() };
    let cable = Cable::Traffic { takes: None, gives: None };
    let path = folder.path().join("card");
    let card = CardPort::listen_virtual(path, options, Policy::default(), cable).unwrap();
    let mut machine = Machine::plug_in(&card);
    assert_eq!(machine.device_id(), 0x10ed);
    let mut bell = machine.connect_interrupt();
    machine.become_bus_master();
    machine.write(VFMAILBOX, 1 << 2);
    machine.write(VFMBMEM, 1);
    machine.write(VFMAILBOX, 1);
    wait_until(|| machine.read(VFMAILBOX) & 1 << 4 != 0);
    let answer = [0, 4, 8].map(|word| machine.read(VFMBMEM + word));
    assert_eq!(answer, [0x8000_0001, 2, 0x0907]);
    machine.write(VTEICS, 1);
    assert_eq!(machine.read(VTEIMS), 0);
    assert!(bell.read(&mut [0; 8]).is_err(), "the cause is masked");
    machine.write(VTEIMS, 1);
    wait_until(|| bell.read(&mut [0; 8]).is_ok());
}

#[test]
fn a_reset_of_the_bus_takes_everything_back() {
    let folder = tempfile::tempdir().unwrap();
    let (card, _frames) = card(&folder);
    let mut machine = Machine::plug_in(&card);
    let fresh = machine.read(TDLEN);
    machine.become_bus_master();
    machine.write(TDLEN, 128);
    machine.client.reset().unwrap();
    assert_eq!((machine.command(), machine.read(TDLEN)), (0, fresh));
}

#[test]
fn the_next_machine_finds_the_card_as_new() {
    let folder = tempfile::tempdir().unwrap();
    let (card, frames) = card(&folder);
    let mut first = Machine::plug_in(&card);
    first.become_bus_master();
    first.write(TDLEN, 128);
    first.client.shutdown().unwrap();
    drop(first);

    let mut second = Machine::plug_in(&card);
    assert_eq!((second.command(), second.read(TDLEN)), (0, 0));
    second.become_bus_master();
    second.send(&[0x33; 60]);
    assert_eq!(frames.recv_timeout(PATIENCE).unwrap(), [0x33; 60]);
}

#[test]
fn a_card_can_be_stopped_at_any_time() {
    let folder = tempfile::tempdir().unwrap();
    let (waiting, _frames) = card(&folder);
    let path = waiting.path().to_owned();
    waiting.stop();
    assert!(!path.exists());
    let (plugged, _frames) = card(&folder);
    let mut machine = Machine::plug_in(&plugged);
    plugged.stop();
    assert_ne!(machine.read(STATUS), u32::MAX, "it has no cable, but it is there");
}
