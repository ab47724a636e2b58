//! Places: what devices and hosts keep free for activations that come to wait there, and which place each is given.
//!
//! What a device evicts to one other device, or to its host, waits in places of equal size. There are as many of them
//! as the list of the device ever has out at once, and they are reserved all step long: so the other device needs no
//! statement, and its peak is what its own list keeps, and these places. Places are given in turn, in the order of the
//! list. With n of them, the `evict` number i takes that of the `fetch` number i - n. This one stands before it in the
//! list, because at most n are out at once. So an `evict` waits only for what stands before it.

use super::{Home, Schedule, Swap, SwapKind};
use pipe_ir::ids::DeviceId;
use pipe_ir::task::{Task, TaskKind};
use std::collections::BTreeMap;

/// Places of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserve {
    /// The device whose activations wait there.
    pub from: DeviceId,
    /// Where they do.
    pub home: Home,
    /// How many places there are.
    pub places: u64,
    /// What each holds, in the parts of [`Schedule::activations`].
    pub each: u64,
}

/// All places.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Places {
    /// In the order of the devices whose activations wait there.
    pub reserves: Vec<Reserve>,
    /// By device and swap: for an `evict`, the `fetch` that empties its place, by its position in the same list.
    after: Vec<Vec<Option<usize>>>,
}

/// What waits in places of one size, as far as a list was read.
#[derive(Default)]
struct Group {
    out: u64,
    most: u64,
    evicts: Vec<usize>,
    fetches: Vec<usize>,
}

impl Places {
    /// The places that the lists of a schedule need.
    pub fn of(schedule: &Schedule) -> Self {
        let mut all = Self::default();
        for device in (0..schedule.n_devices()).map(DeviceId::from_index) {
            let swaps = schedule.swaps.of(device);
            let mut groups: BTreeMap<(Home, u64), Group> = BTreeMap::new();
            for (index, swap) in swaps.iter().enumerate() {
                let Some(home) = schedule.swaps.home(swap.stage) else { continue };
                let group = groups.entry((home, size(schedule, swap))).or_default();
                match swap.kind {
                    SwapKind::Evict => {
                        group.out += 1;
                        group.most = group.most.max(group.out);
                        group.evicts.push(index);
                    }
                    SwapKind::Fetch => {
                        group.out = group.out.saturating_sub(1);
                        group.fetches.push(index);
                    }
                }
            }
            let mut after = vec![None; swaps.len()];
            for ((home, each), group) in groups {
                let places = usize::try_from(group.most).unwrap_or(usize::MAX);
                for (evict, fetch) in group.evicts.iter().skip(places).zip(&group.fetches) {
                    after[*evict] = Some(*fetch);
                }
                all.reserves.push(Reserve { from: device, home, places: group.most, each });
            }
            all.after.push(after);
        }
        all
    }

    /// The `fetch` that empties the place of an `evict`, if one does.
    pub fn emptied_by(&self, device: DeviceId, evict: usize) -> Option<usize> {
        self.after.get(device.index())?.get(evict).copied().flatten()
    }

    /// What a device keeps for others, all step long.
    pub fn on(&self, device: DeviceId) -> impl Iterator<Item = &Reserve> + Clone + '_ {
        self.reserves.iter().filter(move |one| one.home == Home::Peer(device))
    }

    /// The same, summed up in the parts of [`Schedule::activations`].
    pub fn held_on(&self, device: DeviceId) -> u64 {
        self.on(device).map(|one| one.places.saturating_mul(one.each)).fold(0, u64::saturating_add)
    }
}

/// What an activation that leaves or comes back counts.
pub fn size(schedule: &Schedule, swap: &Swap) -> u64 {
    let task = Task { kind: TaskKind::Forward, stage: swap.stage, microbatch: swap.microbatch };
    schedule.activations.of_task(task).saved
}

/// What an entry of a list takes, or gives back if it is below 0, in the parts of [`Schedule::activations`].
///
/// An `evict` counts as done where it stands, because whatever takes room behind it waits for its end.
pub fn change(schedule: &Schedule, device: DeviceId, swap: usize) -> i64 {
    let swap = &schedule.swaps.of(device)[swap];
    let size = i64::try_from(size(schedule, swap)).unwrap_or(i64::MAX);
    if swap.kind == SwapKind::Evict { -size } else { size }
}
