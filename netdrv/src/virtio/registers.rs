//! The register windows of a virtio device on PCI as a transport (virtio 1.2, 4.1.4.3 to 4.1.4.6).
//!
//! `virtio_drivers::transport::pci::PciTransport` would serve for negotiation, but each of its capabilities
//! costs a sizing of its BAR, which an emulator pays with a rebuilt memory map; its drop waits for ever for a
//! device that is dead; and it hides where a queue's doorbell is.

use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
use virtio_drivers::{Error, PhysAddr};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::mmio::{Register, RegisterWord, Window};

/// Byte offsets in `struct virtio_pci_common_cfg` (4.1.4.3).
mod common {
    /// Which 32 bits `device_feature` shows.
    pub(super) const DEVICE_FEATURE_SELECT: usize = 0x00;
    /// Feature bits that the device offers.
    pub(super) const DEVICE_FEATURE: usize = 0x04;
    /// Which 32 bits `driver_feature` takes.
    pub(super) const DRIVER_FEATURE_SELECT: usize = 0x08;
    /// Feature bits that the driver accepts.
    pub(super) const DRIVER_FEATURE: usize = 0x0c;
    /// The device status; writing 0 resets the device.
    pub(super) const DEVICE_STATUS: usize = 0x14;
    /// Changes whenever the device changes its configuration.
    pub(super) const CONFIG_GENERATION: usize = 0x15;
    /// The queue that the registers below show.
    pub(super) const QUEUE_SELECT: usize = 0x16;
    /// Descriptors of the queue: at first the most it may have.
    pub(super) const QUEUE_SIZE: usize = 0x18;
    /// The entry of the MSI-X table that the queue interrupts by.
    pub(super) const QUEUE_MSIX_VECTOR: usize = 0x1a;
    /// Writing 1 starts the queue.
    pub(super) const QUEUE_ENABLE: usize = 0x1c;
    /// The queue's doorbell, in units of `notify_off_multiplier`.
    pub(super) const QUEUE_NOTIFY_OFF: usize = 0x1e;
    /// Address of the descriptor table; a 64-bit field is written in two halves (4.1.3.1).
    pub(super) const QUEUE_DESC: usize = 0x20;
    /// Address of the available ring.
    pub(super) const QUEUE_DRIVER: usize = 0x28;
    /// Address of the used ring.
    pub(super) const QUEUE_DEVICE: usize = 0x30;
    /// Bytes of the structure.
    pub(super) const LEN: usize = 0x38;
}

/// Bytes of `struct virtio_pci_common_cfg`.
pub(super) const COMMON_LEN: u32 = common::LEN as u32;

/// The common configuration, the ISR status and the device configuration of a network device.
pub struct PciRegisters {
    common: Window,
    isr: Register<u8>,
    device: Window,
}

impl PciRegisters {
    /// The transport over three windows; `None` where the first two are shorter than they must be.
    pub(super) fn new(common: Window, isr: Window, device: Window) -> Option<PciRegisters> {
        common.register::<u8>(common::LEN - 1)?;
        Some(PciRegisters { common, isr: isr.register(0)?, device })
    }

    /// Where `queue`'s doorbell is, in units of `notify_off_multiplier`.
    pub(super) fn notify_offset(&mut self, queue: u16) -> u16 {
        self.select(queue);
        self.read(common::QUEUE_NOTIFY_OFF)
    }

    /// Lets `queue` interrupt by entry `entry` of the MSI-X table. A device that can't answers with no vector (4.1.5.1.2).
    pub(super) fn set_vector(&mut self, queue: u16, entry: u16) -> bool {
        self.select(queue);
        self.write(common::QUEUE_MSIX_VECTOR, entry);
        self.read::<u16>(common::QUEUE_MSIX_VECTOR) == entry
    }

    fn select(&mut self, queue: u16) {
        self.write(common::QUEUE_SELECT, queue);
    }

    fn read<T: RegisterWord>(&self, offset: usize) -> T {
        self.register(offset).read()
    }

    fn write<T: RegisterWord>(&mut self, offset: usize, value: T) {
        self.register(offset).write(value);
    }

    fn write_address(&mut self, offset: usize, address: PhysAddr) {
        self.write(offset, address as u32);
        self.write(offset + 4, (address >> 32) as u32);
    }

    fn register<T: RegisterWord>(&self, offset: usize) -> Register<T> {
        self.common.register(offset).expect("`new` has checked the length of the structure")
    }

