//! The feature bits that this driver understands, and which of them it takes.

use bitflags::bitflags;

use super::config::DeviceConfig;

bitflags! {
    /// Feature bits by their names in the specification (virtio 1.2, 5.1.3 and 6). What is not named is never
    /// accepted: checksum and segmentation offloads, mergeable receive buffers, indirect descriptors.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Features: u64 {
        /// `VIRTIO_NET_F_MTU`: the device says how long frames may be.
        const MTU = 1 << 3;
        /// `VIRTIO_NET_F_MAC`: the device has an address.
        const MAC = 1 << 5;
        /// `VIRTIO_NET_F_STATUS`: the device reports its link.
        const STATUS = 1 << 16;
        /// `VIRTIO_NET_F_CTRL_VQ`: there is a control queue.
        const CTRL_VQ = 1 << 17;
        /// `VIRTIO_NET_F_CTRL_RX`: the receive filter can be opened.
        const CTRL_RX = 1 << 18;
        /// `VIRTIO_NET_F_MQ`: several queue pairs, flows steered by the device's own judgement.
        const MQ = 1 << 22;
        /// `VIRTIO_F_EVENT_IDX`: notifications are asked for by index, not by flag.
        const EVENT_IDX = 1 << 29;
        /// `VIRTIO_F_VERSION_1`: the device follows the specification, not what came before it.
        const VERSION_1 = 1 << 32;
        /// `VIRTIO_F_ACCESS_PLATFORM`: the device reaches memory at the platform's bus addresses. Those are
        /// the addresses that [`Hal`](crate::hal::Hal) promises, so there is nothing to translate and no
        /// reason to refuse.
        const ACCESS_PLATFORM = 1 << 33;
        /// `VIRTIO_F_RING_PACKED`: queues are packed, not split.
        const RING_PACKED = 1 << 34;
        /// `VIRTIO_F_IN_ORDER`: buffers are used in the order in which they were made available.
        const IN_ORDER = 1 << 35;
        /// `VIRTIO_F_ORDER_PLATFORM`: the device is a real one and needs the platform's barriers;
        /// [`dma`](crate::dma) uses no weaker ones.
        const ORDER_PLATFORM = 1 << 36;
        /// `VIRTIO_NET_F_RSS`: several queue pairs, flows steered by a hash that the driver sets.
        const RSS = 1 << 60;
    }
}

impl Features {
    /// What the driver takes of what `offered`, for a device with this configuration and a wish for `pairs`
    /// queue pairs.
    pub(super) fn choose(offered: Features, config: &DeviceConfig, pairs: usize) -> Features {
        let mut taken = offered;
        if config.usable_mtu().is_none() {
            // To accept is to promise buffers for frames of that size (5.1.4.2).
            taken.remove(Features::MTU);
        }
        if pairs == 1 || config.usable_pairs().is_none() {
            taken.remove(Features::MQ | Features::RSS);
        }
        if config.usable_rss().is_none() {
            taken.remove(Features::RSS);
        }
        if !taken.contains(Features::CTRL_VQ) {
            // These are commands on the control queue (5.1.3.1).
            taken.remove(Features::CTRL_RX | Features::MQ | Features::RSS);
        }
        if !taken.intersects(Features::CTRL_RX | Features::MQ | Features::RSS) {
            taken.remove(Features::CTRL_VQ);
        }
        taken
    }
}
