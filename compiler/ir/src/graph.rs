//! Tensor graphs: the bodies of executables. Single-assignment nodes in an order in which every input comes first.
//!
//! Shapes are static. Element-wise nodes broadcast like NumPy: shapes are aligned at the right, and
//! a missing or 1-sized dimension repeats. All arithmetic is in `f32` or in `f64`, as the node's
//! type says, and a node never mixes the two; `i32` tensors only index. `bf16` tensors hold `f32`
//! numbers that were rounded, to be kept, sent and multiplied: [`Op::Convert`] makes them and
//! widens them again, operations that only move elements take them, and products and attention have
//! them as factors.

use crate::ids::NodeId;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Element type of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DType {
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// The upper half of a number in single precision. For storage only: nothing is added up in it.
    #[serde(rename = "bf16")]
    BF16,
    /// Signed 32-bit indices (tokens, classes).
    I32,
}

impl DType {
    /// Every type with the word that stands for it in the textual IR.
    pub const WORDS: [(&str, Self); 4] =
        [("f32", Self::F32), ("f64", Self::F64), ("bf16", Self::BF16), ("i32", Self::I32)];

    /// Bytes of one element.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        match self {
            Self::BF16 => Bytes(2),
            Self::F32 | Self::I32 => Bytes(4),
            Self::F64 => Bytes(8),
        }
    }

    /// Whether its elements are numbers, not indices.
    #[must_use]
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
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// The number of this type that is nearest to a number.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "rounding is what it is for")]
    pub const fn nearest(self, number: f64) -> f64 {
        match self {
            Self::F32 => number as f32 as f64,
            Self::BF16 => rounded(number as f32) as f64,
            Self::F64 | Self::I32 => number,
        }
    }

    /// Whether a number is a finite one of this type.
    #[must_use]
    pub const fn holds(self, number: f64) -> bool {
        self.is_float() && number.is_finite() && self.nearest(number) == number
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::BF16 => "bf16",
            Self::I32 => "i32",
        })
    }
}

/// The bfloat16 that is nearest to a number, the even one of two; what is no number stays none.
#[must_use]
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
    #[must_use]
    pub fn new(dtype: DType, shape: &[u64]) -> Self {
        Self { dtype, shape: shape.to_vec() }
    }

    /// An `f32` tensor of this shape.
    #[must_use]
    pub fn f32(shape: &[u64]) -> Self {
        Self::new(DType::F32, shape)
    }

    /// Number of elements.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bytes of all elements.
    #[must_use]
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

/// Element-wise function of one tensor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unary {
    /// -x
    Neg,
    /// e^x
    Exp,
    /// natural logarithm
    Log,
    /// hyperbolic tangent
    Tanh,
    /// square root
    Sqrt,
    /// 1 / x
    Reciprocal,
    /// max(x, 0)
    Relu,
    /// 1 where x > 0, else 0: the derivative of relu
    Step,
}

/// Element-wise function of two tensors, broadcast against each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binary {
    /// a + b
    Add,
    /// a - b
    Sub,
    /// a * b
    Mul,
    /// a / b
    Div,
}

/// What a node computes. Inputs are written in the order of [`Node::inputs`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// (): a tensor inside the executable's operand number `operand`, `offset` bytes from its start.
    Input {
        /// Position in [`crate::program::Exec::operands`].
        operand: u32,
        /// Bytes from the start of the operand.
        offset: Bytes,
    },
    /// (): every element is this number, which the node's type can hold.
    Constant(f64),
    /// (x): element-wise.
    Unary(Unary),
    /// (a, b): element-wise with broadcasting.
    Binary(Binary),
    /// (x): element-wise, from `f32` to `bf16` by [`rounded`], or back.
    Convert,
    /// (a, b): a[.., m, k] · b[.., k, n] -> [.., m, n], added up in `f32` where both factors are
    /// `bf16`. Leading dimensions are equal, or b has rank 2 and is shared, or both are folded by
    /// the transposes below. With `transpose_a` the last two dimensions of a are read as [k, m];
    /// with `transpose_b` those of b as [n, k].
    MatMul {
        /// a is stored as [.., k, m].
        transpose_a: bool,
        /// b is stored as [.., n, k].
        transpose_b: bool,
    },
    /// (x): the sum over one axis, which keeps its place with size 1.
    Sum {
        /// Which dimension, from 0.
        axis: u32,
    },
    /// (x): the same elements in row-major order under another shape.
    Reshape,
    /// (x): dimension i of the result is dimension `permutation[i]` of x.
    Transpose {
        /// A permutation of the dimensions.
        permutation: Vec<u32>,
    },
    /// (x): elements `start..start + size` of one axis (the size is the result's).
    Slice {
        /// Which dimension.
        axis: u32,
        /// First element taken.
        start: u64,
    },
    /// (x, y, ..): joined along one axis.
    Concat {
        /// Which dimension.
        axis: u32,
    },
    /// (table[v, h], indices i32[..]) -> [.., h]: rows of the table.
    Gather,
    /// (indices i32[..], dy[.., h]) -> [v, h]: adds each row of dy to the row of a zero table that its index names, in
    /// the order of the indices. The derivative of `Gather`.
    ScatterAdd,
    /// (x[.., h]) -> [.., 2]: mean and 1 / sqrt(variance + epsilon) of every row.
    NormStatistics {
        /// Added to the variance; a number that the node's type can hold.
        epsilon: f64,
    },
    /// `(x[.., h], statistics[.., 2], gain[h], bias[h]) -> [.., h]`: (x - mean) * rstd * gain + bias.
    Normalize,
    /// (x, statistics, gain, dy) -> [.., h]: derivative of layer normalisation by x.
    NormalizeGradInput,
    /// `(x, statistics, dy) -> [h]`: derivative of layer normalisation by its gain.
    NormalizeGradGain,
    /// (x[.., m, n]): e^(x - max) / sum over the last dimension. `causal`: row i of the last two
    /// dimensions sees columns 0..=i only, or 0..=i + n - m where n > m; the others become 0.
    Softmax {
        /// Whether the rows are masked.
        causal: bool,
    },
    /// (q[.., m, w], k[.., n, w], v[.., n, w]) -> [.., m, w]: softmax(q · kᵀ) · v. The scores, m
    /// rows and n columns of them, never lie in memory as a whole. With `causal`, n is at least m,
    /// and row i sees columns 0..=i + n - m only (arXiv 2205.14135). Of `bf16` makes `f32`.
    Attention {
        /// Whether the rows are masked.
        causal: bool,
    },
    /// (q, k, v, dy) -> [.., m + 2 n, w]: derivatives of `Attention` by its inputs, the rows of one
    /// after those of the other.
    AttentionGrad {
        /// As in `Attention`.
        causal: bool,
    },
    /// (y, dy): derivative of softmax by its input, from its output y: y * (dy - sum(y * dy)).
    SoftmaxGrad,
    /// `(logits[.., v], targets i32[..]) -> []`: mean over all rows of `-log softmax(logits)[target]`.
    CrossEntropy,
    /// (logits[.., v], targets i32[..], dloss[]) -> [.., v]: derivative of `CrossEntropy` by the logits.
    CrossEntropyGrad,
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
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Appends a node and returns its id.
    pub fn push(&mut self, op: Op, inputs: Vec<NodeId>, ty: TensorType) -> NodeId {
        self.nodes.push(Node { op, inputs, ty });
        NodeId::from_index(self.nodes.len() - 1)
    }
}
