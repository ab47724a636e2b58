//! Kernels over the rows of contiguous tensors: what each takes and makes, its bytes and its words in profiles.

use super::{Location, traffic::written};
use crate::graph::{DType, Graph, Node, Op};

/// A kernel over the rows of contiguous tensors.
#[derive(Clone, PartialEq, Debug)]
pub struct RowKernel {
    /// Type of all elements that are not indices, but those of inputs that are [`Extent::Rows`] and of the result.
    pub dtype: DType,
    /// Type of the elements of these inputs: the same, or bfloat16, which is widened when it is read.
    pub stored: DType,
    /// Type of the elements of the result: that of [`RowKernel::dtype`], or bfloat16, to which
    /// numbers are rounded, of a result that is [`Extent::Rows`].
    pub result: DType,
    /// What is done to a row.
    pub op: RowOp,
    /// Number of rows (of indices for [`RowOp::Gather`] and [`RowOp::ScatterAdd`]).
    pub rows: u64,
    /// Elements of a row.
    pub width: u64,
    /// In the order of the node's inputs.
    pub inputs: Vec<Location>,
    /// The result.
    pub out: Location,
    /// Whether it is added to what is there (only [`RowOp::ScatterAdd`] and [`RowOp::NormalizeGradGain`]).
    pub accumulate: bool,
}

/// See the nodes of the same names in [`crate::graph::Op`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RowOp {
    /// Mean and 1 / sqrt(variance + epsilon).
    NormStatistics {
        /// Added to the variance.
        epsilon: f64,
    },
    /// Layer normalisation from its statistics.
    Normalize,
    /// Its derivative by x.
    NormalizeGradInput {
        /// Whether a fifth tensor is added to it.
        joined: bool,
    },
    /// Its derivative by the gain.
    NormalizeGradGain,
    /// Softmax; with `causal`, rows are counted modulo this number, and row i sees columns 0..=i.
    Softmax {
        /// Rows of one masked matrix.
        causal: Option<u64>,
    },
    /// Its derivative, from its output.
    SoftmaxGrad,
    /// Mean cross-entropy.
    CrossEntropy,
    /// Its derivative by the logits.
    CrossEntropyGrad,
    /// Rows of a table with this many rows.
    Gather {
        /// Rows of the table.
        table: u64,
    },
    /// Adds rows to a table with this many rows.
    ScatterAdd {
        /// Rows of the table.
        table: u64,
    },
}

/// How many elements an input or a result has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// A row for each row; of a result, each computed from the rows of its own place.
    Rows,
    /// Two numbers for each row.
    Pairs,
    /// An index for each row.
    Indices,
    /// One row.
    Row,
    /// One number.
    One,
    /// A table, of which indices name some rows.
    Table,
    /// The rows of a table that indices name.
    Named,
}

/// What a row operation takes and makes.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// The word for its kind in profiles.
    pub(super) kind: &'static str,
    /// What it does among those of its kind.
    pub(super) what: &'static str,
    /// In the order of the node's inputs.
    pub inputs: &'static [Extent],
    /// The result.
    pub result: Extent,
}

impl RowOp {
    /// What it takes and makes.
    pub const fn signature(&self) -> Signature {
        use Extent::{Indices, Named, One, Pairs, Row, Rows, Table};
        let (kind, what, inputs, result): (_, _, &[_], _) = match self {
            Self::NormStatistics { .. } => ("layer_norm", "statistics", &[Rows], Pairs),
            Self::Normalize => ("layer_norm", "normalize", &[Rows, Pairs, Row, Row], Rows),
            Self::NormalizeGradInput { joined: false } => {
                ("layer_norm_grad", "by the input", &[Rows, Pairs, Row, Rows], Rows)
            }
            Self::NormalizeGradInput { joined: true } => {
                ("layer_norm_grad", "by the input, and a sum", &[Rows, Pairs, Row, Rows, Rows], Rows)
            }
            Self::NormalizeGradGain => ("layer_norm_grad", "by the gain", &[Rows, Pairs, Rows], Row),
            Self::Softmax { .. } => ("softmax", "forward", &[Rows], Rows),
            Self::SoftmaxGrad => ("softmax_grad", "gradient", &[Rows, Rows], Rows),
            Self::CrossEntropy => ("cross_entropy", "forward", &[Rows, Indices], One),
            Self::CrossEntropyGrad => ("cross_entropy", "gradient", &[Rows, Indices, One], Rows),
            Self::Gather { .. } => ("embedding", "gather", &[Table, Indices], Named),
            Self::ScatterAdd { .. } => ("embedding", "scatter_add", &[Indices, Rows], Table),
        };
        Signature { kind, what, inputs, result }
    }

