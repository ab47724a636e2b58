//! Sharing: devices that share processors, such as those of a pipeline on one GPU, and when their tasks run there.
//!
//! A processor does so many tasks at once at full speed. Of more tasks, all go on at the same part
//! of it (processor sharing: Kleinrock, Time-shared Systems, 1967). So no work is lost, none is
//! done twice, and a processor is idle only while no task can run. It is how a GPU takes the
//! kernels of several streams in turns, where each kernel fills it.

use crate::order::Order;
use crate::schedule::Schedule;
use crate::timing::durations::Costs;
use crate::timing::timeline::Timeline;
use crate::units::Ticks;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::TaskKind;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Which devices share processors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sharing {
    /// The processor of each of the devices that it is about. Where there are none, every device has one of its own.
    of: Vec<usize>,
    /// By processor: how many tasks it does at once at full speed.
    at_once: Vec<u64>,
}

impl Sharing {
    /// Processors, each with its devices and how many tasks it does at once. Nothing where a device
    /// of them all is missing, or is there twice.
    pub fn new(processors: &[(Vec<DeviceId>, u64)]) -> Option<Self> {
        let n_devices = processors.iter().map(|(devices, _)| devices.len()).sum();
        let mut of = vec![None; n_devices];
        for (processor, (devices, _)) in processors.iter().enumerate() {
            for device in devices {
                let own = of.get_mut(device.index()).filter(|own| own.is_none())?;
                *own = Some(processor);
            }
        }
        let at_once = processors.iter().map(|(_, at_once)| (*at_once).max(1)).collect();
        Some(Self { of: of.into_iter().collect::<Option<_>>()?, at_once })
    }

    /// Whether any of so many devices may have to share.
    pub fn binds(&self, n_devices: usize) -> bool {
        self.processors(n_devices).any(|(devices, at_once)| devices.len() as u64 > at_once)
    }

    /// The same of as many devices as it is about.
    pub fn binds_any(&self) -> bool {
        self.binds(self.of.len())
    }

    /// The devices of each processor, and how many tasks it does at once.
    pub(crate) fn processors(&self, n_devices: usize) -> impl Iterator<Item = (Vec<DeviceId>, u64)> + '_ {
        let devices = move |processor: usize| {
            let all = (0..n_devices).filter(move |device| self.of(*device, n_devices) == Some(processor));
            all.map(DeviceId::from_index).collect()
        };
        self.at_once.iter().enumerate().map(move |(processor, at_once)| (devices(processor), *at_once))
    }

    /// The processor of a device. Other numbers of devices are spread as these are, in equal blocks.
    fn of(&self, device: usize, n_devices: usize) -> Option<usize> {
        self.of.get(device * self.of.len() / n_devices.max(1)).copied()
    }
}

/// When each task runs, and when each device has also done its updates, which take their part of the processors.
pub fn simulate(schedule: &Schedule, order: &Order, costs: &Costs) -> (Timeline, Vec<Ticks>) {
    let Timeline { mut starts, mut ends, .. } = Timeline::empty(schedule);
    let mut nodes = Nodes::new(schedule, order, costs);
    let mut updated = vec![Ticks::ZERO; schedule.n_devices()];
    nodes.run(|node, [start, end]| match order.sequence.get(node) {
        Some(slot) => {
            let n_tasks = schedule.node(slot.device, slot.position as usize).len();
            for (device, position) in order.places(schedule, *slot) {
                starts[device.index()][position..position + n_tasks].fill(start);
                ends[device.index()][position..position + n_tasks].fill(end);
            }
        }
        None => updated[node - order.sequence.len()] = end,
    });
    (Timeline { starts, ends, ..Timeline::default() }, updated)
}

/// How long the updates of a device take together.
pub(crate) fn updates(schedule: &Schedule, costs: &Costs, device: DeviceId) -> Ticks {
    let own = schedule.placement.stages().filter(|stage| schedule.placement.devices_of(*stage).contains(&device));
    own.map(|stage: StageId| costs.of(TaskKind::Update, stage)).fold(Ticks::ZERO, |sum, own| sum + own)
}

/// Parts of a tick that are told apart, as a power of two.
const PARTS: u32 = 32;

/// A task, two that share a device, or the updates of a device.
#[derive(Clone, Debug, Default)]
struct Node {
    work: Ticks,
    /// How many nodes it still waits for.
    waits_for: usize,
    /// When all that is over, as far as it is known, has come.
    ready: Ticks,
    /// Who waits for it, and for how long after its end.
    next: Vec<(usize, Ticks)>,
    /// The processor of each of its devices.
    on: Vec<usize>,
}

