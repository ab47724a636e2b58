//! What crosses from one pass of a stage to another: tensors saved by `F`, and what `W` finds of `B`.
//!
//! What is kept until `W` is the cheapest cut between what there is when `B` has run and the
//! gradients of the weights: tensors that `F` saved, gradients that arrived from other stages and
//! stay where they are, and tensors that `B` stores. Products and sums over rows of the weight half
//! belong to `W` alone, which adds every row to what is there: a sum made before that would have
//! other bits. Element-wise results are made again, and so is the gradient of logits, from logits
//! that are there.

use super::keep::{Supply, cheapest, cheapest_by, supply};
use super::passes::Places;
use crate::graph::differentiate::{Differentiated, Half};
use pipe_ir::graph::{Class, Op};
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
    /// Gradients from other stages that stay where they are until `W` has read them.
    pub retained: BTreeSet<NodeId>,
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
    /// Gradients that arrive from other stages, as they are.
    pub arrived: &'a Places,
}

/// Chooses what crosses. Without `split` only `BW` runs, and everything is saved for it in one bundle.
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
    let for_weight = reached_of(stage, &saved, &weight.forward, targets.kept);
    let cut = cut(stage, (&saved, &for_weight), targets);
    let found = reached_by_weight_half(stage, (&saved, &cut), targets);
    let is_forward = |id: &NodeId| stage.half(*id) == Half::Forward;
    let (retained, mut deferred): (BTreeSet<NodeId>, BTreeSet<NodeId>) =
        cut.into_iter().filter(|id| !is_forward(id)).partition(|id| targets.stays(*id));
    // `B` takes every gradient that arrives: one that it does not need itself, it stores.
    let taken = taken_by_input_half(stage, &deferred, targets);
    let (retained, stored): (BTreeSet<NodeId>, BTreeSet<NodeId>) =
        retained.into_iter().partition(|id| taken.contains(id));
    deferred.extend(stored);
    Plan { saved_for_input: &saved - &found, saved_for_weight: found, deferred, retained }
}

impl Targets<'_> {
    /// Whether a gradient can be read where it arrived: what belongs to another slice of a microbatch is not.
    fn stays(&self, id: NodeId) -> bool {
        self.arrived.get(&id).is_some_and(|place| place.ahead == 0)
    }
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
            Half::Input if node.op.class() != Class::View => {
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

/// What is kept until `W`, of what `F` saved (all of it, and what is surely at hand) and of what
/// there is when `B` has run.
fn cut(
    stage: &Differentiated,
    (saved, for_weight): (&BTreeSet<NodeId>, &BTreeSet<NodeId>),
    targets: Targets<'_>,
) -> BTreeSet<NodeId> {
    let tape = &stage.tape;
    let at_hand = at_hand(stage, for_weight, targets.kept);
    let is_product = products(stage);
    let needed = targets.weights.iter().copied().collect();
    let supply = |id: NodeId| match stage.half(id) {
        Half::Forward if at_hand[id.index()] => Supply::Free,
        Half::Forward if saved.contains(&id) => Supply::Dear,
        // What is made again is not kept as well.
        Half::Forward => match supply(tape, id) {
            Supply::Cheap | Supply::View => Supply::View,
            Supply::Free => Supply::Free,
            Supply::Dear | Supply::Gone => Supply::Gone,
        },
        Half::Weight if is_product[id.index()] => Supply::View,
        Half::Input if tape.node(id).op == Op::CrossEntropyGrad => Supply::Cheap,
        Half::Input | Half::Weight => supply(tape, id),
    };
    // What `B` stores is alive beside what it is made from, so that it costs an eighth more than what is there anyway.
    let is_there = |id: NodeId| stage.half(id) == Half::Forward || targets.stays(id);
    cheapest_by(tape, &needed, supply, |id| tape.ty(id).bytes().0 * if is_there(id) { 8 } else { 9 })
}

/// The forward tensors that can be had in `W` without keeping anything but these.
fn at_hand(stage: &Differentiated, saved: &BTreeSet<NodeId>, kept: &Places) -> Vec<bool> {
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
    at_hand
}

/// Which nodes of the weight half are products or sums, or are made from one: they are never part of `B`.
fn products(stage: &Differentiated) -> Vec<bool> {
    let tape = &stage.tape;
    let mut is_product = vec![false; tape.len()];
    for id in tape.ids().filter(|id| stage.half(*id) == Half::Weight) {
        let node = tape.node(id);
        let is_light = matches!(supply(tape, id), Supply::Free | Supply::Cheap | Supply::View);
        is_product[id.index()] = !is_light || node.inputs.iter().any(|input| is_product[input.index()]);
    }
    is_product
}

/// The gradients that arrived which `B` reads for what it hands on and what it stores.
fn taken_by_input_half(stage: &Differentiated, deferred: &BTreeSet<NodeId>, targets: Targets<'_>) -> BTreeSet<NodeId> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<NodeId> = targets.inputs.iter().chain(deferred).copied().collect();
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            open.extend(&stage.tape.node(id).inputs);
        }
    }
    seen.into_iter().filter(|id| targets.arrived.contains_key(id)).collect()
}

/// The saved tensors that `W` reads, where it has the tensors of a cut.
fn reached_by_weight_half(
    stage: &Differentiated,
    (saved, cut): (&BTreeSet<NodeId>, &BTreeSet<NodeId>),
    targets: Targets<'_>,
) -> BTreeSet<NodeId> {
    let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut open: Vec<NodeId> = targets.weights.to_vec();
    while let Some(id) = open.pop() {
        if !seen.insert(id) || targets.kept.contains_key(&id) {
            continue;
        }
        if saved.contains(&id) {
            found.insert(id);
        } else if !cut.contains(&id) {
            open.extend(&stage.tape.node(id).inputs);
        }
    }
    found
}