    /// Which inputs are [`Extent::Rows`].
    pub fn large_inputs(&self) -> impl Iterator<Item = usize> + use<> {
        let inputs = self.signature().inputs.iter().enumerate();
        inputs.filter(|(_, extent)| **extent == Extent::Rows).map(|(position, _)| position)
    }

    /// The row operation of a node, if it has one.
    pub(super) fn of(graph: &Graph, node: &Node) -> Option<Self> {
        let x = &graph.node(*node.inputs.first()?).ty;
        Some(match &node.op {
            Op::NormStatistics { epsilon } => Self::NormStatistics { epsilon: *epsilon },
            Op::Normalize => Self::Normalize,
            Op::NormalizeGradInput => Self::NormalizeGradInput { joined: node.inputs.len() > 4 },
            Op::NormalizeGradGain => Self::NormalizeGradGain,
            Op::Softmax { causal } => {
                let rows = x.shape.len().checked_sub(2).map_or(1, |axis| x.shape[axis]);
                Self::Softmax { causal: causal.then_some(rows) }
            }
            Op::SoftmaxGrad => Self::SoftmaxGrad,
            Op::CrossEntropy => Self::CrossEntropy,
            Op::CrossEntropyGrad => Self::CrossEntropyGrad,
            Op::Gather => Self::Gather { table: x.shape[0] },
            Op::ScatterAdd => Self::ScatterAdd { table: node.ty.shape[0] },
            Op::Input { .. } | Op::Constant(_) | Op::Unary(_) | Op::Binary(_) | Op::Convert => return None,
            Op::MatMul { .. } | Op::Attention { .. } | Op::AttentionGrad { .. } | Op::Sum { .. } => return None,
            Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } | Op::Concat { .. } => return None,
        })
    }
}

impl RowKernel {
    /// The elements of an input or of the result.
    pub const fn elements(&self, extent: Extent) -> u64 {
        match (extent, &self.op) {
            (Extent::Rows | Extent::Named, _) => self.rows * self.width,
            (Extent::Pairs, _) => self.rows * 2,
            (Extent::Indices, _) => self.rows,
            (Extent::Row, _) => self.width,
            (Extent::Table, RowOp::Gather { table } | RowOp::ScatterAdd { table }) => *table * self.width,
            (Extent::One | Extent::Table, _) => 1,
        }
    }

    /// Bytes read and written.
    pub(super) fn traffic(&self) -> u64 {
        let Signature { inputs, result, .. } = self.op.signature();
        // Each row of a table is named once at the most here.
        let named = (self.rows * self.width).min(self.elements(Extent::Table)) * self.dtype.bytes().0;
        let read = |extent: &Extent| match extent {
            Extent::Rows => self.elements(*extent) * self.stored.bytes().0,
            Extent::Indices => self.rows * DType::I32.bytes().0,
            Extent::Table => self.rows * self.width * self.dtype.bytes().0,
            Extent::Pairs | Extent::Row | Extent::One | Extent::Named => self.elements(*extent) * self.dtype.bytes().0,
        };
        let made = self.elements(result) * self.result.bytes().0;
        let made = match result {
            Extent::Table => written(named, true) + if self.accumulate { 0 } else { made },
            _ => written(made, self.accumulate),
        };
        inputs.iter().map(read).sum::<u64>() + made
    }
}
