//! Rule: the tasks of a building block never meet on a device, whichever microbatches they belong to.
//!
//! Block i runs `i * T` slots later, so two tasks meet exactly if their slots overlap modulo the
//! period T (arXiv 2405.15362, Section 3.1). A block is a promise for every number of microbatches:
//! tasks that meet only in longer steps than this one are refused as well, and the message says
//! with how many microbatches they do. Where the text names `M`, there is a block for each number
//! of them, which promises nothing for others.

use super::meetings::{Meeting, meetings};
use crate::block::period::{Turn, turn};
use crate::schedule::{Block, BlockTask, Schedule};
use pipe_ir::ids::DeviceId;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};

/// Looks at every device.
///
/// # Errors
/// A diagnostic per pair of tasks that meet, those first that do with the fewest microbatches.
pub fn check(schedule: &Schedule) -> Result<(), Diagnostics> {
    let Some(block) = &schedule.block else { return Ok(()) };
    let turn = turn(block, &schedule.placement, (schedule.n_queues(), schedule.n_microbatches));
    let mut found: Vec<(u64, Diagnostic)> = Vec::new();
    for (device, tasks) in turn.tasks.iter().enumerate() {
        let place = DeviceTurn { schedule, block, turn: &turn, device: DeviceId::from_index(device) };
        let work = tasks.iter().fold(0u64, |work, task| work.saturating_add(block.duration(task)));
        // A block of one number of microbatches is not repeated further.
        let happens = |meeting: &Meeting| block.only.is_none_or(|only| meeting.from <= u64::from(only));
        for meeting in meetings(block, &turn, tasks).into_iter().filter(happens) {
            let (one, other) = meeting.tasks;
            let diagnostic = if one == other {
                place.too_long(&tasks[one], meeting)
            } else {
                place.collision([&tasks[one], &tasks[other]], meeting, work)
            };
            found.push((meeting.from, diagnostic));
        }
    }
    // Those that need the fewest microbatches come first.
    found.sort_by_key(|(from, _)| *from);
    if found.is_empty() { Ok(()) } else { Err(found.into_iter().map(|(_, diagnostic)| diagnostic).collect()) }
}

#[derive(Clone, Copy)]
struct DeviceTurn<'a> {
    schedule: &'a Schedule,
    block: &'a Block,
    turn: &'a Turn,
    device: DeviceId,
}

impl DeviceTurn<'_> {
    fn name(&self, task: &BlockTask) -> String {
        block_task_name(self.schedule, task, self.turn.microbatches)
    }

    fn device(&self) -> String {
        self.schedule.device_name(self.device)
    }

    fn every(&self) -> String {
        self.turn.period.map(|period| format!(" of every {period}")).unwrap_or_default()
    }

    fn collision(&self, [one, other]: [&BlockTask; 2], meeting: Meeting, work: u64) -> Diagnostic {
        let (first, end) = meeting.slots;
        let span = |task: &BlockTask| self.schedule.origins[usize::from(task.origin)];
        let slots = if end - first == 1 { format!("slot {first}") } else { format!("slots {first} to {}", end - 1) };
        let names = format!("{} and {} meet on {}", self.name(one), self.name(other), self.device());
        let message = format!("{names} in {slots}{}, {}", self.every(), self.from(meeting.from));
        let place = |task: &BlockTask| self.place(task);
        let diagnostic = Diagnostic::error(Code::SlotCollision, span(other), place(other), message);
        let diagnostic = if span(one) == span(other) {
            diagnostic.note(place(one))
        } else {
            diagnostic.label(span(one), place(one))
        };
        let diagnostic = self.promise(diagnostic, meeting.from);
        match self.turn.period {
            Some(period) if work > period => {
                let (device, blocks) = (self.device(), period / self.block.period.max(1));
                let least = work.div_ceil(blocks.max(1));
                let help = format!("{device} has {work} slots of work: use `every {least}` or more");
                self.repeat_every(least, diagnostic.help(help))
            }
            _ => diagnostic.help("move one of them to a slot that is free modulo the period, or use `fill`"),
        }
    }

    /// Where a task starts, and which slots it takes.
    fn place(&self, task: &BlockTask) -> String {
        let (name, slot, duration) = (self.name(task), task.slot, self.block.duration(task));
        match (self.turn.period, duration) {
            (Some(period), 1) => format!("{name} at {slot}, which is {} modulo {period}", slot % period),
            (Some(period), _) if duration >= period => {
                format!("{name} at {slot} takes {duration} slots of every {period}")
            }
            (Some(period), _) => {
                let (first, last) = (slot % period, (slot + duration - 1) % period);
                let to = if duration == 2 { "and" } else { "to" };
                format!("{name} at {slot} takes {duration} slots: {first} {to} {last} modulo {period}")
            }
            (None, 1) => format!("{name} at {slot}"),
            (None, _) => format!("{name} at {slot} takes {duration} slots"),
        }
    }

    fn too_long(&self, task: &BlockTask, meeting: Meeting) -> Diagnostic {
        let (span, duration) = (self.schedule.origins[usize::from(task.origin)], self.block.duration(task));
        let period = self.turn.period.unwrap_or(u64::MAX);
        let (name, device) = (self.name(task), self.device());
        let message = format!(
            "{name} takes {duration} slots of {device}, but the block repeats every {period}: it meets itself, {}",
            self.from(meeting.from)
        );
        let diagnostic = Diagnostic::error(Code::SlotCollision, span, "meets its own next microbatch", message);
        let diagnostic = self.promise(diagnostic, meeting.from).help(format!("use `every {duration}` or more"));
        self.repeat_every(duration, diagnostic)
    }

    /// Adds the edit that has the block repeated every so many slots, where no tasks meet then.
    fn repeat_every(&self, slots: u64, diagnostic: Diagnostic) -> Diagnostic {
        let Some(every) = self.block.every else { return diagnostic };
        let block = Block { period: slots, ..self.block.clone() };
        let turn = turn(&block, &self.schedule.placement, (self.schedule.n_devices(), self.schedule.n_microbatches));
        let is_free = turn.tasks.iter().all(|tasks| meetings(&block, &turn, tasks).is_empty());
        if is_free { diagnostic.edit(every, slots.to_string()) } else { diagnostic }
    }

    /// With how many microbatches tasks meet.
    fn from(&self, number: u64) -> String {
        match self.block.only {
            Some(only) => format!("with {}", microbatches(u64::from(only))),
            None => format!("from {} on", microbatches(number)),
        }
    }

    /// Says why a collision counts that this step does not have.
    fn promise(&self, diagnostic: Diagnostic, from: u64) -> Diagnostic {
        let given = self.schedule.n_microbatches;
        if u64::from(given) >= from || self.block.only.is_some() {
            return diagnostic;
        }
        diagnostic.note("a block must be sound for every number of microbatches, also where a step has fewer")
    }
}

/// The name of a task of a turn: `F s0`, or `F s0 m1` if the turn has several microbatches.
pub(super) fn block_task_name(schedule: &Schedule, task: &BlockTask, microbatches: u64) -> String {
    let name = schedule.kind_name(task.kind, task.stage);
    if microbatches == 1 { format!("`{name}`") } else { format!("`{name} {}`", task.microbatch) }
}

/// `1 microbatch`, `7 microbatches`.
pub(super) fn microbatches(number: u64) -> String {
    if number == 1 { "1 microbatch".to_owned() } else { format!("{number} microbatches") }
}
