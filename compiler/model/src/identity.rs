//! Identities: a digest of what a model computes, so that a checkpoint of one model is not taken
//! for that of another with the same weights.
//!
//! It follows from the layers before they are cut into stages and sliced, and leaves out what may
//! change between two runs of one model: first values of weights, types of numbers (a checkpoint
//! names its own), and the outermost dimension of what depends on the data, which is the batch.

use super::{Layer, Leaf, Model};
use pipe_ir::digest::Digest;
use pipe_ir::graph::Op;
use pipe_ir::text;

/// Before all else: digests of other versions of this text never compare equal.
const VERSION: &str = "pipec.model/1\n";

/// The digest of a model.
pub(super) fn digest(model: &Model) -> Digest {
    let layers = model.layers.iter().map(|layer| of_layer(model, layer));
    layers.fold(Digest::default().and(VERSION.as_bytes()), joined)
}

/// The digest of what flows out of a layer. It follows from what each node computes of what, not
/// from the order in which they are written.
fn of_layer(model: &Model, layer: &Layer) -> Digest {
    // By node: its digest, and whether it depends on the data.
    let mut nodes: Vec<(Digest, bool)> = Vec::with_capacity(layer.tape.len());
    for (id, node) in layer.tape.ids().zip(layer.tape.nodes()) {
        let inputs = node.inputs.iter().map(|input| nodes[input.index()]);
        let (what, depends) = match (&node.op, layer.tape.leaf_of(id)) {
            (Op::Input { .. }, Some(leaf)) => named(model, layer, leaf),
            _ => (text::operation(node), inputs.clone().any(|(_, depends)| depends)),
        };
        let sizes = node.ty.shape.iter().enumerate();
        let sizes = sizes.map(|(axis, size)| if depends && axis == 0 { "batch".to_owned() } else { size.to_string() });
        let own = Digest::default().and(format!("{what} [{}]", sizes.collect::<Vec<_>>().join(",")).as_bytes());
        nodes.push((inputs.map(|(input, _)| input).fold(own, joined), depends));
    }
    nodes[layer.output.index()].0
}

fn joined(digest: Digest, other: Digest) -> Digest {
    digest.and(other.to_string().as_bytes())
}

/// What a leaf stands for, and whether it depends on the data.
fn named(model: &Model, layer: &Layer, leaf: Leaf) -> (String, bool) {
    match leaf {
        Leaf::Weight(weight) => {
            let weight = &layer.weights[weight];
            (format!("weight {} {:?}", weight.name, weight.owner.map(|owner| (owner.layer, owner.weight))), false)
        }
        Leaf::Data(data) => (format!("data {}", model.data[data].name), true),
        Leaf::Activation(port) => (format!("output of layer {}", layer.inputs[port]), true),
        Leaf::Past { port, behind } => (format!("past {port} {behind}"), true),
        Leaf::OutputGradient(port) => (format!("gradient {port}"), true),
    }
}
