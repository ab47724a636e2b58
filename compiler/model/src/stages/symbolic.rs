//! Stages without a model: executables with nothing but operands, for schedules on their own.

use super::Kinds;
use super::stage_set::{StageExecs, StageSet, WeightGroup};
use crate::graph::bundle::add_value;
use pipe_ir::ids::{ExecId, StageId, ValueId};
use pipe_ir::program::{Access, Body, Exec, Operand};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};
use pipe_schedule::schedule::Schedule;
use pipe_schedule::slices::Slices;
use pipe_schedule::stage_graph::StageGraph;

/// Bytes of what a stage saves for its backward pass: a placeholder.
pub const SAVED: Bytes = Bytes(1 << 20);
/// Bytes of what flows between stages: a placeholder.
pub const FLOWING: Bytes = Bytes(1 << 16);

/// A stage set for stages of which nothing is known but who reads whom: each saves 1 MiB from its
/// forward, or from where it recomputes that, to the end of its backward pass and hands on 64 KiB.
/// There are no weights, so there is no update.
pub fn abstract_stages(kinds: &[Kinds], graph: &StageGraph) -> StageSet {
    abstract_slices(kinds, graph, Slices::ONE)
}

/// The same where microbatches are cut into slices, each of which saves as much and carries 64 KiB to the later ones.
pub fn abstract_slices(kinds: &[Kinds], graph: &StageGraph, slices: Slices) -> StageSet {
    let mut set = StageSet { graph: graph.clone(), ..StageSet::default() };
    let stages = (0..kinds.len()).map(StageId::from_index);
    let values: Vec<Values> = stages.map(|stage| Values::add(&mut set.values, stage, graph, slices)).collect();
    let rows = (0..slices.count()).flat_map(|slice| kinds.iter().enumerate().map(move |row| (slice, row)));
    for (slice, (stage, asked)) in rows {
        let mut execs = StageExecs::default();
        for kind in TaskKind::ALL.into_iter().filter(|kind| *kind != TaskKind::Update && asked.has(*kind)) {
            let mut operands = operands(kind, &values, StageId::from_index(stage), (asked, kinds));
            operands.extend(values[stage].carried(kind, slice));
            set.execs.push(Exec {
                kind,
                stage: StageId::from_index(stage),
                slice: (slices != Slices::ONE).then_some(slice),
                chunk: None,
                operands,
                body: Body::Abstract,
                flops: if kind == TaskKind::Backward { 2 } else { 1 },
            });
            execs.execs[kind.index()] = Some(ExecId::from_index(set.execs.len() - 1));
        }
        set.stages.push(execs);
    }
    set
}

/// Gives weights to replicated stages, whose gradients their devices must agree on, and to those
/// that are updated while microbatches are under way, whose versions are in the lists: 1 MiB each,
/// and an update. Those of frozen stages have neither gradients nor an update.
pub fn add_weights(set: &mut StageSet, schedule: &Schedule) {
    let placement = &schedule.placement;
    let has_versions = |stage: StageId| {
        let versions = schedule.window.as_ref().and_then(|window| window.stages.get(stage.index()));
        versions.is_some_and(|versions| versions.is_trained)
    };
    for stage in placement.stages().filter(|stage| placement.has_replicas(*stage) || has_versions(*stage)) {
        let mut add = |name: &str, kind| {
            let name = format!("{name}.{stage}");
            add_value(&mut set.values, Value::plain(name, kind, stage, SAVED))
        };
        let parameters = add("parameters", ValueKind::Parameters);
        if schedule.frozen.is_frozen(stage) {
            let own = set.execs.iter_mut().filter(|exec| exec.stage == stage);
            own.for_each(|exec| exec.operands.push(Operand::new(parameters, Access::Read)));
            set.weights.push(WeightGroup { parameters, gradients: None, update: None, stages: vec![stage] });
            continue;
        }
        let gradients = add("gradients", ValueKind::ParameterGradients);
        for exec in set.execs.iter_mut().filter(|exec| exec.stage == stage) {
            exec.operands.push(Operand::new(parameters, Access::Read));
            if matches!(exec.kind, TaskKind::BackwardWeight | TaskKind::Backward) {
                exec.operands.push(Operand::new(gradients, Access::Update));
            }
        }
        let operands = [(parameters, Access::Update), (gradients, Access::Read)];
        let operands = operands.map(|(value, access)| Operand::new(value, access)).to_vec();
        let update = Some(ExecId::from_index(set.execs.len()));
        set.execs.push(Exec {
            kind: TaskKind::Update,
            stage,
            slice: None,
            chunk: None,
            operands,
            body: Body::Abstract,
            flops: 1,
        });
        set.weights.push(WeightGroup { parameters, gradients: Some(gradients), update, stages: vec![stage] });
    }
}

