//! Schedules as source: what the search found, as a `schedule` with a `block`, or else with an
//! `order` with repeats where tasks repeat.

use super::slots::{Slots, slots};
use super::words::words;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_schedule::schedule::Schedule;
use pipe_syntax::format;
use std::collections::BTreeSet;
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

/// The parts and lanes that the pipeline declares. The schedule must not declare them again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OfPipeline {
    /// Whether the pipeline has a line `parts`.
    pub parts: bool,
    /// The names of its lanes.
    pub lanes: Vec<String>,
}

/// Writes a `schedule` declaration with this name and a line of documentation per line of `about`. Every stage must
/// have the same devices for all microbatches, and run these in ascending order.
pub fn source(schedule: &Schedule, name: &str, about: &str, of_pipeline: &OfPipeline) -> String {
    format::styled(declaration(schedule, name, about, of_pipeline))
}

fn declaration(schedule: &Schedule, name: &str, about: &str, of_pipeline: &OfPipeline) -> String {
    let mut text = String::new();
    for line in about.lines() {
        let _ = writeln!(text, "{}", format!("/// {line}").trim_end());
    }
    let _ = writeln!(text, "schedule {name} {{");
    let _ = writeln!(text, "    require D == {} and M == {}", schedule.n_devices(), schedule.n_microbatches);
    let _ = writeln!(text, "    stages {}", schedule.n_whole_stages());
    let _ = writeln!(text, "    place s on {}", placement(schedule));
    for lane in schedule.parts.lanes().iter().filter(|lane| !of_pipeline.lanes.iter().any(|own| **own == ***lane)) {
        let _ = writeln!(text, "    lane {lane}");
    }
    if !of_pipeline.parts && !schedule.parts.is_empty() {
        let _ = writeln!(text, "    parts s = {}", parts_of_stages(schedule));
    }
    if let Some(frozen) = frozen(schedule) {
        let _ = writeln!(text, "    frozen {frozen}");
    }
    if let Some(Slots { period, lines }) = slots(schedule) {
        let _ = writeln!(text, "    block every {period} {{");
        for (kind, slot) in lines {
            let _ = writeln!(text, "        {}[s] at {slot}", kind.letters());
        }
        text.push_str("    }\n}\n");
        return text;
    }
    text.push_str("    order d {\n");
    for device in 0..schedule.n_devices() {
        let before = if device == 0 { "        " } else { " else " };
        let _ = writeln!(text, "{before}if d == {device} {{");
        write_parts(&mut text, &parts(&words(schedule, DeviceId::from_index(device))), 3);
        text.push_str("        }");
    }
    text.push_str("\n    }\n}\n");
    text
}

/// Where stage `s` lives, as an expression: one that people write, if there is one.
fn placement(schedule: &Schedule) -> String {
    let n_devices = schedule.n_devices();
    // Sets that are there once or more, each with its stages.
    let mut groups: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for stage in 0..schedule.n_whole_stages() {
        let queues = schedule.parts.rows(StageId::from_index(stage)).map(StageId::from_index);
        let queues = queues.flat_map(|row| schedule.placement.devices(row, MicrobatchId(0)));
        let set = queues.map(|queue| schedule.parts.device(*queue, n_devices).index()).collect::<BTreeSet<usize>>();
        add(&mut groups, set.into_iter().collect(), stage);
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
        let _ = write!(text, "if {} then {} else ", condition(&stages), devices(&set, n_devices));
    }
    text + &rest
}

/// Adds a stage to the group of stages with the same value.
fn add<T: PartialEq>(groups: &mut Vec<(T, Vec<usize>)>, of_stage: T, stage: usize) {
    match groups.iter_mut().find(|(known, _)| *known == of_stage) {
        Some((_, stages)) => stages.push(stage),
        None => groups.push((of_stage, vec![stage])),
    }
}

/// A condition on `s` that holds for these stages only.
fn condition(stages: &[usize]) -> String {
    match stages {
        [0, .., last] if last + 1 == stages.len() => format!("s < {}", last + 1),
        _ => stages.iter().map(|stage| format!("s == {stage}")).collect::<Vec<_>>().join(" or "),
    }
}

/// The list of parts of stage `s`, as an expression.
fn parts_of_stages(schedule: &Schedule) -> String {
    let parts = &schedule.parts;
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for stage in 0..schedule.n_whole_stages() {
        let own = parts.positions(StageId::from_index(stage)).filter_map(|rows| {
            let part = parts.part(StageId::from_index(rows.start))?;
            let lane = part.lane.map_or_else(String::new, |lane| format!(" on {}", parts.lanes()[lane]));
            Some(format!("{}{lane}", part.name))
        });
        add(&mut groups, own.collect::<Vec<_>>().join(", "), stage);
    }
    let (last, _) = groups.pop().unwrap_or_default();
    let before = groups.iter().map(|(list, stages)| format!("if {} then {list} else ", condition(stages)));
    before.collect::<String>() + &last
}

/// What follows the word `frozen`. None if no stage is frozen.
fn frozen(schedule: &Schedule) -> Option<String> {
    let parts = &schedule.parts;
    let is_frozen = |stage: &usize| {
        let mut rows = parts.rows(StageId::from_index(*stage)).filter(|row| !parts.is_on_lane(*row));
        rows.all(|row| schedule.frozen.is_frozen(StageId::from_index(row)))
    };
    let frozen: Vec<usize> = (0..schedule.n_whole_stages()).filter(is_frozen).collect();
    match frozen.len() {
        0 => None,
        all if all == schedule.n_whole_stages() => Some("all".to_owned()),
        _ => Some(format!("s if {}", condition(&frozen))),
    }
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
