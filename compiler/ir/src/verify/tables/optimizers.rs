//! Rule: an update that runs the optimizer has the operands, sizes and types that the optimizer of
//! the training settings asks for.

use super::scratch;
use crate::graph::DType;
use crate::muon::{self, Rule};
use crate::program::{Access, Exec, Operand, Program};
use crate::task::TaskKind;
use crate::training::Optimizer;
use crate::value::{TensorSlot, Value, ValueKind};
use std::collections::BTreeMap;

/// Checks an executable of this body.
pub(super) fn check(program: &Program, exec: &Exec) -> Result<(), String> {
    let Some(training) = &program.training else {
        return Err("an optimizer needs training settings".to_owned());
    };
    if exec.kind != TaskKind::Update {
        return Err("only an update runs the optimizer".to_owned());
    }
    // An update in place has its parameters once, one that makes a new version beside the old one has both.
    let operands = match exec.operands.as_slice() {
        [old, new, ..] if old.value == new.value => {
            if (old.access, new.access) != (Access::Read, Access::Write) {
                return Err("an update reads the old version first, and writes the new one".to_owned());
            }
            &exec.operands[1..]
        }
        [weights, ..] if weights.access == Access::Write => {
            return Err("an update that writes the new version reads the old one first".to_owned());
        }
        operands => operands,
    };
    let kinds: Vec<ValueKind> = operands.iter().map(|operand| program.value(operand.value).kind).collect();
    let state = training.optimizer.state_per_parameter();
    let mut expected = vec![ValueKind::Parameters, ValueKind::ParameterGradients];
    expected.extend((state > 0).then_some(ValueKind::OptimizerState));
    expected.extend(training.clip_norm.map(|_| ValueKind::GradientNorm));
    let without_scratch = kinds.strip_suffix(&[ValueKind::Scratch]).unwrap_or(&kinds);
    if without_scratch != expected {
        let behind = if training.clip_norm.is_some() { ", and behind these the sum of squares" } else { "" };
        let message = "an optimizer's operands are parameters, gradients and, where it has any, state";
        return Err(format!("{message}{behind}"));
    }
    let untouched = |(operand, kind): (&Operand, &ValueKind)| {
        let is_read = matches!(kind, ValueKind::ParameterGradients | ValueKind::GradientNorm);
        (operand.access == Access::Read) != is_read && *kind != ValueKind::Scratch
    };
    if let Some((operand, _)) = operands.iter().zip(&kinds).find(|pair| untouched(*pair)) {
        let name = &program.value(operand.value).name;
        return Err(format!("an optimizer reads gradients and updates all else, but `{name}` is touched otherwise"));
    }
    let values = || exec.operands.iter().map(|operand| program.value(operand.value));
    let tensors = || values().filter(|value| value.kind != ValueKind::GradientNorm).flat_map(|value| &value.tensors);
    let dtype = tensors().next().map_or(DType::F32, |slot| slot.ty.dtype);
    if let Some(slot) = tensors().find(|slot| !slot.ty.dtype.is_float() || slot.ty.dtype != dtype) {
        let ty = slot.ty.dtype;
        return Err(format!("an optimizer works on numbers of one type, but `{}` is {ty} beside {dtype}", slot.name));
    }
    let bytes = |operand: usize| {
        let value = program.value(operands[operand].value);
        value.share.map_or(value.bytes, |own| program.value(own.whole).bytes).0
    };
    if bytes(0) != bytes(1) {
        return Err(format!("{} bytes of parameters have {} bytes of gradients", bytes(0), bytes(1)));
    }
    if training.optimizer.state_of_matrices().is_some() {
        let values = (program.value(operands[0].value), program.value(operands[2].value));
        return whole_matrices(program, &training.optimizer, exec, values);
    }
    let changed = exec.chunk.map_or(bytes(0), |chunk| chunk.to.0.saturating_sub(chunk.from.0));
    if state > 0 && bytes(2) < changed.saturating_mul(state) {
        return Err(format!("{changed} bytes of parameters need {state} times as much state, not {}", bytes(2)));
    }
    Ok(())
}

/// Checks a Muon update: weights are whole tensors, and each has the state that its rule needs.
fn whole_matrices(
    program: &Program,
    optimizer: &Optimizer,
    exec: &Exec,
    (parameters, state): (&Value, &Value),
) -> Result<(), String> {
    let name = optimizer.name();
    if exec.chunk.is_some() || parameters.share.is_some() {
        return Err(format!("`{name}` updates whole matrices, but @{} has a part of the weights", exec.name()));
    }
    let is_cut = |slot: &&TensorSlot| slot.part.is_some() || slot.split.is_some();
    if let Some(slot) = parameters.tensors.iter().find(is_cut) {
        return Err(format!("`{name}` updates whole matrices, but `{}` is a part of a tensor", slot.name));
    }
    if parameters.tensors.is_empty() {
        return Err(format!("`{name}` updates tensors, but `{}` does not say which it has", parameters.name));
    }
    let rules = muon::rules(parameters, state);
    let of_state: BTreeMap<&str, &TensorSlot> = state.tensors.iter().map(|slot| (slot.name.as_str(), slot)).collect();
    for (weight, rule) in &rules {
        let moments = match rule {
            Some(Rule::Matrices(_)) => optimizer.state_of_matrices().unwrap_or(0),
            Some(Rule::Numbers(_)) => optimizer.state_per_parameter(),
            None => return Err(format!("`{}` is no matrix, and its state has no second moments", weight.name)),
        };
        for moment in 0..moments {
            let name = format!("{}.{moment}", weight.name);
            let Some(slot) = of_state.get(name.as_str()) else {
                return Err(format!("`{}` has no tensor `{name}`", state.name));
            };
            if slot.ty != weight.ty || moment == 0 && slot.offset != weight.offset {
                return Err(format!("`{name}` has another type or place than `{}`", weight.name));
            }
        }
    }
    scratch(program, exec, muon::scratch(&rules))
}
