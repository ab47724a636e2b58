//! Tasks in a wrong place: which statement to write otherwise.
//!
//! A task of a block that starts too early starts later, by as much as its inputs need; a task in the order of a
//! device that its stage does not live on moves to the order of the one that it does; tasks that cannot share a device
//! stand one after the other. Each edit is tried: it is offered if what it is for is gone and nothing else is new.

use pipe_ir::ids::DeviceId;
use pipe_ir::task::Task;
use pipe_schedule::check::starts;
use pipe_schedule::schedule::Schedule;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics, Edit, Fix, edited};
use pipe_syntax::source::{FileId, Sources, Span};
use std::collections::BTreeSet;

/// Tasks of a step up to which edits are tried.
const MOST_TASKS: usize = 20_000;
/// Edits that are tried for one statement at most.
const MOST_EDITS: usize = 16;

/// What was found against a schedule, with an edit of the first file where one is known. `judge` says what is found
/// against another text; nothing where it is refused before its tasks are looked at.
pub(crate) fn with_edits(
    mut found: Diagnostics,
    schedule: &Schedule,
    sources: &Sources,
    judge: impl Fn(String) -> Option<Diagnostics>,
) -> Diagnostics {
    if schedule.n_tasks() > MOST_TASKS {
        return found;
    }
    let text = sources.get(FileId(0)).text.as_str();
    let (n_found, codes) = (found.len(), found.iter().map(|one| one.code).collect::<BTreeSet<Code>>());
    let is_better = |edits: &Vec<Edit>| {
        let left = judge(edited(text, edits));
        left.is_some_and(|left| left.len() < n_found && left.iter().all(|one| codes.contains(&one.code)))
    };
    let mut seen = BTreeSet::new();
    for one in &mut found {
        let Some(span) = one.labels.first().map(|label| label.span) else { continue };
        if span.file != FileId(0) || one.fix.is_some() || !seen.insert((one.code, span)) {
            continue;
        }
        let fix = candidates(one, span, schedule, text).into_iter().take(MOST_EDITS).find(is_better);
        one.fix = fix.map(|edits| Box::new(Fix { edits }));
    }
    found
}

fn candidates(one: &Diagnostic, span: Span, schedule: &Schedule, text: &str) -> Vec<Vec<Edit>> {
    if one.code == Code::StartsBeforeInput {
        later(span, schedule, text).unwrap_or_default()
    } else if one.code == Code::WrongPair {
        apart(span, text).into_iter().collect()
    } else if one.code == Code::WrongDevice {
        moved(span, schedule, text)
    } else {
        Vec::new()
    }
}

/// Starts all tasks of a statement as much later as the one that is earliest needs, or each by as much later than the
/// one of the stage before, or behind.
fn later(span: Span, schedule: &Schedule, text: &str) -> Option<Vec<Vec<Edit>>> {
    let late = starts::late(schedule);
    let slots = late.iter().filter(|(place, _)| *place == span).map(|(_, slots)| *slots).max()?;
    let statement = words(text, span)?;
    let begin = statement.rfind(" at ")? + " at ".len();
    let written = statement.get(begin..)?.trim();
    let number = written.parse::<u64>().ok();
    // A condition reaches to the end.
    let has_condition = written.starts_with("if ") || written.contains(" if ");
    let first = if has_condition { format!("({written})") } else { written.to_owned() };
    let place = Span { start: span.start + u32::try_from(begin).ok()?, ..span };
    let start = |text: String| vec![Edit { span: place, text }];
    let shifted = number.map_or_else(|| format!("{first} + {slots}"), |number| (number + slots).to_string());
    let stage = statement.split(['[', ',', ']']).nth(1)?.trim();
    let step = if slots == 1 { stage.to_owned() } else { format!("{slots} * {stage}") };
    let sloped = if number == Some(0) { step } else { format!("{first} + {step}") };
    let times = if slots == 1 { String::new() } else { format!("{slots} * ") };
    let backwards = format!("{first} + {times}(S - 1 - {stage})");
    let is_name = stage.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    let slopes = if is_name { vec![start(sloped), start(backwards)] } else { Vec::new() };
    Some(std::iter::once(start(shifted)).chain(slopes).collect())
}

/// Removes the `&` behind a task, or before it.
fn apart(span: Span, text: &str) -> Option<Vec<Edit>> {
    let (before, behind) = (text.get(..span.start as usize)?, text.get(span.end as usize..)?);
    let place = match (behind.trim_start().starts_with('&'), before.trim_end().ends_with('&')) {
        (true, _) => behind.find('&')? + span.end as usize,
        (false, true) => before.rfind('&')?,
        (false, false) => words(text, span)?.find('&')? + span.start as usize,
    };
    let space = usize::from(text.get(place + 1..)?.starts_with(' '));
    let byte = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
    let place = Span { start: byte(place), end: byte(place + 1 + space), ..span };
    Some(vec![Edit { span: place, text: String::new() }])
}

/// Moves a statement to the order of the device that its stage lives on, behind each of the statements there: first
/// behind tasks of its kind of earlier microbatches, then behind the others, from the last one on.
fn moved(span: Span, schedule: &Schedule, text: &str) -> Vec<Vec<Edit>> {
    let own = |device: &DeviceId| {
        let order = schedule.orders.get(device.index()).into_iter().flatten();
        order.filter(|one| place(schedule, one.origin) == span).map(|one| one.task)
    };
    let devices = (0..schedule.n_devices()).map(DeviceId::from_index);
    let tasks: Vec<(DeviceId, Task)> =
        devices.flat_map(|device| own(&device).map(move |task| (device, task))).collect();
    let [(_, task)] = tasks.as_slice() else { return Vec::new() };
    let [home] = schedule.placement.get(task.stage, task.microbatch) else { return Vec::new() };
    let Some(statement) = words(text, span) else { return Vec::new() };
    let mut there: Vec<(bool, usize, Span)> = Vec::new();
    for (index, other) in schedule.orders.get(home.index()).into_iter().flatten().enumerate() {
        let is_before = other.task.kind == task.kind && other.task.microbatch <= task.microbatch;
        there.push((is_before, index, place(schedule, other.origin)));
    }
    there.sort_by_key(|(is_before, index, _)| std::cmp::Reverse((*is_before, *index)));
    let mut seen = BTreeSet::new();
    let spans = there.into_iter().map(|(.., span)| span).filter(|span| span.file == FileId(0));
    let spans = spans.filter(|other| *other != span && seen.insert(*other));
    let space = u32::from(text.get(span.end as usize..).is_some_and(|behind| behind.starts_with(' ')));
    let cut = Edit { span: Span { end: span.end + space, ..span }, text: String::new() };
    let behind = |other: Span| Edit { span: Span { start: other.end, ..other }, text: format!(" {statement}") };
    spans.map(|other| vec![behind(other), cut.clone()]).collect()
}

fn place(schedule: &Schedule, origin: u16) -> Span {
    schedule.origins[usize::from(origin)]
}

fn words(text: &str, span: Span) -> Option<&str> {
    text.get(span.start as usize..span.end as usize)
}
