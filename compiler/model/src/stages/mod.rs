//! Stages of a model: values and executables of every kind of task that a schedule asks for.

mod keep;
mod passes;
pub mod pieces;
mod plan;
pub(crate) mod ports;
pub mod saved_bytes;
pub(crate) mod slice_set;
mod stage;
pub mod stage_set;
pub mod symbolic;
mod weights;

use crate::frozen::is_frozen;
use crate::graph::bundle::{Bundle, ValueOffset, add_value};
use crate::graph::tape::Leaf;
use crate::matrices;
use crate::{Model, Weight, WeightId};
use passes::{Ends, Output, OutputGradient, Places, passes};
use pipe_ir::ids::{ExecId, NodeId, StageId, ValueId};
use pipe_ir::program::Exec;
use pipe_ir::task::TaskKind;
use pipe_ir::training::Optimizer;
use pipe_ir::value::{Value, ValueKind};
use pipe_schedule::schedule::Schedule;
use ports::{Crossing, graph, readers, start};
use slice_set::{Position, carry};
use stage::{StageTape, join};
use stage_set::{StageExecs, StageSet, WeightGroup};
use std::collections::BTreeMap;
use std::ops::Range;
use weights::{PlacedWeights, place_weights};

/// The kinds of task that a schedule uses of one stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kinds {
    has: [bool; TaskKind::ALL.len()],
    /// Whether it recomputes some microbatches, but not all.
    keeps_some: bool,
}

impl Kinds {
    /// These kinds.
    pub fn of(kinds: &[TaskKind]) -> Self {
        let mut own = Self::default();
        for kind in kinds {
            own.has[kind.index()] = true;
        }
        own
    }

    /// What each stage of a schedule is asked for.
    pub fn of_schedule(schedule: &Schedule) -> Vec<Self> {
        let mut all = vec![Self::default(); schedule.n_stages()];
        for scheduled in schedule.orders.iter().flatten() {
            all[scheduled.task.stage.index()].has[scheduled.task.kind.index()] = true;
        }
        for stage in schedule.recomputed_microbatches().into_keys() {
            all[stage.index()].keeps_some = true;
        }
        all
    }

    /// Whether this kind is among them.
    pub const fn has(self, kind: TaskKind) -> bool {
        self.has[kind.index()]
    }

    /// Whether it recomputes some microbatches, but not all.
    pub const fn keeps_some(self) -> bool {
        self.keeps_some
    }

    /// Whether `B` and `W` run on their own.
    pub const fn is_split(self) -> bool {
        self.has(TaskKind::BackwardInput) || self.has(TaskKind::BackwardWeight)
    }

    /// Whether a backward may run at once: where it is asked for, or both of its halves are.
    pub const fn may_join(self) -> bool {
        self.has(TaskKind::Backward) || self.has(TaskKind::BackwardInput) && self.has(TaskKind::BackwardWeight)
    }

    /// Whether gradients are computed at all.
    pub const fn has_backward(self) -> bool {
        self.is_split() || self.has(TaskKind::Backward)
    }
}

/// How a model is used.
#[derive(Clone, Copy, Debug)]
pub struct StageRequest<'a> {
    /// The layers of each stage, from [`crate::partition()`]; together all layers.
    pub layers: &'a [Range<usize>],
    /// What the schedule asks of each stage, by [`StageId`].
    pub kinds: &'a [Kinds],
    /// Microbatches of a step: the loss of a step is their mean.
    pub n_microbatches: u32,
    /// Whose state each stage keeps; without one there are no updates.
    pub optimizer: Option<Optimizer>,
}

/// The values, executables and weights of every stage. Given an optimizer, each group of weights has an update, asked
/// for or not.
pub fn stages(model: &Model, request: &StageRequest<'_>) -> StageSet {
    stages_of_slice(model, request, Position::WHOLE)
}

