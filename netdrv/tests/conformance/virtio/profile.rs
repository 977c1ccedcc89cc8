//! What a fake device is like, before the driver finds it.

use netdrv::packet::FRAME_CAPACITY;
use netdrv::virtio::Features;
use virtio_drivers::transport::DeviceType;

use super::control::Manner;
use super::ring::{Attention, Completion};

/// Offload bits that a driver of this suite must not accept: checksums, segmentation, mergeable buffers,
/// indirect descriptors, notification data, queue reset.
pub(super) const UNWANTED: u64 =
    0b1_1111_1000_0011 | 1 << 15 | 1 << 21 | 1 << 28 | 1 << 38 | 1 << 40 | 1 << 57;

/// A device.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// Offered features, beyond [`UNWANTED`], which is always offered.
    pub(crate) features: Features,
    pub(crate) device_type: DeviceType,
    pub(crate) mac: [u8; 6],
    pub(crate) link_up: bool,
    pub(crate) mtu: u16,
    /// `max_virtqueue_pairs` as the configuration has it.
    pub(crate) claimed_pairs: u16,
    /// The pairs that there are.
    pub(crate) pairs: u16,
    /// Descriptors of each receive and transmit queue.
    pub(crate) queue_max: u32,
    /// `rss_max_key_size`, `rss_max_indirection_table_length`, `supported_hash_types`.
    pub(crate) rss: (u8, u16, u32),
    pub(crate) completion: Completion,
    pub(crate) attention: Attention,
    /// Whether a packed ring says of buffers that they were written.
    pub(crate) says_written: bool,
    pub(crate) control: Manner,
    pub(crate) config_len: usize,
    pub(crate) oddity: Oddity,
}

/// What is wrong with a device from the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Oddity {
    None,
    /// Clears `FEATURES_OK`.
    RefusesFeatures,
    /// The configuration's generation is another at every look.
    RestlessConfig,
    /// Never confirms the first reset.
    NeverResets,
    /// Does not enable the queue of this index.
    DeadQueue(u16),
    /// Has no doorbell for the queue of this index.
    NoDoorbell(u16),
}

impl Default for Profile {
    /// A device that offers all that the driver knows except packed rings and `VIRTIO_F_IN_ORDER`, has one pair and does
    /// nothing wrong.
    fn default() -> Profile {
        Profile {
            features: Features::all() - Features::RING_PACKED - Features::IN_ORDER,
            device_type: DeviceType::Network,
            mac: [0x52, 0x54, 0, 1, 2, 3],
            link_up: true,
            mtu: FRAME_CAPACITY as u16 - 18,
            claimed_pairs: 1,
            pairs: 1,
            queue_max: 1024,
            rss: (40, 128, 0x1ff),
            completion: Completion::OneByOne,
            attention: Attention::Sleeps,
            says_written: true,
            control: Manner::Obeys,
            config_len: 24,
            oddity: Oddity::None,
        }
    }
}
