//! Ticks of a picture, as few as tell all its moments apart, and positions of tasks in its table.

use crate::drawn::Basis;
use crate::tracks::rows;
use pipe_schedule::order::Position;
use pipe_schedule::ratio::gcd;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::units::Ticks;

/// How moments and places of the compiler become those of the picture.
pub(super) struct TickScale {
    /// Every moment is a multiple of this, and so is a unit.
    pub(super) divisor: u64,
    /// By device and lane: how many tasks the tracks before it have.
    pub(super) first: Vec<u32>,
}

impl TickScale {
    /// For all of some timelines of one schedule.
    pub(super) fn of(versions: &[Basis<'_>]) -> Self {
        let moments = versions.iter().flat_map(|Basis { timeline, costs, .. }| {
            let tasks = timeline.starts.iter().chain(&timeline.ends).flatten();
            let copies = timeline.copies.iter().flat_map(|copy| [&copy.start, &copy.end]);
            let together = timeline.collectives.iter().flat_map(|part| [&part.start, &part.end]);
            let moments = tasks.chain(costs.latency.times()).chain(copies).chain(together).copied();
            moments.chain([timeline.makespan()])
        });
        let schedule = versions.first().map(|one| one.schedule);
        let (mut first, mut sum) = (vec![0; schedule.map_or(0, Schedule::n_queues)], 0);
        for queue in schedule.into_iter().flat_map(rows) {
            first[queue.index()] = sum;
            let n_tasks = schedule.map_or(0, |schedule| schedule.orders[queue.index()].len());
            sum += u32::try_from(n_tasks).expect("orders are far shorter than 2^32 tasks");
        }
        Self { divisor: moments.fold(Ticks::UNIT.0, |common, moment| gcd(common, moment.0)), first }
    }

    pub(super) fn ticks(&self, moment: Ticks) -> u64 {
        moment.0 / self.divisor
    }

    pub(super) fn index(&self, slot: Position) -> u32 {
        self.first[slot.device.index()] + slot.position
    }
}
