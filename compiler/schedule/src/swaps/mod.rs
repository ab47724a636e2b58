//! Swaps: activations that wait on another device, or in the memory of the host, from their forward to their backward.
//!
//! `evict` starts a copy out where it stands in the list of its device, and `fetch` one back. A device has a queue for
//! each way. Who waits for what follows from its list alone:
//!
//! 1. A copy starts when the list has come to it, and the copies before it in its queue have ended.
//! 2. What takes room, which is `F`, `R` and `fetch`, starts when every `evict` before it in the list has ended.
//! 3. A backward starts when the `fetch` of its activation has ended.
//! 4. An `evict` starts when the place that it is given is empty ([`places`]), and its own activation is there.
//!
//! Every wait is for something that stands before it in the list of the same device. So swaps never let devices wait
//! for each other, and an order in which all tasks run stays one.

pub mod places;

pub use pipe_syntax::ast::SwapKind;

use crate::schedule::Schedule;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use std::collections::BTreeSet;

/// Where activations wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Home {
    /// In the memory of the device's host.
    Host,
    /// On another device.
    Peer(DeviceId),
}

/// An activation that leaves or comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swap {
    /// Which way.
    pub kind: SwapKind,
    /// Of which stage.
    pub stage: StageId,
    /// Of which microbatch. Each slice counts as one.
    pub microbatch: MicrobatchId,
    /// Its place in the list of its device, as [`crate::schedule::ScheduledTask::at`] of tasks.
    pub at: u32,
    /// Position in [`Schedule::origins`].
    pub origin: u16,
}

/// All swaps of a schedule.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Swaps {
    homes: Vec<Option<Home>>,
    lists: Vec<Vec<Swap>>,
}

/// What stands in the list of a device: a position in its order, or one among its swaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A task.
    Task(usize),
    /// A swap.
    Swap(usize),
}

impl Swaps {
    /// Swaps by device, in the order of each list. `homes` says where the activations of each stage wait, by
    /// [`StageId`], if some leave.
    pub fn new(homes: Vec<Option<Home>>, lists: Vec<Vec<Swap>>) -> Self {
        Self { homes, lists }
    }

    /// Whether nothing ever leaves.
    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(Vec::is_empty)
    }

    /// The swaps of a device, in the order of its list.
    pub fn of(&self, device: DeviceId) -> &[Swap] {
        self.lists.get(device.index()).map_or(&[], Vec::as_slice)
    }

    /// Which ways activations go.
    pub fn kinds(&self) -> BTreeSet<SwapKind> {
        self.lists.iter().flatten().map(|swap| swap.kind).collect()
    }

    /// Where the activations of a stage wait, if some leave.
    pub fn home(&self, stage: StageId) -> Option<Home> {
        self.homes.get(stage.index()).copied().flatten()
    }

    /// The place of the first swap of the schedule: its position in [`Schedule::origins`].
    pub fn first_origin(&self) -> Option<u16> {
        self.lists.iter().flatten().map(|swap| swap.origin).min()
    }

    /// Leaves only the swaps of some stages.
    pub fn retain(&mut self, is_kept: impl Fn(StageId) -> bool) {
        self.lists.iter_mut().for_each(|list| list.retain(|swap| is_kept(swap.stage)));
    }
}

/// The list of a device: its tasks and swaps, in their order.
pub fn list(schedule: &Schedule, device: DeviceId) -> impl Iterator<Item = Entry> + '_ {
    let (order, swaps) = (&schedule.orders[device.index()], schedule.swaps.of(device));
    let (mut task, mut swap) = (0, 0);
    std::iter::from_fn(move || {
        let next = order.get(task);
        if swaps.get(swap).is_some_and(|own| next.is_none_or(|one| own.at < one.at)) {
            swap += 1;
            return Some(Entry::Swap(swap - 1));
        }
        next.map(|_| {
            task += 1;
            Entry::Task(task - 1)
        })
    })
}

impl Schedule {
    /// What a swap is called: `evict s0 m4`.
    pub fn swap_name(&self, swap: &Swap) -> String {
        format!("{} {} {}", swap.kind.word(), self.stage_name(swap.stage), self.slices.name(swap.microbatch))
    }
}
