//! Rule: an activation leaves where it is alive, comes back before its backward, and neither twice in a row.
//!
//! An activation is alive from the task that saves it, which is `F`, or `R` where the microbatch recomputes, to the
//! backward that reads it first. In the list of its device, `evict` and `fetch` of it alternate in between, and a
//! backward never stands where it is out. No other device takes part, so this needs the lists alone. Of each activation
//! only the first mistake is told.

use crate::dependencies::Dependencies;
use crate::schedule::Schedule;
use crate::swaps::{Entry, Home, Swap, SwapKind, list};
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Span;
use std::collections::{BTreeMap, BTreeSet};

/// Where an activation is, as far as a list was read, and the statement that put it there.
#[derive(Clone, Copy)]
enum State {
    Alive,
    Out { origin: u16 },
    Back { origin: u16 },
    Done { backward: Task },
}

/// Reads every list with swaps.
///
/// # Errors
/// A diagnostic per statement that does not fit what its device holds; the first of its microbatches stands for all.
pub(super) fn check(schedule: &Schedule, dependencies: &Dependencies) -> Result<(), Diagnostics> {
    let devices = (0..schedule.n_devices()).map(DeviceId::from_index);
    let lists = devices.filter(|device| !schedule.swaps.of(*device).is_empty());
    let mut told = BTreeSet::new();
    let found: Diagnostics = lists
        .flat_map(|device| of_device(schedule, dependencies, device))
        .filter(|(origin, _)| told.insert(*origin))
        .map(|(_, found)| found)
        .collect();
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// What is wrong with the list of a device, each with the statement.
fn of_device(schedule: &Schedule, dependencies: &Dependencies, device: DeviceId) -> Vec<(u16, Diagnostic)> {
    let mut states: BTreeMap<(StageId, MicrobatchId), State> = BTreeMap::new();
    let mut found: Vec<(u16, Diagnostic)> = Vec::new();
    let mut told = BTreeSet::new();
    for entry in list(schedule, device) {
        match entry {
            Entry::Task(position) => {
                let one = schedule.orders[device.index()][position];
                let key = (one.task.stage, one.task.microbatch);
                if dependencies.is_first(one.task) {
                    states.insert(key, State::Alive);
                } else if matches!(one.task.kind, TaskKind::Backward | TaskKind::BackwardInput) {
                    if let Some(State::Out { origin }) = states.get(&key)
                        && told.insert(key)
                    {
                        let said = span(schedule, *origin);
                        found.push((one.origin, away(schedule, one.task, span(schedule, one.origin), said)));
                    }
                    states.insert(key, State::Done { backward: one.task });
                }
            }
            Entry::Swap(index) => {
                let swap = schedule.swaps.of(device)[index];
                let key = (swap.stage, swap.microbatch);
                let refused = match swap.kind {
                    SwapKind::Evict => evict(schedule, dependencies, &swap, states.get(&key)),
                    SwapKind::Fetch => fetch(schedule, &swap, states.get(&key)),
                };
                match refused {
                    Some(refused) if told.insert(key) => found.push((swap.origin, refused)),
                    Some(_) => {}
                    None if swap.kind == SwapKind::Evict => {
                        states.insert(key, State::Out { origin: swap.origin });
                    }
                    None => {
                        states.insert(key, State::Back { origin: swap.origin });
                    }
                }
            }
        }
    }
    found
}

fn span(schedule: &Schedule, origin: u16) -> Span {
    schedule.origins[usize::from(origin)]
}

/// `s0 of m4`.
fn activation(schedule: &Schedule, swap: &Swap) -> String {
    format!("{} of {}", schedule.stage_name(swap.stage), schedule.slices.name(swap.microbatch))
}

/// What speaks against an `evict`.
fn evict(schedule: &Schedule, dependencies: &Dependencies, swap: &Swap, state: Option<&State>) -> Option<Diagnostic> {
    let (name, activation) = (schedule.swap_name(swap), activation(schedule, swap));
    let first = dependencies.first_of(swap.stage, swap.microbatch);
    let saves = schedule.task_name(Task { kind: first, stage: swap.stage, microbatch: swap.microbatch });
    let error =
        |label: &str, message: String| Diagnostic::error(Code::WrongSwap, span(schedule, swap.origin), label, message);
    match state {
        Some(State::Alive | State::Back { .. }) => None,
        None => {
            let message = format!("`{name}` stands before `{saves}`, which makes that activation");
            Some(error("nothing to evict", message).help(format!("let it stand behind `{saves}`")))
        }
        Some(State::Out { origin }) => {
            let message = format!("`{name}` stands where {activation} is already {}", place(schedule, swap.stage));
            let error = error("already out", message);
            let same = *origin == swap.origin;
            let error = if same { error } else { error.label(span(schedule, *origin), "it leaves here") };
            Some(error.help(format!("leave one of them out, or fetch {activation} in between")))
        }
        Some(State::Done { backward }) => {
            let message =
                format!("`{name}` stands behind `{}`, which gives that activation back", schedule.task_name(*backward));
            Some(error("nothing to evict", message).help(format!("let it stand right behind `{saves}`")))
        }
    }
}

/// What speaks against a `fetch`.
fn fetch(schedule: &Schedule, swap: &Swap, state: Option<&State>) -> Option<Diagnostic> {
    let (name, activation) = (schedule.swap_name(swap), activation(schedule, swap));
    let error =
        |message: String| Diagnostic::error(Code::WrongSwap, span(schedule, swap.origin), "nothing to fetch", message);
    match state {
        Some(State::Out { .. }) => None,
        None | Some(State::Alive) => {
            let message = format!("`{name}` fetches what was never evicted before it");
            Some(error(message).help(format!("evict {activation} before, or leave the `fetch` out")))
        }
        Some(State::Back { origin }) => {
            let message = format!("`{name}` fetches what is already back");
            let error = error(message);
            let same = *origin == swap.origin;
            Some(if same { error } else { error.label(span(schedule, *origin), "it comes back here") })
        }
        Some(State::Done { backward }) => {
            let message =
                format!("`{name}` stands behind `{}`, which reads that activation", schedule.task_name(*backward));
            Some(error(message).help("let it stand before the backward"))
        }
    }
}

/// The error for a backward whose activation is out.
fn away(schedule: &Schedule, task: Task, span: Span, evicted: Span) -> Diagnostic {
    let stage = task.stage;
    let name = schedule.task_name(task);
    let message = format!("`{name}` reads an activation that is {}", place(schedule, stage));
    let slices = schedule.slices;
    let slice = if slices.count() > 1 { format!(", {}", slices.slice(task.microbatch)) } else { String::new() };
    let fetch = format!("fetch[{}, {}{slice}]", stage.0, slices.microbatch(task.microbatch));
    let error =
        Diagnostic::error(Code::WrongSwap, span, format!("{} is out", schedule.slices.name(task.microbatch)), message);
    error.label(evicted, "it leaves here").help(format!("write `{fetch}` before `{name}`"))
}

/// `out on d7`, `out with the host`.
fn place(schedule: &Schedule, stage: StageId) -> String {
    match schedule.swaps.home(stage) {
        Some(Home::Peer(device)) => format!("out on {device}"),
        Some(Home::Host) | None => "out with the host".to_owned(),
    }
}
