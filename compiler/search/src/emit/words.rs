//! The tasks of a device as an order mentions them: whole stages if their parts follow each other, else part by part.

use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::parts::StageParts;
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use std::collections::{BTreeMap, BTreeSet};

/// `F[1]`, or `F.dispatch[1]` for a part.
pub(super) fn word(parts: &StageParts, kind: TaskKind, row: StageId) -> String {
    mention(parts, kind, row, "")
}

fn mention(parts: &StageParts, kind: TaskKind, row: StageId, with: &str) -> String {
    let name = parts.part(row).map_or_else(String::new, |part| format!(".{}", part.name));
    format!("{}{name}[{}{with}]", kind.letters(), parts.stage_of(row).0)
}

/// The kinds that a task of a whole stage may have. `B` comes first: a frozen stage has no `BW`.
const WHOLE: [TaskKind; 5] =
    [TaskKind::Forward, TaskKind::BackwardInput, TaskKind::Backward, TaskKind::BackwardWeight, TaskKind::Recompute];

/// What a device does, in the order of its list.
pub(super) fn words(schedule: &Schedule, device: DeviceId) -> Vec<String> {
    let queues = (device.index()..schedule.n_queues()).step_by(schedule.n_devices().max(1));
    let mut list: Vec<&ScheduledTask> = queues.flat_map(|queue| &schedule.orders[queue]).collect();
    list.sort_by_key(|one| one.at);
    let list: Vec<Task> = list.iter().map(|one| one.task).collect();
    let in_turn = takes_turns(schedule, &list);
    let mut words = Vec::new();
    let mut rest = &list[..];
    while let Some(first) = rest.first() {
        let whole = in_turn.then(|| WHOLE.into_iter().find_map(|kind| whole(schedule, device, kind, rest))).flatten();
        let (word, length) = whole.unwrap_or_else(|| {
            let is_one_of_several = schedule.parts.part(first.stage).is_some_and(|part| part.nth.is_some());
            let with = if is_one_of_several && !in_turn { format!(", {}", first.microbatch.0) } else { String::new() };
            (mention(&schedule.parts, first.kind, first.stage, &with), 1)
        });
        words.push(word);
        rest = &rest[length..];
    }
    words
}

/// The task of a whole stage that tasks begin with, if they do, and how many of them it is.
fn whole(schedule: &Schedule, device: DeviceId, kind: TaskKind, tasks: &[Task]) -> Option<(String, usize)> {
    let first = tasks.first()?;
    let stage = schedule.parts.stage_of(first.stage);
    let row = |rows| StageId::from_index(schedule.parts.of_device(&rows, device));
    let own = schedule.parts.of_task(kind, stage).map(row);
    let own = own.filter_map(|row| Some(Task { kind: schedule.frozen.kind(kind, row)?, stage: row, ..*first }));
    let own: Vec<Task> = own.collect();
    let is_there = !own.is_empty() && tasks.starts_with(&own);
    is_there.then(|| (format!("{}[{}]", kind.letters(), stage.0), own.len()))
}

/// Whether parts of one name are always run in the order in which a list that names no microbatches takes them: that
/// one next of which fewest ran. Of a part that runs backwards in both forms, microbatches are named.
fn takes_turns(schedule: &Schedule, list: &[Task]) -> bool {
    let parts = &schedule.parts;
    let one_of_several = |task: &&Task| parts.part(task.stage).is_some_and(|part| part.nth.is_some());
    let own: BTreeSet<(StageId, TaskKind)> =
        list.iter().filter(one_of_several).map(|task| (task.stage, task.kind)).collect();
    let has_both =
        |stage| [TaskKind::Backward, TaskKind::BackwardInput].iter().all(|kind| own.contains(&(stage, *kind)));
    if own.iter().any(|(stage, _)| has_both(*stage)) {
        return false;
    }
    let mut counts: BTreeMap<(TaskKind, StageId), u32> = BTreeMap::new();
    list.iter().filter(one_of_several).all(|task| {
        let Some(part) = parts.part(task.stage) else { return true };
        let same = parts.of_named(task.kind, part.stage, &part.name);
        let same = same.flatten().map(StageId::from_index).filter(|row| own.contains(&(*row, task.kind)));
        let next = same.min_by_key(|row| counts.get(&(task.kind, *row)).copied().unwrap_or_default());
        *counts.entry((task.kind, task.stage)).or_default() += 1;
        next == Some(task.stage)
    })
}
