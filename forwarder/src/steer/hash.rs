//! The hash that names the worker of a flow.
//!
//! Toeplitz, which cards use, costs a step for every bit of the addresses, or tables that fill the cache. Here a side is
//! multiplied once, 64 by 64 to 128 bits, and the halves are folded together: a few nanoseconds for a flow. The sides are added, so both
//! directions of a flow have one hash.

use crate::wire::flow::{Flow, Side};

/// Odd numbers whose bits look random: the digits of π behind the point.
const PI: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1];

/// The hash of a flow and of its other direction.
#[inline(always)]
pub(super) fn flow_hash(flow: &Flow) -> u32 {
    let sides = side_hash(flow.source).wrapping_add(side_hash(flow.destination));
    (fold(sides, PI[2]) >> 32) as u32
}

/// The one of `workers` that a hash falls to: as a fraction of all workers what the hash is of all hashes. No division.
#[inline(always)]
pub(super) fn share(hash: u32, workers: usize) -> usize {
    ((u64::from(hash) * workers as u64) >> 32) as usize
}

#[inline(always)]
fn side_hash(side: Side) -> u64 {
    let (high, low) = ((side.address >> 64) as u64, side.address as u64);
    // The port goes where the lower half of the address does not: beside it they could cancel each other.
    fold(low ^ PI[0], high.rotate_left(16) ^ u64::from(side.port) ^ PI[1])
}

/// Both halves of the product.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn side(address: u128, port: u16) -> Side {
        Side { address, port }
    }

    /// The largest share of `workers`, in percent of an even one.
    fn largest_share(flows: &[Flow], workers: usize) -> usize {
        let mut shares = std::vec![0; workers];
        for flow in flows {
            shares[share(flow_hash(flow), workers)] += 1;
        }
        shares.iter().max().unwrap() * 100 * workers / flows.len()
    }

    #[test]
    fn both_directions_have_one_hash() {
        for number in 0..1000 {
            let (a, b) = (side(0x0a00_0001 + number, 4000), side(0x0b00_0000 + number * 77, 53));
            let there = Flow { source: a, destination: b };
            let back = Flow { source: b, destination: a };
            assert_eq!(flow_hash(&there), flow_hash(&back));
        }
    }

    /// Flows as people make them: where one thing counts up and the rest stays. With 4,096 flows over 64 workers an even
    /// share is 64 and its standard deviation 8.
    #[test]
    fn flows_that_differ_in_one_thing_spread_evenly() {
        const FLOWS: u16 = 4096;
        const NET: u128 = 0x2001_0db8 << 96;
        type Make = fn(u16) -> (Side, Side);
        let kinds: [(&str, Make); 7] = [
            ("source port", |n| (side(0x0a00_0001, 1024 + n), side(0x0a00_0101, 80))),
            ("destination port", |n| (side(0x0a00_0001, 1024), side(0x0a00_0101, n))),
            ("IPv4 host", |n| (side(0x0a00_0000 + u128::from(n), 5000), side(0x0a01_0000, 5000))),
            ("both IPv4 hosts", |n| {
                (side(0x0a00_0000 + u128::from(n), 9), side(0x0a01_0000 + u128::from(n), 9))
            }),
            ("IPv6 host", |n| (side(NET | u128::from(n), 443), side(NET | (1 << 64), 443))),
            ("IPv6 net", |n| (side(NET | (u128::from(n) << 64) | 1, 443), side(NET | (1 << 80), 443))),
            ("station", |n| (side(0x5254_0000_0000 | u128::from(n), 0), side(0x5254_00ff_ffff, 0))),
        ];
        for (what, make) in kinds {
            let flow = |(source, destination)| Flow { source, destination };
            let flows: Vec<Flow> = (0..FLOWS).map(|number| flow(make(number))).collect();
            for workers in [2, 3, 7, 8, 64] {
                let share = largest_share(&flows, workers);
                assert!(share <= 160, "{what}, {workers} workers: {share} % of an even share");
            }
        }
    }
}
