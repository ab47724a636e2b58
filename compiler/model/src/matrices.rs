//! Which weights are matrices of hidden layers, which Muon updates as a whole.
//!
//! Such a weight is a factor of a matrix product. Embeddings, which are looked up by an index, and the weights of the
//! last layer do not count: AdamW updates them (arXiv 2502.16982, section 2.1; K. Jordan, Muon, 2024).

use crate::graph::tape::Leaf;
use crate::{Layer, Model, WeightId};
use pipe_ir::graph::Op;
use pipe_ir::muon::Matrices;
use std::collections::BTreeSet;

/// The weights that are matrices of hidden layers. A weight with three axes counts if the first one is a batch axis of
/// its products.
pub(crate) fn of_model(model: &Model) -> BTreeSet<WeightId> {
    let last = model.written.last().map_or(model.layers.len(), |last| last.start);
    let (mut factors, mut others) = (BTreeSet::new(), BTreeSet::new());
    for (index, layer) in model.layers.iter().enumerate() {
        let id = |weight: usize| layer.weights[weight].owner.unwrap_or(WeightId { layer: index, weight });
        for (weight, is_factor) in uses(layer) {
            let kept = if is_factor && index < last { &mut factors } else { &mut others };
            kept.insert(id(weight));
        }
    }
    factors.difference(&others).copied().collect()
}

/// The uses of a layer's weights: `true` as a factor of a product, `false` as a table of rows.
fn uses(layer: &Layer) -> Vec<(usize, bool)> {
    let tape = &layer.tape;
    // By node: the weight behind it, if it is a view or a conversion of one.
    let mut weights: Vec<Option<usize>> = Vec::with_capacity(tape.len());
    let mut uses = Vec::new();
    for id in tape.ids() {
        let node = tape.node(id);
        let input = |position: usize| node.inputs.get(position).and_then(|input| weights[input.index()]);
        let several = |weight: &usize| layer.weights[*weight].ty.shape.len() > 2;
        let own = match &node.op {
            Op::Input { .. } => match tape.leaf_of(id) {
                Some(Leaf::Weight(weight)) => Matrices::of(&layer.weights[weight].ty).map(|_| weight),
                _ => None,
            },
            Op::Convert | Op::Vary => input(0),
            Op::Slice { axis, .. } => input(0).filter(|weight| !several(weight) || *axis > 0),
            Op::Transpose { permutation } => input(0).filter(|weight| !several(weight) || permutation[0] == 0),
            Op::Reshape => input(0).filter(|weight| !several(weight)),
            _ => None,
        };
        let factors: &[usize] = match &node.op {
            Op::MatMul { .. } => &[0, 1],
            Op::RoutedMatMul { .. } => &[1],
            _ => &[],
        };
        uses.extend(factors.iter().filter_map(|position| Some((input(*position)?, true))));
        if node.op == Op::Gather {
            uses.extend(input(0).map(|weight| (weight, false)));
        }
        weights.push(own);
    }
    uses
}
