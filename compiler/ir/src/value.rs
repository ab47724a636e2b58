//! Values: the table of what buffers may hold. A buffer's contents are one value of one microbatch (or of none).

use crate::graph::{DType, TensorType};
use crate::ids::{GroupId, StageId, ValueId};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::Range;

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
        /// The sum of the squares of all gradients of a step, for their norm; lives for the whole run.
        GradientNorm "gradient_norm"
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
        /// Computed by one piece of a task and read by a later one.
        Held "held"
        /// The same, once the members of the device have exchanged it.
        Exchanged "exchanged"
    }
}

impl ValueKind {
    /// Whether one buffer holds it from the set-up to the end of the run, over all microbatches.
    pub const fn is_persistent(self) -> bool {
        matches!(
            self,
            Self::Parameters | Self::ParameterGradients | Self::OptimizerState | Self::GradientNorm | Self::Scratch
        )
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
    /// How the members of a device divide the tensor, if they do: each has a tensor of the type above, or of that which
    /// `part` is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
}

/// How the members of a device divide a tensor: along an axis, or each of several blocks of it along the axis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Split {
    /// Along which axis.
    pub axis: u32,
    /// How many blocks of equal size the axis has, each of which is divided.
    pub blocks: u64,
    /// How many members there are.
    pub members: u64,
    /// How many rows all members have beyond those of the tensor, where it is divided along axis 0 and members do not
    /// divide its rows evenly: the last ones of the last members, which hold zeros.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub padding: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Of which tensor a slot holds a part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// The whole tensor.
    pub whole: TensorType,
    /// Its first number in the slot, counted as they lie in memory.
    pub from: u64,
}

/// What the names of keys begin with: data from which masks of dropout follow. No name of a text has a dot.
pub const DROPOUT: &str = "dropout.";

impl TensorSlot {
    /// Whether it is a key of dropouts: the same number for all slices of a microbatch.
    pub fn is_key(&self) -> bool {
        self.name.starts_with(DROPOUT) && self.ty.dtype.is_float() && self.ty.shape == [1]
    }

    /// The type of the tensor that all members have together.
    pub fn undivided(&self) -> TensorType {
        let mut whole = self.whole().clone();
        if let Some(split) = self.split {
            let axis = &mut whole.shape[split.axis as usize];
            *axis = (*axis * split.members).saturating_sub(split.padding);
        }
        whole
    }

    /// Which numbers of the tensor of all members a member has, in the order in which it has them. Those of padding
    /// follow, and belong to nothing.
    pub fn numbers(&self, member: u64) -> Vec<Range<u64>> {
        let first = self.part.as_ref().map_or(0, |part| part.from);
        let own = first..first + self.ty.elements();
        let Some(Split { axis, blocks, members, padding }) = self.split else { return vec![own] };
        let shape = &self.whole().shape[axis as usize..];
        // What follows each other in the whole.
        let run: u64 = shape.iter().product::<u64>() / blocks.max(1);
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut at = own.start;
        while at < own.end && run > 0 {
            let end = own.end.min((at / run + 1) * run);
            let start = (at / run * members + member) * run + at % run;
            match found.last_mut() {
                Some(last) if last.end == start => last.end += end - at,
                _ => found.push(start..start + (end - at)),
            }
            at = end;
        }
        if padding > 0 {
            let all = self.undivided().elements();
            found.iter_mut().for_each(|own| *own = own.start.min(all)..own.end.min(all));
            found.retain(|own| !own.is_empty());
        }
        found
    }

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

#[cfg(test)]
mod tests {
    use super::{Part, Split, TensorSlot};
    use crate::graph::TensorType;
    use crate::units::Bytes;

    /// The members' numbers are all numbers of the whole, each once, also where each member's are divided further.
    #[test]
    fn members_have_all_numbers_together() {
        let splits =
            [(0, 1), (1, 1), (1, 3), (2, 2)].map(|(axis, blocks)| Split { axis, blocks, members: 2, padding: 0 });
        for split in splits {
            let mut whole = TensorType::f32(&[4, 12, 8]);
            whole.shape[split.axis as usize] /= 2;
            let slot = |ty: &TensorType, part| TensorSlot {
                name: "w".into(),
                ty: ty.clone(),
                offset: Bytes::ZERO,
                init: None,
                part,
                split: Some(split),
            };
            let own = slot(&whole, None);
            assert_eq!(own.undivided(), TensorType::f32(&[4, 12, 8]));
            let all: Vec<u64> = (0..2).flat_map(|member| own.numbers(member).into_iter().flatten()).collect();
            let mut sorted = all.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..384).collect::<Vec<u64>>());
            let cut = |from: u64, count: u64| {
                slot(&TensorType::f32(&[count]), Some(Part { whole: whole.clone(), from })).numbers(1)
            };
            let halves: Vec<u64> = [cut(0, 50), cut(50, 142)].into_iter().flatten().flatten().collect();
            assert_eq!(halves, all[192..]);
        }
        let columns = Split { axis: 1, blocks: 2, members: 2, padding: 0 };
        let ty = TensorType::f32(&[1, 4]);
        let own =
            TensorSlot { name: "w".into(), ty, offset: Bytes::ZERO, init: None, part: None, split: Some(columns) };
        assert_eq!((own.numbers(0), own.numbers(1)), (vec![0..2, 4..6], vec![2..4, 6..8]));
    }
}
