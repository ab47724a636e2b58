//! Tensor graphs: the bodies of executables. Single-assignment nodes in an order in which every input comes first.
//!
//! Shapes are static. Element-wise nodes broadcast like NumPy: shapes are aligned at the right, and
//! a missing or 1-sized dimension repeats. All arithmetic is in `f32` or in `f64`, as the node's
//! type says, and a node never mixes the two; `i32` tensors only index. `bf16` tensors hold `f32`
//! numbers that were rounded, to be kept, sent and multiplied: [`Op::Convert`] makes them and
//! widens them again, operations that only move elements take them, and products and attention have
//! them as factors.

mod attribute;
mod operations;

use crate::ids::NodeId;
use crate::units::Bytes;
pub use attribute::Double;
pub use operations::{Binary, Class, NOWHERE, Op, Unary};
use serde::{Deserialize, Serialize};
use std::fmt;

crate::words! {
    /// Element type of a tensor.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum DType {
        /// IEEE single precision.
        #[default]
        F32 "f32"
        /// IEEE double precision.
        F64 "f64"
        /// The upper half of a number in single precision. For storage only: nothing is added up in it.
        #[serde(rename = "bf16")]
        BF16 "bf16"
        /// Signed 32-bit indices (tokens, classes).
        I32 "i32"
    }
}

impl DType {
    /// Bytes of one element.
    pub const fn bytes(self) -> Bytes {
        match self {
            Self::BF16 => Bytes(2),
            Self::F32 | Self::I32 => Bytes(4),
            Self::F64 => Bytes(8),
        }
    }

    /// Whether its elements are numbers, not indices.
    pub const fn is_number(self) -> bool {
        !matches!(self, Self::I32)
    }

    /// The type in which its elements are computed with: single precision for bfloat16.
    #[must_use]
    pub const fn arithmetic(self) -> Self {
        match self {
            Self::BF16 => Self::F32,
            Self::F32 | Self::F64 | Self::I32 => self,
        }
    }

    /// Whether its elements are numbers to compute with: neither indices, nor for storage only.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// The number of this type that is nearest to a number.
    #[expect(clippy::cast_possible_truncation, reason = "rounding is what it is for")]
    pub const fn nearest(self, number: f64) -> f64 {
        match self {
            Self::F32 => number as f32 as f64,
            Self::BF16 => rounded(number as f32) as f64,
            Self::F64 | Self::I32 => number,
        }
    }

    /// Whether a number is a finite one of this type.
    pub const fn holds(self, number: f64) -> bool {
        self.is_float() && number.is_finite() && self.nearest(number) == number
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A number from 0 to below 1, with 24 bits, that follows from the bits of two numbers in single precision: the upper
/// bits of `m(m(a + 0x9e3779b9) ^ b)`, where `m` is the mixer `lowbias32` (C. Wellons, Prospecting for Hash Functions,
/// 2018).
pub fn hash(a: f32, b: f32) -> f32 {
    let first = mixed(a.to_bits().wrapping_add(HASH_START));
    (mixed(first ^ b.to_bits()) >> 8) as f32 * HASH_UNIT
}

/// What is added to the bits of the first number, so that 0 is no fixed point.
pub const HASH_START: u32 = 0x9e37_79b9;
/// 2^-24.
pub const HASH_UNIT: f32 = 1.0 / 16_777_216.0;
/// The steps of the mixer: a right shift, whose result is combined with the number by exclusive or, and a factor.
pub const HASH_STEPS: [(u32, u32); 3] = [(16, 0x7feb_352d), (15, 0x846c_a68b), (16, 1)];

fn mixed(mut bits: u32) -> u32 {
    for (shift, factor) in HASH_STEPS {
        bits = (bits ^ (bits >> shift)).wrapping_mul(factor);
    }
    bits
}

/// The bfloat16 that is nearest to a number, the even one of two; what is no number stays none.
pub const fn rounded(number: f32) -> f32 {
    let bits = number.to_bits();
    let bits = if number.is_nan() { bits | 0x0040_0000 } else { bits + 0x7fff + (bits >> 16 & 1) };
    f32::from_bits(bits & 0xffff_0000)
}

/// Element type and shape of a tensor, row-major and contiguous where it lies in a buffer. A scalar has shape `[]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost dimension first; none is 0.
    pub shape: Vec<u64>,
}

impl TensorType {
    /// A tensor of this type and shape.
    pub fn new(dtype: DType, shape: &[u64]) -> Self {
        Self { dtype, shape: shape.to_vec() }
    }

    /// An `f32` tensor of this shape.
    pub fn f32(shape: &[u64]) -> Self {
        Self::new(DType::F32, shape)
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.elements() * self.dtype.bytes().0)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        write!(f, "{}[{}]", self.dtype, sizes.join(","))
    }
}

/// The shape that two shapes broadcast to, if they do.
pub fn broadcast(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    let rank = a.len().max(b.len());
    let size = |shape: &[u64], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |own| shape[own]);
    (0..rank)
        .map(|axis| match (size(a, axis), size(b, axis)) {
            (left, right) if left == right => Some(left),
            (1, right) => Some(right),
            (left, 1) => Some(left),
            _ => None,
        })
        .collect()
}

/// One tensor of a graph.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// What it computes.
    pub op: Op,
    /// From which earlier nodes.
    pub inputs: Vec<NodeId>,
    /// Its element type and shape.
    pub ty: TensorType,
}

/// Writes a node's tensor to an operand of the executable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Store {
    /// Which tensor.
    pub node: NodeId,
    /// Position in [`crate::program::Exec::operands`].
    pub operand: u32,
    /// Bytes from the start of the operand.
    pub offset: Bytes,
    /// Added to what is there (weight gradients), instead of replacing it.
    pub accumulate: bool,
    /// How many bytes further each member stores its own part than the member before it.
    #[serde(default, skip_serializing_if = "Bytes::is_zero")]
    pub own: Bytes,
}

/// The body of an executable.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Graph {
    /// In evaluation order.
    pub nodes: Vec<Node>,
    /// What leaves the graph, in order.
    pub stores: Vec<Store>,
}

impl Graph {
    /// The node with this id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Whether members run different graphs.
    pub(crate) fn differs(&self) -> bool {
        let differs = |node: &Node| matches!(node.op, Op::OwnPart | Op::OwnIndices { .. });
        self.nodes.iter().any(differs) || self.stores.iter().any(|store| !store.own.is_zero())
    }

    /// The same as a member of a device runs it.
    #[must_use]
    pub fn of_member(&self, own: u64) -> Self {
        let mut graph = self.clone();
        for node in &mut graph.nodes {
            match &mut node.op {
                op @ Op::OwnPart => *op = Op::Slice { axis: 0, start: own },
                Op::OwnIndices { member, .. } => *member = own,
                _ => {}
            }
        }
        for store in &mut graph.stores {
            store.offset = Bytes(store.offset.0 + own * store.own.0);
        }
        graph
    }

    /// Appends a node and returns its id.
    pub fn push(&mut self, op: Op, inputs: Vec<NodeId>, ty: TensorType) -> NodeId {
        self.nodes.push(Node { op, inputs, ty });
        NodeId::from_index(self.nodes.len() - 1)
    }
}
