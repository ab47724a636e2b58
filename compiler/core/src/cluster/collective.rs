//! Collectives: how long a group of devices takes to exchange something, on a ring of its links.
//!
//! Each of `n` devices passes on one of `n` equal parts at a time: `n - 1` times until all have
//! everything (all-gather), or the sum of one part (reduce-scatter), and both for an all-reduce
//! (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
//! 2009). All links of the ring work at once, so its slowest one sets the pace. Groups are rings as
//! they are listed; where several devices of a node stand next to each other, only the first and
//! the last one of them reach into other nodes.

use super::{Cluster, DeviceSlot, Link, ticks};
use pipe_model::transformer::exchanges::Collective;
use pipe_schedule::units::Ticks;
use std::collections::BTreeMap;

/// How long a group takes; `bytes` are those of the whole, of which each device has a part before
/// or after. Nothing in a group of one, or of no bytes.
pub fn time(cluster: &Cluster, device_slots: &[DeviceSlot], what: Collective, bytes: u128) -> Ticks {
    let n = device_slots.len() as u128;
    if n < 2 || bytes == 0 {
        return Ticks::ZERO;
    }
    let turns = match what {
        Collective::AllReduce => 2 * (n - 1),
        Collective::ReduceScatter | Collective::AllGather | Collective::AllToAll => n - 1,
    };
    let over = |link: Link| {
        let latency = u128::from(link.latency.0).saturating_mul(turns);
        let moved = ticks((turns * bytes).div_ceil(n), link.bytes_per_second);
        Ticks(u64::try_from(latency).unwrap_or(u64::MAX)) + moved
    };
    match what {
        // Everyone sends to everyone: the device whose way to another one is slowest counts.
        Collective::AllToAll => links(cluster, device_slots).into_iter().map(over).max().unwrap_or_default(),
        _ => {
            let next = device_slots.iter().cycle().skip(1);
            device_slots.iter().zip(next).map(|(from, to)| over(cluster.link(*from, *to))).max().unwrap_or_default()
        }
    }
}

/// The links between all of some device slots, each of two nodes, or of one, once.
fn links(cluster: &Cluster, device_slots: &[DeviceSlot]) -> Vec<Link> {
    // By node: a device slot, and another one.
    let mut nodes: BTreeMap<u32, (DeviceSlot, Option<DeviceSlot>)> = BTreeMap::new();
    for device_slot in device_slots {
        nodes
            .entry(cluster.node_of(*device_slot))
            .and_modify(|known| known.1 = Some(*device_slot))
            .or_insert((*device_slot, None));
    }
    let inside = nodes.values().filter_map(|(one, other)| Some(cluster.link(*one, (*other)?)));
    let mut all: Vec<Link> = inside.collect();
    let firsts: Vec<DeviceSlot> = nodes.values().map(|(one, _)| *one).collect();
    let n_firsts = if cluster.is_even() { firsts.len().min(2) } else { firsts.len() };
    let firsts = &firsts[..n_firsts];
    let others = |from: DeviceSlot| firsts.iter().filter(move |to| **to != from).map(move |to| cluster.link(from, *to));
    all.extend(firsts.iter().flat_map(|from| others(*from)));
    all
}
