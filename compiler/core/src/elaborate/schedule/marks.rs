//! What stands between the tasks of a list: activations that leave and come back, sums of gradients, and updates.

use super::Writer;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_schedule::placement::names;
use pipe_schedule::schedule::ScheduledTask;
use pipe_schedule::step_tasks::{StepTask, StepTasks};
use pipe_schedule::swaps::Swap;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::scope::{Fault, Resolved};
use pipe_syntax::source::Span;

/// One of them.
#[derive(Clone, Copy)]
pub(super) enum Mark {
    Swap(Swap),
    StepTask(StepTask),
}

/// Those of all devices, as far as their lists were run.
#[derive(Default)]
pub(super) struct Marks {
    swaps: Vec<Vec<Swap>>,
    step_tasks: Vec<Vec<StepTask>>,
    /// Of the device at hand: how many tasks stand before each.
    own: Vec<(usize, Mark)>,
}

impl Marks {
    /// Adds one behind some tasks of the device at hand.
    pub(super) fn push(&mut self, tasks: usize, mark: Mark) {
        self.own.push((tasks, mark));
    }

    /// Ends the list of a device: everything in it gets its place, if anything stands between tasks or `has_lanes`.
    pub(super) fn end_list(&mut self, order: &mut [ScheduledTask], has_lanes: bool) {
        let own = std::mem::take(&mut self.own);
        let (mut swaps, mut step_tasks) = (Vec::new(), Vec::new());
        let mut own = own.into_iter().peekable();
        let mut next = 0..;
        if has_lanes || own.peek().is_some() {
            let mut note = |mark: Mark, at: u32| match mark {
                Mark::Swap(swap) => swaps.push(Swap { at, ..swap }),
                Mark::StepTask(task) => step_tasks.push(StepTask { at, ..task }),
            };
            let mut at = || next.next().unwrap_or(u32::MAX);
            for (position, one) in order.iter_mut().enumerate() {
                while let Some((_, mark)) = own.next_if(|(before, _)| *before <= position) {
                    note(mark, at());
                }
                one.at = at();
            }
            own.for_each(|(_, mark)| note(mark, at()));
        }
        self.swaps.push(swaps);
        self.step_tasks.push(step_tasks);
    }

    /// All of them.
    pub(super) fn finish(self) -> (Vec<Vec<Swap>>, StepTasks) {
        (self.swaps, StepTasks::new(self.step_tasks))
    }
}

/// The stage that a statement names, which lives on the device at hand; or why it does not.
pub(super) fn stage_here<'a>(
    writer: &mut Writer<'a>,
    (word, stage, span): (&str, &Resolved<'a>, Span),
    device: DeviceId,
) -> Result<Result<StageId, Diagnostic>, Fault> {
    let (number, n_stages) = (writer.eval(stage)?, writer.n_stages());
    let Some(stage) = usize::try_from(number).ok().filter(|stage| *stage < n_stages).map(StageId::from_index) else {
        let message = format!("`{word}` names stage {number}, but stages are s0 to s{}", n_stages - 1);
        let label = format!("this is {number} on {device}");
        return Ok(Err(Diagnostic::error(Code::TaskOutside, span, label, message)));
    };
    let homes = homes(writer, stage);
    if homes.contains(&device) {
        return Ok(Ok(stage));
    }
    let message = format!("`{word}` of {stage} is in the order of {device}, but {stage} lives on {}", names(&homes));
    let error = Diagnostic::error(Code::WrongDevice, span, format!("on {device} too"), message);
    Ok(Err(error.help(format!("let it stand in the order of {} only", names(&homes)))))
}

/// The devices on which a stage lives.
fn homes(writer: &Writer<'_>, stage: StageId) -> Vec<DeviceId> {
    let n_devices = writer.n_devices as usize;
    let rows = writer.parts.rows(stage).map(StageId::from_index);
    let queues = rows.flat_map(|row| writer.placement.devices_of(row));
    let mut homes: Vec<DeviceId> = queues.map(|queue| writer.parts.device(*queue, n_devices)).collect();
    homes.sort_unstable();
    homes.dedup();
    homes
}
