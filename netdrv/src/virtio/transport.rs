//! What the driver needs of the bus beyond `virtio_drivers::transport::Transport`.

use virtio_drivers::transport::Transport;

use super::error::VirtioError;
use crate::mmio::Register;

/// A bus that a virtio-net device sits on.
pub trait NetTransport: Send {
    /// What negotiates with the device and reads its configuration.
    type Base: Transport;

    /// The transport, to read.
    fn base(&self) -> &Self::Base;

    /// The transport, to change the device's state.
    fn base_mut(&mut self) -> &mut Self::Base;

    /// The register that notifies the device of new buffers in `queue`, for that queue's owner alone to keep:
    /// unlike `Transport::notify`, ringing it touches nothing that queues share.
    ///
    /// # Errors
    /// [`VirtioError::NoDoorbell`] where the device places the register outside its notification window.
    fn doorbell(&mut self, queue: u16) -> Result<Doorbell, VirtioError>;

    /// Lets `queue` interrupt by entry `entry` of the MSI-X table, before it is enabled. Returns whether it will.
    fn set_vector(&mut self, queue: u16, entry: u16) -> bool {
        let (_, _) = (queue, entry);
        false
    }

    /// A number that tells this device from all others of the machine and is the same at every boot.
    fn identity(&self) -> u32;
}

/// The notification register of one queue (virtio 1.2, 4.1.4.4).
pub struct Doorbell {
    register: Register<u16>,
    queue: u16,
}

impl Doorbell {
    /// The doorbell of `queue`, which is rung by writing the queue's index to `register` (4.1.5.2).
    pub fn new(register: Register<u16>, queue: u16) -> Doorbell {
        Doorbell { register, queue }
    }

    /// Tells the device that the queue has new buffers.
    #[inline(always)]
    pub(super) fn ring(&self) {
        self.register.write(self.queue);
    }
}
