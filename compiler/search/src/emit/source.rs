//! Schedules as source: what the search found, as a `schedule` with a `block`, or else with an
//! `order` with repeats where tasks repeat.

use super::slots::{Slots, slots};
use pipe_ir::ids::MicrobatchId;
use pipe_schedule::placement::Placement;
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_syntax::format;
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

/// A `schedule` declaration with this name, with a line of documentation per line of `about`. Every
/// stage has the same devices for all microbatches, and takes them in turn.
pub fn source(schedule: &Schedule, name: &str, about: &str) -> String {
    format::styled(declaration(schedule, name, about))
}

fn declaration(schedule: &Schedule, name: &str, about: &str) -> String {
    let mut text = String::new();
    for line in about.lines() {
        let _ = writeln!(text, "{}", format!("/// {line}").trim_end());
    }
    let _ = writeln!(text, "schedule {name} {{");
    let _ = writeln!(text, "    require D == {} and M == {}", schedule.n_devices(), schedule.n_microbatches);
    let _ = writeln!(text, "    stages {}", schedule.n_stages());
    let _ = writeln!(text, "    place s on {}", placement(&schedule.placement, schedule.n_devices()));
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

/// Where stage `s` lives, as an expression: one that people write, if there is one.
fn placement(placement: &Placement, n_devices: usize) -> String {
    // Sets that are there once or more, each with its stages.
    let mut groups: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for stage in placement.stages() {
        let set = placement.devices(stage, MicrobatchId(0)).iter().map(|device| device.index()).collect();
        match groups.iter_mut().find(|(known, _)| *known == set) {
            Some((_, stages)) => stages.push(stage.index()),
            None => groups.push((set, vec![stage.index()])),
        }
    }
    // What needs no condition: a rule for all stages on one device, or the set with most stages.
    let rest = match rule(&groups, n_devices) {
        Some(rule) => {
            groups.retain(|(set, _)| set.len() > 1);
            rule
        }
        None => {
            let most = groups.iter().enumerate().max_by_key(|(place, (_, stages))| (stages.len(), *place));
            let most = most.map_or(0, |(place, _)| place);
            devices(&groups.remove(most).0, n_devices)
        }
    };
    let mut text = String::new();
    for (set, stages) in groups {
        let conditions: Vec<String> = stages.iter().map(|stage| format!("s == {stage}")).collect();
        let _ = write!(text, "if {} then {} else ", conditions.join(" or "), devices(&set, n_devices));
    }
    text + &rest
}

/// A rule that all stages on one device follow, if there are such stages.
fn rule(groups: &[(Vec<usize>, Vec<usize>)], n_devices: usize) -> Option<String> {
    type Known = (&'static str, fn(usize, usize) -> Option<usize>);
    let known: [Known; 4] = [
        ("s", |stage, _| Some(stage)),
        ("s % D", |stage, n| Some(stage % n)),
        ("min(s, 2 * D - 1 - s)", |stage, n| Some(stage.min((2 * n - 1).checked_sub(stage)?))),
        ("min(s % (2 * D), 2 * D - 1 - s % (2 * D))", |stage, n| {
            Some((stage % (2 * n)).min(2 * n - 1 - stage % (2 * n)))
        }),
    ];
    let alone = groups.iter().filter(|(set, _)| set.len() == 1);
    let alone: Vec<(usize, usize)> =
        alone.flat_map(|(set, stages)| stages.iter().map(|stage| (*stage, set[0]))).collect();
    let (first, device) = *alone.first()?;
    let fits = |(_, rule): &&Known| alone.iter().all(|(stage, own)| rule(*stage, n_devices) == Some(*own));
    if let Some((text, _)) = known.iter().find(fits) {
        return Some((*text).to_owned());
    }
    let behind = first.checked_sub(device)?;
    let is_behind = alone.iter().all(|(stage, own)| own + behind == *stage);
    is_behind.then(|| format!("s - {behind}"))
}

/// One device, a range or a list.
fn devices(set: &[usize], n_devices: usize) -> String {
    match set {
        [only] => only.to_string(),
        [first, .., last] if last - first + 1 == set.len() => {
            let end = if last + 1 == n_devices { "D".to_owned() } else { (last + 1).to_string() };
            format!("{first}..{end}")
        }
        _ => format!("[{}]", set.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
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
