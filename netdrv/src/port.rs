//! Every driver there is, as one type: the image and the workers know ports, not drivers.
//!
//! The set is closed, so a call is a `match` once a batch; nothing is looked up through a pointer.

use alloc::boxed::Box;

use crate::device::{
    DeviceCounters, DeviceFault, Link, Mac, NetDevice, QueueShape, Queues, RxDrops, RxQueue, TxQueue,
};
use crate::ixgbe::{Ixgbe, IxgbeRx, IxgbeTx, IxgbeVf};
use crate::mmio::Window;
use crate::packet::Burst;
use crate::pool::{Pool, PoolCache};
use crate::virtio::{PciNet, VirtioNet, VirtioRx, VirtioTx};

/// A device of any driver.
pub enum Device {
    /// virtio-net on PCI.
    Virtio(Box<VirtioNet<PciNet>>),
    /// An Intel 10-gigabit card.
    Ixgbe(Box<Ixgbe<Window>>),
    /// A virtual function of such a card.
    IxgbeVf(Box<IxgbeVf<Window>>),
}

/// Its receive queues.
pub enum Rx {
    /// Of virtio-net.
    Virtio(VirtioRx),
    /// Of an ixgbe, or of a virtual function of one.
    Ixgbe(IxgbeRx<Window>),
}

/// Its transmit queues.
pub enum Tx {
    /// Of virtio-net.
    Virtio(VirtioTx),
    /// Of an ixgbe, or of a virtual function of one.
    Ixgbe(IxgbeTx<Window>),
}

impl NetDevice for Device {
    type Rx = Rx;
    type Tx = Tx;

    fn driver(&self) -> &'static str {
        match self {
            Device::Virtio(device) => device.driver(),
            Device::Ixgbe(device) => device.driver(),
            Device::IxgbeVf(device) => device.driver(),
        }
    }

    fn mac(&self) -> Mac {
        match self {
            Device::Virtio(device) => device.mac(),
            Device::Ixgbe(device) => device.mac(),
            Device::IxgbeVf(device) => device.mac(),
        }
    }

    fn link(&self) -> Link {
        match self {
            Device::Virtio(device) => device.link(),
            Device::Ixgbe(device) => device.link(),
            Device::IxgbeVf(device) => device.link(),
        }
    }

    fn mtu(&self) -> u16 {
        match self {
            Device::Virtio(device) => device.mtu(),
            Device::Ixgbe(device) => device.mtu(),
            Device::IxgbeVf(device) => device.mtu(),
        }
    }

    fn shape(&self) -> QueueShape {
        match self {
            Device::Virtio(device) => device.shape(),
            Device::Ixgbe(device) => device.shape(),
            Device::IxgbeVf(device) => device.shape(),
        }
    }

    fn rx_interrupts(&self) -> usize {
        match self {
            Device::Virtio(device) => device.rx_interrupts(),
            Device::Ixgbe(device) => device.rx_interrupts(),
            Device::IxgbeVf(device) => device.rx_interrupts(),
        }
    }

    fn take_queues(&mut self, pool: &'static Pool) -> Option<Queues<Rx, Tx>> {
        match self {
            Device::Virtio(device) => device.take_queues(pool).map(|queues| Queues {
                rx: queues.rx.into_iter().map(Rx::Virtio).collect(),
                tx: queues.tx.into_iter().map(Tx::Virtio).collect(),
            }),
            Device::Ixgbe(device) => device.take_queues(pool).map(ixgbe),
            Device::IxgbeVf(device) => device.take_queues(pool).map(ixgbe),
        }
    }

    fn attend(&mut self) {
        match self {
            Device::Virtio(device) => device.attend(),
            Device::Ixgbe(device) => device.attend(),
            Device::IxgbeVf(device) => device.attend(),
        }
    }

    fn counters(&self) -> DeviceCounters {
        match self {
            Device::Virtio(device) => device.counters(),
            Device::Ixgbe(device) => device.counters(),
            Device::IxgbeVf(device) => device.counters(),
        }
    }

    fn fault(&self) -> Option<DeviceFault> {
        match self {
            Device::Virtio(device) => device.fault(),
            Device::Ixgbe(device) => device.fault(),
            Device::IxgbeVf(device) => device.fault(),
        }
    }

    fn stop(&mut self) {
        match self {
            Device::Virtio(device) => device.stop(),
            Device::Ixgbe(device) => device.stop(),
            Device::IxgbeVf(device) => device.stop(),
        }
    }
}

fn ixgbe(queues: Queues<IxgbeRx<Window>, IxgbeTx<Window>>) -> Queues<Rx, Tx> {
    Queues {
        rx: queues.rx.into_iter().map(Rx::Ixgbe).collect(),
        tx: queues.tx.into_iter().map(Tx::Ixgbe).collect(),
    }
}

impl RxQueue for Rx {
    #[inline]
    fn receive(&mut self, cache: &mut PoolCache, burst: &mut Burst, limit: usize) -> usize {
        match self {
            Rx::Virtio(queue) => queue.receive(cache, burst, limit),
            Rx::Ixgbe(queue) => queue.receive(cache, burst, limit),
        }
    }

    fn leave_unread(&mut self) {
        match self {
            Rx::Virtio(queue) => queue.leave_unread(),
            Rx::Ixgbe(queue) => queue.leave_unread(),
        }
    }

    fn keep_full(&mut self) {
        match self {
            Rx::Virtio(queue) => queue.keep_full(),
            Rx::Ixgbe(queue) => queue.keep_full(),
        }
    }

    fn arm(&mut self) -> bool {
        match self {
            Rx::Virtio(queue) => queue.arm(),
            Rx::Ixgbe(queue) => queue.arm(),
        }
    }

    fn drops(&self) -> RxDrops {
        match self {
            Rx::Virtio(queue) => queue.drops(),
            Rx::Ixgbe(queue) => queue.drops(),
        }
    }
}

impl TxQueue for Tx {
    #[inline]
    fn reclaim(&mut self, cache: &mut PoolCache) -> usize {
        match self {
            Tx::Virtio(queue) => queue.reclaim(cache),
            Tx::Ixgbe(queue) => queue.reclaim(cache),
        }
    }

    #[inline]
    fn enqueue(&mut self, burst: &mut Burst) -> usize {
        match self {
            Tx::Virtio(queue) => queue.enqueue(burst),
            Tx::Ixgbe(queue) => queue.enqueue(burst),
        }
    }

    #[inline]
    fn flush(&mut self) {
        match self {
            Tx::Virtio(queue) => queue.flush(),
            Tx::Ixgbe(queue) => queue.flush(),
        }
    }

    #[inline]
    fn waiting(&self) -> usize {
        match self {
            Tx::Virtio(queue) => queue.waiting(),
            Tx::Ixgbe(queue) => queue.waiting(),
        }
    }

    #[inline]
    fn room(&self) -> usize {
        match self {
            Tx::Virtio(queue) => queue.room(),
            Tx::Ixgbe(queue) => queue.room(),
        }
    }

    fn refused(&self) -> u64 {
        match self {
            Tx::Virtio(queue) => queue.refused(),
            Tx::Ixgbe(queue) => queue.refused(),
        }
    }
}
