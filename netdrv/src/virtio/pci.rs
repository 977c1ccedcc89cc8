//! Virtio over PCI (virtio 1.2, 4.1): finds the device's register windows and checks that they hold together.
//!
//! Negotiation goes through `virtio_drivers`' `PciTransport`. What that leaves out is here: a capability list that loops or
//! points outside its BAR, doorbells that cores need not share, and a drop that does not wait for a dead device.

#![allow(unsafe_code)] // Maps the windows that the device's capabilities name.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use virtio_drivers::transport::pci::bus::{Command, ConfigurationAccess, DeviceFunction, PciRoot, Status};
use virtio_drivers::transport::pci::{PciTransport, VirtioPciError};
use virtio_drivers::{BufferDirection, PhysAddr};

use super::error::VirtioError;
use super::transport::{Doorbell, NetTransport};
use crate::hal::Hal;
use crate::mmio::{Register, Window};

/// Byte offsets in PCI configuration space.
mod config {
    pub(super) const CAPABILITIES_POINTER: u8 = 0x34;
}

/// `PCI_CAP_ID_VNDR`.
const VENDOR_CAPABILITY: u8 = 0x09;
/// The first byte that a capability can have.
const FIRST_CAPABILITY: u8 = 0x40;
/// Four-byte places behind the header of the configuration space: a longer list visits one twice.
const MAX_CAPABILITIES: usize = (0x100 - FIRST_CAPABILITY as usize) / 4;
/// Bytes of `struct virtio_pci_cap` and of `struct virtio_pci_notify_cap` (4.1.4, 4.1.4.4).
const CAPABILITY_LEN: u8 = 16;
const NOTIFY_CAPABILITY_LEN: u8 = 20;
/// BARs of a function; higher numbers are reserved (4.1.4).
const BARS: u8 = 6;

/// The registers of `struct virtio_pci_common_cfg` that `PciTransport` keeps to itself (4.1.4.3).
mod common {
    /// `queue_select`: the queue that the queue registers show.
    pub(super) const QUEUE_SELECT: usize = 0x16;
    /// `queue_notify_off`: the selected queue's doorbell, in units of `notify_off_multiplier`.
    pub(super) const QUEUE_NOTIFY_OFF: usize = 0x1e;
    /// Bytes of the structure.
    pub(super) const LEN: u32 = 0x38;
}

/// A register window that virtio keeps on PCI, with its `cfg_type` (4.1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Structure {
    /// `VIRTIO_PCI_CAP_COMMON_CFG`.
    Common = 1,
    /// `VIRTIO_PCI_CAP_NOTIFY_CFG`.
    Notify = 2,
    /// `VIRTIO_PCI_CAP_ISR_CFG`.
    Isr = 3,
    /// `VIRTIO_PCI_CAP_DEVICE_CFG`.
    Device = 4,
}

impl Structure {
    const ALL: [Structure; 4] = [Structure::Common, Structure::Notify, Structure::Isr, Structure::Device];

    fn of(cfg_type: u8) -> Option<Structure> {
        Structure::ALL.into_iter().find(|structure| *structure as u8 == cfg_type)
    }

    /// Alignment that the offset must have, and the least length.
    fn shape(self) -> (u32, u32) {
        match self {
            Structure::Common => (4, common::LEN),
            Structure::Notify => (2, 2),
            Structure::Isr => (1, 1),
            Structure::Device => (4, 1),
        }
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Structure::Common => "common configuration",
            Structure::Notify => "notification",
            Structure::Isr => "ISR status",
            Structure::Device => "device configuration",
        })
    }
}

/// What is wrong with a PCI function as a modern virtio device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PciFault {
    /// Vendor and device id are not those of a virtio network device.
    NotVirtio {
        /// The vendor id.
        vendor: u16,
        /// The device id.
        device: u16,
    },
    /// The list of capabilities has no end.
    CapabilityLoop,
    /// There is no such capability: a legacy device, or a broken one.
    Missing(Structure),
    /// The capability names a BAR that no function has.
    ReservedBar(Structure, u8),
    /// The BAR that the capability names is not a memory BAR.
    NotMemory(Structure, u8),
    /// The firmware gave that BAR no address.
    Unassigned(Structure, u8),
    /// The structure leaves that BAR, is shorter than it must be, or is not aligned.
    Misplaced(Structure, u8),
    /// `notify_off_multiplier` is odd.
    OddMultiplier(u32),
}