/// The values that a stage writes.
struct Values {
    saved: ValueId,
    /// What it hands on, if anybody reads it.
    activation: Option<ValueId>,
    /// The gradients of what flows in, by the stage that it flows from.
    gradients: Vec<(StageId, ValueId)>,
    /// The stages that read it.
    readers: Vec<StageId>,
    /// What all slices but the last carry to the later ones.
    carried: Option<ValueId>,
    /// The gradients of what earlier slices carry, by slice from the second on.
    carried_gradients: Vec<ValueId>,
}

impl Values {
    fn add(values: &mut Vec<Value>, stage: StageId, graph: &StageGraph, slices: Slices) -> Self {
        let mut add = |name: String, kind, bytes| add_value(values, Value::plain(name, kind, stage, bytes));
        let readers = graph.after(stage);
        let gradient = |from: &StageId| {
            let alone = graph.after(*from).len() == 1;
            (*from, if alone { format!("gradient.{from}") } else { format!("gradient.{from}.{stage}") })
        };
        Self {
            saved: add(format!("saved_w.{stage}"), ValueKind::SavedForWeight, SAVED),
            activation: (!readers.is_empty())
                .then(|| add(format!("activation.{stage}"), ValueKind::Activation, FLOWING)),
            gradients: graph
                .before(stage)
                .iter()
                .map(gradient)
                .map(|(from, name)| (from, add(name, ValueKind::Gradient, FLOWING)))
                .collect(),
            readers: readers.to_vec(),
            carried: (slices != Slices::ONE).then(|| add(format!("carried.{stage}"), ValueKind::Carried, FLOWING)),
            carried_gradients: (1..slices.count())
                .map(|slice| {
                    let bytes = Bytes(FLOWING.0 * u64::from(slice));
                    add(format!("carried_gradient.{stage}.q{slice}"), ValueKind::CarriedGradient, bytes)
                })
                .collect(),
        }
    }

    /// What a task of a slice reads and writes of what slices carry.
    fn carried(&self, kind: TaskKind, slice: u32) -> Vec<Operand> {
        let Some(carried) = self.carried else { return Vec::new() };
        let read = |value, ahead| Operand { value, access: Access::Read, ahead };
        let is_last = slice as usize == self.carried_gradients.len();
        let behind = (1..=slice).rev().map(|behind| read(carried, -i32::try_from(behind).unwrap_or(i32::MAX)));
        let mut operands = Vec::new();
        match kind {
            TaskKind::Forward => {
                operands.extend(behind);
                operands.extend((!is_last).then(|| Operand::new(carried, Access::Write)));
            }
            TaskKind::BackwardInput | TaskKind::Backward => {
                operands.extend(behind);
                operands.extend((!is_last).then(|| read(carried, 0)));
                operands.extend(self.carried_gradients.get(slice as usize).map(|value| read(*value, 1)));
                let own = slice.checked_sub(1).and_then(|before| self.carried_gradients.get(before as usize));
                operands.extend(own.map(|value| Operand::new(*value, Access::Write)));
            }
            // What slices carry is kept from the forward on.
            TaskKind::Recompute => operands.extend(behind),
            TaskKind::BackwardWeight | TaskKind::Update => {}
        }
        operands
    }

    /// Its gradient of what flows from a stage.
    fn gradient_of(&self, stage: StageId) -> Option<ValueId> {
        self.gradients.iter().find(|(from, _)| *from == stage).map(|(_, value)| *value)
    }
}

/// The operands of a task. `asked` lists the task kinds of its stage, and `kinds` the task kinds of each stage.
fn operands(kind: TaskKind, values: &[Values], stage: StageId, (asked, kinds): (&Kinds, &[Kinds])) -> Vec<Operand> {
    let own = &values[stage.index()];
    let mut list = Vec::new();
    let mut push = |access, value| list.push(Operand::new(value, access));
    match kind {
        TaskKind::Forward | TaskKind::Recompute => {
            let before = own.gradients.iter().filter_map(|(from, _)| values[from.index()].activation);
            before.for_each(|value| push(Access::Read, value));
            let hands_on = kind == TaskKind::Forward;
            let saves = asked.has_backward() && (kind == TaskKind::Recompute || !asked.has(TaskKind::Recompute));
            let written = own.activation.filter(|_| hands_on).into_iter().chain(saves.then_some(own.saved));
            written.for_each(|value| push(Access::Write, value));
        }
        TaskKind::BackwardInput | TaskKind::Backward => {
            let after = own.readers.iter().rev().filter_map(|reader| values[reader.index()].gradient_of(stage));
            after.chain([own.saved]).for_each(|value| push(Access::Read, value));
            // Who runs forward only reads no gradient.
            let read = own.gradients.iter().filter(|(from, _)| kinds[from.index()].has_backward());
            read.for_each(|(_, value)| push(Access::Write, *value));
        }
        TaskKind::BackwardWeight => push(Access::Read, own.saved),
        TaskKind::Update => {}
    }
    list
}
