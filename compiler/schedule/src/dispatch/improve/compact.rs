//! Compacts the warm-up and cool-down of a repeated block in slots; the steady state is unchanged.
//!
//! In slot order, each task of the warm-up and the cool-down moves to the first free slot at which its
//! inputs are ready and its device has the memory. Then the frame of the cool-down moves once more
//! without the fillers (tasks that no other task needs, such as `W`), which take the free slots. No
//! cost is read: the regular steady state of a block has slack that absorbs short transfers. This is
//! the greedy reordering of arXiv 2405.15362.

use crate::dispatch::Objective;
use crate::dispatch::backfill::{Aim, Fill, NEVER};
use crate::dispatch::job::{Job, Mention, Orders, SeriesId, TaskId, TaskSeries, Time};
use crate::dispatch::plan::Plan;
use crate::schedule::Block;
use pipe_ir::ids::{DeviceId, IndexVec, MicrobatchId};
use std::collections::VecDeque;

/// Slots of all devices together: a longer step is not compacted.
const MOST_SLOTS: Time = 4_000_000;

/// A block in slots.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    /// By series: the start of its task of the first microbatch, and how long it takes.
    starts: IndexVec<SeriesId, Time>,
    durations: IndexVec<SeriesId, Time>,
    /// From one microbatch to the next.
    period: Time,
}

/// A part of a step. The steady state begins with the last frame task of the first microbatch, and ends
/// with the first task of the last one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    Warmup,
    Steady,
    Cooldown,
}

impl Slots {
    /// The slots of a job's series. `None` where a block has several microbatches, or lacks a series.
    pub(crate) fn of(job: &Job, block: &Block) -> Option<Self> {
        let number = |slots: u64| Time::try_from(slots).ok().filter(|slots| *slots <= MOST_SLOTS);
        let start = |series: &TaskSeries| {
            let own = block.slots.iter().find(|task| (task.kind, task.stage) == (series.kind, series.stage))?;
            number(own.slot)
        };
        let starts = job.series.iter().map(start).collect::<Option<_>>()?;
        let durations = job
            .series
            .iter()
            .map(|series| number(block.durations_of(series.stage)[series.kind.index()]))
            .collect::<Option<_>>()?;
        (block.microbatches == 1).then_some(Self { starts, durations, period: number(block.period)? })
    }

    /// Three schedules of a job of this block with compacted ends, or fewer where one does not exist.
    pub(crate) fn compacted(&self, job: &Job) -> Vec<Orders> {
        let job = job.in_slots(&self.durations);
        let (period, m) = (self.period, job.microbatches as Time);
        let starts = self.starts.iter().flat_map(|start| (0..m).map(move |microbatch| start + period * microbatch));
        let starts = starts.collect();
        let mut fill = Fill::new(&job, Objective::Makespan);
        let is_filler = job.series.map(|series| fill.as_ref().is_some_and(|fill| fill.is_filler(series)));
        let mut found = Vec::new();
        let Some(mut table) = Table::new(&job, &is_filler, starts) else { return found };
        table.put_fillers(Next::Oldest);
        table.place_fillers();
        table.compact(&[Phase::Warmup, Phase::Cooldown]);
        let orders = table.orders();
        let squeezed = Plan::new(&job, Objective::Makespan, &orders).map(|(plan, _)| plan.starts);
        found.push(orders);
        let Some(mut table) = squeezed.and_then(|starts| Table::new(&job, &is_filler, starts)) else { return found };
        table.compact(&[Phase::Cooldown]);
        table.put_fillers(Next::LatestStage);
        table.place_fillers();
        let orders = table.orders();
        if let Some(fill) = &mut fill {
            let frame = fill.frame(&orders);
            found.extend(fill.run(&frame, Aim::Fit, NEVER).map(|_| fill.orders()));
        }
        found.push(orders);
        found
    }
}

/// Which filler goes to a free slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// The one that could run first.
    Oldest,
    /// That of the latest stage.
    LatestStage,
}

/// When tasks start, in slots.
struct Table<'a> {
    job: &'a Job,
    is_filler: &'a IndexVec<SeriesId, bool>,
    starts: IndexVec<TaskId, Time>,
    /// By device and slot: the series whose task begins there, and whether a task runs.
    begins: IndexVec<DeviceId, Vec<Option<SeriesId>>>,
    is_taken: IndexVec<DeviceId, Vec<bool>>,
    /// Whether fillers have slots of their own, too, and do not just go where there is room.
    has_fillers: bool,
}

