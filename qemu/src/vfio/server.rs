//! The card as QEMU sees it: regions to read and write, memory to map, interrupts to connect.
//!
//! Regions and interrupts are numbered as in Linux's VFIO (`linux/vfio.h`), which the vfio-user protocol takes over.

use std::fs::File;
use std::io;
use std::sync::Arc;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_NORESIZE, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_BAR4_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, ServerBackend, ServerRegion};

use super::config_space::{Layout, SIZE, VECTORS_SIZE};
use super::engine::Engine;

/// What QEMU learns of the card's regions. None of them is shared memory: every access is a message, so that the model
/// sees each in its order. A write costs 1.5 µs, once a burst.
pub(super) fn regions(layout: Layout) -> Vec<ServerRegion> {
    (0..VFIO_PCI_NUM_REGIONS).map(|index| region(index, layout)).collect()
}

fn region(index: u32, layout: Layout) -> ServerRegion {
    let size = match index {
        VFIO_PCI_BAR0_REGION_INDEX => layout.registers,
        VFIO_PCI_BAR4_REGION_INDEX => VECTORS_SIZE,
        VFIO_PCI_CONFIG_REGION_INDEX => SIZE as u64,
        _ => 0,
    };
    let flags = if size > 0 { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE } else { 0 };
    let argsz = size_of::<vfio_region_info>() as u32;
    let region_info = vfio_region_info { argsz, flags, index, size, ..Default::default() };
    ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
}

/// What QEMU learns of the card's interrupts: MSI-X, as with every driver of these cards; and, because QEMU warns where
/// it is missing, the one for errors of the bus, of which there are none.
pub(super) fn interrupts(layout: Layout) -> Vec<IrqInfo> {
    let count = |index| match index {
        VFIO_PCI_MSIX_IRQ_INDEX => layout.vectors.into(),
        VFIO_PCI_ERR_IRQ_INDEX => 1,
        _ => 0,
    };
    let flags = VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE;
    (0..VFIO_PCI_NUM_IRQS).map(|index| IrqInfo { index, flags, count: count(index) }).collect()
}

/// Carries out what QEMU asks.
pub(super) struct Backend {
    engine: Arc<Engine>,
}

impl Backend {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        data.fill(0);
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.engine.slot().config.read(position(offset)?, data),
            VFIO_PCI_BAR0_REGION_INDEX => {
                let slot = &mut *self.engine.slot();
                let registers = registers(slot.layout(), offset, data.len())?;
                for (register, bytes) in registers.zip(data.chunks_exact_mut(4)) {
                    bytes.copy_from_slice(&slot.read(register).to_le_bytes());
                }
            }
            // QEMU keeps the vector table to itself.
            _ => {}
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self.engine.slot().config.write(position(offset)?, data),
            VFIO_PCI_BAR0_REGION_INDEX => {
                let slot = &mut *self.engine.slot();
                for (register, bytes) in registers(slot.layout(), offset, data.len())?.zip(data.as_chunks().0)
                {
                    slot.write(register, u32::from_le_bytes(*bytes));
                }
            }
            _ => {}
        }
        self.engine.wake();
        Ok(())
    }

    fn dma_map(
        &mut self,
        _flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> io::Result<()> {
        // ROMs come without a file; no driver puts a ring there.
        let Some(file) = file else { return Ok(()) };
        self.engine.slot().memory.map(address, size, file, offset)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        let memory = &mut self.engine.slot().memory;
        match flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            true => memory.unmap(0, u64::MAX),
            false => memory.unmap(address, size),
        }
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.engine.slot().reset();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        files: Vec<File>,
    ) -> io::Result<()> {
        if index != VFIO_PCI_MSIX_IRQ_INDEX {
            return Ok(());
        }
        let interrupts = &mut self.engine.slot().interrupts;
        match (flags & VFIO_IRQ_SET_DATA_EVENTFD != 0, count) {
            (true, _) if !files.is_empty() => interrupts.connect(start, files)?,
            (true, _) => interrupts.disconnect(start, count),
            (false, 0) => interrupts.disconnect_all(),
            // A test interrupt; nobody asks for one.
            (false, _) => {}
        }
        Ok(())
    }
}

fn position(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(io::Error::other)
}

/// The registers that an access of so many bytes is about; the card knows whole ones only.
fn registers(layout: Layout, offset: u64, length: usize) -> io::Result<impl Iterator<Item = u32>> {
    let end = offset.saturating_add(length as u64);
    if end > layout.registers || !offset.is_multiple_of(4) || !length.is_multiple_of(4) {
        return Err(io::Error::other(format!("no register is {length} bytes at {offset:#x}")));
    }
    Ok((offset as u32..end as u32).step_by(4))
}

#[cfg(test)]
mod tests {
    use super::super::config_space::{PHYSICAL, VIRTUAL};
    use super::*;

    #[test]
    fn only_whole_registers_are_accessed() {
        assert_eq!(registers(PHYSICAL, 8, 4).unwrap().collect::<Vec<_>>(), [8]);
        assert_eq!(registers(PHYSICAL, 0x7_fff8, 8).unwrap().collect::<Vec<_>>(), [0x7_fff8, 0x7_fffc]);
        for (offset, length) in [(2, 4), (0, 1), (0x8_0000, 4), (u64::MAX, 4)] {
            assert!(registers(PHYSICAL, offset, length).is_err(), "{length} at {offset:#x}");
        }
        assert!(registers(VIRTUAL, 0x4000, 4).is_err(), "a virtual function has fewer");
    }

    #[test]
    fn the_card_has_the_windows_and_vectors_of_its_capabilities() {
        let sizes: Vec<_> = regions(PHYSICAL).iter().map(|region| region.region_info.size).collect();
        assert_eq!(sizes, [0x8_0000, 0, 0, 0, 0x4000, 0, 0, 0x1000, 0]);
        let counts = |layout| interrupts(layout).iter().map(|irq| irq.count).collect::<Vec<_>>();
        assert_eq!(counts(PHYSICAL), [0, 0, 64, 1, 0]);
        assert_eq!(counts(VIRTUAL), [0, 0, 3, 1, 0]);
    }
}
