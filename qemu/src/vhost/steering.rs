//! Which receive queue a frame goes to, as a card with several queues chooses it.

use arrayvec::ArrayVec;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use netdrv::rss;

use super::Steering;
use super::device::{Device, Direction};

/// Two IPv6 addresses and two ports.
const LONGEST_FLOW: usize = 2 * 16 + 2 * 2;

/// The queue of those in use, 0 up to `queues`, that [`Steering::FlowHash`] chooses for a frame.
///
/// The Toeplitz hash over addresses and ports (virtio 1.2, 5.1.6.4.3) selects an entry of a table that names the queues
/// in turn. What is no IP packet goes to the first queue.
pub fn flow_queue(frame: &[u8], queues: usize) -> usize {
    match flow(frame) {
        Some(flow) if queues > 1 => {
            rss::toeplitz(&rss::KEY, &flow) as usize % usize::from(rss::TABLE_LEN) % queues
        }
        _ => 0,
    }
}

/// The bytes that tell flows apart, in the order in which the hash takes them: source and destination address, source
/// and destination port.
fn flow(frame: &[u8]) -> Option<ArrayVec<u8, LONGEST_FLOW>> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let mut flow = ArrayVec::new();
    match packet.net? {
        NetSlice::Ipv4(ip) => {
            flow.extend(ip.header().source());
            flow.extend(ip.header().destination());
        }
        NetSlice::Ipv6(ip) => {
            flow.extend(ip.header().source());
            flow.extend(ip.header().destination());
        }
        NetSlice::Arp(_) => return None,
    }
    let ports = match packet.transport {
        Some(TransportSlice::Udp(udp)) => Some([udp.source_port(), udp.destination_port()]),
        Some(TransportSlice::Tcp(tcp)) => Some([tcp.source_port(), tcp.destination_port()]),
        _ => None,
    };
    flow.extend(ports.into_iter().flatten().flat_map(u16::to_be_bytes));
    Some(flow)
}

/// Steers frames over the receive queues that the guest uses at the time.
pub(super) struct Steerer {
    steering: Steering,
    active: Vec<usize>,
    /// How many frames were dealt out in turn.
    dealt: usize,
}

impl Steerer {
    pub(super) fn new(steering: Steering) -> Self {
        Self { steering, active: Vec::new(), dealt: 0 }
    }

    /// Looks which queues the guest uses; returns whether they are others than before.
    pub(super) fn follow(&mut self, device: &mut Device) -> bool {
        let mut changed = false;
        let mut matching = 0;
        for pair in 0..device.pairs() {
            if device.running(pair, Direction::Receive).is_none() {
                continue;
            }
            if self.active.get(matching) != Some(&pair) {
                self.active.truncate(matching);
                self.active.push(pair);
                changed = true;
            }
            matching += 1;
        }
        changed |= matching < self.active.len();
        self.active.truncate(matching);
        changed
    }

    /// The queues in use.
    pub(super) fn active(&self) -> &[usize] {
        &self.active
    }

    /// The queue for a frame.
    ///
    /// # Panics
    /// When no queue is in use.
    pub(super) fn queue(&mut self, frame: &[u8]) -> usize {
        let queues = self.active.len();
        let choice = match self.steering {
            Steering::FlowHash => flow_queue(frame, queues),
            Steering::RoundRobin => {
                self.dealt = (self.dealt + 1) % queues;
                self.dealt
            }
            Steering::FirstQueue => 0,
        };
        self.active[choice]
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    fn udp(flow: u16) -> Vec<u8> {
        let [a, b] = flow.to_be_bytes();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, a, b], [10, 1, 0, 1], 64);
        let mut frame = Vec::new();
        builder.udp(1000 + flow, 9).write(&mut frame, &[0; 18]).unwrap();
        frame
    }

    #[test]
    fn the_hash_is_the_published_one() {
        // Microsoft, "Verifying the RSS hash calculation", first row.
        let builder =
            PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([66, 9, 149, 187], [161, 142, 100, 80], 64);
        let mut frame = Vec::new();
        builder.tcp(2794, 1766, 0, 0).write(&mut frame, &[]).unwrap();
        assert_eq!(flow_queue(&frame, 128), 0x51cc_c178 % 128);
        assert_eq!(flow_queue(&frame, 3), 0x51cc_c178 % 128 % 3);
    }

    #[test]
    fn flows_spread_over_all_queues_and_stay_where_they_are() {
        let mut share = [0; 8];
        for flow in 0..1000 {
            let queue = flow_queue(&udp(flow), share.len());
            assert_eq!(queue, flow_queue(&udp(flow), share.len()));
            share[queue] += 1;
        }
        assert!(share.iter().all(|&flows| flows > 60), "{share:?}");
    }

    #[test]
    fn what_is_no_packet_goes_to_the_first_queue() {
        for frame in [&[][..], &[0xff; 13], &[0xff; 60], &udp(7)[..20]] {
            assert_eq!(flow_queue(frame, 8), 0);
        }
        assert_eq!(flow_queue(&udp(7), 1), 0);
    }
}
