//! PCI functions that are virtio devices, almost are, or only claim to be. Their registers are plain memory:
//! enough to see what the driver writes where.

#![allow(unsafe_code)] // Maps that memory as registers.

use std::cell::RefCell;
use std::rc::Rc;

use netdrv::device::{NetDevice, QueueWish, RxQueue};
use netdrv::hal::{Hal, PAGE_SIZE};
use netdrv::mmio::{RegisterWord, Window};
use netdrv::packet::Burst;
use netdrv::pool::Pool;
use netdrv::virtio::{self, PciFault, PciNet, Structure, VirtioError, VirtioNet};
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction};

use crate::hal::TestHal;

const FUNCTION: DeviceFunction = DeviceFunction { bus: 1, device: 2, function: 3 };
const WISH: QueueWish = QueueWish { pairs: 1, ring: 64, interrupts: 0, tx_needed: 0 };
/// Bytes of the one BAR.
const BAR_SIZE: usize = 4 * PAGE_SIZE;
/// Where the structures lie in it, and where their capabilities lie in configuration space.
const COMMON: u32 = 0x0;
const NOTIFY: u32 = 0x1000;
const ISR: u32 = 0x2000;
const DEVICE: u32 = 0x3000;
const CAPABILITIES: [u8; 4] = [0x40, 0x50, 0x64, 0x74];

/// The configuration space of the only function there is, with one 64-bit memory BAR. The driver's copies
/// share it.
#[derive(Clone)]
struct Function(Rc<RefCell<[u32; 64]>>);

impl Function {
    /// A network device with common configuration, notifications, ISR and device configuration, in this
    /// order.
    fn new() -> Function {
        // A BAR is aligned to its size.
        let memory = TestHal::dma_allocate(2 * BAR_SIZE / PAGE_SIZE).expect("memory").as_ptr() as u64;
        let base = memory.next_multiple_of(BAR_SIZE as u64);
        let function = Function(Rc::new(RefCell::new([0; 64])));
        function.set(0x00, 0x1041_1af4);
        function.set(0x04, 0x0010_0000); // status: a list of capabilities
        function.set(0x10, base as u32 | 0b1100);
        function.set(0x14, (base >> 32) as u32);
        function.set(0x34, u32::from(CAPABILITIES[0]));
        let places = [(COMMON, 0x38), (NOTIFY, 0x100), (ISR, 1), (DEVICE, 24)];
        for (index, (offset, len)) in places.into_iter().enumerate() {
            let at = CAPABILITIES[index];
            let next = CAPABILITIES.get(index + 1).copied().unwrap_or(0);
            let cap_len = if index == 1 { 20 } else { 16 };
            function.set(at, u32::from_le_bytes([9, next, cap_len, index as u8 + 1]));
            function.set(at + 8, offset);
            function.set(at + 12, len);
        }
        function.set(CAPABILITIES[1] + 16, 4); // notify_off_multiplier
        function.poke(COMMON + 0x04, 1u32); // both halves of the features: VERSION_1 in the upper one
        function.poke(COMMON + 0x18, 256u16); // queue_size
        function.poke(COMMON + 0x1e, 3u16); // queue_notify_off
        function.poke(NOTIFY + 12, 0xffffu16);
        function
    }

    fn set(&self, offset: u8, word: u32) {
        self.0.borrow_mut()[usize::from(offset) / 4] = word;
    }

    fn get(&self, offset: u8) -> u32 {
        self.0.borrow()[usize::from(offset) / 4]
    }

    fn registers(&self) -> Window {
        let base = u64::from(self.get(0x10) & !0xf) | u64::from(self.get(0x14)) << 32;
        // SAFETY: the BAR is memory of this process that is never freed.
        unsafe { Window::map::<TestHal>(base, BAR_SIZE) }
    }

    fn poke<T: RegisterWord>(&self, offset: u32, value: T) {
        self.registers().register(offset as usize).expect("a place in the BAR").write(value);
    }

    fn peek<T: RegisterWord>(&self, offset: u32) -> T {
        self.registers().register(offset as usize).expect("a place in the BAR").read()
    }

