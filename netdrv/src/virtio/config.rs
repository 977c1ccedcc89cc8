//! The device configuration: what the device says about itself (virtio 1.2, 5.1.4).

use virtio_drivers::transport::Transport;

use super::error::VirtioError;
use super::features::Features;
use crate::device::Mac;
use crate::packet::FRAME_CAPACITY;
use crate::rss;

/// An Ethernet header with one VLAN tag, in bytes: what a frame has beyond the MTU.
pub(super) const ETHERNET_OVERHEAD: u16 = 18;
/// The MTU of a device that names none.
pub(super) const DEFAULT_MTU: u16 = 1500;
/// The largest MTU whose frames fit a buffer.
pub(super) const MAX_MTU: u16 = FRAME_CAPACITY as u16 - ETHERNET_OVERHEAD;
/// The smallest MTU that a device may name (5.1.4.1).
const MIN_MTU: u16 = 68;
/// The most queue pairs that a device may have (5.1.4.1).
const MAX_PAIRS: u16 = 0x8000;
/// Generation changes that are borne while one set of fields is read.
const READ_ATTEMPTS: usize = 16;

/// Byte offsets of the fields of `struct virtio_net_config`.
mod field {
    pub(super) const MAC: usize = 0;
    pub(super) const STATUS: usize = 6;
    pub(super) const MAX_VIRTQUEUE_PAIRS: usize = 8;
    pub(super) const MTU: usize = 10;
    pub(super) const RSS_MAX_KEY_SIZE: usize = 17;
    pub(super) const RSS_MAX_INDIRECTION_TABLE_LENGTH: usize = 18;
    pub(super) const SUPPORTED_HASH_TYPES: usize = 20;
}

/// `VIRTIO_NET_S_LINK_UP` in the status field.
const STATUS_LINK_UP: u16 = 1;

/// The fields that the offered features make valid, as the device wrote them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct DeviceConfig {
    mac: Option<[u8; 6]>,
    mtu: Option<u16>,
    max_pairs: Option<u16>,
    rss: Option<RssLimits>,
}

/// What the device can do for receive-side scaling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RssLimits {
    max_key: u8,
    max_table: u16,
    hash_types: u32,
}

impl RssLimits {
    /// Entries of the indirection table: as many as serve, a power of two.
    pub(super) fn table_len(&self) -> u16 {
        let limit = self.max_table.min(rss::TABLE_LEN);
        if limit == 0 { 0 } else { 1 << limit.ilog2() }
    }

    /// The hashes that both sides know.
    pub(super) fn hash_types(&self) -> u32 {
        self.hash_types & HASH_TYPES
    }
}

/// TCP and UDP ports over IPv4 and IPv6, and addresses alone for the rest: `VIRTIO_NET_HASH_TYPE_{IPv4,
/// TCPv4, UDPv4, IPv6, TCPv6, UDPv6}` (5.1.6.4.3.1).
const HASH_TYPES: u32 = 0b11_1111;

impl DeviceConfig {
    /// Reads what `offered` makes valid. Allowed before the features are written (3.1.1, step 4).
    pub(super) fn read<T: Transport>(transport: &T, offered: Features) -> Result<DeviceConfig, VirtioError> {
        consistent(transport, || {
            let mut config = DeviceConfig::default();
            if offered.contains(Features::MAC) {
                let mut mac = [0; 6];
                for (index, byte) in mac.iter_mut().enumerate() {
                    *byte = transport.read_config_space(field::MAC + index)?;
                }
                config.mac = Some(mac);
            }
            if offered.contains(Features::MTU) {
                config.mtu = Some(transport.read_config_space(field::MTU)?);
            }
            if offered.intersects(Features::MQ | Features::RSS) {
                config.max_pairs = Some(transport.read_config_space(field::MAX_VIRTQUEUE_PAIRS)?);
            }
            if offered.contains(Features::RSS) {
                config.rss = Some(RssLimits {
                    max_key: transport.read_config_space(field::RSS_MAX_KEY_SIZE)?,
                    max_table: transport.read_config_space(field::RSS_MAX_INDIRECTION_TABLE_LENGTH)?,
                    hash_types: transport.read_config_space(field::SUPPORTED_HASH_TYPES)?,
                });
            }
            Ok(config)
        })
    }

    /// The device's address, if it is one that a station can have.
    pub(super) fn usable_mac(&self) -> Option<Mac> {
        self.mac.filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6]).map(Mac)
    }

    /// The device's MTU, if it is legal and its frames fit our buffers.
    pub(super) fn usable_mtu(&self) -> Option<u16> {
        self.mtu.filter(|mtu| (MIN_MTU..=MAX_MTU).contains(mtu))
    }

    /// The largest payload that passes both the device and our buffers.
    pub(super) fn mtu(&self) -> u16 {
        self.mtu.filter(|mtu| *mtu >= MIN_MTU).map_or(DEFAULT_MTU, |mtu| mtu.min(MAX_MTU))
    }

    /// The number of queue pairs, if it is legal. Nothing else tells where the control queue is (5.1.2).
    pub(super) fn usable_pairs(&self) -> Option<u16> {
        self.max_pairs.filter(|pairs| (1..=MAX_PAIRS).contains(pairs))
    }

    /// The limits of RSS, if they leave room for our key and a table, and a hash that we want is among them.
    pub(super) fn usable_rss(&self) -> Option<RssLimits> {
        self.rss.filter(|limits| {
            usize::from(limits.max_key) >= rss::KEY.len()
                && limits.table_len() > 0
                && limits.hash_types() != 0
        })
    }
}

/// Whether the device's status field says that the link is up.
pub(super) fn link_is_up<T: Transport>(transport: &T) -> Result<bool, VirtioError> {
    let status: u16 = consistent(transport, || transport.read_config_space(field::STATUS))?;
    Ok(status & STATUS_LINK_UP != 0)
}

/// Reads again while the device changes its configuration meanwhile (2.5.1), but not for ever.
fn consistent<T: Transport, V>(
    transport: &T,
    read: impl Fn() -> virtio_drivers::Result<V>,
) -> Result<V, VirtioError> {
    for _ in 0..READ_ATTEMPTS {
        let before = transport.read_config_generation();
        let value = read().map_err(|_| VirtioError::ConfigTooShort)?;
        if transport.read_config_generation() == before {
            return Ok(value);
        }
    }
    Err(VirtioError::ConfigUnstable)
}
