//! Weights of a stage: their values, those of their gradients and of the optimizer's state, and the update.

use super::stage::StageTape;
use crate::graph::bundle::{Bundle, ValueOffset, add_value};
use crate::{Weight, WeightId};
use pipe_ir::ids::{NodeId, StageId, ValueId};
use pipe_ir::muon::Matrices;
use pipe_ir::program::{Access, Body, Exec, Operand};
use pipe_ir::task::TaskKind;
use pipe_ir::training::Optimizer;
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};
use std::collections::BTreeSet;

/// Where a stage's weights lie.
#[derive(Clone, Debug, Default)]
pub(super) struct PlacedWeights {
    /// The weights, with their nodes.
    pub parameters: Vec<(NodeId, ValueOffset)>,
    /// The gradients of those that are trained, with the nodes of the weights.
    pub gradients: Vec<(NodeId, ValueOffset)>,
    /// The values of both, if any weights are trained.
    pub trained: Option<(ValueId, ValueId)>,
    /// The value of the weights that stay as they are, if there are any.
    pub frozen: Option<ValueId>,
    /// What changes the others.
    pub update: Option<Exec>,
}

/// Operations that an update spends on one parameter, roughly: AdamW has a dozen.
const FLOPS_PER_PARAMETER: u64 = 12;

/// Gives a stage's weights their values, if it has any: one for those that are trained, another for the others. An
/// optimizer that keeps two numbers per parameter has the tensors `<weight>.0` of all weights in its state, and behind
/// them `<weight>.1` of all; Muon has no `<weight>.1` of the weights in `matrices`.
pub(super) fn place_weights(
    values: &mut Vec<Value>,
    (id, stage): (StageId, &StageTape),
    optimizer: Option<Optimizer>,
    matrices: &BTreeSet<WeightId>,
) -> PlacedWeights {
    let (frozen, trained): (Vec<_>, Vec<_>) = stage.weights.iter().partition(|(_, weight)| weight.is_frozen);
    let owned = stage.weights.iter().zip(&stage.owned).filter(|(_, own)| matrices.contains(own));
    let matrices: BTreeSet<NodeId> = owned.map(|((node, _), _)| *node).collect();
    let mut placed = PlacedWeights::default();
    if !trained.is_empty() {
        let (parameters, at) = place(values, id, &trained, ("parameters", ValueKind::Parameters));
        let (gradients, of_gradients) = place(values, id, &trained, ("gradients", ValueKind::ParameterGradients));
        let mut state = Bundle::default();
        let count = |node: &NodeId| optimizer.map_or(0, |optimizer| optimizer.state_of(matrices.contains(node)));
        for number in 0..optimizer.map_or(0, |optimizer| optimizer.state_of(false)) {
            for (_, weight) in trained.iter().filter(|(node, _)| number < count(node)) {
                state.add_split(format!("{}.{number}", weight.name), (&weight.ty, weight.divided()), None);
            }
        }
        let state = (!state.is_empty())
            .then(|| add_value(values, state.into_value(format!("optimizer.{id}"), ValueKind::OptimizerState, id)));
        placed.parameters = at;
        placed.gradients = of_gradients;
        placed.trained = Some((parameters, gradients));
        placed.update = optimizer.map(|optimizer| {
            let is_whole = |node: &NodeId| matrices.contains(node) && optimizer.state_of_matrices().is_some();
            let whole = trained.iter().filter(|(node, _)| is_whole(node)).filter_map(|(_, own)| Matrices::of(&own.ty));
            let products = whole.fold(0, |sum: u64, matrices| sum.saturating_add(matrices.flops()));
            update(id, &trained, (parameters, gradients, state), products)
        });
    }
    if !frozen.is_empty() {
        let (value, at) = place(values, id, &frozen, ("frozen", ValueKind::Parameters));
        placed.parameters.extend(at);
        placed.frozen = Some(value);
    }
    placed
}

/// Adds a value with a tensor for each of some weights; where each lies.
fn place(
    values: &mut Vec<Value>,
    id: StageId,
    weights: &[&(NodeId, Weight)],
    (name, kind): (&str, ValueKind),
) -> (ValueId, Vec<(NodeId, ValueOffset)>) {
    let mut bundle = Bundle::default();
    let init = |weight: &Weight| (kind == ValueKind::Parameters).then_some(weight.init);
    let offsets: Vec<(NodeId, Bytes)> = weights
        .iter()
        .map(|(node, own)| (*node, bundle.add_split(&own.name, (&own.ty, own.divided()), init(own))))
        .collect();
    let value = add_value(values, bundle.into_value(format!("{name}.{id}"), kind, id));
    (value, offsets.into_iter().map(|(node, offset)| (node, ValueOffset { value, offset, ahead: 0 })).collect())
}

fn update(
    id: StageId,
    trained: &[&(NodeId, Weight)],
    (parameters, gradients, state): (ValueId, ValueId, Option<ValueId>),
    products: u64,
) -> Exec {
    let mut operands = vec![Operand::new(parameters, Access::Update), Operand::new(gradients, Access::Read)];
    operands.extend(state.map(|value| Operand::new(value, Access::Update)));
    let n_parameters: u64 = trained.iter().map(|(_, weight)| weight.ty.elements()).sum();
    let flops = n_parameters.saturating_mul(FLOPS_PER_PARAMETER).saturating_add(products);
    Exec::new(TaskKind::Update, id, operands, Body::Optimizer, flops)
}