    fn probe(&self) -> Result<VirtioNet<PciNet>, VirtioError> {
        virtio::probe::<TestHal, _>(self.clone(), FUNCTION, WISH)
    }

    fn fault(&self) -> PciFault {
        match self.probe() {
            Err(VirtioError::Pci(fault)) => {
                assert!(!fault.to_string().is_empty());
                fault
            }
            Err(error) => panic!("{error} is no fault of PCI"),
            Ok(_) => panic!("a broken function is accepted"),
        }
    }
}

impl ConfigurationAccess for Function {
    fn read_word(&self, device_function: DeviceFunction, register_offset: u8) -> u32 {
        assert_eq!((device_function, register_offset % 4), (FUNCTION, 0));
        self.get(register_offset)
    }

    fn write_word(&mut self, device_function: DeviceFunction, register_offset: u8, data: u32) {
        assert_eq!((device_function, register_offset % 4), (FUNCTION, 0));
        let kept = self.get(register_offset);
        let word = match register_offset {
            0x04 => kept & 0xffff_0000 | data & 0xffff,
            // Address bits below the size, and the flags, are read-only.
            0x10 if kept & 1 == 0 => data & !(BAR_SIZE as u32 - 1) | kept & 0xf,
            0x10 | 0x14 => data,
            0x18..0x28 => 0, // BARs that are not there
            _ => panic!("a write of {data:#x} to {register_offset:#x}"),
        };
        self.set(register_offset, word);
    }

    unsafe fn unsafe_clone(&self) -> Self {
        self.clone()
    }
}

#[test]
fn the_driver_uses_the_registers_that_the_capabilities_name() {
    let function = Function::new();
    let mut device = function.probe().expect("a good device");
    assert_eq!(function.get(0x04) & 0xffff, 0x0406, "memory and bus mastering on, the interrupt pin off");
    assert_eq!(function.peek::<u8>(COMMON + 0x14), 0xf, "DRIVER_OK");
    assert_eq!(
        function.peek::<u32>(COMMON + 0x0c),
        1,
        "VERSION_1 is accepted, in the half that was written last"
    );
    assert_eq!((function.peek::<u16>(COMMON + 0x18), function.peek::<u16>(COMMON + 0x1c)), (64, 1));
    let areas = [0x20, 0x28, 0x30].map(|offset| function.peek::<u64>(COMMON + offset));
    assert!(areas[0] % 4096 == 0 && areas[0] < areas[1] && areas[1] < areas[2], "{areas:x?}");
    assert_eq!(function.peek::<u16>(NOTIFY + 12), 0xffff, "no notification yet");

    let pool = Pool::new::<TestHal>(200).expect("memory");
    let mut queues = device.take_queues(pool).expect("queues");
    assert_eq!(
        function.peek::<u16>(NOTIFY + 12),
        0,
        "the doorbell of queue 0, at its offset times the multiplier"
    );
    let mut cache = pool.cache();
    assert_eq!(queues.rx[0].receive(&mut cache, &mut Burst::new(), 32), 0);
    device.stop();
    assert_eq!(function.peek::<u8>(COMMON + 0x14), 0);
    drop((queues, cache));
    assert_eq!(pool.in_depot(), pool.count());
}

#[test]
fn a_device_without_an_address_gets_one_from_its_place() {
    let device = Function::new().probe().expect("a good device");
    assert_eq!(device.mac().0, [0x02, 0x53, 0, 0, 0x01, 0x13]);
}

#[test]
fn other_functions_are_not_virtio() {
    for (vendor, device) in [(0x8086, 0x10fb), (0x1af4, 0x1042), (0x1af4, 0x1001), (0xffff, 0xffff)] {
        let function = Function::new();
        function.set(0, u32::from(vendor) | u32::from(device) << 16);
        assert_eq!(function.fault(), PciFault::NotVirtio { vendor, device });
    }
    let transitional = Function::new();
    transitional.set(0, 0x1000_1af4);
    assert!(transitional.probe().is_ok());
}

