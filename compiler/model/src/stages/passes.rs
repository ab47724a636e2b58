//! Passes of a stage: the executables `F`, `B`, `W` and `BW`, and the values that cross between them.

use super::Kinds;
use super::plan::{Plan, Targets, plan};
use super::stage::StageTape;
use crate::graph::bundle::{Bundle, ValueOffset, add_value};
use crate::graph::differentiate::{Differentiated, Half, Seed, differentiate};
use crate::graph::extract::{Outcome, exec, extract};
use crate::graph::tape::Leaf;
use pipe_ir::graph::Op;
use pipe_ir::ids::{NodeId, StageId};
use pipe_ir::program::Exec;
use pipe_ir::task::TaskKind;
use pipe_ir::value::{Value, ValueKind};
use std::collections::{BTreeMap, BTreeSet};

/// Where nodes lie that a pass reads instead of computing them.
pub(super) type Places = BTreeMap<NodeId, ValueOffset>;

/// Where a stage touches what is outside it.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    /// Its leaves: weights, data and what flows in.
    pub places: Places,
    /// What flows out, or the loss.
    pub outputs: Vec<Output>,
    /// What flows in and has a gradient: its node, and where that is written.
    pub input_gradients: Vec<(NodeId, ValueOffset)>,
    /// Summands of gradients of what flows in that others wrote.
    pub seeds: Vec<(NodeId, ValueOffset)>,
    /// Forward tensors that stay where they are until the backward pass has read them.
    pub kept: Places,
    /// Where each weight's gradient is added up, with its node.
    pub weight_gradients: Vec<(NodeId, ValueOffset)>,
    /// What the schedule asks for.
    pub kinds: Kinds,
    /// Microbatches of a step.
    pub n_microbatches: u32,
}

/// A tensor that flows out of a stage.
#[derive(Clone, Debug)]
pub(super) struct Output {
    /// Which node.
    pub node: NodeId,
    /// Where it is written.
    pub to: ValueOffset,
    /// Where the backward pass of it begins.
    pub gradient: OutputGradient,
}

/// The gradient of a tensor that flows out of a stage.
#[derive(Clone, Debug)]
pub(super) enum OutputGradient {
    /// The tensor is the loss.
    Loss,
    /// What its readers wrote, in the order in which it is added up.
    Read(Vec<ValueOffset>),
}

/// The executables of a stage, except its update.
pub(super) fn passes(values: &mut Vec<Value>, id: StageId, stage: &StageTape, ends: &Ends) -> Vec<Exec> {
    let outputs = ends.outputs.iter();
    let mut outcomes: Vec<Outcome> =
        outputs.map(|one| Outcome { node: one.node, to: one.to, accumulate: false }).collect();
    if !ends.kinds.has_backward() {
        return vec![exec(TaskKind::Forward, id, extract(&stage.tape, &ends.places, &outcomes, |_| false))];
    }
    let backward = Backward::new(stage, ends);
    let crossing = backward.place(values, id, stage, ends);
    let derived = &backward.derived;
    let is_repeated = |node| derived.half(node) == Half::Forward;
    let mut execs = Vec::new();

    let saves = stores(&crossing.saved_for_input).chain(stores(&crossing.saved_for_weight));
    if ends.kinds.has(TaskKind::Recompute) {
        // What the forward left, all of it from before the stage but what slices carry.
        let left: Places = ends.places.iter().chain(&ends.kept).map(|(node, place)| (*node, *place)).collect();
        let saves: Vec<Outcome> = saves.collect();
        let forward = exec(TaskKind::Forward, id, extract(&derived.tape, &ends.places, &outcomes, |_| false));
        execs.push(Exec { is_repeated: ends.kinds.keeps_some(), ..forward });
        execs.push(exec(TaskKind::Recompute, id, extract(&derived.tape, &left, &saves, |_| false)));
        if ends.kinds.keeps_some() {
            outcomes.extend(saves);
            execs.push(exec(TaskKind::Forward, id, extract(&derived.tape, &ends.places, &outcomes, |_| false)));
        }
    } else {
        outcomes.extend(saves);
        execs.push(exec(TaskKind::Forward, id, extract(&derived.tape, &ends.places, &outcomes, |_| false)));
    }

    let mut saved = ends.places.clone();
    saved.retain(|node, _| matches!(derived.tape.leaf_of(*node), Some(Leaf::Weight(_))));
    saved.extend(&ends.kept);
    saved.extend(&crossing.saved_for_weight);
    let stored = crossing.deferred.iter().chain(&crossing.retained);
    let weight_places: Places = saved.iter().chain(stored).map(|(node, place)| (*node, *place)).collect();
    saved.extend(&crossing.saved_for_input);
    saved.extend(&backward.seeds);

    let inputs = &backward.inputs;
    if ends.kinds.has(TaskKind::BackwardInput) {
        let outcomes: Vec<Outcome> = inputs.iter().copied().chain(stores(&crossing.deferred)).collect();
        execs.push(exec(TaskKind::BackwardInput, id, extract(&derived.tape, &saved, &outcomes, is_repeated)));
    }
    if ends.kinds.has(TaskKind::BackwardWeight) {
        let graph = extract(&derived.tape, &weight_places, &backward.weights, is_repeated);
        execs.push(exec(TaskKind::BackwardWeight, id, graph));
    }
    if ends.kinds.may_join() {
        let outcomes: Vec<Outcome> = inputs.iter().chain(&backward.weights).copied().collect();
        execs.push(exec(TaskKind::Backward, id, extract(&derived.tape, &saved, &outcomes, is_repeated)));
    }
    execs
}

fn stores(places: &Places) -> impl Iterator<Item = Outcome> {
    places.iter().map(|(node, to)| Outcome { node: *node, to: *to, accumulate: false })
}

