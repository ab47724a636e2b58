//! Deadlocks: which statement of an order to write before another.
//!
//! The cycle of waits says which task a device should run earlier. Its statement is moved before the one in its way, or
//! the two change places, or the loops around them do or become one; a loop that holds both counts down. The edit is
//! offered if the schedule then runs to its end, or if that deadlock is gone and no other has come.

use super::{MOST_TASKS, blocks};
use pipe_schedule::check::stuck::{Wait, stuck};
use pipe_schedule::schedule::Schedule;
use pipe_syntax::diagnostic::{Code, Diagnostics, Edit, Fix, edited};
use pipe_syntax::source::{FileId, Sources, Span};

/// What was found against a schedule, with an edit of the first file for each deadlock where one is known.
pub(crate) fn with_edits(
    mut found: Diagnostics,
    schedule: &Schedule,
    sources: &Sources,
    judge: impl Fn(String) -> Option<Diagnostics>,
) -> Diagnostics {
    let n_found = found.len();
    let deadlocks = || found.iter().any(|one| one.code == Code::Deadlock && one.help.is_some());
    let told = (schedule.n_tasks() <= MOST_TASKS && deadlocks()).then(|| stuck(schedule)).flatten();
    let text = sources.get(FileId(0)).text.as_str();
    let cycles = told.map(|told| told.cycles).unwrap_or_default();
    for (one, cycle) in found.iter_mut().filter(|one| one.code == Code::Deadlock).zip(&cycles) {
        let left = |edits: &Vec<Edit>| judge(edited(text, edits)).map(|left| left.len());
        let tried = candidates(cycle, schedule, text).into_iter().filter_map(|edits| Some((left(&edits)?, edits)));
        let fix = tried.filter(|(left, _)| *left < n_found).min_by_key(|(left, _)| *left).map(|(_, edits)| edits);
        one.fix = fix.map(|edits| Box::new(Fix { edits }));
    }
    found
}

/// Edits that let the device of a cycle run the task that another one needs before the one in its way.
fn candidates(cycle: &[Wait], schedule: &Schedule, text: &str) -> Vec<Vec<Edit>> {
    let span = |origin: u16| schedule.origins[usize::from(origin)];
    let Some(wait) = cycle.iter().find(|wait| wait.of_at != wait.needs) else { return Vec::new() };
    let (needed, in_the_way) = (span(wait.needs.origin), span(wait.of_at.origin));
    if [needed, in_the_way].iter().any(|span| span.file != FileId(0)) {
        return Vec::new();
    }
    if needed == in_the_way {
        return reversed(needed, text);
    }
    let apart = needed.end <= in_the_way.start || in_the_way.end <= needed.start;
    let words = |span: Span| text.get(span.start as usize..span.end as usize);
    let (true, Some(first), Some(second)) = (apart, words(needed), words(in_the_way)) else { return Vec::new() };
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
    let mut all = if alone { vec![exchanged] } else { vec![moved, exchanged] };
    // The loops or branches around the two that follow each other.
    if let Some([whole, other]) = blocks::siblings(text, [needed, in_the_way]) {
        let text_of = words(whole).unwrap_or_default();
        let removed = Edit { span: whole, text: String::new() };
        if alone && text_of.matches('{').count() == 1 {
            let next = Span { start: in_the_way.end, ..in_the_way };
            all.push(vec![Edit { span: next, text: format!(" {first}") }, removed.clone()]);
        }
        all.push(vec![Edit { span: Span { end: other.start, ..other }, text: format!("{text_of} ") }, removed]);
    }
    all
}

/// Edits that let one of the loops around a statement count down.
fn reversed(statement: Span, text: &str) -> Vec<Vec<Edit>> {
    let words = text.get(statement.start as usize..statement.end as usize).unwrap_or_default();
    let counted = blocks::around(text, statement.start as usize).into_iter().rev();
    let reversed = |block: blocks::Block| {
        let header = text.get(block.start?..block.open)?.strip_prefix("for ")?;
        let (name, range) = header.split_once(" in ")?;
        let (first, end) = range.split_once("..")?;
        if first.trim() != "0" {
            return None;
        }
        let end = end.trim();
        let is_plain = end.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let last = if is_plain { end.to_owned() } else { format!("({end})") };
        let written = words.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let replaced = written.map(|word| match word.strip_prefix(name.trim()) {
            Some(rest) if rest.len() <= 1 => format!("{last} - 1 - {word}"),
            _ => word.to_owned(),
        });
        Some(vec![Edit { span: statement, text: replaced.collect() }])
    };
    counted.filter_map(reversed).collect()
}
