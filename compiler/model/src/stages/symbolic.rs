//! Stages without a model: executables with nothing but operands, for schedules on their own.

use super::Kinds;
use super::stage_set::{StageExecs, StageSet, WeightGroup};
use crate::graph::bundle::add_value;
use pipe_ir::ids::{ExecId, MicrobatchId, StageId, ValueId};
use pipe_ir::program::{Access, Body, Edge, Exec, Operand};
use pipe_ir::task::{Task, TaskKind};
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};
use pipe_schedule::schedule::Schedule;
use pipe_schedule::slices::Slices;
use pipe_schedule::stage_graph::StageGraph;
use std::collections::BTreeSet;

/// Bytes of what a stage saves for its backward pass: a placeholder.
pub const SAVED: Bytes = Bytes(1 << 20);
/// Bytes of what flows between stages: a placeholder.
pub const FLOWING: Bytes = Bytes(1 << 16);

/// A stage set for stages of which nothing is known but who reads whom: each saves 1 MiB from its
/// forward, or from where it recomputes that, to the end of its backward pass and hands on 64 KiB.
/// There are no weights, so there is no update.
pub fn abstract_stages(kinds: &[Kinds], graph: &StageGraph) -> StageSet {
    stages(kinds, graph, Sequence { slices: Slices::ONE, shares: &[] }, u32::MAX)
}

/// The same for a schedule without a model. Where microbatches are cut into slices, each saves as much and carries 64
/// KiB to the later ones. If slices differ in length, this is the mean.
pub fn abstract_of(kinds: &[Kinds], schedule: &Schedule) -> StageSet {
    let sequence = Sequence { slices: schedule.slices, shares: &schedule.shares };
    stages(kinds, &schedule.graph, sequence, schedule.n_microbatches)
}

/// How microbatches are cut along their sequence.
#[derive(Clone, Copy)]
struct Sequence<'a> {
    slices: Slices,
    /// The share of each slice. Empty if all are equal.
    shares: &'a [u32],
}

impl Sequence<'_> {
    /// How many slices have values of their own.
    fn n_own(self) -> usize {
        self.shares.len().max(1)
    }

    /// The end of the name of a slice's value.
    fn suffix(self, slice: usize) -> String {
        if self.shares.is_empty() { String::new() } else { format!(".q{slice}") }
    }

    /// The bytes of a slice's value, if a slice of mean length has `mean` bytes.
    fn of(self, slice: usize, mean: Bytes) -> Bytes {
        let total: u64 = self.shares.iter().map(|share| u64::from(*share)).sum();
        let part = |share: &u32| (mean.0 * self.shares.len() as u64 * u64::from(*share) / total).max(1);
        Bytes(self.shares.get(slice).map_or(mean.0, part))
    }
}

fn stages(kinds: &[Kinds], graph: &StageGraph, sequence: Sequence<'_>, n_microbatches: u32) -> StageSet {
    let mut set = StageSet { graph: graph.clone(), ..StageSet::default() };
    let slices = sequence.slices;
    let ids = || (0..kinds.len()).map(StageId::from_index);
    let mut own: Vec<Vec<Values>> = (0..sequence.n_own()).map(|_| Vec::new()).collect();
    let mut carried = Vec::with_capacity(kinds.len());
    for stage in ids() {
        for (slice, of_slice) in own.iter_mut().enumerate() {
            of_slice.push(Values::add(&mut set.values, stage, graph, (sequence, slice)));
        }
        carried.push(Carried::add(&mut set.values, stage, sequence));
    }
    let exec = |kind, stage: StageId, (slice, edge, saves): (u32, Option<Edge>, bool)| {
        let mut operands = operands((kind, saves), &own[slice as usize % own.len()], stage, kinds, edge);
        operands.extend(carried[stage.index()].operands(kind, slice));
        let slice = (slices != Slices::ONE).then_some(slice);
        let flops = if kind == TaskKind::Backward { 2 } else { 1 };
        Exec { slice, edge, ..Exec::new(kind, stage, operands, Body::Abstract, flops) }
    };
    // `R` saves if there is one, else `F`.
    let saves = |kind, stage: StageId| {
        let asked = kinds[stage.index()];
        asked.has_backward() && (kind == TaskKind::Recompute || !asked.has(TaskKind::Recompute))
    };
    let asked = |stage: StageId| {
        let kinds = &kinds[stage.index()];
        TaskKind::ALL.into_iter().filter(|kind| *kind != TaskKind::Update && kinds.has(*kind))
    };
    for (slice, stage) in (0..slices.count()).flat_map(|slice| ids().map(move |stage| (slice, stage))) {
        let mut execs = StageExecs::default();
        let keeps_some = kinds[stage.index()].keeps_some();
        for kind in asked(stage) {
            let is_repeated = keeps_some && kind == TaskKind::Forward;
            set.execs.push(Exec { is_repeated, ..exec(kind, stage, (slice, None, saves(kind, stage))) });
            execs.execs[kind.index()] = Some(ExecId::from_index(set.execs.len() - 1));
        }
        if keeps_some {
            set.execs.push(exec(TaskKind::Forward, stage, (slice, None, true)));
            execs.keeping = Some(ExecId::from_index(set.execs.len() - 1));
        }
        set.stages.push(execs);
    }
    for (kind, stage) in ids().flat_map(|stage| asked(stage).map(move |kind| (kind, stage))) {
        for edge in edges(kind, stage, graph, n_microbatches) {
            set.execs.push(exec(kind, stage, (0, Some(edge), saves(kind, stage))));
            set.edges.insert((kind, stage, edge), ExecId::from_index(set.execs.len() - 1));
        }
    }
    set
}