/// The differentiated stage, and what leaves its backward pass.
struct Backward {
    derived: Differentiated,
    /// The gradients that other stages wrote.
    seeds: Places,
    inputs: Vec<Outcome>,
    weights: Vec<Outcome>,
}

/// Where the tensors lie that cross from one pass to another.
struct Crossing {
    saved_for_input: Places,
    saved_for_weight: Places,
    deferred: Places,
    /// Gradients from other stages, where they arrived.
    retained: Places,
}

impl Backward {
    fn new(stage: &StageTape, ends: &Ends) -> Self {
        let share = share_of_loss(ends.n_microbatches);
        let mut places = Places::new();
        let mut derived = differentiate(stage.tape.clone(), |tape| {
            let mut seeds = Vec::new();
            for output in &ends.outputs {
                let ty = tape.ty(output.node).clone();
                match &output.gradient {
                    OutputGradient::Loss => {
                        seeds.push(Seed { of: output.node, gradient: tape.constant(share, &ty.shape) });
                    }
                    OutputGradient::Read(read) => {
                        for place in read {
                            let gradient = tape.leaf(Leaf::OutputGradient(places.len()), ty.clone());
                            places.insert(gradient, *place);
                            seeds.push(Seed { of: output.node, gradient });
                        }
                    }
                }
            }
            for (of, place) in &ends.seeds {
                let gradient = tape.leaf(Leaf::OutputGradient(places.len()), tape.ty(*of).clone());
                places.insert(gradient, *place);
                seeds.push(Seed { of: *of, gradient });
            }
            seeds
        });
        let inputs = ends.input_gradients.iter().map(|(node, to)| {
            let gradient = derived.gradients[node.index()];
            let node = gradient.unwrap_or_else(|| derived.add_zeros_like(*node));
            Outcome { node, to: *to, accumulate: false }
        });
        let inputs = inputs.collect();
        let weights = ends.weight_gradients.iter().filter_map(|(node, to)| {
            let node = derived.gradients[node.index()]?;
            Some(Outcome { node, to: *to, accumulate: true })
        });
        let weights = weights.collect();
        Self { derived, seeds: places, inputs, weights }
    }

    /// Chooses what crosses and gives it values.
    fn place(&self, values: &mut Vec<Value>, id: StageId, stage: &StageTape, ends: &Ends) -> Crossing {
        let weights: Vec<NodeId> = self.weights.iter().map(|outcome| outcome.node).collect();
        let inputs: Vec<NodeId> = self.inputs.iter().map(|outcome| outcome.node).collect();
        let targets = Targets { inputs: &inputs, weights: &weights, kept: &ends.kept, arrived: &self.seeds };
        let Plan { saved_for_input, saved_for_weight, deferred, retained } =
            plan(&self.derived, targets, ends.kinds.is_split());
        let names = self.names(stage);
        let mut add = |nodes: &BTreeSet<NodeId>, name: &str, kind| {
            self.bundle(values, nodes, &names, (format!("{name}.{id}"), kind, id))
        };
        Crossing {
            saved_for_input: add(&saved_for_input, "saved_b", ValueKind::SavedForInput),
            saved_for_weight: add(&saved_for_weight, "saved_w", ValueKind::SavedForWeight),
            deferred: add(&deferred, "deferred", ValueKind::DeferredGradient),
            retained: self
                .seeds
                .iter()
                .filter(|(node, _)| retained.contains(node))
                .map(|(node, place)| (*node, *place))
                .collect(),
        }
    }

    fn bundle(
        &self,
        values: &mut Vec<Value>,
        nodes: &BTreeSet<NodeId>,
        names: &BTreeMap<NodeId, String>,
        (name, kind, stage): (String, ValueKind, StageId),
    ) -> Places {
        let mut bundle = Bundle::default();
        let offsets: Vec<_> = nodes
            .iter()
            .map(|node| {
                let tensor = names.get(node).cloned().unwrap_or_else(|| self.unnamed(*node));
                (*node, bundle.add(tensor, self.derived.tape.ty(*node), None))
            })
            .collect();
        if bundle.is_empty() {
            return Places::new();
        }
        let value = add_value(values, bundle.into_value(name, kind, stage));
        offsets.into_iter().map(|(node, offset)| (node, ValueOffset { value, offset, ahead: 0 })).collect()
    }

    /// What a node is called that has no name: by what computes it, such as `softmax.n31`.
    fn unnamed(&self, node: NodeId) -> String {
        let tape = &self.derived.tape;
        let source = Some(tape.node(node)).filter(|node| node.op == Op::Convert).map_or(node, |node| node.inputs[0]);
        let word = match &tape.node(source).op {
            Op::Input { .. } => "input",
            Op::MatMul { .. } => "product",
            Op::Softmax { .. } => "softmax",
            Op::NormStatistics { .. } => "statistics",
            Op::CrossEntropy => "loss",
            _ => "node",
        };
        format!("{word}.{node}")
    }

    /// Names of forward nodes and of their gradients.
    fn names(&self, stage: &StageTape) -> BTreeMap<NodeId, String> {
        let mut names = stage.names.clone();
        for (node, name) in &stage.names {
            if let Some(gradient) = self.derived.gradients[node.index()] {
                names.entry(gradient).or_insert_with(|| format!("gradient.{name}"));
            }
        }
        names
    }
}

/// The derivative of a step's loss, the mean over its microbatches, by the loss of one.
#[expect(clippy::float_arithmetic, reason = "gradients are floating-point numbers")]
fn share_of_loss(n_microbatches: u32) -> f64 {
    1.0 / f64::from(n_microbatches.max(1))
}
