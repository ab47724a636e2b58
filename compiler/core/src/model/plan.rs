//! What crosses from one pass of a stage to another: tensors saved by `F`, and deferred by `B` to `W`.

use super::differentiate::{Differentiated, Half};
use super::keep::{Supply, cheapest, supply};
use super::passes::Places;
use super::tape::is_view;
use pipe_ir::ids::NodeId;
use std::collections::BTreeSet;

/// The tensors that cross, each once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    /// Saved by `F` for `B` alone.
    pub saved_for_input: BTreeSet<NodeId>,
    /// Saved by `F` for `W`, and perhaps for `B` too; for `BW`, where the halves are never apart.
    pub saved_for_weight: BTreeSet<NodeId>,
    /// Stored by `B` for `W`.
    pub deferred: BTreeSet<NodeId>,
}

/// What the backward pass of a stage is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Targets<'a> {
    /// The gradients of what flows into the stage.
    pub inputs: &'a [NodeId],
    /// The gradients of its weights.
    pub weights: &'a [NodeId],
    /// Forward tensors that are at hand anyway.
    pub kept: &'a Places,
}

/// Chooses what crosses. Without `split` only `BW` runs, and everything is saved for it in one bundle.
#[must_use]
pub(super) fn plan(stage: &Differentiated, targets: Targets<'_>, split: bool) -> Plan {
    let weight = needs_of_weight_half(stage, targets);
    let input = needs_of_input_half(stage, targets.inputs.iter().chain(&weight.gradients).copied());
    let all = &weight.forward | &input;
    let saved = cheapest(&stage.tape, &all, |id| {
        if targets.kept.contains_key(&id) { Supply::Free } else { supply(&stage.tape, id) }
    });
    if !split {
        return Plan { saved_for_weight: saved, ..Plan::default() };
    }
    let saved_for_weight = reached_of(stage, &saved, &weight.forward, targets.kept);
    let saved_for_input = &saved - &saved_for_weight;
    let deferred = deferred(stage, &saved_for_weight, &weight.gradients, targets.kept);
    Plan { saved_for_input, saved_for_weight, deferred }
}

/// What `W` reads of other passes.
#[derive(Default)]
struct Needs {
    /// Forward tensors.
    forward: BTreeSet<NodeId>,
    /// Tensors of `B`.
    gradients: BTreeSet<NodeId>,
}

fn needs_of_weight_half(stage: &Differentiated, targets: Targets<'_>) -> Needs {
    let mut needs = Needs::default();
    let mut seen = BTreeSet::new();
    let mut open = targets.weights.to_vec();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = stage.tape.node(id);
        match stage.half(id) {
            Half::Forward => {
                needs.forward.insert(id);
            }
            Half::Input if !is_view(&node.op) => {
                needs.gradients.insert(id);
            }
            // `W` sees views again through their sources.
            Half::Input | Half::Weight => open.extend(&node.inputs),
        }
    }
    needs
}

/// The forward tensors that the nodes of `B` before `roots` read.
fn needs_of_input_half(stage: &Differentiated, roots: impl IntoIterator<Item = NodeId>) -> BTreeSet<NodeId> {
    let mut forward = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut open: Vec<NodeId> = roots.into_iter().collect();
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            if stage.half(id) == Half::Forward {
                forward.insert(id);
            } else {
                open.extend(&stage.tape.node(id).inputs);
            }
        }
    }
    forward
}

/// Those of the `saved` tensors from which `needed` is computed again.
fn reached_of(
    stage: &Differentiated,
    saved: &BTreeSet<NodeId>,
    needed: &BTreeSet<NodeId>,
    kept: &Places,
) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut open: Vec<NodeId> = needed.iter().copied().collect();
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            if saved.contains(&id) {
                found.insert(id);
            } else if !kept.contains_key(&id) {
                open.extend(&stage.tape.node(id).inputs);
            }
        }
    }
    found
}

fn deferred(
    stage: &Differentiated,
    saved: &BTreeSet<NodeId>,
    needed: &BTreeSet<NodeId>,
    kept: &Places,
) -> BTreeSet<NodeId> {
    let tape = &stage.tape;
    let mut at_hand = vec![false; stage.n_forward()];
    for id in tape.ids().take(stage.n_forward()) {
        at_hand[id.index()] = saved.contains(&id)
            || kept.contains_key(&id)
            || match supply(tape, id) {
                Supply::Free => true,
                Supply::Cheap | Supply::View => tape.node(id).inputs.iter().all(|input| at_hand[input.index()]),
                Supply::Dear | Supply::Gone => false,
            };
    }
    cheapest(tape, needed, |id| match stage.half(id) {
        Half::Forward if at_hand[id.index()] => Supply::Free,
        Half::Forward => Supply::Gone,
        Half::Input | Half::Weight => supply(tape, id),
    })
}