/// What tasks of a kind and stage leave out at the edges of a step.
fn edges(kind: TaskKind, stage: StageId, graph: &StageGraph, n_microbatches: u32) -> BTreeSet<Edge> {
    let before = graph.earlier_before(stage).map(|edge| edge.behind);
    let after = graph.earlier_after(stage).map(|edge| n_microbatches.saturating_sub(edge.behind));
    let first = std::iter::once(0).chain(before).chain(after).filter(|number| *number < n_microbatches);
    first
        .filter_map(|number| graph.edge(Task { kind, stage, microbatch: MicrobatchId(number) }, n_microbatches))
        .collect()
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
        set.execs.push(Exec::new(TaskKind::Update, stage, operands, Body::Abstract, 1));
        set.weights.push(WeightGroup { parameters, gradients: Some(gradients), update, stages: vec![stage] });
    }
}

/// The values that a stage writes.
struct Values {
    saved: ValueId,
    /// What it hands on, if anybody reads it.
    activation: Option<ValueId>,
    /// The gradients of what flows in, by the stage that it flows from and how many microbatches before.
    gradients: Vec<((StageId, u32), ValueId)>,
    /// The stages that read it, and how many microbatches later.
    readers: Vec<(StageId, u32)>,
}

impl Values {
    /// The values of all slices, or of one slice if they differ in length.
    fn add(
        values: &mut Vec<Value>,
        stage: StageId,
        graph: &StageGraph,
        (sequence, slice): (Sequence<'_>, usize),
    ) -> Self {
        let suffix = sequence.suffix(slice);
        let mut add = |name: String, kind, mean| {
            let bytes = sequence.of(slice, mean);
            add_value(values, Value::plain(format!("{name}{suffix}"), kind, stage, bytes))
        };
        let readers_of = |stage| {
            let same = graph.after(stage).iter().map(|to| (*to, 0));
            same.chain(graph.earlier_after(stage).map(|edge| (edge.to, edge.behind))).collect::<Vec<_>>()
        };
        let readers = readers_of(stage);
        let gradient = |(from, behind): (StageId, u32)| {
            let reader = if readers_of(from).len() == 1 { String::new() } else { format!(".{stage}") };
            let behind_words = if behind == 0 { String::new() } else { format!(".behind{behind}") };
            ((from, behind), format!("gradient.{from}{reader}{behind_words}"))
        };
        let before = graph.before(stage).iter().map(|from| (*from, 0));
        let before = before.chain(graph.earlier_before(stage).map(|edge| (edge.from, edge.behind)));
        Self {
            saved: add(format!("saved_w.{stage}"), ValueKind::SavedForWeight, SAVED),
            activation: (!readers.is_empty())
                .then(|| add(format!("activation.{stage}"), ValueKind::Activation, FLOWING)),
            gradients: before
                .map(gradient)
                .map(|(from, name)| (from, add(name, ValueKind::Gradient, FLOWING)))
                .collect(),
            readers,
        }
    }

    /// Its gradient for a stage that it reads, by stage and number of microbatches before.
    fn gradient_of(&self, from: (StageId, u32)) -> Option<ValueId> {
        self.gradients.iter().find(|(own, _)| *own == from).map(|(_, value)| *value)
    }
}

/// What the slices of a stage carry to later ones. Empty if there is only one slice.
struct Carried {
    /// One for all slices, or one for each if they differ in length. The last slice carries nothing.
    values: Vec<ValueId>,
    /// The gradients of what earlier slices carry, by slice from the second on.
    gradients: Vec<ValueId>,
}

impl Carried {
    fn add(values: &mut Vec<Value>, stage: StageId, sequence: Sequence<'_>) -> Self {
        let count = sequence.slices.count();
        let mut add = |name: String, kind, bytes| add_value(values, Value::plain(name, kind, stage, bytes));
        let n_own = if sequence.shares.is_empty() { 1.min(count as usize - 1) } else { count as usize - 1 };
        let own = (0..n_own).map(|slice| {
            let name = format!("carried.{stage}{}", sequence.suffix(slice));
            add(name, ValueKind::Carried, sequence.of(slice, FLOWING))
        });
        let own = own.collect();
        let gradients = (1..count).map(|slice| {
            let bytes = (0..slice as usize).map(|earlier| sequence.of(earlier, FLOWING).0).sum();
            add(format!("carried_gradient.{stage}.q{slice}"), ValueKind::CarriedGradient, Bytes(bytes))
        });
        Self { gradients: gradients.collect(), values: own }
    }