    /// Checks that a field of `len` bytes at `offset` lies in the device configuration. Each access is then as wide as the
    /// rules for a field of its size want it (4.1.3.1).
    fn check_field(&self, offset: usize, len: usize) -> Result<(), Error> {
        let end = offset.checked_add(len).and_then(|end| end.checked_sub(1));
        end.and_then(|last| self.device.register::<u8>(last)).map(|_| ()).ok_or(Error::ConfigSpaceTooSmall)
    }

    fn device_register<T: RegisterWord>(&self, offset: usize) -> Result<Register<T>, Error> {
        self.device.register(offset).ok_or(Error::ConfigSpaceTooSmall)
    }
}

impl Transport for PciRegisters {
    fn device_type(&self) -> DeviceType {
        DeviceType::Network
    }

    fn read_device_features(&mut self) -> u64 {
        let mut half = |select: u32| {
            self.write(common::DEVICE_FEATURE_SELECT, select);
            u64::from(self.read::<u32>(common::DEVICE_FEATURE))
        };
        half(0) | half(1) << 32
    }

    fn write_driver_features(&mut self, features: u64) {
        for (select, half) in [(0u32, features as u32), (1, (features >> 32) as u32)] {
            self.write(common::DRIVER_FEATURE_SELECT, select);
            self.write(common::DRIVER_FEATURE, half);
        }
    }

    fn max_queue_size(&mut self, queue: u16) -> u32 {
        self.select(queue);
        self.read::<u16>(common::QUEUE_SIZE).into()
    }

    /// Never used: a queue rings its own doorbell.
    fn notify(&mut self, _queue: u16) {}

    fn get_status(&self) -> DeviceStatus {
        DeviceStatus::from_bits_truncate(self.read::<u8>(common::DEVICE_STATUS).into())
    }

    fn set_status(&mut self, status: DeviceStatus) {
        self.write(common::DEVICE_STATUS, status.bits() as u8);
    }

    /// For legacy devices alone.
    fn set_guest_page_size(&mut self, _guest_page_size: u32) {}

    fn requires_legacy_layout(&self) -> bool {
        false
    }

    fn queue_set(
        &mut self,
        queue: u16,
        size: u32,
        descriptors: PhysAddr,
        driver_area: PhysAddr,
        device_area: PhysAddr,
    ) {
        self.select(queue);
        self.write(common::QUEUE_SIZE, size as u16);
        self.write_address(common::QUEUE_DESC, descriptors);
        self.write_address(common::QUEUE_DRIVER, driver_area);
        self.write_address(common::QUEUE_DEVICE, device_area);
        self.write(common::QUEUE_ENABLE, 1u16);
    }

    /// Not possible on PCI but by a reset of the device.
    fn queue_unset(&mut self, _queue: u16) {}

    fn queue_used(&mut self, queue: u16) -> bool {
        self.select(queue);
        self.read::<u16>(common::QUEUE_ENABLE) == 1
    }

    fn ack_interrupt(&mut self) -> InterruptStatus {
        InterruptStatus::from_bits_retain(self.isr.read().into())
    }

    fn read_config_generation(&self) -> u32 {
        self.read::<u8>(common::CONFIG_GENERATION).into()
    }

    fn read_config_space<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T, Error> {
        self.check_field(offset, size_of::<T>())?;
        let mut value = T::new_zeroed();
        match value.as_mut_bytes() {
            bytes @ [_, _] => {
                bytes.copy_from_slice(&self.device_register::<u16>(offset)?.read().to_ne_bytes());
            }
            bytes @ [_, _, _, _] => {
                bytes.copy_from_slice(&self.device_register::<u32>(offset)?.read().to_ne_bytes());
            }
            bytes => {
                for (index, byte) in bytes.iter_mut().enumerate() {
                    *byte = self.device_register(offset + index)?.read();
                }
            }
        }
        Ok(value)
    }

    fn write_config_space<T: IntoBytes + Immutable>(&mut self, offset: usize, value: T) -> Result<(), Error> {
        self.check_field(offset, size_of::<T>())?;
        match *value.as_bytes() {
            [low, high] => self.device_register(offset)?.write(u16::from_ne_bytes([low, high])),
            [a, b, c, d] => self.device_register(offset)?.write(u32::from_ne_bytes([a, b, c, d])),
            ref bytes => {
                for (index, byte) in bytes.iter().enumerate() {
                    self.device_register(offset + index)?.write(*byte);
                }
            }
        }
        Ok(())
    }
}
