//! Rule: every stage runs every microbatch forward once and backward once, either fused (`BW`) or in its two halves.
//!
//! A stage may do one with some microbatches and the other with the rest. `B` without `W` computes
//! no weight gradient; only a frozen stage needs none, and one that runs forward only needs no backward.
//! A stage that recomputes some microbatch recomputes all of them: what its
//! forward saves is the same for all. A task that occupies several devices stands once in the order
//! of each.

use crate::dependencies::{SCHEDULED, TaskTable};
use crate::schedule::{Schedule, ScheduledTask};
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Span;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Looks every task up, and says which are missing, superfluous or of the wrong kind.
///
/// # Errors
/// A diagnostic per statement or stage that breaks the rule.
pub fn check(schedule: &Schedule) -> Result<TaskTable, Diagnostics> {
    let (table, stages, mut found) = count(schedule);
    for (index, stage) in stages.iter().enumerate() {
        missing(schedule, &table, StageId::from_index(index), stage, &mut found);
        found.extend(incomplete(schedule, &table, StageId::from_index(index), stage));
    }
    if found.is_empty() { Ok(table) } else { Err(found) }
}

/// The kinds of task that a stage has, each with the statement of one of them.
#[derive(Clone, Copy, Default)]
struct Kinds([Option<u16>; TaskKind::ALL.len()]);

impl Kinds {
    fn has(self, kind: TaskKind) -> bool {
        self.0[kind.index()].is_some()
    }

    fn span(self, kind: TaskKind, schedule: &Schedule) -> Option<Span> {
        self.0[kind.index()].map(|origin| schedule.origins[usize::from(origin)])
    }
}

fn count(schedule: &Schedule) -> (TaskTable, Vec<Kinds>, Diagnostics) {
    let mut table = TaskTable::empty(&schedule.placement, schedule.n_microbatches);
    let mut stages = vec![Kinds::default(); schedule.n_stages()];
    let mut twice: BTreeMap<(u16, TaskKind, StageId), Vec<(MicrobatchId, u16)>> = BTreeMap::new();
    let mut outside: BTreeMap<(u16, TaskKind, StageId), Vec<MicrobatchId>> = BTreeMap::new();
    for (device, order) in schedule.orders.iter().enumerate() {
        for (position, scheduled) in order.iter().enumerate() {
            let ScheduledTask { task, origin, .. } = *scheduled;
            let Some(kinds) = stages.get_mut(task.stage.index()) else { continue };
            if task.kind == TaskKind::Update || task.microbatch.0 >= schedule.n_microbatches {
                outside.entry((origin, task.kind, task.stage)).or_default().push(task.microbatch);
                continue;
            }
            kinds.0[task.kind.index()].get_or_insert(origin);
            let devices = schedule.placement.devices(task.stage, task.microbatch);
            let member = devices.binary_search(&DeviceId::from_index(device)).ok();
            // On which devices tasks may run is the placement's business.
            if member.is_none() && devices.len() > 1 {
                continue;
            }
            if let Some(before) = table.insert(task, member.unwrap_or(0), position) {
                let home = member.map_or_else(|| schedule.device_of(task).index(), |_| device);
                let home = &schedule.orders[home.min(schedule.n_queues() - 1)];
                let first = home.get(before).map_or(origin, |first| first.origin);
                twice.entry((origin, task.kind, task.stage)).or_default().push((task.microbatch, first));
            }
        }
    }
    let mut found: Diagnostics =
        twice.iter().map(|((origin, kind, stage), tasks)| duplicate(schedule, *origin, *kind, *stage, tasks)).collect();
    found.extend(outside.iter().map(|((origin, kind, stage), microbatches)| {
        let what = schedule.kind_name(*kind, *stage);
        let span = schedule.origins[usize::from(*origin)];
        let message = match kind {
            TaskKind::Update => format!("`{what}` is scheduled, but the compiler places the updates"),
            _ => format!("`{what}` runs {}, but a step has {}", list(schedule, microbatches), schedule.n_microbatches),
        };
        Diagnostic::error(Code::TaskOutside, span, "not part of a step", message)
    }));
    (table, stages, found)
}

