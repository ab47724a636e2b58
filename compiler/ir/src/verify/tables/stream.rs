//! Rules about how the microbatches of a program's step list are counted: steps of a window, slices
//! of a sequence, values of other microbatches, and the versions of weights that each step reads.

use super::graphs;
use crate::ids::MicrobatchId;
use crate::program::{Edge, Exec, Operand, Program};
use crate::slices::Slicing;
use crate::task::TaskKind;
use crate::value::{TensorSlot, Value, ValueKind};
use crate::verify::Place;
use crate::verify::report::Report;
use std::collections::BTreeMap;

/// Checks the counts. Whether microbatches can be told by step and slice at all: nothing else can be judged without.
pub(super) fn check(program: &Program, report: &mut Report) -> bool {
    let per_step = program.microbatches_of_step();
    if program.n_steps == 0 || !program.n_microbatches.is_multiple_of(program.n_steps) {
        let (all, steps) = (program.n_microbatches, program.n_steps);
        report.error(Place::Program, format!("{all} microbatches cannot be dealt out to {steps} steps"));
    } else if !program.lags.is_empty() {
        let complete = |lags: &Vec<u32>| lags.len() == per_step as usize;
        if program.lags.len() != program.n_stages as usize || !program.lags.iter().all(complete) {
            let (stages, rows) = (program.n_stages, program.lags.len());
            let message = format!("{stages} stages with {per_step} microbatches in a step have {rows} rows of lags");
            report.error(Place::Program, message);
        }
    }
    let (count, slices) = (program.n_microbatches, program.n_slices);
    let shares = &program.slice_shares;
    if !shares.is_empty() && (shares.len() != slices as usize || shares.contains(&0)) {
        report.error(Place::Program, format!("expected {slices} shares, each at least 1, found {shares:?}"));
        return false;
    }
    let is_whole = slices != 0 && count.is_multiple_of(slices);
    if !is_whole {
        let message = format!("{count} microbatches are not a number of wholes of {slices} slices each");
        report.error(Place::Program, message);
    } else if !per_step.is_multiple_of(slices) {
        let message = format!("a step of {per_step} microbatches has no number of wholes of {slices} slices each");
        report.error(Place::Program, message);
    }
    is_whole
}

/// Checks that an executable names its slice if there are several slices. It then reads slices of one microbatch only.
pub(super) fn slice(program: &Program, exec: &Exec) -> Result<(), String> {
    let slices = program.n_slices;
    let is_cut = slices > 1 && exec.kind != TaskKind::Update;
    match exec.slice {
        Some(slice) if is_cut && slice < slices => {}
        None if !is_cut => {}
        None => return Err(format!("it does not say of which of {slices} slices it is")),
        Some(slice) if is_cut => return Err(format!("q{slice} is not one of {slices} slices")),
        Some(_) => return Err("it is of a slice, but nothing that it runs on is cut".to_owned()),
    }
    if exec.edge.is_some() && (is_cut || exec.kind == TaskKind::Update) {
        return Err("it is of some microbatches, but neither slices nor updates are".to_owned());
    }
    if !is_cut && exec.kind != TaskKind::Update {
        return Ok(());
    }
    for operand in exec.operands.iter().filter(|operand| operand.ahead != 0) {
        let other = i64::from(exec.slice.unwrap_or(0)) + i64::from(operand.ahead);
        if !(0..i64::from(slices)).contains(&other) {
            let name = name(program, operand);
            return Err(format!("`{name}` would be of slice {other}, but slices are q0 to q{}", slices - 1));
        }
    }
    Ok(())
}

fn name(program: &Program, operand: &Operand) -> String {
    let value = operand.value;
    program.values.get(value.index()).map_or_else(|| value.to_string(), |value| value.name.clone())
}

