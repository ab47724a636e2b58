//! Writes the list of a device as words of an order: `F[0]` if all parts of a stage stand in a row, else part by part.

use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::parts::StageParts;
use pipe_schedule::schedule::Schedule;
use std::collections::{BTreeMap, BTreeSet};

/// Writes `F[1]`, or `F.dispatch[1]` for a part.
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

/// The words of a device, in the order of its list.
pub(super) fn words(schedule: &Schedule, device: DeviceId) -> Vec<String> {
    let list = schedule.list(device).into_iter();
    let list: Vec<Task> = list.map(|(queue, place)| schedule.orders[queue.index()][place].task).collect();
    let may_omit = may_omit_microbatches(schedule, device, &list);
    let mut words = Vec::new();
    let mut rest = &list[..];
    while let Some(first) = rest.first() {
        let whole = may_omit.then(|| WHOLE.into_iter().find_map(|kind| whole(schedule, device, kind, rest))).flatten();
        let (word, length) = whole.unwrap_or_else(|| {
            let is_one_of_several = schedule.parts.part(first.stage).is_some_and(|part| part.nth.is_some());
            let with = if is_one_of_several && !may_omit { format!(", {}", first.microbatch.0) } else { String::new() };
            (mention(&schedule.parts, first.kind, first.stage, &with), 1)
        });
        words.push(word);
        rest = &rest[length..];
    }
    words
}

/// The word of a whole stage, if a list begins with all its parts, and their number.
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

/// Whether a list may leave out the microbatches of parts that share a name. An order without microbatches runs the
/// part next that has run least often, so the list must do the same. If such parts have both `BW` and `B`, this returns
/// false.
fn may_omit_microbatches(schedule: &Schedule, device: DeviceId, list: &[Task]) -> bool {
    let parts = &schedule.parts;
    let shared = |task: &Task| parts.part(task.stage).filter(|part| part.nth.is_some());
    let kinds: BTreeSet<(StageId, &str, TaskKind)> =
        list.iter().filter_map(|task| shared(task).map(|part| (part.stage, &*part.name, task.kind))).collect();
    let has_halves = |(stage, name, kind): &(StageId, &str, TaskKind)| {
        // Parts on lanes run `B` in any case.
        let is_compute = parts.named(*stage, name).any(|row| parts.lane(row).is_none());
        is_compute && *kind == TaskKind::Backward && kinds.contains(&(*stage, name, TaskKind::BackwardInput))
    };
    if kinds.iter().any(has_halves) {
        return false;
    }
    let mut counts: BTreeMap<(TaskKind, StageId), u32> = BTreeMap::new();
    list.iter().all(|task| {
        let Some(part) = shared(task) else { return true };
        let same = parts.of_named(task.kind, part.stage, &part.name);
        let same = same.map(|rows| StageId::from_index(parts.of_device(&rows, device)));
        let next = same.min_by_key(|row| counts.get(&(task.kind, *row)).copied().unwrap_or_default());
        *counts.entry((task.kind, task.stage)).or_default() += 1;
        next == Some(task.stage)
    })
}