fn duplicate(
    schedule: &Schedule,
    origin: u16,
    kind: TaskKind,
    stage: StageId,
    tasks: &[(MicrobatchId, u16)],
) -> Diagnostic {
    let mut microbatches: Vec<MicrobatchId> = tasks.iter().map(|(microbatch, _)| *microbatch).collect();
    if schedule.placement.set_size(stage) > 1 {
        // Each of its devices says so.
        microbatches.sort_unstable();
    }
    let mut named = BTreeSet::new();
    microbatches.retain(|microbatch| named.insert(*microbatch));
    let span = schedule.origins[usize::from(origin)];
    let (what, name) = (schedule.kind_name(kind, stage), schedule.stage_name(stage));
    let message = format!("`{what}` runs more than once on {}", list(schedule, &microbatches));
    let diagnostic = Diagnostic::error(Code::DuplicateTask, span, "once more here", message);
    let first = tasks.first().map_or(span, |(_, first)| schedule.origins[usize::from(*first)]);
    let diagnostic = if first == span { diagnostic } else { diagnostic.label(first, "first here") };
    diagnostic.help(format!("keep one `{}` of {name} for each microbatch", kind.letters()))
}

fn missing(schedule: &Schedule, table: &TaskTable, stage: StageId, kinds: &Kinds, found: &mut Diagnostics) {
    use TaskKind::{Backward, BackwardInput, BackwardWeight, Forward};
    let anywhere = SCHEDULED.iter().find_map(|kind| kinds.span(*kind, schedule)).unwrap_or(schedule.span);
    let name = schedule.stage_name(stage);
    if !kinds.has(Forward) {
        let message = format!("{name} never runs forward");
        found.push(Diagnostic::error(Code::MissingTask, anywhere, format!("no `F` of {name}"), message));
    }
    if kinds.has(Backward) && (kinds.has(BackwardInput) || kinds.has(BackwardWeight)) {
        mixed(schedule, table, stage, kinds, found);
        return;
    }
    match (kinds.span(BackwardInput, schedule), kinds.span(BackwardWeight, schedule)) {
        (Some(span), None) if !schedule.frozen.is_frozen(stage) => {
            let message = format!("{name} runs `B` but never `W`, so its weights get no gradient");
            let help = "write `BW` for both halves at once, or add `W`";
            found
                .push(Diagnostic::error(Code::MissingWeightGradient, span, "input gradients only", message).help(help));
        }
        (None, Some(span)) => {
            let message = format!("{name} runs `W` but never `B`, so no gradient reaches it");
            let help = "write `BW` for both halves at once, or add `B`";
            found.push(Diagnostic::error(Code::MissingTask, span, "weight gradients only", message).help(help));
        }
        (None, None) if schedule.frozen.has_backward(stage) && !kinds.has(Backward) => {
            let message = format!("{name} never runs backward");
            let help = if schedule.parts.lane(stage).is_some() {
                format!("add `B` of {name}, or `BW`, which is the same for a part on a lane")
            } else if schedule.frozen.is_frozen(stage) {
                format!("add `B` of {name}: it is frozen, but a stage before it trains")
            } else {
                format!("add `BW` of {name}, or `B` and `W`")
            };
            let label = format!("no backward of {name}");
            found.push(Diagnostic::error(Code::MissingTask, anywhere, label, message).help(help));
        }
        _ => {}
    }
    // A stage may recompute some microbatches.
    for kind in SCHEDULED.into_iter().filter(|kind| *kind != TaskKind::Recompute) {
        let Some(span) = kinds.span(kind, schedule) else { continue };
        let absent: Vec<MicrobatchId> = table.absent(kind, stage).collect();
        found.extend(lacks(schedule, (kind, stage), span, &absent));
    }
}

/// The tasks of a stage that are missing on one of its devices.
fn incomplete(schedule: &Schedule, table: &TaskTable, stage: StageId, kinds: &Kinds) -> Diagnostics {
    let devices = schedule.placement.devices(stage, MicrobatchId(0));
    if devices.len() == 1 {
        return Vec::new();
    }
    let of_kind = |kind: TaskKind| {
        let mut lacking: BTreeMap<usize, Vec<MicrobatchId>> = BTreeMap::new();
        for (microbatch, member) in table.incomplete(kind, stage) {
            lacking.entry(member).or_default().push(microbatch);
        }
        let (member, absent) = lacking.pop_first()?;
        let (device, more) = (devices[member], lacking.len());
        let what = schedule.kind_name(kind, stage);
        let message = format!(
            "`{what}` does not run on {} on {}, one of its devices",
            list(schedule, &absent),
            schedule.device_name(device)
        );
        let label = format!("missing on {}", schedule.device_name(device));
        let error = Diagnostic::error(Code::MissingTask, kinds.span(kind, schedule)?, label, message)
            .label(
                schedule.placement_span,
                format!("places {} on {} devices at once", schedule.stage_name(stage), devices.len()),
            )
            .help(format!("write `{what}` in the order of each of its devices"));
        Some(if more > 0 { error.note(format!("likewise on {more} of its other devices")) } else { error })
    };
    SCHEDULED.into_iter().filter_map(of_kind).collect()
}

