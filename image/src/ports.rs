//! The ports: which PCI functions become which, and what the console says of each.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::error::Error;

use forwarder::config::Config;
use forwarder::idle::IdleMode;
use forwarder::txmap::Wish;
use forwarder::verdict::PortId;
use forwarder::{Control, PortParts};
use kernel::pci::msix::Msix;
use kernel::{pci, println};
use netdrv::device::{DeviceCounters, NetDevice, QueueWish};
use netdrv::ixgbe::{self, Ixgbe, IxgbeVf, Module};
use netdrv::mmio::Window;
use netdrv::pool::Pool;
use netdrv::port::{Device, Rx, Tx};
use netdrv::virtio;

use crate::interrupts;
use crate::platform::{self, OwnConfig, Platform};

/// Network controller, Ethernet (PCI code and ID assignment specification, 1.3).
const ETHERNET: (u8, u8) = (0x02, 0x00);
const VIRTIO_VENDOR: u16 = 0x1af4;

/// The network devices that work, in the order of their PCI addresses.
pub(crate) struct Ports(Vec<Port>);

struct Port {
    address: pci::Address,
    device: Device,
    /// Where receive queues interrupt.
    msix: Option<Msix>,
}

impl Ports {
    /// Sets up every network device that a driver knows, with a queue pair for each worker where it has as many. One that
    /// fails is reported and left out.
    pub(crate) fn probe(config: &Config, workers: usize) -> Ports {
        let is_network = |function: &pci::Function| (function.class.base, function.class.sub) == ETHERNET;
        let ports: Vec<Port> = pci::functions()
            .into_iter()
            .filter(is_network)
            .filter_map(|f| set_up(f, config, workers))
            .collect();
        if ports.is_empty() {
            log::error!("no network device that a driver knows: there is nothing to forward");
        }
        Ports(ports)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// How many RX queues they have together.
    pub(crate) fn rx_queues(&self) -> usize {
        self.0.iter().map(|port| port.device.shape().rx).sum()
    }

    /// Buffers that all rings together hold.
    pub(crate) fn buffers(&self) -> usize {
        self.0.iter().map(|port| port.device.shape().buffers()).sum()
    }

    /// Starts every device; its queues are filled with buffers of `pool`.
    pub(crate) fn start(&mut self, pool: &'static Pool) -> Vec<PortParts<Rx, Tx>> {
        let start = |Port { device, .. }: &mut Port| PortParts {
            mac: device.mac(),
            mtu: device.mtu(),
            rx_interrupts: device.rx_interrupts(),
            queues: device.take_queues(pool).expect("queues are taken once"),
        };
        self.0.iter_mut().map(start).collect()
    }

    /// Sends the interrupts of the receive queues to the cores of `workers` workers.
    pub(crate) fn route_interrupts(&mut self, workers: usize) {
        let queues: Vec<usize> = self.0.iter().map(|port| port.device.shape().rx).collect();
        let ports = self.0.iter_mut().map(|port| (port.msix.as_mut(), port.device.rx_interrupts()));
        interrupts::route(ports, &queues, workers);
    }

    /// Prints a line for each port.
    pub(crate) fn announce(&self, control: &Control<Rx, Tx>) {
        for (number, Port { address, device, .. }) in (0..).zip(&self.0) {
            let shape = device.shape();
            println!(
                "port {number} {} {address} mac={} link={} rx-queues={} tx-queues={} rx-ring={} tx-ring={} mtu={} tx={}",
                device.driver(),
                device.mac(),
                device.link(),
                shape.rx,
                shape.tx,
                shape.rx_ring,
                shape.tx_ring,
                device.mtu(),
                control.tx_plan(PortId(number)),
            );
        }
    }

    /// What each device counts by itself.
    pub(crate) fn counters(&self) -> Vec<DeviceCounters> {
        self.0.iter().map(|port| port.device.counters()).collect()
    }

    /// Looks after every device.
    pub(crate) fn attend(&mut self) {
        self.0.iter_mut().for_each(|port| port.device.attend());
    }

    /// Resets every device, so that no buffer is in use any more.
    pub(crate) fn stop(&mut self) {
        self.0.iter_mut().for_each(|port| port.device.stop());
    }
}

/// The driver for a function, or a line that says why there is none.
fn set_up(function: pci::Function, config: &Config, workers: usize) -> Option<Port> {
    let driver = Driver::of(&function).or_else(|| {
        log::warn!("{function}: no driver for this network card");
        None
    })?;
    let msix = match config.idle {
        IdleMode::Poll => None,
        IdleMode::Adaptive => interrupts::open(function),
    };
    let interrupts = msix.as_ref().map_or(0, Msix::vectors);
    // One for each worker, and one for the stacks.
    let pairs = workers + usize::from(!config.stack.is_none());
    let tx_needed = if config.tx == Wish::Dedicated { pairs } else { 0 };
    let wish = QueueWish { pairs, ring: config.ring, interrupts, tx_needed };
    driver
        .set_up(function, wish)
        .map(|device| Port { address: function.address, device, msix })
        .inspect_err(|error| log::error!("{function}: {error}"))
        .ok()
}

/// The drivers that there are.
enum Driver {
    Virtio,
    Ixgbe(&'static ixgbe::Model),
    IxgbeVf(&'static ixgbe::VirtualModel),
}

impl Driver {
    fn of(function: &pci::Function) -> Option<Driver> {
        match function.vendor {
            VIRTIO_VENDOR => Some(Driver::Virtio),
            ixgbe::VENDOR => {
                let card = ixgbe::model(function.device).map(Driver::Ixgbe);
                card.or_else(|| ixgbe::virtual_model(function.device).map(Driver::IxgbeVf))
            }
            _ => None,
        }
    }

    fn set_up(self, function: pci::Function, wish: QueueWish) -> Result<Device, Box<dyn Error>> {
        match self {
            Driver::Virtio => {
                let access = OwnConfig(function);
                let device = virtio::probe::<Platform, _>(access, access.place(), wish)?;
                Ok(Device::Virtio(Box::new(device)))
            }
            Driver::Ixgbe(model) => {
                let registers = platform::map_bar_0(&function, ixgbe::BAR_LEN)?;
                let device = Ixgbe::new::<Platform>(registers, model, wish)?;
                describe(&function, model, &device);
                Ok(Device::Ixgbe(Box::new(device)))
            }
            Driver::IxgbeVf(model) => {
                let registers = platform::map_bar_0(&function, ixgbe::VF_BAR_LEN)?;
                log::info!("{}: {}", function.address, model.name);
                let device = IxgbeVf::new::<Platform>(registers, model, wish)?;
                Ok(Device::IxgbeVf(Box::new(device)))
            }
        }
    }
}

/// Says what the card is: its link to the CPU, and what is plugged in. Any module is used; of one that is not known, nobody
/// knows how well it works.
fn describe(function: &pci::Function, model: &ixgbe::Model, device: &Ixgbe<Window>) {
    let address = function.address;
    match function.link() {
        Some(link) => log::info!("{address}: {}, PCIe {link}", model.name),
        None => log::info!("{address}: {}", model.name),
    }
    match device.module() {
        None => {}
        Some(Ok(Module::None)) => log::warn!("{address}: no module is plugged in"),
        Some(Ok(Module::Sfp(module))) if module.kind().is_none() => {
            log::warn!("{address}: module of an unknown kind: {module}");
        }
        Some(Ok(Module::Sfp(module))) => log::info!("{address}: module {module}"),
        Some(Err(error)) => log::warn!("{address}: the module can't be asked: {error}"),
    }
}
