//! Models: from declared layers to the tensor graphs of stages.
//!
//! A model is a chain of [`Layer`]s, each with its forward graph. [`partition`] cuts the chain into stages;
//! [`stages`] differentiates every stage and returns the executables and values that lowering works with.

mod bundle;
mod costs;
mod derivative;
mod differentiate;
mod extract;
mod flops;
mod keep;
mod partition;
mod passes;
mod plan;
mod stage;
pub mod stage_set;
mod stages;
mod symbolic;
mod tape;
mod weights;

pub use costs::costs;
pub use partition::partition;
pub use stages::{Kinds, Request, stages};
pub use symbolic::abstract_stages;
pub use tape::{Leaf, Tape};

use crate::source::Span;
use pipe_ir::graph::TensorType;
use pipe_ir::ids::NodeId;
use pipe_ir::value::Init;
use std::collections::BTreeMap;

/// A chain of layers. The last one computes the loss.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name of its declaration.
    pub name: String,
    /// Where it was called.
    pub span: Span,
    /// Tensors of a microbatch, by [`Leaf::Data`].
    pub data: Vec<DataTensor>,
    /// In the order in which tensors flow.
    pub layers: Vec<Layer>,
}

/// A tensor of the microbatch's data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataTensor {
    /// Such as `tokens`.
    pub name: String,
    /// Element type and shape.
    pub ty: TensorType,
}

/// One layer of a model, with numbers for all its parameters.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its position in the model and the name of its declaration: `3.block`.
    pub name: String,
    /// Where the model calls it.
    pub span: Span,
    /// What it computes.
    pub tape: Tape,
    /// What flows out of it, or its loss.
    pub output: NodeId,
    /// Its weights, by [`Leaf::Weight`].
    pub weights: Vec<Weight>,
    /// What its `let`s call nodes.
    pub names: BTreeMap<NodeId, String>,
}

/// A trained tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct Weight {
    /// Unique in its layer.
    pub name: String,
    /// Element type and shape.
    pub ty: TensorType,
    /// Its elements before the first step.
    pub init: Init,
}

impl Layer {
    /// Floating-point operations of its forward pass.
    #[must_use]
    pub fn flops(&self) -> u64 {
        flops::flops(self.tape.nodes())
    }
}
