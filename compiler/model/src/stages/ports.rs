//! What crosses between stages: the outputs of layers that other stages read, and one gradient for each such reader.

use crate::Model;
use crate::graph::bundle::{Bundle, ValueOffset, add_value};
use crate::graph::tape::is_number;
use pipe_ir::graph::TensorType;
use pipe_ir::ids::{StageId, ValueId};
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};
use pipe_schedule::stage_graph::StageGraph;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Which other stages read the output of each layer, ascending.
pub(super) fn readers(model: &Model, cut: &[Range<usize>]) -> Vec<BTreeSet<StageId>> {
    let mut readers = vec![BTreeSet::new(); model.layers.len()];
    for (index, layers) in cut.iter().enumerate() {
        for source in model.layers[layers.clone()].iter().flat_map(|layer| &layer.inputs) {
            if !layers.contains(source) {
                readers[*source].insert(StageId::from_index(index));
            }
        }
    }
    readers
}

/// The same by stage: which stages read which.
pub(crate) fn graph(model: &Model, cut: &[Range<usize>]) -> StageGraph {
    let readers = readers(model, cut);
    let edges = cut.iter().enumerate().flat_map(|(from, layers)| {
        let from = StageId::from_index(from);
        readers[layers.clone()].iter().flatten().map(move |to| (from, *to))
    });
    StageGraph::new(cut.len(), edges)
}

/// The values for the output of one layer.
#[derive(Clone, Debug)]
pub(super) struct Crossing {
    /// The output, or the loss.
    pub value: ValueId,
    /// By reader: what it computes as the gradient. None for what has no gradient.
    pub gradients: BTreeMap<StageId, ValueId>,
}

impl Crossing {
    /// The value of a loss.
    pub(super) fn loss(values: &mut Vec<Value>, stage: StageId, ty: &TensorType) -> Self {
        Self { value: add(values, ("loss".into(), ValueKind::Loss, stage), "loss", ty), gradients: BTreeMap::new() }
    }

    /// The values of what stages read of another one, which calls it `name`.
    pub(super) fn new(
        values: &mut Vec<Value>,
        (stage, name): (StageId, &str),
        ty: &TensorType,
        readers: &BTreeSet<StageId>,
        has_backward: bool,
    ) -> Self {
        let value = add(values, (format!("activation.{name}"), ValueKind::Activation, stage), "output", ty);
        let mut gradients = BTreeMap::new();
        if has_backward && is_number(ty) {
            for reader in readers {
                let name =
                    if readers.len() == 1 { format!("gradient.{name}") } else { format!("gradient.{name}.{reader}") };
                gradients.insert(*reader, add(values, (name, ValueKind::Gradient, stage), "output", ty));
            }
        }
        Self { value, gradients }
    }
}

fn add(
    values: &mut Vec<Value>,
    (name, kind, stage): (String, ValueKind, StageId),
    tensor: &str,
    ty: &TensorType,
) -> ValueId {
    let mut bundle = Bundle::default();
    bundle.add(tensor, ty, None);
    add_value(values, bundle.into_value(name, kind, stage))
}

/// The place of a value that holds one tensor.
pub(super) const fn start(value: ValueId) -> ValueOffset {
    ValueOffset { value, offset: Bytes::ZERO, ahead: 0 }
}
