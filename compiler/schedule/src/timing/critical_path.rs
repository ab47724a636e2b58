//! The critical path: the chain of tasks and transfers, without a gap, that makes a timeline as long as it is.

use crate::order::{Order, Position};
use crate::schedule::Schedule;
use crate::timing::durations::Costs;
use crate::timing::timeline::{Timeline, Updated};
use crate::units::Ticks;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::TaskKind;

/// Where the time of a step goes, along its critical path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CriticalPath {
    /// The tasks, first to last; of a pair the first.
    pub tasks: Vec<Position>,
    /// Time in tasks, by [`TaskKind::index`].
    pub work: [Ticks; TaskKind::ALL.len()],
    /// Time in pairs of tasks that share a device, by [`TaskKind::index`] of the backward.
    pub pairs: [Ticks; TaskKind::ALL.len()],
    /// Time in tasks on lanes, which the times by kind leave out.
    pub lanes: Ticks,
    /// Time in transfers between devices.
    pub transfers: Ticks,
    /// Time that a device waits for copies from its host, and at the end of the step for copies back.
    pub copies: Ticks,
}

/// Walks back from the task that ends last, always to what the start of a task waited for.
pub fn critical_path(schedule: &Schedule, order: &Order, costs: &Costs, timeline: &Timeline) -> CriticalPath {
    let mut path = CriticalPath::default();
    let last = (0..schedule.n_queues()).map(DeviceId::from_index).max_by_key(|device| {
        // Of several that end last, the first device.
        (timeline.last_end(*device), std::cmp::Reverse(*device))
    });
    let mut next = last.and_then(|device| {
        let position = schedule.orders[device.index()].len().checked_sub(1)?;
        Some(Position::new(device, position))
    });
    // Updates may end after everything else,
    let tasks = last.map_or(Ticks::ZERO, |device| timeline.last_end(device));
    let before = timeline.reduced.map_or(tasks, |(end, _)| end.max(tasks));
    if let Some(Updated { end, work, device }) = timeline.updated.filter(|updated| updated.end > before) {
        // .. of a device that had done its own tasks, or waited for the last sum.
        let own = timeline.reduced.map_or(timeline.last_end(device), |_| before);
        let work = work.min(end - own);
        path.work[TaskKind::Update.index()] += work;
        path.copies += end - own - work;
        if timeline.reduced.is_none() {
            next = schedule.orders[device.index()].len().checked_sub(1).map(|last| Position::new(device, last));
        }
    }
    // A reduction may end after all tasks, and a sum arrive.
    if let Some((end, slot)) = timeline.reduced.filter(|(end, _)| *end > tasks) {
        path.transfers += end - timeline.end(slot);
        next = Some(slot);
    }
    while let Some(slot) = next {
        let slot = first_of(schedule, slot);
        let (device, position) = (slot.device.index(), slot.position as usize);
        let node = schedule.node(slot.device, position);
        path.tasks.push(slot);
        let start = timeline.starts[device][position];
        // What it took beside tasks of others, where devices share a processor.
        let took = timeline.ends[device][position] - start;
        match node {
            [one] if schedule.parts.lane(one.task.stage).is_some() => path.lanes += took,
            [_, backward] => path.pairs[backward.task.kind.index()] += took,
            _ => path.work[node[0].task.kind.index()] += took,
        }
        let mut inputs = order.inputs(schedule, &costs.latency, slot);
        let input = inputs.find(|(from, latency)| timeline.end(*from) + *latency == start);
        let before = order.places(schedule, slot).find_map(|(device, position)| {
            let before = Position::new(device, position.checked_sub(1)?);
            (timeline.end(before) == start).then_some(before)
        });
        next = match (before, input) {
            (Some(before), _) => Some(before),
            (None, Some((input, latency))) => {
                path.transfers += latency;
                Some(input)
            }
            // It waited for a lane that carried other transfers.
            (None, None) if timeline.causes.contains_key(&(slot.device, slot.position)) => {
                let cause = timeline.causes[&(slot.device, slot.position)];
                path.transfers += start - timeline.end(cause);
                Some(cause)
            }
            // Weights were gathered, and others joined late, or it took its time.
            (None, None) if timeline.gathered.contains_key(&(slot.device, slot.position)) => {
                let after = timeline.gathered[&(slot.device, slot.position)];
                let joined = after.map(|after| timeline.end(after));
                path.transfers += start - joined.unwrap_or_default();
                after
            }
            // Its chunks had not come.
            (None, None) => {
                let before = position.checked_sub(1);
                path.copies += start - before.map_or(Ticks::ZERO, |before| timeline.ends[device][before]);
                before.map(|before| Position::new(slot.device, before))
            }
        };
    }
    path.tasks.reverse();
    path
}

/// The first task of a pair for the second.
fn first_of(schedule: &Schedule, slot: Position) -> Position {
    let before = slot.position.checked_sub(1);
    let is_second = |before: &u32| schedule.orders[slot.device.index()][*before as usize].with_next;
    before.filter(is_second).map_or(slot, |position| Position { position, ..slot })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::examples::{one_f_one_b, v_half};
    use crate::timing::costs::{StageCosts, of_stages};
    use crate::timing::timeline::simulate;

    #[test]
    fn the_path_adds_up_to_the_makespan() {
        for schedule in [one_f_one_b(4, 8), one_f_one_b(1, 1), v_half(5, 7)] {
            for text in ["", "F=3,B=2,W=1,comm=0.5"] {
                let costs = StageCosts::parse(text).expect("well-formed");
                let costs = of_stages(&costs, schedule.n_stages());
                let order = check(&schedule).expect("sound");
                let timeline = simulate(&schedule, &order, &costs);
                let path = critical_path(&schedule, &order, &costs, &timeline);
                let sum = path.work.iter().chain(&path.pairs).fold(path.transfers, |sum, work| sum + *work);
                assert_eq!(sum, timeline.makespan());
            }
        }
    }
}
