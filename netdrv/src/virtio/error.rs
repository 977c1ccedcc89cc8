//! Why a virtio device can't be used.

use core::fmt;

use super::features::Features;
use super::pci::PciFault;
use crate::dma::DmaError;

/// A fault of the device or of what the firmware made of it; the device is left reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VirtioError {
    /// It is another kind of virtio device.
    NotNetwork,
    /// The PCI function's capabilities or BARs do not hold together.
    Pci(PciFault),
    /// The status register did not return to 0 in time.
    ResetTimeout,
    /// `VIRTIO_F_VERSION_1` is not offered: a legacy device.
    Legacy,
    /// The device did not keep `FEATURES_OK` when offered this subset of its own features.
    FeaturesRefused(Features),
    /// The device configuration ends before a field that an offered feature makes valid.
    ConfigTooShort,
    /// The device configuration changed at every attempt to read it.
    ConfigUnstable,
    /// A queue that the device must have has fewer descriptors than the driver can work with.
    QueueTooSmall {
        /// The queue's index.
        queue: u16,
        /// The descriptors that the device has for it; 0 when there is no such queue.
        size: u32,
    },
    /// The device did not enable a queue.
    QueueRefused {
        /// The queue's index.
        queue: u16,
    },
    /// A queue's doorbell lies outside the notification window.
    NoDoorbell {
        /// The queue's index.
        queue: u16,
    },
    /// No memory for a ring.
    Dma(DmaError),
}

impl fmt::Display for VirtioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VirtioError::NotNetwork => f.write_str("not a network device"),
            VirtioError::Pci(fault) => fault.fmt(f),
            VirtioError::ResetTimeout => f.write_str("the device does not confirm its reset"),
            VirtioError::Legacy => f.write_str("the device does not offer VIRTIO_F_VERSION_1"),
            VirtioError::FeaturesRefused(features) => {
                write!(f, "the device refuses the features {:#x}", features.bits())
            }
            VirtioError::ConfigTooShort => {
                f.write_str("the device configuration is too short for its features")
            }
            VirtioError::ConfigUnstable => f.write_str("the device configuration never holds still"),
            VirtioError::QueueTooSmall { queue, size } => {
                write!(f, "queue {queue} has {size} descriptors, too few")
            }
            VirtioError::QueueRefused { queue } => write!(f, "the device does not enable queue {queue}"),
            VirtioError::NoDoorbell { queue } => {
                write!(f, "the doorbell of queue {queue} lies outside the notification window")
            }
            VirtioError::Dma(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for VirtioError {}

impl From<DmaError> for VirtioError {
    fn from(error: DmaError) -> VirtioError {
        VirtioError::Dma(error)
    }
}

impl From<PciFault> for VirtioError {
    fn from(fault: PciFault) -> VirtioError {
        VirtioError::Pci(fault)
    }
}