/// The same for one slice of microbatches, given the model of that slice.
fn stages_of_slice(model: &Model, request: &StageRequest<'_>, slice: Position) -> StageSet {
    let mut set = StageSet { graph: graph(model, request.layers), ..StageSet::default() };
    let mut data: Vec<Option<ValueId>> = vec![None; model.data.len()];
    let readers = readers(model, request.layers);
    let learns = learns(model);
    let matrices = matrices::of_model(model);
    let mut crossings: BTreeMap<usize, Crossing> = BTreeMap::new();
    let mut owners = BTreeMap::new();
    let loss = model.layers.len().checked_sub(1);
    for (index, (layers, kinds)) in request.layers.iter().zip(request.kinds).enumerate() {
        let id = StageId::from_index(index);
        let stage = join(model, layers.clone(), |layer| Some(layer) == loss || !readers[layer].is_empty());
        let n_outputs = stage.outputs.len();
        let outputs = stage.outputs.iter().enumerate().map(|(position, port)| {
            let ty = stage.tape.ty(port.node);
            if Some(port.layer) == loss {
                let value = Crossing::loss(&mut set.values, id, ty).value;
                return Output { node: port.node, to: start(value), gradient: OutputGradient::Loss };
            }
            let name = if n_outputs == 1 { id.to_string() } else { format!("{id}.{position}") };
            let readers = &readers[port.layer];
            let has_gradient = kinds.has_backward() && learns[port.layer];
            let crossing = Crossing::new(&mut set.values, (id, &name), ty, readers, has_gradient);
            let gradients = crossing.gradients.values().rev().copied().map(start).collect();
            let to = start(crossing.value);
            crossings.insert(port.layer, crossing);
            Output { node: port.node, to, gradient: OutputGradient::Read(gradients) }
        });
        let outputs = outputs.collect();
        let mut weights = place_weights(&mut set.values, (id, &stage), request.optimizer, &matrices);
        tie(&mut set.weights, id, &stage, &mut weights, &mut owners);
        let mut places: Places = weights.parameters.iter().copied().collect();
        place_data(&mut set.values, id, model, &stage, &mut data, &mut places);
        let mut input_gradients = Vec::new();
        for port in &stage.inputs {
            let crossing = &crossings[&port.layer];
            places.insert(port.node, start(crossing.value));
            input_gradients.extend(crossing.gradients.get(&id).map(|value| (port.node, start(*value))));
        }
        let mut ends = Ends {
            places,
            outputs,
            input_gradients,
            seeds: Vec::new(),
            kept: Places::new(),
            weight_gradients: weights.gradients,
            kinds: *kinds,
            n_microbatches: request.n_microbatches,
        };
        carry(&mut set.values, id, &stage, slice, &mut ends);
        let execs = passes(&mut set.values, id, &stage, &ends);
        set.stages.push(register(&mut set.execs, execs, *kinds));
        if let Some((parameters, gradients)) = weights.trained {
            let update = weights.update.map(|update| add_exec(&mut set.execs, update));
            set.weights.push(WeightGroup { parameters, gradients: Some(gradients), update, stages: vec![id] });
        }
        if let Some(parameters) = weights.frozen {
            set.weights.push(WeightGroup { parameters, gradients: None, update: None, stages: vec![id] });
        }
    }
    set
}

/// By layer: whether the gradient of its output is of use, because it is trained, or a layer before it, however far.
fn learns(model: &Model) -> Vec<bool> {
    let is_frozen = |weight: &Weight| is_frozen(model, weight);
    // Where nothing is frozen, gradients flow to all stages, also to those before the first weight.
    let is_whole = !model.layers.iter().flat_map(|layer| &layer.weights).any(is_frozen);
    let mut learns: Vec<bool> = Vec::with_capacity(model.layers.len());
    for layer in &model.layers {
        let is_trained = layer.weights.iter().any(|weight| !is_frozen(weight));
        learns.push(is_whole || is_trained || layer.inputs.iter().any(|input| learns[*input]));
    }
    learns
}

/// Lets a stage use weights of stages before, and adds up their gradients where the owner's are.
/// `owners` says where each weight lies, and where its gradient is added up, if it is trained.
fn tie(
    groups: &mut [WeightGroup],
    id: StageId,
    stage: &StageTape,
    weights: &mut PlacedWeights,
    owners: &mut BTreeMap<WeightId, (ValueOffset, Option<ValueOffset>)>,
) {
    let at = |places: &[(NodeId, ValueOffset)], node: NodeId| {
        places.iter().find(|(other, _)| *other == node).map(|(_, place)| *place)
    };
    for (owner, (node, _)) in stage.owned.iter().zip(&stage.weights) {
        let own = at(&weights.parameters, *node).expect("every weight has a place");
        owners.insert(*owner, (own, at(&weights.gradients, *node)));
    }
    for (node, owner) in &stage.tied {
        let (own, gradient) = owners[owner];
        weights.parameters.push((*node, own));
        weights.gradients.extend(gradient.map(|gradient| (*node, gradient)));
        let group = groups.iter_mut().find(|group| group.parameters == own.value);
        group.into_iter().filter(|group| !group.stages.contains(&id)).for_each(|group| group.stages.push(id));
    }
}

fn register(table: &mut Vec<Exec>, execs: Vec<Exec>, asked: Kinds) -> StageExecs {
    let mut row = StageExecs::default();
    for exec in execs {
        let (kind, keeps) = (exec.kind, exec.kind == TaskKind::Forward && asked.keeps_some() && !exec.is_repeated);
        let id = Some(add_exec(table, exec));
        if keeps {
            row.keeping = id;
            continue;
        }
        if kind == TaskKind::Backward {
            row.both = id;
        }
        if kind != TaskKind::Backward || asked.has(kind) {
            row.execs[kind.index()] = id;
        }
    }
    row
}

fn add_exec(table: &mut Vec<Exec>, exec: Exec) -> ExecId {
    table.push(exec);
    ExecId::from_index(table.len() - 1)
}

/// Gives every data tensor that a stage reads a value; stages share it.
fn place_data(
    values: &mut Vec<Value>,
    stage: StageId,
    model: &Model,
    tape: &StageTape,
    known: &mut [Option<ValueId>],
    places: &mut Places,
) {
    for node in tape.tape.ids() {
        let Some(Leaf::Data(index)) = tape.tape.leaf_of(node) else { continue };
        let value = *known[index].get_or_insert_with(|| {
            let tensor = &model.data[index];
            let mut bundle = Bundle::default();
            bundle.add(tensor.name.clone(), &tensor.ty, None);
            add_value(values, bundle.into_value(format!("data.{}", tensor.name), ValueKind::Data, stage))
        });
        places.insert(node, start(value));
    }
}
