//! Ticks of a picture, as few as tell all its moments apart, and positions of tasks in its table.

use crate::drawn::Basis;
use pipe_schedule::order::Position;
use pipe_schedule::ratio::gcd;
use pipe_schedule::units::Ticks;

/// How moments and places of the compiler become those of the picture.
pub(super) struct TickScale {
    /// Every moment is a multiple of this, and so is a unit.
    pub(super) divisor: u64,
    /// By device: how many tasks the devices before it have.
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
        let before = |sum: &mut u32, order: &Vec<_>| {
            let first = *sum;
            *sum += u32::try_from(order.len()).expect("orders are far shorter than 2^32 tasks");
            Some(first)
        };
        Self {
            divisor: moments.fold(Ticks::UNIT.0, |common, moment| gcd(common, moment.0)),
            first: versions.first().map_or(Vec::new(), |one| one.schedule.orders.iter().scan(0, before).collect()),
        }
    }

    pub(super) fn ticks(&self, moment: Ticks) -> u64 {
        moment.0 / self.divisor
    }

    pub(super) fn index(&self, slot: Position) -> u32 {
        self.first[slot.device.index()] + slot.position
    }
}