/// A node that runs.
struct Active {
    node: usize,
    start: Ticks,
    /// Its work that is left, in parts of a tick.
    left: u128,
}

/// All nodes: those of the sequence of an order, and then the updates of each device.
struct Nodes {
    all: Vec<Node>,
    at_once: Vec<u64>,
    /// By processor: how many devices run something there.
    load: Vec<u64>,
}

impl Nodes {
    fn new(schedule: &Schedule, order: &Order, costs: &Costs) -> Self {
        let n_devices = schedule.n_devices();
        // Devices that share nothing have a processor of their own behind the others.
        let at_once: Vec<u64> = costs.sharing.at_once.iter().copied().chain(vec![1; n_devices]).collect();
        let processor = |device: DeviceId| {
            costs.sharing.of(device.index(), n_devices).unwrap_or(costs.sharing.at_once.len() + device.index())
        };
        let mut nodes = Self { load: vec![0; at_once.len()], at_once, all: Vec::new() };
        let n_nodes = order.sequence.len();
        // Who stands at each position of a device.
        let mut homes: Vec<Vec<usize>> = schedule.orders.iter().map(|tasks| vec![n_nodes; tasks.len()]).collect();
        for (own, slot) in order.sequence.iter().enumerate() {
            let node = schedule.node(slot.device, slot.position as usize);
            let places = order.places(schedule, *slot);
            let on = places.clone().map(|(device, _)| processor(device)).collect();
            nodes.all.push(Node { work: costs.of_node(node), on, ..Node::default() });
            for (device, position) in places {
                homes[device.index()][position..position + node.len()].fill(own);
            }
        }
        for (own, slot) in order.sequence.iter().enumerate() {
            for (from, latency) in order.inputs(schedule, &costs.latency, *slot) {
                nodes.join(homes[from.device.index()][from.position as usize], own, latency);
            }
            for (device, position) in order.places(schedule, *slot) {
                if let Some(before) = position.checked_sub(1) {
                    nodes.join(homes[device.index()][before], own, Ticks::ZERO);
                }
            }
        }
        for device in (0..n_devices).map(DeviceId::from_index) {
            let own = nodes.all.len();
            let (work, on) = (updates(schedule, costs, device), vec![processor(device)]);
            nodes.all.push(Node { work, on, ..Node::default() });
            if let Some(last) = homes[device.index()].last() {
                nodes.join(*last, own, Ticks::ZERO);
            }
        }
        nodes
    }

    fn join(&mut self, from: usize, to: usize, after: Ticks) {
        self.all[from].next.push((to, after));
        self.all[to].waits_for += 1;
    }

    /// Runs all, and tells when each began and ended.
    fn run(&mut self, mut tell: impl FnMut(usize, [Ticks; 2])) {
        let is_free = |(_, node): &(usize, &Node)| node.waits_for == 0;
        let mut coming: BinaryHeap<Reverse<(Ticks, usize)>> =
            self.all.iter().enumerate().filter(is_free).map(|(node, _)| Reverse((Ticks::ZERO, node))).collect();
        let (mut now, mut active) = (Ticks::ZERO, Vec::<Active>::new());
        loop {
            while let Some(Reverse((_, node))) = coming.peek().copied().filter(|next| next.0.0 <= now) {
                coming.pop();
                self.all[node].on.iter().for_each(|processor| self.load[*processor] += 1);
                active.push(Active { node, start: now, left: u128::from(self.all[node].work.0) << PARTS });
            }
            let ends = active.iter().map(|one| self.takes(one)).min();
            let comes = coming.peek().map(|next| u128::from((next.0.0 - now).0));
            let Some(time) = ends.into_iter().chain(comes).min() else { return };
            for one in &mut active {
                let (part, whole) = self.rate(one.node);
                one.left = one.left.saturating_sub(((time << PARTS) * u128::from(part)).div_ceil(u128::from(whole)));
            }
            now += Ticks(u64::try_from(time).unwrap_or(u64::MAX));
            let (over, left): (Vec<Active>, Vec<Active>) = active.into_iter().partition(|one| one.left == 0);
            active = left;
            for one in over {
                tell(one.node, [one.start, now]);
                self.all[one.node].on.iter().for_each(|processor| self.load[*processor] -= 1);
                for (next, after) in std::mem::take(&mut self.all[one.node].next) {
                    let next_node = &mut self.all[next];
                    next_node.ready = next_node.ready.max(now + after);
                    next_node.waits_for -= 1;
                    if next_node.waits_for == 0 {
                        coming.push(Reverse((next_node.ready, next)));
                    }
                }
            }
        }
    }

