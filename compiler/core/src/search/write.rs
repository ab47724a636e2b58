//! Schedules as source: what the search found, as a `schedule` with a `block`, or else with an `order` with repeats where
//! tasks repeat.

use super::slots::{Slots, slots};
use crate::schedule::{Schedule, ScheduledTask};
use pipe_ir::ids::{MicrobatchId, StageId};
use std::fmt::Write;

/// Repeats that save fewer tasks than this are written out.
const LEAST_SAVING: usize = 4;
/// The longest part of an order that is looked at as one turn of a repeat, in tasks.
const LONGEST_TURN: usize = 400;
/// Where lines are broken.
const WIDTH: usize = 100;

/// A part of an order.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Task(String),
    Repeat(usize, Vec<Part>),
}

/// A `schedule` declaration with this name, with a line of documentation per line of `about`. Every stage lives on one
/// device and takes its microbatches in turn.
#[must_use]
pub fn source(schedule: &Schedule, name: &str, about: &str) -> String {
    let mut text = String::new();
    for line in about.lines() {
        let _ = writeln!(text, "{}", format!("/// {line}").trim_end());
    }
    let devices: Vec<usize> = (0..schedule.n_stages())
        .map(|stage| schedule.placement.device(StageId::from_index(stage), MicrobatchId(0)).index())
        .collect();
    let _ = writeln!(text, "schedule {name} {{");
    let _ = writeln!(text, "    require D == {} and M == {}", schedule.n_devices(), schedule.n_microbatches);
    let _ = writeln!(text, "    stages {}", schedule.n_stages());
    let _ = writeln!(text, "    place s on {}", placement(&devices, schedule.n_devices()));
    if let Some(Slots { period, lines }) = slots(schedule) {
        let _ = writeln!(text, "    block every {period} {{");
        for (kind, slot) in lines {
            let _ = writeln!(text, "        {}[s] at {slot}", kind.letters());
        }
        text.push_str("    }\n}\n");
        return text;
    }
    text.push_str("    order d {\n");
    for (device, order) in schedule.orders.iter().enumerate() {
        let before = if device == 0 { "        " } else { " else " };
        let _ = writeln!(text, "{before}if d == {device} {{");
        let words: Vec<String> = order.iter().map(word).collect();
        write_parts(&mut text, &parts(&words), 3);
        text.push_str("        }");
    }
    text.push_str("\n    }\n}\n");
    text
}

fn word(scheduled: &ScheduledTask) -> String {
    format!("{}[{}]", scheduled.task.kind.letters(), scheduled.task.stage.0)
}

/// The device of stage `s` as an expression: one that people write, if there is one.
fn placement(devices: &[usize], n_devices: usize) -> String {
    type Known = (&'static str, fn(usize, usize) -> usize);
    let known: [Known; 4] = [
        ("s", |stage, _| stage),
        ("s % D", |stage, n| stage % n),
        ("min(s, 2 * D - 1 - s)", |stage, n| stage.min((2 * n - 1).saturating_sub(stage))),
        ("min(s % (2 * D), 2 * D - 1 - s % (2 * D))", |stage, n| (stage % (2 * n)).min(2 * n - 1 - stage % (2 * n))),
    ];
    let fits = |(_, device): &&Known| devices.iter().enumerate().all(|(stage, own)| device(stage, n_devices) == *own);
    if let Some((text, _)) = known.iter().find(fits) {
        return (*text).to_owned();
    }
    let mut text = String::new();
    let last = devices.last().copied().unwrap_or(0);
    for (stage, device) in devices.iter().enumerate().take(devices.len().saturating_sub(1)) {
        let _ = write!(text, "if s == {stage} then {device} else ");
    }
    let _ = write!(text, "{last}");
    text
}

/// Looks for repeats from the left: of those that begin at a task, the one that saves most.
fn parts(words: &[String]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let rest = &words[at..];
        let turns = (1..=(rest.len() / 2).min(LONGEST_TURN)).map(|turn| (repeats(rest, turn), turn));
        // The most tasks saved; of equals the shortest turn.
        let best = turns.max_by_key(|(count, turn)| ((count - 1) * turn, std::cmp::Reverse(*turn)));
        match best {
            Some((count, turn)) if (count - 1) * turn >= LEAST_SAVING && is_worth(rest, count, turn) => {
                parts.push(Part::Repeat(count, self::parts(&rest[..turn])));
                at += count * turn;
            }
            _ => {
                parts.push(Part::Task(words[at].clone()));
                at += 1;
            }
        }
    }
    parts
}

/// Whether no repeat that begins a little later saves more.
fn is_worth(rest: &[String], count: usize, turn: usize) -> bool {
    let saved = (count - 1) * turn;
    let later = 1..(turn + 1).min(rest.len());
    later.into_iter().all(|skip| {
        let rest = &rest[skip..];
        let turns = 1..=(rest.len() / 2).min(turn);
        turns.into_iter().all(|turn| (repeats(rest, turn) - 1) * turn <= saved)
    })
}

/// How often the first `turn` words stand one after the other.
fn repeats(words: &[String], turn: usize) -> usize {
    let first = &words[..turn];
    1 + words[turn..].chunks_exact(turn).take_while(|chunk| *chunk == first).count()
}

fn write_parts(text: &mut String, parts: &[Part], depth: usize) {
    let indent = "    ".repeat(depth);
    let mut line = String::new();
    for part in parts {
        match part {
            Part::Task(word) if indent.len() + line.len() + word.len() < WIDTH => {
                line.push_str(if line.is_empty() { "" } else { " " });
                line.push_str(word);
            }
            Part::Task(word) => {
                flush(text, &indent, &mut line);
                line.clone_from(word);
            }
            Part::Repeat(count, turn) => {
                flush(text, &indent, &mut line);
                write_repeat(text, *count, turn, depth);
            }
        }
    }
    flush(text, &indent, &mut line);
}

fn write_repeat(text: &mut String, count: usize, turn: &[Part], depth: usize) {
    let indent = "    ".repeat(depth);
    let words: Vec<&str> =
        turn.iter().filter_map(|part| if let Part::Task(word) = part { Some(word.as_str()) } else { None }).collect();
    let inside = words.join(" ");
    if words.len() == turn.len() && indent.len() + inside.len() + 16 < WIDTH {
        let _ = writeln!(text, "{indent}repeat {count} {{ {inside} }}");
        return;
    }
    let _ = writeln!(text, "{indent}repeat {count} {{");
    write_parts(text, turn, depth + 1);
    let _ = writeln!(text, "{indent}}}");
}

fn flush(text: &mut String, indent: &str, line: &mut String) {
    if !line.is_empty() {
        let _ = writeln!(text, "{indent}{line}");
        line.clear();
    }
}
