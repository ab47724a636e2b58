//! The tasks that cost a measured step most: those of its critical path that took longer than
//! usual, or began later than they could.

use super::measured::Measured;
use super::parts::{Late, difference, span};
use super::refit::Refit;
use pipe_compiler::analyze::Analysis;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::Task;
use pipe_schedule::order::Position;

/// One task of the critical path. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Loss {
    pub(crate) task: Task,
    /// Where it stands.
    pub(crate) slot: Position,
    /// What it took beyond the usual time of its kind and stage.
    pub(crate) longer: i64,
    /// How much later than it could it started.
    pub(crate) later: i64,
    /// The task of another device whose output it waited for, if it did.
    pub(crate) waited_for: Option<Task>,
}

/// The critical path of what was measured, first to last.
pub(crate) fn critical(analysis: &Analysis, refit: &Refit, measured: &Measured, lateness: &[Vec<Late>]) -> Vec<Loss> {
    let schedule = &analysis.schedule;
    let last = |device: usize| measured.spans[device].last().map_or(0, |span| span.1);
    let device = (0..schedule.n_devices()).max_by_key(|device| (last(*device), std::cmp::Reverse(*device)));
    let mut next =
        device.and_then(|device| slot(DeviceId::from_index(device), schedule.orders[device].len().checked_sub(1)?));
    let mut path = Vec::new();
    while let Some(mut at) = next {
        let before = at.position.checked_sub(1);
        if let Some(first) = before.filter(|place| schedule.orders[at.device.index()][*place as usize].with_next) {
            at.position = first;
        }
        let node = schedule.node(at.device, at.position as usize);
        let (start, end) = span(analysis, measured, at);
        let late = lateness[at.device.index()][at.position as usize];
        let inputs = analysis.order.inputs(schedule, &refit.costs.latency, at);
        let ended = |from: Position| measured.spans[from.device.index()][from.position as usize].1;
        let input = inputs.max_by_key(|(from, latency)| ended(*from) + latency.0);
        let waited_for = input.filter(|_| late.for_input).map(|(from, _)| from);
        path.push(Loss {
            task: node[0].task,
            slot: at,
            longer: difference(end - start, refit.costs.of_node(node).0),
            later: late.nanos,
            waited_for: waited_for.map(|from| schedule.orders[from.device.index()][from.position as usize].task),
        });
        next = waited_for.or_else(|| Some(Position { position: at.position.checked_sub(1)?, ..at }));
    }
    path.reverse();
    path
}

fn slot(device: DeviceId, position: usize) -> Option<Position> {
    u32::try_from(position).ok().map(|position| Position { device, position })
}

/// Those that cost most.
pub(crate) fn largest(mut path: Vec<Loss>, most: usize) -> Vec<Loss> {
    path.retain(|loss| loss.longer + loss.later > 0);
    path.sort_by_key(|loss| std::cmp::Reverse(loss.longer + loss.later));
    path.truncate(most);
    path
}