    /// The part of full speed at which a node goes on: that of the fullest of its processors.
    fn rate(&self, node: usize) -> (u64, u64) {
        let rates = self.all[node].on.iter().map(|processor| {
            let (at_once, load) = (self.at_once[*processor], self.load[*processor]);
            (at_once.min(load), load)
        });
        let slower = |one: (u64, u64), other: (u64, u64)| if one.0 * other.1 <= other.0 * one.1 { one } else { other };
        rates.reduce(slower).unwrap_or((1, 1))
    }

    /// The ticks that it takes at this rate.
    fn takes(&self, one: &Active) -> u128 {
        let (part, whole) = self.rate(one.node);
        (one.left * u128::from(whole)).div_ceil(u128::from(part) << PARTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::examples::{one_f_one_b, v_half};
    use crate::timing::costs::{StageCosts, of_stages};
    use crate::timing::timeline;

    fn sharing(processors: &[(&[u32], u64)]) -> Sharing {
        let ids = |devices: &[u32]| devices.iter().copied().map(DeviceId).collect();
        let processors: Vec<_> = processors.iter().map(|(devices, at_once)| (ids(devices), *at_once)).collect();
        Sharing::new(&processors).expect("every device is there once")
    }

    fn ticks(rows: &[Vec<Ticks>]) -> Vec<Vec<u64>> {
        rows.iter().map(|row| row.iter().map(|one| one.0).collect()).collect()
    }

    /// Small times, so that they can be gone through tick by tick.
    fn costs(n_stages: usize, row: [u64; 6], latency: u64, sharing: Sharing) -> Costs {
        let costs = of_stages(&StageCosts::default(), n_stages);
        let tasks = (0..n_stages as u64).map(|stage| row.map(|time| Ticks(time + stage % 3))).collect();
        Costs { tasks, latency: crate::timing::latency::Latency::uniform(Ticks(latency)), sharing, ..costs }
    }

    #[test]
    fn two_devices_on_one_processor_take_turns_at_half_speed() {
        // 1F1B of two devices and two microbatches: F takes 4, BW 8, on the second stage 5 and 9; a
        // transfer 2, updates 1 and 2.
        let schedule = one_f_one_b(2, 2);
        let order = check(&schedule).expect("sound");
        let mut costs = costs(2, [4, 4, 4, 8, 4, 1], 2, sharing(&[(&[0, 1], 1)]));
        for (kind, times) in [(TaskKind::Forward, [4, 5]), (TaskKind::Backward, [8, 9]), (TaskKind::Update, [1, 2])] {
            times.iter().enumerate().for_each(|(stage, time)| costs.tasks[stage][kind.index()] = Ticks(*time));
        }
        let (timeline, updated) = simulate(&schedule, &order, &costs);
        // d0: F0 alone until 4, F1 until 6 alone. Then F0 of d1 begins, both at half speed: F1 ends
        // at 10, F0 of d1 (5, of which 2 are done) at 13. BW0 of d1 until 22, which is at d0 at 24;
        // F1 of d1 begins at 22 with 5, alone until 24, then beside BW0 of d0 until 30, where 5 of
        // that are left; these beside BW1 of d1 until 40, where 4 of 9 are left; alone until 44.
        // BW1 of d0 comes at 46, the updates of d1 are beside nothing.
        assert_eq!(ticks(&timeline.starts), [vec![0, 4, 24, 46], vec![6, 13, 22, 30]]);
        assert_eq!(ticks(&timeline.ends), [vec![4, 10, 40, 54], vec![13, 22, 30, 44]]);
        assert_eq!(updated, [Ticks(55), Ticks(46)]);
        assert_eq!(timeline::simulate(&schedule, &order, &costs), timeline);
    }

    /// The same, tick by tick: in each, every task that runs gets its part.
    fn brute(schedule: &Schedule, order: &Order, costs: &Costs, at_once: u64) -> (Vec<Vec<u64>>, Vec<u64>) {
        // A tick in parts that up to 8 tasks can share.
        const TICK: u64 = 840;
        let n_devices = schedule.n_devices();
        let all = |device: usize| &schedule.orders[device];
        let mut ends: Vec<Vec<Option<u64>>> = (0..n_devices).map(|device| vec![None; all(device).len()]).collect();
        let mut updated: Vec<Option<u64>> = vec![None; n_devices];
        let mut left: Vec<Option<u64>> = vec![None; n_devices];
        let mut now = 0;
        while updated.iter().any(Option::is_none) {
            // Whatever takes no time lets others begin at once.
            let mut moved = true;
            while std::mem::take(&mut moved) {
                for device in 0..n_devices {
                    let position = ends[device].iter().take_while(|end| end.is_some()).count();
                    if left[device].is_none() && updated[device].is_none() {
                        let Some(scheduled) = all(device).get(position) else {
                            left[device] = Some(TICK * updates(schedule, costs, DeviceId::from_index(device)).0);
                            moved = true;
                            continue;
                        };
                        let has_come = order.dependencies.inputs(scheduled.task).all(|input| {
                            let from = schedule.device_of(input);
                            let latency = costs.latency.between(from, DeviceId::from_index(device)).0;
                            ends[from.index()][order.position(input)].is_some_and(|end| end + latency <= now)
                        });
                        if has_come {
                            left[device] = Some(TICK * costs.of(scheduled.task.kind, scheduled.task.stage).0);
                            moved = true;
                        }
                    }
                    if left[device] == Some(0) {
                        left[device] = None;
                        moved = true;
                        match ends[device].get_mut(position) {
                            Some(end) => *end = Some(now),
                            None => updated[device] = Some(now),
                        }
                    }
                }
            }
            let load = left.iter().flatten().count() as u64;
            for left in left.iter_mut().flatten() {
                *left = left.saturating_sub(TICK * at_once.min(load) / load);
            }
            now += 1;
        }
        let ends = ends.into_iter().map(|row| row.into_iter().flatten().collect()).collect();
        (ends, updated.into_iter().flatten().collect())
    }

    #[test]
    fn it_is_what_happens_tick_by_tick() {
        for schedule in [one_f_one_b(4, 6), one_f_one_b(3, 2), v_half(4, 5)] {
            let (order, n_devices) = (check(&schedule).expect("sound"), schedule.n_devices());
            let all: Vec<u32> = (0..n_devices as u32).collect();
            for row in [[7, 5, 4, 9, 7, 2], [3, 0, 6, 4, 3, 0], [1, 1, 1, 2, 1, 5], [13, 17, 11, 29, 13, 1]] {
                for (at_once, latency) in [(1, 0), (1, 3), (2, 1), (3, 0), (4, 2)] {
                    let costs = costs(schedule.n_stages(), row, latency, sharing(&[(&all, at_once)]));
                    let (timeline, updated) = simulate(&schedule, &order, &costs);
                    let updated: Vec<u64> = updated.iter().map(|end| end.0).collect();
                    let expected = brute(&schedule, &order, &costs, at_once);
                    assert_eq!((ticks(&timeline.ends), updated), expected, "{row:?} {at_once} {latency}");
                }
            }
        }
    }

    #[test]
    fn no_work_is_lost_and_who_shares_nothing_is_as_before() {
        for schedule in [one_f_one_b(4, 8), v_half(4, 7)] {
            let order = check(&schedule).expect("sound");
            let costs = |sharing| costs(schedule.n_stages(), [700, 500, 400, 900, 700, 0], 0, sharing);
            let alone = timeline::simulate(&schedule, &order, &costs(Sharing::default()));
            let work: Ticks = (0..4).map(|device| alone.busy(DeviceId(device))).fold(Ticks::ZERO, |sum, one| sum + one);
            // Some task can run at any time, so one processor is never idle.
            let one = simulate(&schedule, &order, &costs(sharing(&[(&[0, 1, 2, 3], 1)]))).0;
            assert!(one.makespan().0.abs_diff(work.0) <= schedule.n_tasks() as u64, "{} {work}", one.makespan());
            let two = simulate(&schedule, &order, &costs(sharing(&[(&[0, 1], 1), (&[2, 3], 1)]))).0;
            assert!(two.makespan() < one.makespan() && two.makespan() > alone.makespan());
            for apart in [sharing(&[(&[0, 1, 2, 3], 4)]), sharing(&[(&[0], 1), (&[2], 1), (&[1], 1), (&[3], 1)])] {
                assert!(!apart.binds(4));
                assert_eq!(simulate(&schedule, &order, &costs(apart)).0, alone);
            }
        }
    }

    #[test]
    fn other_numbers_of_devices_are_spread_as_those_that_were_measured() {
        let found = sharing(&[(&[0, 1], 1), (&[2, 3], 1)]);
        let of = |n_devices: usize| found.processors(n_devices).map(|(devices, _)| devices.len()).collect::<Vec<_>>();
        assert_eq!([of(1), of(2), of(3), of(4), of(8)], [[1, 0], [1, 1], [2, 1], [2, 2], [4, 4]]);
        assert_eq!([1, 2, 3].map(|n_devices| found.binds(n_devices)), [false, false, true]);
        let ids = |devices: &[u32]| (devices.iter().copied().map(DeviceId).collect::<Vec<_>>(), 1);
        assert!(Sharing::new(&[ids(&[0, 2])]).is_none() && Sharing::new(&[ids(&[0, 1]), ids(&[1])]).is_none());
    }
}