impl fmt::Display for PciFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PciFault::NotVirtio { vendor, device } => {
                write!(f, "{vendor:04x}:{device:04x} is not a virtio network device")
            }
            PciFault::CapabilityLoop => f.write_str("the list of PCI capabilities has no end"),
            PciFault::Missing(structure) => write!(f, "no {structure} capability"),
            PciFault::ReservedBar(structure, bar) => {
                write!(f, "the {structure} capability names BAR {bar}, which no function has")
            }
            PciFault::NotMemory(structure, bar) => {
                write!(f, "BAR {bar}, named by the {structure} capability, is not memory")
            }
            PciFault::Unassigned(structure, bar) => {
                write!(f, "BAR {bar}, named by the {structure} capability, has no address")
            }
            PciFault::Misplaced(structure, bar) => {
                write!(f, "the {structure} capability does not fit BAR {bar}")
            }
            PciFault::OddMultiplier(multiplier) => write!(f, "notify_off_multiplier {multiplier} is odd"),
        }
    }
}

/// A virtio device on PCI.
pub struct PciNet {
    /// Never dropped: its drop resets the device and waits for the answer without bound.
    transport: ManuallyDrop<PciTransport>,
    queue_select: Register<u16>,
    queue_notify_off: Register<u16>,
    doorbells: Window,
    notify_off_multiplier: u32,
    identity: u32,
}

impl PciNet {
    /// Takes over the PCI function: switches memory access and bus mastering on and its interrupt pin off, and maps its registers.
    ///
    /// # Errors
    /// [`PciFault`] where this is no modern virtio device or its capabilities do not hold together.
    pub fn new<H: Hal, C: ConfigurationAccess + Clone>(
        access: C,
        function: DeviceFunction,
    ) -> Result<PciNet, PciFault> {
        let mut root = PciRoot::new(access.clone());
        let places = Places::find(&access, &mut root, function)?;
        let (_, command) = root.get_status_command(function);
        root.set_command(
            function,
            command | Command::MEMORY_SPACE | Command::BUS_MASTER | Command::INTERRUPT_DISABLE,
        );
        let transport = PciTransport::new::<Adapter<H>, C>(&mut root, function)
            .map_err(|error| PciFault::from_transport(error, &access, function))?;
        let common = places.common.map::<H>();
        let missing = PciFault::Misplaced(Structure::Common, places.common.bar);
        Ok(PciNet {
            transport: ManuallyDrop::new(transport),
            queue_select: common.register(common::QUEUE_SELECT).ok_or(missing)?,
            queue_notify_off: common.register(common::QUEUE_NOTIFY_OFF).ok_or(missing)?,
            doorbells: places.notify.map::<H>(),
            notify_off_multiplier: places.notify_off_multiplier,
            identity: u32::from(function.bus) << 8
                | u32::from(function.device) << 3
                | u32::from(function.function),
        })
    }
}

impl NetTransport for PciNet {
    type Base = PciTransport;

    fn base(&self) -> &PciTransport {
        &self.transport
    }

    fn base_mut(&mut self) -> &mut PciTransport {
        &mut self.transport
    }

    fn doorbell(&mut self, queue: u16) -> Result<Doorbell, VirtioError> {
        self.queue_select.write(queue);
        let offset = u64::from(self.queue_notify_off.read()) * u64::from(self.notify_off_multiplier);
        usize::try_from(offset)
            .ok()
            .and_then(|offset| self.doorbells.register(offset))
            .map(|register| Doorbell::new(register, queue))
            .ok_or(VirtioError::NoDoorbell { queue })
    }

    fn identity(&self) -> u32 {
        self.identity
    }
}

/// A checked place in a memory BAR.
#[derive(Clone, Copy)]
struct Place {
    bar: u8,
    address: u64,
    len: u32,
}

impl Place {
    fn map<H: Hal>(&self) -> Window {
        // SAFETY: `Places::find` has checked that the range lies in a memory BAR of the function that is being set up.
        unsafe { Window::map::<H>(self.address, self.len as usize) }
    }
}

/// Where the structures that we map ourselves lie; all four have been checked.
struct Places {
    common: Place,
    notify: Place,
    notify_off_multiplier: u32,
}

impl Places {
    /// Walks the capability list. As the specification has it, the first of each kind counts (4.1.4.1).
    fn find<C: ConfigurationAccess>(
        access: &C,
        root: &mut PciRoot<C>,
        function: DeviceFunction,
    ) -> Result<Places, PciFault> {
        let mut places = [None; Structure::ALL.len()];
        let mut notify_off_multiplier = 0;
        for capability in vendor_capabilities(access, root, function)? {
            let Some(structure) = Structure::of(capability.cfg_type) else { continue };
            let short = structure == Structure::Notify && capability.len < NOTIFY_CAPABILITY_LEN;
            let place = &mut places[structure as usize - 1];
            if short || place.is_some() {
                continue;
            }
            *place = Some(capability.place(structure, access, root, function)?);
            if structure == Structure::Notify {
                notify_off_multiplier = access.read_word(function, capability.at + CAPABILITY_LEN);
            }
        }
        for structure in Structure::ALL {
            places[structure as usize - 1].ok_or(PciFault::Missing(structure))?;
        }
        let [Some(common), Some(notify), ..] = places else {
            return Err(PciFault::Missing(Structure::Common));
        };
        Ok(Places { common, notify, notify_off_multiplier })
    }
}

