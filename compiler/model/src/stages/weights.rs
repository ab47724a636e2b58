//! Weights of a stage: their values, those of their gradients and of the optimizer's state, and the update.

use super::stage::StageTape;
use crate::graph::bundle::{Bundle, ValueOffset, add_value};
use pipe_ir::ids::{NodeId, StageId, ValueId};
use pipe_ir::program::{Access, Body, Exec, Operand};
use pipe_ir::task::TaskKind;
use pipe_ir::training::Optimizer;
use pipe_ir::value::{Value, ValueKind};

/// Where a stage's weights lie.
#[derive(Clone, Debug, Default)]
pub(super) struct PlacedWeights {
    /// The weights, with their nodes.
    pub parameters: Vec<(NodeId, ValueOffset)>,
    /// Their gradients, with the nodes of the weights.
    pub gradients: Vec<(NodeId, ValueOffset)>,
    /// The values of both, if there are any weights.
    pub values: Option<(ValueId, ValueId)>,
    /// What changes them.
    pub update: Option<Exec>,
}

/// Operations that an update spends on one parameter, roughly: AdamW has a dozen.
const FLOPS_PER_PARAMETER: u64 = 12;

/// Gives a stage's weights their values, if it has any. The optimizer's state holds one tensor `<weight>.<number>` for
/// each number that it keeps per parameter; those of one number lie together, in the order of the weights.
pub(super) fn place_weights(
    values: &mut Vec<Value>,
    id: StageId,
    stage: &StageTape,
    optimizer: Option<Optimizer>,
) -> PlacedWeights {
    if stage.weights.is_empty() {
        return PlacedWeights::default();
    }
    let (mut parameters, mut gradients, mut state) = (Bundle::default(), Bundle::default(), Bundle::default());
    let mut offsets = Vec::with_capacity(stage.weights.len());
    for (node, weight) in &stage.weights {
        offsets.push((*node, parameters.add(&weight.name, &weight.ty, Some(weight.init))));
        gradients.add(&weight.name, &weight.ty, None);
    }
    for number in 0..optimizer.map_or(0, |optimizer| optimizer.state_per_parameter()) {
        for (_, weight) in &stage.weights {
            state.add(format!("{}.{number}", weight.name), &weight.ty, None);
        }
    }
    let mut add =
        |bundle: Bundle, name: &str, kind| add_value(values, bundle.into_value(format!("{name}.{id}"), kind, id));
    let parameters = add(parameters, "parameters", ValueKind::Parameters);
    let gradients = add(gradients, "gradients", ValueKind::ParameterGradients);
    let state = (!state.is_empty()).then(|| add(state, "optimizer", ValueKind::OptimizerState));
    let at = |value: ValueId| {
        offsets.iter().map(|(node, offset)| (*node, ValueOffset { value, offset: *offset, ahead: 0 })).collect()
    };
    PlacedWeights {
        parameters: at(parameters),
        gradients: at(gradients),
        values: Some((parameters, gradients)),
        update: optimizer.map(|_| update(id, stage, (parameters, gradients, state))),
    }
}

fn update(id: StageId, stage: &StageTape, (parameters, gradients, state): (ValueId, ValueId, Option<ValueId>)) -> Exec {
    let mut operands = vec![Operand::new(parameters, Access::Update), Operand::new(gradients, Access::Read)];
    operands.extend(state.map(|value| Operand::new(value, Access::Update)));
    let n_parameters: u64 = stage.weights.iter().map(|(_, weight)| weight.ty.elements()).sum();
    let flops = n_parameters.saturating_mul(FLOPS_PER_PARAMETER);
    Exec { kind: TaskKind::Update, stage: id, slice: None, chunk: None, operands, body: Body::Optimizer, flops }
}
