//! Stages without a model: executables with nothing but operands, for schedules on their own.

use super::bundle::add_value;
use super::stage_set::{StageExecs, StageSet};
use super::stages::Kinds;
use pipe_ir::ids::{ExecId, StageId, ValueId};
use pipe_ir::program::{Access, Body, Exec, Operand};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};

/// Bytes of what a stage saves for its backward pass.
const SAVED: Bytes = Bytes(1 << 20);
/// Bytes of what flows between stages.
const FLOWING: Bytes = Bytes(1 << 16);

/// A stage set for a chain of stages of which nothing is known: each saves 1 MiB from its forward to the end of its
/// backward pass and hands on 64 KiB. There are no weights, so there is no update.
#[must_use]
pub fn abstract_stages(kinds: &[Kinds]) -> StageSet {
    let mut set = StageSet::default();
    let values: Vec<Values> = (0..kinds.len()).map(|stage| Values::add(&mut set.values, stage, kinds.len())).collect();
    for (stage, asked) in kinds.iter().enumerate() {
        let mut execs = StageExecs::default();
        for kind in TaskKind::ALL.into_iter().filter(|kind| *kind != TaskKind::Update && asked.has(*kind)) {
            let operands = operands(kind, &values, stage);
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
    activation: Option<ValueId>,
    /// The gradient of what flows in.
    gradient: Option<ValueId>,
}

impl Values {
    fn add(values: &mut Vec<Value>, stage: usize, n_stages: usize) -> Self {
        let mut add = |name: String, kind, bytes| {
            let stage = StageId::from_index(stage);
            add_value(values, Value { name, kind, stage, bytes, tensors: Vec::new() })
        };
        Self {
            saved: add(format!("saved_w.s{stage}"), ValueKind::SavedForWeight, SAVED),
            activation: (stage + 1 < n_stages)
                .then(|| add(format!("activation.s{stage}"), ValueKind::Activation, FLOWING)),
            gradient: stage
                .checked_sub(1)
                .map(|before| add(format!("gradient.s{before}"), ValueKind::Gradient, FLOWING)),
        }
    }
}

fn operands(kind: TaskKind, values: &[Values], stage: usize) -> Vec<Operand> {
    let own = &values[stage];
    let before = stage.checked_sub(1).and_then(|before| values[before].activation);
    let after = values.get(stage + 1).and_then(|after| after.gradient);
    let read = |value: Option<ValueId>| value.map(|value| Operand { value, access: Access::Read });
    let write = |value: Option<ValueId>| value.map(|value| Operand { value, access: Access::Write });
    let list = match kind {
        TaskKind::Forward => vec![read(before), write(own.activation), write(Some(own.saved))],
        TaskKind::BackwardInput | TaskKind::Backward => vec![read(after), read(Some(own.saved)), write(own.gradient)],
        TaskKind::BackwardWeight => vec![read(Some(own.saved))],
        TaskKind::Update => Vec::new(),
    };
    list.into_iter().flatten().collect()
}
