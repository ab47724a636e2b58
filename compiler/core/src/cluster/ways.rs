//! Ways: how long transfers take in each of several pipelines side by side, where their links differ.
//!
//! A step of all of them takes as long as that of the slowest, and which one that is only the timeline says.

use super::durations::{TimedTarget, stage_costs};
use crate::Request;
use pipe_ir::ids::DeviceId;
use pipe_schedule::order::Order;
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::timeline::simulate;
use pipe_schedule::units::Ticks;
use std::collections::{BTreeMap, BTreeSet};

/// The most pipelines with different links that are timed each by itself.
const MOST: usize = 64;

/// How long transfers between two devices take, the lower one first, ascending.
pub type Way = Vec<((DeviceId, DeviceId), Ticks)>;

impl TimedTarget<'_> {
    /// The ways of all pipelines side by side, without those that are nowhere slower than another
    /// one; of too many different ones, one that is nowhere quicker than any. Where only so many
    /// nodes are known, transfers between others take no time, and of too many ways some stand for
    /// all: the slowest of these is quicker than the slowest of all.
    pub fn ways(&self, known: Option<u32>) -> Vec<Way> {
        let between = self.between();
        let all: BTreeSet<Way> = (0..self.layout.data)
            .map(|replica| {
                let time = |((one, other), bytes): (&(DeviceId, DeviceId), &u128)| {
                    ((*one, *other), self.transfer((*one, *other), *bytes, replica, known))
                };
                between.iter().map(time).collect()
            })
            .collect();
        if all.len() > MOST {
            return if known.is_some() { all.into_iter().take(MOST).collect() } else { vec![slowest_links(all)] };
        }
        let is_within = |one: &Way, other: &Way| one.iter().zip(other).all(|(one, other)| one.1 <= other.1);
        let is_needed = |one: &&Way| !all.iter().any(|other| other != *one && is_within(one, other));
        all.iter().filter(is_needed).cloned().collect()
    }

    /// So many bytes from the devices of a position to those of another one, or back, whichever takes longer.
    fn transfer(&self, (one, other): (DeviceId, DeviceId), bytes: u128, replica: u32, known: Option<u32>) -> Ticks {
        let is_known =
            |position, part| known.is_none_or(|known| self.layout.node_before(position, replica, part) < known);
        let parts = (0..self.layout.tensor).filter(|part| is_known(one, *part) && is_known(other, *part));
        let times = parts.map(|part| {
            let (one, other) =
                (self.layout.device_slot(one, replica, part), self.layout.device_slot(other, replica, part));
            self.cluster.link(one, other).time(bytes).max(self.cluster.link(other, one).time(bytes))
        });
        times.max().unwrap_or_default()
    }
}

/// Each link as slow as in the slowest of some ways.
pub(super) fn slowest_links(ways: impl IntoIterator<Item = Way>) -> Way {
    let mut slowest: BTreeMap<(DeviceId, DeviceId), Ticks> = BTreeMap::new();
    for (pair, time) in ways.into_iter().flatten() {
        let known = slowest.entry(pair).or_default();
        *known = (*known).max(time);
    }
    slowest.into_iter().collect()
}

/// The costs of the slowest pipeline; none where one stands for all.
pub fn slowest(target: &TimedTarget<'_>, request: &Request, order: &Order) -> Option<Costs> {
    let ways = target.ways(None);
    if ways.len() < 2 {
        return None;
    }
    let tasks = target.tasks();
    let costs = ways.into_iter().map(|way| target.costs(request, tasks.clone(), stage_costs(way)));
    costs.max_by_key(|costs| simulate(target.schedule, order, costs).makespan())
}