/// Checks that a run is on the slice of its executable, and that its step has the microbatches of all operands. An
/// executable of an edge leaves out only values of microbatches that the step does not have.
pub(super) fn run(program: &Program, exec: &Exec, microbatch: MicrobatchId) -> Result<(), String> {
    let (slices, own) = (program.n_slices, microbatch.0 % program.n_slices);
    if let Some(slice) = exec.slice.filter(|slice| *slice != own) {
        return Err(format!("{microbatch} is slice q{own} of {slices}, not q{slice}"));
    }
    if let Some(operand) = out_of_step(program, exec, microbatch) {
        let (name, other) = (name(program, operand), i64::from(microbatch.0) + i64::from(operand.ahead));
        return Err(format!("`{name}` would be of microbatch {other}, which is not one of the step"));
    }
    let Some(edge) = exec.edge else { return Ok(()) };
    let least = |kind: TaskKind, of: fn(Edge) -> u32| {
        let alike = program.execs.iter().filter(|other| (other.kind, other.stage) == (kind, exec.stage));
        let possible = alike.filter(|other| out_of_step(program, other, microbatch).is_none());
        possible.map(|other| other.edge.map_or(0, of)).min().unwrap_or(0)
    };
    let is_backward = matches!(exec.kind, TaskKind::BackwardInput | TaskKind::Backward);
    let after = if is_backward { least(exec.kind, |edge| edge.after) } else { 0 };
    let needed = Edge { before: least(TaskKind::Forward, |edge| edge.before), after };
    if edge == needed {
        return Ok(());
    }
    let Edge { before, after } = needed;
    let has =
        format!("{microbatch} has {before} inputs before the first microbatch and {after} readers after the last");
    Err(format!("{has}, but `@{}` is for {} and {}", exec.name(), edge.before, edge.after))
}

/// The first value of a microbatch that is not one of the step.
fn out_of_step<'e>(program: &Program, exec: &'e Exec, microbatch: MicrobatchId) -> Option<&'e Operand> {
    let step = |number: i64| number.div_euclid(i64::from(program.microbatches_of_step().max(1)));
    let own = i64::from(microbatch.0);
    let mut others = exec.operands.iter().filter(|operand| operand.ahead != 0);
    others.find(|operand| step(own + i64::from(operand.ahead)) != step(own))
}

/// Checks that a tensor of data can be cut. If all slices are equal, the whole tensor is checked, too.
pub(super) fn data(program: &Program, slot: &TensorSlot) -> Result<(), String> {
    if program.n_slices == 1 || slot.is_key() {
        return Ok(());
    }
    if slot.ty.shape.len() < 2 {
        return Err("data is cut along its second axis, and it has none".to_owned());
    }
    if program.slice_shares.is_empty() { whole(program, slot, 0).map(drop) } else { Ok(()) }
}

/// Checks that a value can hold the data of a microbatch: each of its tensors has the size of the slice.
pub(super) fn load(program: &Program, value: &Value, microbatch: MicrobatchId) -> Result<(), String> {
    if program.slice_shares.is_empty() {
        return Ok(());
    }
    let whole = |slot| whole(program, slot, microbatch.0 % program.n_slices).map(drop);
    let mut cut = value.tensors.iter().filter(|slot| !slot.is_key());
    cut.try_for_each(whole).map_err(|message| format!("`{}`: {message}", value.name))
}

/// Checks that all executables read slices of sequences of the same length.
pub(super) fn wholes(program: &Program, report: &mut Report) {
    let mut known: BTreeMap<&str, u64> = BTreeMap::new();
    for (index, exec) in program.execs.iter().enumerate().filter(|_| !program.slice_shares.is_empty()) {
        let values = exec.operands.iter().filter_map(|operand| program.values.get(operand.value.index()));
        for slot in values.filter(|value| value.kind == ValueKind::Data).flat_map(|value| &value.tensors) {
            let Ok(length) = whole(program, slot, exec.slice.unwrap_or(0)) else { continue };
            let first = *known.entry(&slot.name).or_insert(length);
            if first != length {
                let name = &slot.name;
                let message = format!("`{name}` has {length} positions here, and {first} in other executables");
                report.error(Place::Exec(u32::try_from(index).unwrap_or(u32::MAX)), message);
            }
        }
    }
}

/// The length of the sequence that a tensor of a slice is cut from.
fn whole(program: &Program, slot: &TensorSlot, slice: u32) -> Result<u64, String> {
    let mut whole = slot.ty.clone();
    let size = whole.shape.get_mut(1).ok_or("data is cut along its second axis, and it has none")?;
    let own = *size;
    let place = Slicing::of(program).place(slice, own);
    let place = place
        .ok_or_else(|| format!("q{slice} has {own} positions, so another slice would not have whole positions"))?;
    *size = place.length;
    graphs::tensor(&whole).map_err(|message| format!("before it is cut, {message}"))?;
    Ok(place.length)
}
