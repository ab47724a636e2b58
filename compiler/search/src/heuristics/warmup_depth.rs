//! Pipelines of one stage per device: how many forwards each device runs before its first backward, its *depth*.
//!
//! From then on a device runs a backward and a forward in turn, and what nothing waits for fills
//! the pauses ([`pipe_schedule::dispatch::backfill`]). So as many numbers as there are devices are
//! a whole schedule. Without a pause, the depth is the number of forwards that a device has time
//! for until the first gradient comes back; in scarce memory it is less. Depths begin as parts of
//! that and climb from there.

use pipe_ir::ids::{DeviceId, IndexVec};
use pipe_ir::task::TaskKind;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::backfill::{Aim, Fill, NEVER, part_of};
use pipe_schedule::dispatch::job::{Job, Mention, Orders, SeriesId, Time};
use pipe_schedule::dispatch::plan::Length;
use pipe_schedule::dispatch::random::Random;

/// Twentieths of the time until the first gradient comes back that depths begin with, and halves of
/// a forward that are added.
const PARTS: std::ops::RangeInclusive<Time> = 9..=22;
const MORE: std::ops::Range<Time> = 0..3;
/// Lengths that are aimed at: so many, of which the last one adds this part of the work; and those
/// of them that depths begin with.
const AIMS: Time = 40;
const MOST: Time = 20;
const FIRST: [Time; 4] = [0, 6, 12, 18];
/// How far from the longest span changes begin, and of how many stages they are at most.
const NEAR: usize = 4;
const STAGES: usize = 8;
/// Tasks between two questions whether to go on.
const TASKS_AT_ONCE: usize = 40_000;

/// Depths, with the length that they aim at beyond the work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Depths {
    of_device: Vec<usize>,
    more: Time,
}

/// What depths are looked for in.
struct Pipeline<'a> {
    job: &'a Job,
    fill: Fill<'a>,
    /// By device: the series of its forward, and the others that something waits for.
    series: IndexVec<DeviceId, (SeriesId, Vec<SeriesId>)>,
    /// By device: the most forwards that its memory holds.
    most: Vec<usize>,
    frame: Orders,
}

/// Whether a job has depths: a stage on each device, and something that fills.
pub(crate) fn has_depths(job: &Job) -> bool {
    Pipeline::new(job, Objective::Makespan).is_some()
}

/// The best depths that some tries lead to. None if devices have several stages, or nothing fills.
/// Ends early when `go_on` says so.
pub(crate) fn depths(
    job: &Job,
    objective: Objective,
    tries: u64,
    random: &mut Random,
    go_on: &mut dyn FnMut() -> bool,
) -> Option<Depths> {
    let mut pipeline = Pipeline::new(job, objective)?;
    let first = pipeline.first();
    let (mut length, mut best) = pipeline.best(first, go_on)?;
    let mut longest = pipeline.longest(&best)?;
    for tried in 0..tries {
        if pipeline.asks(tried) && !go_on() {
            break;
        }
        let next = pipeline.changed(&best, longest, random);
        if let Some(reach) = pipeline.run(&next, length.length).filter(|reach| *reach <= length) {
            (length, best, longest) = (reach, next, pipeline.fill.longest());
        }
    }
    Some(best)
}

/// The orders of the schedule that depths lead to.
pub(crate) fn orders(job: &Job, objective: Objective, depths: &Depths) -> Option<Orders> {
    let mut pipeline = Pipeline::new(job, objective)?;
    pipeline.run(depths, NEVER)?;
    Some(pipeline.fill.orders())
}

impl<'a> Pipeline<'a> {
    fn new(job: &'a Job, objective: Objective) -> Option<Self> {
        let fill = Fill::new(job, objective)?;
        let own = |all: &Vec<SeriesId>| {
            let is_forward = |series: &SeriesId| job.series[*series].kind == TaskKind::Forward;
            let (forwards, others): (Vec<SeriesId>, Vec<SeriesId>) =
                all.iter().filter(|series| !fill.is_filler(**series)).partition(|series| is_forward(series));
            let alone = all.iter().all(|series| job.series[*series].devices.len() == 1);
            (alone && forwards.len() == 1 && !others.is_empty()).then(|| (forwards[0], others))
        };
        let series = job.on_device.iter().map(own).collect::<Option<IndexVec<_, _>>>()?;
        let most = |((forward, _), capacity): (&(SeriesId, Vec<SeriesId>), &i64)| {
            let held = capacity.checked_div(job.series[*forward].takes).filter(|held| *held > 0);
            held.and_then(|held| usize::try_from(held).ok()).map_or(job.microbatches, |held| held.min(job.microbatches))
        };
        let most = series.iter().zip(&job.capacity).map(most).collect();
        Some(Self { job, fill, frame: series.map(|_| Vec::new()), series, most })
    }

    /// Whether it is time to ask whether to go on.
    fn asks(&self, tried: u64) -> bool {
        tried.is_multiple_of((TASKS_AT_ONCE / self.job.n_tasks().max(1)).max(1) as u64)
    }