    /// What a task of a slice reads and writes of it.
    fn operands(&self, kind: TaskKind, slice: u32) -> Vec<Operand> {
        if self.values.is_empty() {
            return Vec::new();
        }
        let of = |slice: u32| self.values[slice as usize % self.values.len()];
        let read = |value, ahead| Operand { value, access: Access::Read, ahead };
        let is_last = slice as usize == self.gradients.len();
        let behind =
            (1..=slice).rev().map(|behind| read(of(slice - behind), -i32::try_from(behind).unwrap_or(i32::MAX)));
        let mut operands = Vec::new();
        match kind {
            TaskKind::Forward => {
                operands.extend(behind);
                operands.extend((!is_last).then(|| Operand::new(of(slice), Access::Write)));
            }
            TaskKind::BackwardInput | TaskKind::Backward => {
                operands.extend(behind);
                operands.extend((!is_last).then(|| read(of(slice), 0)));
                operands.extend(self.gradients.get(slice as usize).map(|value| read(*value, 1)));
                let own = slice.checked_sub(1).and_then(|before| self.gradients.get(before as usize));
                operands.extend(own.map(|value| Operand::new(*value, Access::Write)));
            }
            // What slices carry is kept from the forward on.
            TaskKind::Recompute => operands.extend(behind),
            TaskKind::BackwardWeight | TaskKind::Update => {}
        }
        operands
    }
}

/// The operands of a task. `saves` says whether it saves what the backward reads, and `kinds` lists the task kinds of
/// each stage. At an edge, the operands of the most distant microbatches are missing.
fn operands(
    (kind, saves): (TaskKind, bool),
    values: &[Values],
    stage: StageId,
    kinds: &[Kinds],
    edge: Option<Edge>,
) -> Vec<Operand> {
    let own = &values[stage.index()];
    let lacking = edge.unwrap_or(Edge { before: 0, after: 0 });
    let from = &own.gradients[..own.gradients.len() - lacking.before as usize];
    let mut readers = own.readers.clone();
    readers.sort_by_key(|(reader, behind)| (*behind, *reader));
    readers.truncate(own.readers.len() - lacking.after as usize);
    readers.sort_by_key(|(reader, behind)| (std::cmp::Reverse(*reader), *behind));
    let mut list = Vec::new();
    let mut push = |access, value, ahead| list.push(Operand { value, access, ahead });
    let distance = |behind: u32| i32::try_from(behind).expect("edges lead back at most 2^20 microbatches");
    match kind {
        TaskKind::Forward | TaskKind::Recompute => {
            for ((from, behind), _) in from {
                let value = values[from.index()].activation.expect("who is read hands something on");
                push(Access::Read, value, -distance(*behind));
            }
            let hands_on = kind == TaskKind::Forward;
            let written = own.activation.filter(|_| hands_on).into_iter().chain(saves.then_some(own.saved));
            written.for_each(|value| push(Access::Write, value, 0));
        }
        TaskKind::BackwardInput | TaskKind::Backward => {
            for (reader, behind) in &readers {
                let value = values[reader.index()].gradient_of((stage, *behind));
                value.into_iter().for_each(|value| push(Access::Read, value, distance(*behind)));
            }
            push(Access::Read, own.saved, 0);
            // Who runs forward only reads no gradient.
            let read = from.iter().filter(|((from, _), _)| kinds[from.index()].has_backward());
            read.for_each(|(_, value)| push(Access::Write, *value, 0));
        }
        TaskKind::BackwardWeight => push(Access::Read, own.saved, 0),
        TaskKind::Update => {}
    }
    list
}
