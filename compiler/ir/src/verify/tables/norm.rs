//! Rule: where gradients are clipped, there is one sum of squares; every update reads it, and the gradients of every
//! update have one executable that adds their squares to it.

use crate::graph::{DType, TensorType};
use crate::ids::{GroupId, StageId, ValueId};
use crate::program::{Access, Body, Exec, Program};
use crate::task::TaskKind;
use crate::training::NORM_NUMBERS;
use crate::units::Bytes;
use crate::value::ValueKind;
use crate::verify::Place;
use crate::verify::report::Report;
use std::collections::BTreeMap;

/// Checks the training settings and the row of the sum.
pub(super) fn values(program: &Program) -> Result<(), String> {
    let most = program.training.as_ref().and_then(|training| training.clip_norm);
    if most.is_some_and(|most| !most.is_finite() || most <= 0.0) {
        return Err("the norm of gradients is clipped to a number above 0".to_owned());
    }
    let mut sums = program.values.iter().filter(|value| value.kind == ValueKind::GradientNorm);
    let Some(sum) = sums.next() else { return Ok(()) };
    if let Some(second) = sums.next() {
        return Err(format!("`{}` is a second sum of squares", second.name));
    }
    if most.is_none() {
        return Err(format!("`{}` is for gradients that are clipped, and no training setting says so", sum.name));
    }
    if program.n_steps != 1 || !program.lags.is_empty() {
        return Err("gradients of several steps have no norm together".to_owned());
    }
    let ty = TensorType::new(DType::F64, &[NORM_NUMBERS]);
    match sum.tensors.as_slice() {
        [slot] if slot.ty == ty && slot.offset.0 == 0 && slot.part.is_none() && slot.split.is_none() => Ok(()),
        _ => Err(format!("`{}` consists of one tensor, {ty}", sum.name)),
    }
}

/// Checks an executable of this body.
pub(super) fn squares(program: &Program, exec: &Exec) -> Result<(), String> {
    let kind = |position: usize| {
        let operand = exec.operands.get(position)?;
        Some((program.values.get(operand.value.index())?.kind, operand.access))
    };
    let expected = [(ValueKind::ParameterGradients, Access::Read), (ValueKind::GradientNorm, Access::Update)];
    if exec.operands.len() != 2 || [kind(0), kind(1)] != expected.map(Some) {
        return Err("squares are added up of gradients, which are read, to one sum".to_owned());
    }
    if exec.kind != TaskKind::Update || exec.piece.is_some() {
        return Err("squares are added up with the updates".to_owned());
    }
    Ok(())
}

/// Gradients that an update uses: those of a stage, perhaps of a chunk of its weights.
type Part = (StageId, Option<ValueId>, Option<(u32, Bytes, Bytes, Option<GroupId>)>);

/// None of executables that are neither. Rows that there are not are found where the executable is judged.
fn part(program: &Program, exec: &Exec) -> Option<Part> {
    if !matches!(exec.body, Body::Optimizer | Body::Squares) {
        return None;
    }
    let is_gradient = |value: &ValueId| {
        program.values.get(value.index()).is_some_and(|row| row.kind == ValueKind::ParameterGradients)
    };
    let gradients = exec.operands.iter().map(|operand| operand.value).find(is_gradient);
    Some((exec.stage, gradients, exec.chunk.map(|chunk| (chunk.number, chunk.from, chunk.to, chunk.group))))
}

/// Checks that updates and sums of squares belong together.
pub(super) fn check(program: &Program, report: &mut Report) {
    let is_clipped = program.training.as_ref().is_some_and(|training| training.clip_norm.is_some());
    // Of each part: how many executables update it, and how many add up its squares.
    let mut counts: BTreeMap<Part, [u32; 2]> = BTreeMap::new();
    for exec in &program.execs {
        let Some(part) = part(program, exec) else { continue };
        counts.entry(part).or_default()[usize::from(exec.is_squares())] += 1;
    }
    for (index, exec) in program.execs.iter().enumerate() {
        let Some([updates, squares]) = part(program, exec).and_then(|part| counts.get(&part)) else { continue };
        let place = Place::Exec(u32::try_from(index).unwrap_or(u32::MAX));
        if exec.is_squares() && *updates != 1 {
            report.error(place, format!("its gradients have {updates} updates"));
        } else if exec.body == Body::Optimizer && is_clipped && *squares != 1 {
            report.error(place, format!("the squares of its gradients are added up by {squares} executables"));
        }
    }
}