    /// Depths to begin with.
    fn first(&self) -> Vec<Depths> {
        let (job, heads) = (self.job, self.job.heads());
        let mut pace = 0;
        let mut room = Vec::with_capacity(self.series.len());
        for (forward, others) in &self.series {
            let (forward, own) = (*forward, job.series[*forward].duration);
            pace = own.max(pace).max(1);
            let back = others.iter().map(|series| heads[*series]).min().unwrap_or(0);
            room.push((back - heads[forward] - own, pace));
        }
        let depth = |part: Time, more: Time| {
            let of_device = |((room, pace), most): (&(Time, Time), &usize)| {
                let forwards = (part_of(*room, part, 20) + part_of(*pace, more, 2)) / pace;
                usize::try_from(forwards).map_or(1, |forwards| (forwards + 1).min(*most))
            };
            room.iter().zip(&self.most).map(of_device).collect()
        };
        let all = PARTS.flat_map(|part| MORE.map(move |more| (part, more)));
        let mut all: Vec<Vec<usize>> = all.map(|(part, more)| depth(part, more)).collect();
        all.sort();
        all.dedup();
        let aims =
            |of_device: &Vec<usize>| FIRST.map(|aim| Depths { of_device: of_device.clone(), more: self.more(aim) });
        all.iter().flat_map(aims).collect()
    }

    /// How much longer than the work an aim is.
    fn more(&self, aim: Time) -> Time {
        part_of(self.job.work() * self.job.microbatches as Time, aim * aim, AIMS * AIMS * MOST)
    }

    /// The best of some depths.
    fn best(&mut self, all: Vec<Depths>, go_on: &mut dyn FnMut() -> bool) -> Option<(Length, Depths)> {
        let mut best: Option<(Length, Depths)> = None;
        for depths in all {
            let limit = best.as_ref().map_or(NEVER, |(least, _)| least.length);
            let Some(length) = self.run(&depths, limit) else { continue };
            if best.as_ref().is_none_or(|(least, _)| length < *least) {
                best = Some((length, depths));
            }
            if !go_on() {
                break;
            }
        }
        best
    }

    /// The device that takes longest with some depths.
    fn longest(&mut self, depths: &Depths) -> Option<DeviceId> {
        self.run(depths, NEVER).map(|_| self.fill.longest())
    }

    /// Some devices in a row one deeper or less deep, often near the longest, and sometimes another aim.
    fn changed(&self, depths: &Depths, longest: DeviceId, random: &mut Random) -> Depths {
        let mut next = depths.clone();
        let last = self.series.len() - 1;
        let from = match random.below(4) {
            0 => random.below(last + 1),
            _ => (longest.index() + random.below(2 * NEAR + 1)).saturating_sub(NEAR).min(last),
        };
        let to = (from + 1 + random.below(STAGES)).min(last + 1);
        let is_more = random.below(2) == 0;
        for (depth, most) in next.of_device[from..to].iter_mut().zip(&self.most[from..to]) {
            *depth = if is_more { (*depth + 1).min(*most) } else { (*depth - 1).max(1) };
        }
        if random.below(4) == 0 {
            next.more = self.more(random.below(AIMS as usize) as Time);
        }
        next
    }

    fn run(&mut self, depths: &Depths, limit: Time) -> Option<Length> {
        let m = self.job.microbatches;
        for ((order, (forward, others)), depth) in self.frame.iter_mut().zip(&self.series).zip(&depths.of_device) {
            let depth = (*depth).min(m);
            order.clear();
            let forward = Mention::Series(*forward);
            order.extend(std::iter::repeat_n(forward, depth));
            for microbatch in 0..m {
                order.extend(others.iter().copied().map(Mention::Series));
                order.extend((microbatch + depth < m).then_some(forward));
            }
        }
        self.fill.run(&self.frame, Aim::Length(self.job.work() * m as Time + depths.more), limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{fusing, staged, v};
    use pipe_schedule::dispatch::plan::Plan;

    /// One stage per device, and in the first model of arXiv 2401.10241, Table 5, what waits for `W`: 48 of 131 parts.
    fn paper(p: usize, m: usize, limit: i64, costs: [Time; 3], latency: Time) -> Job {
        let place: Vec<usize> = (0..p).collect();
        let mut job = staged(&place, m, 131 * limit, costs, latency);
        for series in job.series.iter_mut() {
            series.takes = match series.kind {
                TaskKind::Forward => 131,
                TaskKind::BackwardInput => -83,
                _ => -48,
            };
        }
        job
    }

    fn longest_stage(job: &Job, tries: u64) -> Time {
        let depths = depths(job, Objective::LongestStage, tries, &mut Random::new(1), &mut || true).expect("it fits");
        let orders = orders(job, Objective::LongestStage, &depths).expect("the same again");
        assert!(job.fits(&orders));
        Plan::new(job, Objective::LongestStage, &orders).expect("no cycle").1.length
    }

    #[test]
    fn depths_reach_what_the_zero_bubble_paper_has() {
        // Idle shares that are published, of four digits.
        for (m, costs, latency, share) in [(32, [18513, 18086, 9331], 626, 39), (64, [18546, 18097, 9321], 762, 26)] {
            let job = paper(8, m, 16, costs, latency);
            let (length, work) = (longest_stage(&job, 200), job.work() * m as Time);
            assert!((length - work) * 20_000 <= (2 * share + 1) * length, "{length} {work}");
        }
    }

    #[test]
    fn depths_keep_to_scarce_memory_and_are_those_of_single_stages() {
        for limit in [1, 2, 3, 5] {
            let job = paper(4, 9, limit, [3, 4, 2], 1);
            assert!(longest_stage(&job, 50) >= job.work() * 9);
        }
        assert!(!has_depths(&v(2, 4, 4, [1, 1, 1], 0)) && has_depths(&staged(&[0, 1], 4, 2, [1, 1, 1], 0)));
        assert!(!has_depths(&fusing(2, 4, 4, [1, 2, 2, 3], 0)));
    }
}