impl<'a> Table<'a> {
    /// The frame alone. `None` where tasks occupy several devices, or slots are too many.
    fn new(job: &'a Job, is_filler: &'a IndexVec<SeriesId, bool>, starts: IndexVec<TaskId, Time>) -> Option<Self> {
        let longest = job.series.iter().map(|series| series.duration).max()?;
        // Fillers may go behind everything else.
        let fillers = job.work() * job.microbatches as Time;
        let n_slots = starts.iter().max()?.checked_add(longest)?.checked_add(fillers)?;
        let is_small = n_slots.checked_mul(job.capacity.len() as Time).is_some_and(|slots| slots <= MOST_SLOTS);
        if !is_small || longest == 0 || job.series.iter().any(|series| series.devices.len() > 1 || series.duration == 0)
        {
            return None;
        }
        let mut begins = job.capacity.map(|_| vec![None; n_slots as usize]);
        for (series, own) in job.series.iter_ids().filter(|(series, _)| !is_filler[*series]) {
            for microbatch in job.all_microbatches() {
                begins[own.devices[0]][starts[job.task(series, microbatch)] as usize] = Some(series);
            }
        }
        let is_taken = job.capacity.map(|_| vec![false; n_slots as usize]);
        Some(Self { job, is_filler, starts, begins, is_taken, has_fillers: false })
    }

    /// Gives all fillers the first slots that the frame leaves free.
    fn put_fillers(&mut self, next: Next) {
        let mut starts = std::mem::take(&mut self.starts);
        for device in self.begins.ids() {
            let mut counts = self.job.series.map(|_| MicrobatchId(0));
            self.walk(device, next, &mut |series, start, _| {
                if self.is_filler[series] {
                    starts[self.job.task(series, counts[series])] = start;
                    counts[series].0 += 1;
                }
                true
            });
        }
        self.starts = starts;
    }

    /// From now on fillers have their slots.
    fn place_fillers(&mut self) {
        self.has_fillers = true;
        for (series, own) in self.job.series.iter_ids().filter(|(series, _)| self.is_filler[*series]) {
            for microbatch in self.job.all_microbatches() {
                let start = self.starts[self.job.task(series, microbatch)];
                self.begins[own.devices[0]][start as usize] = Some(series);
            }
        }
    }

    /// Visits the tasks of a device in order, each with its start slot and the memory held from then on,
    /// until `visit` returns false. Fillers that have no slots yet go to the first free ones. Returns
    /// whether all tasks were visited.
    fn walk(&self, device: DeviceId, next: Next, visit: &mut dyn FnMut(SeriesId, Time, i64) -> bool) -> bool {
        let all = &self.job.series;
        let (mut waiting, mut free, mut held) = (VecDeque::<SeriesId>::new(), 0, 0);
        let begins = self.begins[device].iter().zip(0..).filter_map(|(series, start)| Some((Some((*series)?), start)));
        for (begun, start) in begins.chain([(None, NEVER)]) {
            while let Some(filler) = waiting.front().copied().filter(|filler| free + all[*filler].duration <= start) {
                held += all[filler].takes;
                if !visit(filler, free, held) {
                    return false;
                }
                free += all[filler].duration;
                waiting.pop_front();
            }
            let Some(series) = begun else { break };
            held += all[series].takes;
            if !visit(series, start, held) {
                return false;
            }
            free = start + all[series].duration;
            if !self.has_fillers {
                for (filler, _) in all[series].feeds.iter().filter(|(fed, _)| self.is_filler[*fed]) {
                    let place = match next {
                        Next::Oldest => waiting.len(),
                        Next::LatestStage => waiting.partition_point(|other| other <= filler),
                    };
                    waiting.insert(place, *filler);
                }
            }
        }
        true
    }

    /// Whether a device has the memory for all of its tasks where they are.
    fn fits(&self, device: DeviceId) -> bool {
        let capacity = self.job.capacity[device];
        self.walk(device, Next::Oldest, &mut |series, _, held| held <= capacity || self.job.series[series].takes <= 0)
    }

    /// The series in the order of their starts.
    fn orders(&self) -> Orders {
        let of_device =
            |begins: &Vec<Option<SeriesId>>| begins.iter().flatten().copied().map(Mention::Series).collect();
        self.begins.iter().map(of_device).collect()
    }

    /// Moves the tasks of some phases forward.
    fn compact(&mut self, moving: &[Phase]) {
        let job = self.job;
        let moves = |series: &SeriesId| self.has_fillers || !self.is_filler[*series];
        let all = job.series.ids().filter(moves);
        let all = all.flat_map(|series| job.all_microbatches().map(move |microbatch| job.task(series, microbatch)));
        let mut tasks: Vec<(Time, TaskId)> = all.map(|task| (self.starts[task], task)).collect();
        tasks.sort_unstable();
        let last_of_frame = job.series.ids().rev().find(|series| !self.is_filler[*series]);
        let mut phase = Phase::Warmup;
        // By device: where the last filler went. They keep their order.
        let mut fillers = job.capacity.map(|_| 0);
        for (start, task) in tasks {
            let (series, microbatch) = job.of_task(task);
            if phase == Phase::Warmup && (Some(series), microbatch.0) == (last_of_frame, 0) {
                phase = Phase::Steady;
            }
            let moves = moving.contains(&phase);
            if phase == Phase::Steady && (series.0, microbatch.index() + 1) == (0, job.microbatches) {
                phase = Phase::Cooldown;
            }
            let device = job.series[series].devices[0];
            let after = if self.is_filler[series] { fillers[device] } else { 0 };
            if moves {
                self.pull(task, after);
            }
            let (now, duration) = (self.starts[task], job.series[series].duration);
            debug_assert!(now <= start);
            self.is_taken[device][now as usize..(now + duration) as usize].fill(true);
            if self.is_filler[series] {
                fillers[device] = now + duration;
            }
        }
    }