/// What is wrong with a stage that runs some backwards at once and others in halves.
fn mixed(schedule: &Schedule, table: &TaskTable, stage: StageId, kinds: &Kinds, found: &mut Diagnostics) {
    use TaskKind::{Backward, BackwardInput, BackwardWeight, Forward};
    let anywhere = SCHEDULED.iter().find_map(|kind| kinds.span(*kind, schedule)).unwrap_or(schedule.span);
    let span = |kind| kinds.span(kind, schedule).unwrap_or(anywhere);
    let has = |kind, microbatch| table.position(Task { kind, stage, microbatch }).is_some();
    let half = if kinds.has(BackwardInput) { BackwardInput } else { BackwardWeight };
    let of = |is_wrong: &dyn Fn(bool, bool, bool) -> bool| -> Vec<MicrobatchId> {
        let microbatches = (0..schedule.n_microbatches).map(MicrobatchId);
        let is_wrong = |m: &MicrobatchId| is_wrong(has(Backward, *m), has(BackwardInput, *m), has(BackwardWeight, *m));
        microbatches.filter(is_wrong).collect()
    };
    let both = of(&|fused, input, weight| fused && (input || weight));
    if !both.is_empty() {
        let name = schedule.stage_name(stage);
        let message = format!("{name} runs both `BW` and `{}` on {}", half.letters(), list(schedule, &both));
        let diagnostic = Diagnostic::error(Code::MixedBackward, span(Backward), "both halves at once", message);
        let help = format!("write `BW` of {name}, or `B` and `W`, for each microbatch");
        found.push(diagnostic.label(span(half), "one half").help(help));
        return;
    }
    let absent: Vec<MicrobatchId> = table.absent(Forward, stage).collect();
    found.extend(lacks(schedule, (Forward, stage), span(Forward), &absent));
    found.extend(lacks(schedule, (Backward, stage), span(Backward), &of(&|fused, b, w| !fused && !b && !w)));
    found.extend(lacks(schedule, (BackwardInput, stage), span(half), &of(&|_, input, weight| weight && !input)));
    found.extend(lacks(schedule, (BackwardWeight, stage), span(half), &of(&|_, input, weight| input && !weight)));
}

/// Says that a stage lacks tasks of a kind.
fn lacks(
    schedule: &Schedule,
    (kind, stage): (TaskKind, StageId),
    span: Span,
    absent: &[MicrobatchId],
) -> Option<Diagnostic> {
    if absent.is_empty() {
        return None;
    }
    let message = format!("`{}` does not run on {}", schedule.kind_name(kind, stage), list(schedule, absent));
    let label = format!("runs {} of {}", schedule.n_microbatches as usize - absent.len(), schedule.n_microbatches);
    let help = "check the counts of the loops: every microbatch needs each task once";
    Some(Diagnostic::error(Code::MissingTask, span, label, message).help(help))
}

/// `m3`, `m0, m1 and m2` or `m0, m1, m2 and 5 more`.
fn list(schedule: &Schedule, microbatches: &[MicrobatchId]) -> String {
    const SHOWN: usize = 4;
    let mut text = String::new();
    for (index, microbatch) in microbatches.iter().take(SHOWN).enumerate() {
        let separator = match index {
            0 => "",
            _ if index + 1 == microbatches.len() => " and ",
            _ => ", ",
        };
        write!(text, "{separator}{}", schedule.slices.name(*microbatch)).expect("writing to a string cannot fail");
    }
    if microbatches.len() > SHOWN {
        write!(text, " and {} more", microbatches.len() - SHOWN).expect("writing to a string cannot fail");
    }
    text
}