/// The head of a `struct virtio_pci_cap`.
struct VendorCapability {
    at: u8,
    len: u8,
    cfg_type: u8,
}

impl VendorCapability {
    /// The structure's place in its BAR, checked as far as the function's own registers allow.
    fn place<C: ConfigurationAccess>(
        &self,
        structure: Structure,
        access: &C,
        root: &mut PciRoot<C>,
        function: DeviceFunction,
    ) -> Result<Place, PciFault> {
        let bar = access.read_word(function, self.at + 4) as u8;
        let offset = access.read_word(function, self.at + 8);
        let len = access.read_word(function, self.at + 12);
        if bar >= BARS {
            return Err(PciFault::ReservedBar(structure, bar));
        }
        let info = root.bar_info(function, bar).map_err(|_| PciFault::NotMemory(structure, bar))?;
        let info = info.ok_or(PciFault::Unassigned(structure, bar))?;
        let (base, size) = info.memory_address_size().ok_or(PciFault::NotMemory(structure, bar))?;
        if base == 0 {
            return Err(PciFault::Unassigned(structure, bar));
        }
        let (alignment, least) = structure.shape();
        let fits = offset.checked_add(len).is_some_and(|end| u64::from(end) <= size);
        if !fits || len < least || !offset.is_multiple_of(alignment) {
            return Err(PciFault::Misplaced(structure, bar));
        }
        Ok(Place { bar, address: base + u64::from(offset), len })
    }
}

/// The vendor-specific capabilities of a function, in list order.
fn vendor_capabilities<C: ConfigurationAccess>(
    access: &C,
    root: &PciRoot<C>,
    function: DeviceFunction,
) -> Result<impl Iterator<Item = VendorCapability> + use<C>, PciFault> {
    let mut found = arrayvec::ArrayVec::<VendorCapability, MAX_CAPABILITIES>::new();
    let mut at = match root.get_status_command(function).0.contains(Status::CAPABILITIES_LIST) {
        true => access.read_word(function, config::CAPABILITIES_POINTER) as u8 & !3,
        false => 0,
    };
    let mut visited = 0;
    while at >= FIRST_CAPABILITY && at.is_multiple_of(4) {
        if visited == MAX_CAPABILITIES {
            return Err(PciFault::CapabilityLoop);
        }
        visited += 1;
        let [id, next, len, cfg_type] = access.read_word(function, at).to_le_bytes();
        let ends_inside = usize::from(at) + usize::from(len) <= 0x100;
        if id == VENDOR_CAPABILITY && len >= CAPABILITY_LEN && ends_inside {
            found.push(VendorCapability { at, len, cfg_type });
        }
        at = next;
    }
    Ok(found.into_iter())
}

impl PciFault {
    /// What `PciTransport` still finds after all the checks above.
    fn from_transport<C: ConfigurationAccess>(
        error: VirtioPciError,
        access: &C,
        function: DeviceFunction,
    ) -> PciFault {
        match error {
            VirtioPciError::InvalidNotifyOffMultiplier(multiplier) => PciFault::OddMultiplier(multiplier),
            VirtioPciError::MissingCommonConfig => PciFault::Missing(Structure::Common),
            VirtioPciError::MissingNotifyConfig => PciFault::Missing(Structure::Notify),
            VirtioPciError::MissingIsrConfig => PciFault::Missing(Structure::Isr),
            _ => {
                let ids = access.read_word(function, 0);
                PciFault::NotVirtio { vendor: ids as u16, device: (ids >> 16) as u16 }
            }
        }
    }
}

/// Our platform as `virtio_drivers` wants it.
struct Adapter<H>(PhantomData<H>);

// SAFETY: each method passes on what `Hal` promises: exclusive, zeroed pages and lasting register windows. The bus address
// is the CPU's own.
unsafe impl<H: Hal> virtio_drivers::Hal for Adapter<H> {
    fn dma_alloc(pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        match H::dma_allocate(pages) {
            Some(base) => (base.as_ptr() as PhysAddr, base),
            None => (0, NonNull::dangling()),
        }
    }

    unsafe fn dma_dealloc(_paddr: PhysAddr, vaddr: NonNull<u8>, pages: usize) -> i32 {
        // SAFETY: the caller passes what `dma_alloc` returned.
        unsafe { H::dma_free(vaddr, pages) };
        0
    }

    unsafe fn mmio_phys_to_virt(paddr: PhysAddr, size: usize) -> NonNull<u8> {
        // SAFETY: the caller promises a register window.
        unsafe { H::map_mmio(paddr, size) }
    }

    unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
        buffer.cast::<u8>().as_ptr() as PhysAddr
    }

    unsafe fn unshare(_paddr: PhysAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {}
}