#[test]
fn every_structure_must_be_there() {
    let structures = [Structure::Common, Structure::Notify, Structure::Isr, Structure::Device];
    for (at, structure) in CAPABILITIES.into_iter().zip(structures) {
        let function = Function::new();
        function.set(at, function.get(at) & 0x00ff_ffff | 5 << 24);
        assert_eq!(function.fault(), PciFault::Missing(structure));
    }
    let without_list = Function::new();
    without_list.set(0x04, 0);
    assert!(matches!(without_list.fault(), PciFault::Missing(_)));
}

#[test]
fn a_list_without_end_is_noticed() {
    for target in CAPABILITIES {
        let function = Function::new();
        let last = CAPABILITIES[3];
        function.set(last, function.get(last) & 0xffff_00ff | u32::from(target) << 8);
        assert_eq!(function.fault(), PciFault::CapabilityLoop);
    }
}

#[test]
fn a_list_that_leaves_its_space_ends_there() {
    for target in [0x04, 0x3c, 0x41, 0xff] {
        let function = Function::new();
        let last = CAPABILITIES[3];
        function.set(last, function.get(last) & 0xffff_00ff | target << 8);
        assert!(function.probe().is_ok(), "{target:#x}");
    }
}

#[test]
fn a_structure_must_lie_in_its_bar() {
    let structures = [Structure::Common, Structure::Notify, Structure::Isr, Structure::Device];
    for (at, structure) in CAPABILITIES.into_iter().zip(structures) {
        let end = BAR_SIZE as u32;
        for (offset, len) in [(end, 0x40), (end - 4, 0x40), (0xffff_fffc, 0x40), (0x40, 0xffff_ffff), (0, 0)]
        {
            let function = Function::new();
            function.set(at + 8, offset);
            function.set(at + 12, len);
            assert_eq!(function.fault(), PciFault::Misplaced(structure, 0), "{offset:#x} {len:#x}");
        }
    }
    for (at, structure) in [(CAPABILITIES[0], Structure::Common), (CAPABILITIES[1], Structure::Notify)] {
        let function = Function::new();
        function.set(at + 8, function.get(at + 8) + 1);
        assert_eq!(function.fault(), PciFault::Misplaced(structure, 0), "not aligned");
    }
}

#[test]
fn a_structure_must_have_a_memory_bar_with_an_address() {
    let structures = [Structure::Common, Structure::Notify, Structure::Isr, Structure::Device];
    for (at, structure) in CAPABILITIES.into_iter().zip(structures) {
        for bar in [6, 7, 255] {
            let function = Function::new();
            function.set(at + 4, u32::from(bar));
            assert_eq!(function.fault(), PciFault::ReservedBar(structure, bar));
        }
        let function = Function::new();
        function.set(at + 4, 2);
        assert_eq!(function.fault(), PciFault::Unassigned(structure, 2), "a BAR that is not there");
    }
    let unassigned = Function::new();
    unassigned.set(0x10, 0b1100);
    unassigned.set(0x14, 0);
    assert_eq!(unassigned.fault(), PciFault::Unassigned(Structure::Common, 0));
    let ports = Function::new();
    ports.set(0x10, 0xc001);
    assert_eq!(ports.fault(), PciFault::NotMemory(Structure::Common, 0));
}

#[test]
fn a_doorbell_must_lie_in_its_window() {
    for (multiplier, offset, good) in
        [(0, 0xffff, true), (4, 63, true), (4, 64, false), (2, 127, true), (0xffff_fffe, 0xffff, false)]
    {
        let function = Function::new();
        function.set(CAPABILITIES[1] + 16, multiplier);
        function.poke::<u16>(COMMON + 0x1e, offset);
        match function.probe() {
            Ok(_) => assert!(good, "{offset} of {multiplier} bytes"),
            Err(error) => {
                assert!(!good, "{offset} of {multiplier} bytes: {error}");
                assert_eq!(error, VirtioError::NoDoorbell { queue: 0 });
            }
        }
    }
    let odd = Function::new();
    odd.set(CAPABILITIES[1] + 16, 3);
    assert_eq!(odd.fault(), PciFault::OddMultiplier(3));
}
