//! Stages without a model: executables with nothing but operands, for schedules on their own.

use super::bundle::add_value;
use super::stage_set::{StageExecs, StageSet};
use super::stages::Kinds;
use crate::stage_graph::StageGraph;
use pipe_ir::ids::{ExecId, StageId, ValueId};
use pipe_ir::program::{Access, Body, Exec, Operand};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};

/// Bytes of what a stage saves for its backward pass.
const SAVED: Bytes = Bytes(1 << 20);
/// Bytes of what flows between stages.
const FLOWING: Bytes = Bytes(1 << 16);

/// A stage set for stages of which nothing is known but who reads whom: each saves 1 MiB from its forward to the end of
/// its backward pass and hands on 64 KiB. There are no weights, so there is no update.
#[must_use]
pub fn abstract_stages(kinds: &[Kinds], graph: &StageGraph) -> StageSet {
    let mut set = StageSet { graph: graph.clone(), ..StageSet::default() };
    let stages = (0..kinds.len()).map(StageId::from_index);
    let values: Vec<Values> = stages.map(|stage| Values::add(&mut set.values, stage, graph)).collect();
    for (stage, asked) in kinds.iter().enumerate() {
        let mut execs = StageExecs::default();
        for kind in TaskKind::ALL.into_iter().filter(|kind| *kind != TaskKind::Update && asked.has(*kind)) {
            let operands = operands(kind, &values, StageId::from_index(stage));
            set.execs.push(Exec {
                kind,
                stage: StageId::from_index(stage),
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

/// The values that a stage writes.
struct Values {
    saved: ValueId,
    /// What it hands on, if anybody reads it.
    activation: Option<ValueId>,
    /// The gradients of what flows in, by the stage that it flows from.
    gradients: Vec<(StageId, ValueId)>,
    /// The stages that read it.
    readers: Vec<StageId>,
}

impl Values {
    fn add(values: &mut Vec<Value>, stage: StageId, graph: &StageGraph) -> Self {
        let mut add =
            |name: String, kind, bytes| add_value(values, Value { name, kind, stage, bytes, tensors: Vec::new() });
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
        }
    }

    /// Its gradient of what flows from a stage.
    fn gradient_of(&self, stage: StageId) -> Option<ValueId> {
        self.gradients.iter().find(|(from, _)| *from == stage).map(|(_, value)| *value)
    }
}

fn operands(kind: TaskKind, values: &[Values], stage: StageId) -> Vec<Operand> {
    let own = &values[stage.index()];
    let mut list = Vec::new();
    let mut push = |access, value| list.push(Operand { value, access });
    match kind {
        TaskKind::Forward => {
            let before = own.gradients.iter().filter_map(|(from, _)| values[from.index()].activation);
            before.for_each(|value| push(Access::Read, value));
            own.activation.into_iter().chain([own.saved]).for_each(|value| push(Access::Write, value));
        }
        TaskKind::BackwardInput | TaskKind::Backward => {
            let after = own.readers.iter().rev().filter_map(|reader| values[reader.index()].gradient_of(stage));
            after.chain([own.saved]).for_each(|value| push(Access::Read, value));
            own.gradients.iter().for_each(|(_, value)| push(Access::Write, *value));
        }
        TaskKind::BackwardWeight => push(Access::Read, own.saved),
        TaskKind::Update => {}
    }
    list
}
