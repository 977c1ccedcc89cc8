//! Every driver there is, as one type: the image and the workers know ports, not drivers.
//!
//! The set is closed, so a call is a `match` once a batch; nothing is looked up through a pointer.

use crate::device::{DeviceFault, Link, Mac, NetDevice, QueueShape, Queues, RxDrops, RxQueue, TxQueue};
use crate::packet::Burst;
use crate::pool::{Pool, PoolCache};
use crate::virtio::{PciNet, VirtioNet, VirtioRx, VirtioTx};

/// A device of any driver.
pub enum Device {
    /// virtio-net on PCI.
    Virtio(VirtioNet<PciNet>),
}

/// Its receive queues.
pub enum Rx {
    /// Of virtio-net.
    Virtio(VirtioRx),
}

/// Its transmit queues.
pub enum Tx {
    /// Of virtio-net.
    Virtio(VirtioTx),
}

impl NetDevice for Device {
    type Rx = Rx;
    type Tx = Tx;

    fn driver(&self) -> &'static str {
        match self {
            Device::Virtio(device) => device.driver(),
        }
    }

    fn mac(&self) -> Mac {
        match self {
            Device::Virtio(device) => device.mac(),
        }
    }

    fn link(&self) -> Link {
        match self {
            Device::Virtio(device) => device.link(),
        }
    }

    fn mtu(&self) -> u16 {
        match self {
            Device::Virtio(device) => device.mtu(),
        }
    }

    fn shape(&self) -> QueueShape {
        match self {
            Device::Virtio(device) => device.shape(),
        }
    }

    fn rx_interrupts(&self) -> usize {
        match self {
            Device::Virtio(device) => device.rx_interrupts(),
        }
    }

    fn take_queues(&mut self, pool: &'static Pool) -> Option<Queues<Rx, Tx>> {
        match self {
            Device::Virtio(device) => device.take_queues(pool).map(|queues| Queues {
                rx: queues.rx.into_iter().map(Rx::Virtio).collect(),
                tx: queues.tx.into_iter().map(Tx::Virtio).collect(),
            }),
        }
    }

    fn fault(&self) -> Option<DeviceFault> {
        match self {
            Device::Virtio(device) => device.fault(),
        }
    }

    fn stop(&mut self) {
        match self {
            Device::Virtio(device) => device.stop(),
        }
    }
}

impl RxQueue for Rx {
    #[inline]
    fn receive(&mut self, cache: &mut PoolCache, burst: &mut Burst, limit: usize) -> usize {
        match self {
            Rx::Virtio(queue) => queue.receive(cache, burst, limit),
        }
    }

    fn arm(&mut self) -> bool {
        match self {
            Rx::Virtio(queue) => queue.arm(),
        }
    }

    fn drops(&self) -> RxDrops {
        match self {
            Rx::Virtio(queue) => queue.drops(),
        }
    }
}

impl TxQueue for Tx {
    #[inline]
    fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        match self {
            Tx::Virtio(queue) => queue.reclaim(cache),
        }
    }

    #[inline]
    fn enqueue(&mut self, burst: &mut Burst) -> usize {
        match self {
            Tx::Virtio(queue) => queue.enqueue(burst),
        }
    }

    #[inline]
    fn flush(&mut self) {
        match self {
            Tx::Virtio(queue) => queue.flush(),
        }
    }

    #[inline]
    fn waiting(&self) -> usize {
        match self {
            Tx::Virtio(queue) => queue.waiting(),
        }
    }

    #[inline]
    fn room(&self) -> usize {
        match self {
            Tx::Virtio(queue) => queue.room(),
        }
    }

    fn refused(&self) -> u64 {
        match self {
            Tx::Virtio(queue) => queue.refused(),
        }
    }
}