    /// Moves a task to the first earlier slots that are free, at which its inputs are ready and its device
    /// has the memory. Without such slots it stays.
    fn pull(&mut self, task: TaskId, after: Time) {
        let (series, microbatch) = self.job.of_task(task);
        let own = &self.job.series[series];
        let (device, start) = (own.devices[0], self.starts[task]);
        let inputs = own.needs.iter().map(|(need, _)| (*need, microbatch));
        let before = microbatch.0.checked_sub(1).map(|before| (series, MicrobatchId(before)));
        let end =
            |(series, microbatch)| self.starts[self.job.task(series, microbatch)] + self.job.series[series].duration;
        let earliest = inputs.chain(before).map(end).fold(after, Ord::max);
        for to in earliest..start {
            let until = (to + own.duration).min(start);
            if self.is_taken[device][to as usize..until as usize].contains(&true) {
                continue;
            }
            self.begins[device][start as usize] = None;
            self.begins[device][to as usize] = Some(series);
            // Without slots of their own, fillers may give memory back later for any task that moves.
            if self.has_fillers && own.takes <= 0 || self.fits(device) {
                self.starts[task] = to;
                return;
            }
            self.begins[device][to as usize] = None;
            self.begins[device][start as usize] = Some(series);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::check::memory::peaks;
    use crate::dispatch::scale::Scale;
    use crate::examples::{v_half, v_zb};
    use crate::schedule::Schedule;
    use crate::timing::costs::{StageCosts, of_stages};

    /// The job of a block under some costs, and its schedules with compacted ends.
    fn compacted(schedule: &Schedule, costs: &str) -> (Job, Orders, Vec<Orders>) {
        let costs = of_stages(&StageCosts::parse(costs).expect("well-formed"), schedule.n_stages());
        let order = check(schedule).expect("sound");
        let capacity = peaks(schedule, &order.dependencies).iter().map(|peak| peak.activations.cast_signed()).collect();
        let scale = Scale::new(&costs, schedule.n_tasks() * 2);
        let job = Job::as_it_is(schedule, &order.dependencies, &costs, &scale, capacity);
        let slots = Slots::of(&job, schedule.block.as_ref().expect("a block")).expect("all series");
        let plain = job.orders(schedule).expect("microbatches in ascending order");
        let found = slots.compacted(&job);
        (job, plain, found)
    }

    fn length(job: &Job, orders: &Orders) -> Time {
        Plan::new(job, Objective::Makespan, orders).expect("no cycle").1.length
    }

    #[test]
    fn ends_get_shorter_in_the_memory_of_the_block() {
        for schedule in [v_half(4, 8), v_half(7, 15), v_zb(5, 12)] {
            let (job, plain, found) = compacted(&schedule, "");
            assert_eq!(found.len(), 3);
            let lengths: Vec<Time> = found.iter().map(|orders| length(&job, orders)).collect();
            let before = length(&job, &plain);
            assert!(lengths.iter().all(|length| *length <= before) && lengths[2] < before, "{before}, {lengths:?}");
            assert!(job.fits(&found[0]) && job.fits(&found[2]));
        }
    }

    /// Lengths of the generator published with arXiv 2405.15362, replayed by an independent simulator.
    #[test]
    fn v_half_is_no_longer_than_published() {
        for (p, m, costs, published) in [
            (4, 8, "", 53),
            (8, 32, "", 209),
            (8, 16, "F=5,B=5,W=5,comm=1", 613),
            (10, 32, "F=10,B=10,W=10,comm=1", 2212),
            (12, 24, "F=10,B=13,W=9", 1944),
        ] {
            let (job, _, found) = compacted(&v_half(p, m), costs);
            let last = length(&job, found.last().expect("three"));
            assert!(last <= published, "{p} {m} {costs}: {last}");
        }
    }

    #[test]
    fn the_steady_state_stays_as_it_is() {
        let (_, plain, found) = compacted(&v_half(4, 24), "");
        for (plain, order) in plain.iter().zip(&found[0]) {
            let middle = &plain[60..84];
            assert!(order.windows(24).any(|part| part == middle));
        }
    }
}
