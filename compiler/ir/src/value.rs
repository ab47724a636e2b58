//! Values: the table of what buffers may hold. A buffer's contents are one value of one microbatch (or of none).

use crate::graph::{DType, TensorType};
use crate::ids::{GroupId, StageId, ValueId};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

crate::words! {
    /// What role a value plays; this decides how long it lives and who may touch it.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ValueKind {
        /// The stage's weights; lives for the whole run.
        Parameters "parameters"
        /// Their gradients, accumulated in place over the microbatches of a step; lives for the whole run.
        ParameterGradients "parameter_gradients"
        /// The optimizer's moments; lives for the whole run.
        OptimizerState "optimizer_state"
        /// Room for temporaries inside one executable; lives for the whole run, holds nothing between executables.
        Scratch "scratch"
        /// A microbatch's input, loaded from the data set.
        Data "data"
        /// A microbatch's loss, emitted to the host.
        Loss "loss"
        /// An output of the stage, input of others.
        Activation "activation"
        /// The gradient of an output of the stage, as far as one of its readers computes it.
        Gradient "gradient"
        /// Handed from a slice of a microbatch to the later ones of its stage: keys and values.
        Carried "carried"
        /// The gradients of those of all earlier slices, as far as they are added up; handed to the slice before.
        CarriedGradient "carried_gradient"
        /// Saved by `F`, or by `R` where the stage recomputes, and read by `B` only.
        SavedForInput "saved_for_input"
        /// Saved likewise, read by `W` (and perhaps by `B`), or by `BW`.
        SavedForWeight "saved_for_weight"
        /// Saved by `B`, read by `W`: output gradients of the layers inside the stage.
        DeferredGradient "deferred_gradient"
    }
}

impl ValueKind {
    /// Whether one buffer holds it from the set-up to the end of the run, over all microbatches.
    pub const fn is_persistent(self) -> bool {
        matches!(self, Self::Parameters | Self::ParameterGradients | Self::OptimizerState | Self::Scratch)
    }
}

/// How a tensor gets its first contents.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// Normal with mean 0 and this standard deviation, drawn from the run's seed and the tensor's name.
    Normal(f64),
}

/// A tensor inside a value: a value is a bundle of tensors at fixed offsets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TensorSlot {
    /// Unique in its value; for parameters unique in the program and stable over layouts (`blocks.3.mlp.up`), so that
    /// a checkpoint can name it.
    pub name: String,
    /// Element type and shape.
    pub ty: TensorType,
    /// Bytes from the start of the value; a multiple of the element size.
    pub offset: Bytes,
    /// For parameters: how it starts.
    pub init: Option<Init>,
    /// Where it is not a whole tensor but some numbers of one: of which, and from where on. Several
    /// values then hold the parts of the tensor, which has the name that all of them have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
}

/// Of which tensor a slot holds a part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// The whole tensor.
    pub whole: TensorType,
    /// Its first number in the slot, counted as they lie in memory.
    pub from: u64,
}

impl TensorSlot {
    /// The type of the tensor that it holds, or holds a part of.
    pub fn whole(&self) -> &TensorType {
        self.part.as_ref().map_or(&self.ty, |part| &part.whole)
    }

    /// Where its first byte is in that tensor.
    pub fn from(&self) -> Bytes {
        self.part.as_ref().map_or(Bytes::ZERO, |part| Bytes(part.from * self.ty.dtype.bytes().0))
    }
}

/// Which share of some weights a value is, where those who hold them keep a share each, and all of
/// them only while tasks read them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Share {
    /// The weights: a row of the table before the own one.
    pub whole: ValueId,
    /// Which devices hold them.
    pub group: GroupId,
    /// Which of these has this share: its position in the group.
    pub member: u32,
}

/// A row of the program's table of values.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Value {
    /// Unique in the program, such as `activation.s0` or `data.tokens`.
    pub name: String,
    /// Its role.
    pub kind: ValueKind,
    /// The stage that makes or owns it.
    pub stage: StageId,
    /// Bytes of a buffer that holds it.
    pub bytes: Bytes,
    /// What is inside; empty where the program has no model (abstract bytes) and for scratch.
    pub tensors: Vec<TensorSlot>,
    /// Of which weights it is a share, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

impl Value {
    /// A value of which nothing is said to be inside.
    pub const fn plain(name: String, kind: ValueKind, stage: StageId, bytes: Bytes) -> Self {
        Self { name, kind, stage, bytes, tensors: Vec::new(), share: None }
    }

    /// Type of its first tensor; `f32` where nothing is said to be inside.
    pub fn dtype(&self) -> DType {
        self.tensors.first().map_or(DType::F32, |slot| slot.ty.dtype)
    }
}
