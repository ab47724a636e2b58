//! Deadlocks: which statement of an order to write before another.
//!
//! The cycle of waits says which task a device should run earlier. Its statement is moved before the one in its way, or
//! the two change places; the edit is offered if the whole schedule then runs to its end.

use super::MOST_TASKS;
use pipe_schedule::check::stuck::{Wait, stuck};
use pipe_schedule::schedule::Schedule;
use pipe_syntax::diagnostic::{Code, Diagnostics, Edit, Fix, edited};
use pipe_syntax::source::{FileId, Sources, Span};

/// What was found against a schedule, with an edit of the first file for each deadlock where one is known.
pub(crate) fn with_edits(
    mut found: Diagnostics,
    schedule: &Schedule,
    sources: &Sources,
    runs: impl Fn(String) -> bool,
) -> Diagnostics {
    let deadlocks = || found.iter().any(|one| one.code == Code::Deadlock && one.help.is_some());
    let told = (schedule.n_tasks() <= MOST_TASKS && deadlocks()).then(|| stuck(schedule)).flatten();
    let text = sources.get(FileId(0)).text.as_str();
    let cycles = told.map(|told| told.cycles).unwrap_or_default();
    for (one, cycle) in found.iter_mut().filter(|one| one.code == Code::Deadlock).zip(&cycles) {
        let fix = candidates(cycle, schedule, text).into_iter().find(|edits| runs(edited(text, edits)));
        one.fix = fix.map(|edits| Box::new(Fix { edits }));
    }
    found
}

/// Edits that let the device of a cycle run the task that another one needs before the one in its way.
fn candidates(cycle: &[Wait], schedule: &Schedule, text: &str) -> Vec<Vec<Edit>> {
    let span = |origin: u16| schedule.origins[usize::from(origin)];
    let Some(wait) = cycle.iter().find(|wait| wait.of_at != wait.needs) else { return Vec::new() };
    let (needed, in_the_way) = (span(wait.needs.origin), span(wait.of_at.origin));
    let apart = needed.end <= in_the_way.start || in_the_way.end <= needed.start;
    let words = |span: Span| text.get(span.start as usize..span.end as usize);
    let (Some(first), Some(second)) = (words(needed), words(in_the_way)) else { return Vec::new() };
    if !apart || [needed, in_the_way].iter().any(|span| span.file != FileId(0)) {
        return Vec::new();
    }
    let behind = text.get(needed.end as usize..).unwrap_or_default();
    let space = u32::from(behind.starts_with(' '));
    let place = Span { end: in_the_way.start, ..in_the_way };
    let moved = vec![
        Edit { span: place, text: format!("{first} ") },
        Edit { span: Span { end: needed.end + space, ..needed }, text: String::new() },
    ];
    let exchanged =
        vec![Edit { span: in_the_way, text: first.to_owned() }, Edit { span: needed, text: second.to_owned() }];
    // What a loop has as its only statement leaves nothing behind.
    let before = text.get(..needed.start as usize).unwrap_or_default();
    let alone = before.trim_end().ends_with('{') && behind.trim_start().starts_with('}');
    if alone { vec![exchanged] } else { vec![moved, exchanged] }
}
