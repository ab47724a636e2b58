//! Kernels over the rows of contiguous tensors: what each takes and makes, its bytes and its words in profiles.

use super::{Location, traffic::written};
use crate::graph::{DType, Graph, Node, Op, TensorType};

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
    /// 0, 1, 2, ..
    Positions,
    /// 1, base, base^2, ..
    Powers {
        /// What is multiplied.
        base: f64,
    },
    /// Mean and 1 / sqrt(variance + epsilon).
    NormStatistics {
        /// Added to the variance.
        epsilon: f64,
        /// Whether the mean counts as 0.
        rms: bool,
    },
    /// Normalisation from its statistics.
    Normalize {
        /// Whether a bias is added.
        biased: bool,
    },
    /// Its derivative by x.
    NormalizeGradInput {
        /// Whether the mean counted as 0.
        rms: bool,
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
    CrossEntropy {
        /// Whether each row has a weight.
        weighted: bool,
    },
    /// Its derivative by the logits.
    CrossEntropyGrad {
        /// Whether each row has a weight.
        weighted: bool,
    },
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
    /// The columns of the largest elements of a row.
    TopK {
        /// How many.
        k: u64,
    },
    /// Some elements of a row.
    TakeAlong {
        /// How many.
        k: u64,
    },
    /// Zeros, and some elements that are added to them.
    AddAlong {
        /// How many.
        k: u64,
    },
    /// Indices, counted from the first that the member has.
    OwnIndices {
        /// How many each row has.
        k: u64,
        /// How many the member has.
        size: u64,
        /// How many members there are.
        members: u64,
        /// Which one it is.
        member: u64,
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
    /// A number for each row.
    Weights,
    /// One row.
    Row,
    /// One number.
    One,
    /// A table, of which indices name some rows.
    Table,
    /// The rows of a table that indices name.
    Named,
    /// Some columns for each row: indices.
    Columns,
    /// Elements in some columns of each row.
    Chosen,
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
        use Extent::{Chosen, Columns, Indices, Named, One, Pairs, Row, Rows, Table, Weights};
        let (kind, what, inputs, result): (_, _, &[_], _) = match self {
            Self::Positions => ("series", "positions", &[], Rows),
            Self::Powers { .. } => ("series", "powers", &[], Rows),
            Self::NormStatistics { .. } => ("layer_norm", "statistics", &[Rows], Pairs),
            Self::Normalize { biased: true } => ("layer_norm", "normalize", &[Rows, Pairs, Row, Row], Rows),
            Self::Normalize { biased: false } => ("layer_norm", "normalize without bias", &[Rows, Pairs, Row], Rows),
            Self::NormalizeGradInput { joined: false, .. } => {
                ("layer_norm_grad", "by the input", &[Rows, Pairs, Row, Rows], Rows)
            }
            Self::NormalizeGradInput { joined: true, .. } => {
                ("layer_norm_grad", "by the input, and a sum", &[Rows, Pairs, Row, Rows, Rows], Rows)
            }
            Self::NormalizeGradGain => ("layer_norm_grad", "by the gain", &[Rows, Pairs, Rows], Row),
            Self::Softmax { .. } => ("softmax", "forward", &[Rows], Rows),
            Self::SoftmaxGrad => ("softmax_grad", "gradient", &[Rows, Rows], Rows),
            Self::CrossEntropy { weighted: false } => ("cross_entropy", "forward", &[Rows, Indices], One),
            Self::CrossEntropy { weighted: true } => {
                ("cross_entropy", "forward, weighted", &[Rows, Indices, Weights], One)
            }
            Self::CrossEntropyGrad { weighted: false } => ("cross_entropy", "gradient", &[Rows, Indices, One], Rows),
            Self::CrossEntropyGrad { weighted: true } => {
                ("cross_entropy", "gradient, weighted", &[Rows, Indices, One, Weights], Rows)
            }
            Self::Gather { .. } => ("embedding", "gather", &[Table, Indices], Named),
            Self::ScatterAdd { .. } => ("embedding", "scatter_add", &[Indices, Rows], Table),
            Self::TopK { .. } => ("top_k", "top_k", &[Rows], Columns),
            Self::TakeAlong { .. } => ("along", "take_along", &[Rows, Columns], Chosen),
            Self::AddAlong { .. } => ("along", "add_along", &[Columns, Chosen], Rows),
            Self::OwnIndices { .. } => ("embedding", "own_indices", &[Columns], Columns),
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
        let x = node.inputs.first().map_or(&node.ty, |first| &graph.node(*first).ty);
        let k = |ty: &TensorType| ty.shape.last().copied().unwrap_or(1);
        Some(match &node.op {
            Op::Positions => Self::Positions,
            Op::Powers { base } => Self::Powers { base: base.0 },
            Op::TopK => Self::TopK { k: k(&node.ty) },
            Op::TakeAlong => Self::TakeAlong { k: k(&node.ty) },
            Op::AddAlong => Self::AddAlong { k: k(x) },
            Op::NormStatistics { epsilon, rms } => Self::NormStatistics { epsilon: *epsilon, rms: *rms },
            Op::Normalize => Self::Normalize { biased: node.inputs.len() > 3 },
            Op::NormalizeGradInput { rms } => Self::NormalizeGradInput { rms: *rms, joined: node.inputs.len() > 4 },
            Op::NormalizeGradGain => Self::NormalizeGradGain,
            Op::Softmax { causal } => {
                let rows = x.shape.len().checked_sub(2).map_or(1, |axis| x.shape[axis]);
                Self::Softmax { causal: causal.then_some(rows) }
            }
            Op::SoftmaxGrad => Self::SoftmaxGrad,
            Op::CrossEntropy => Self::CrossEntropy { weighted: node.inputs.len() > 2 },
            Op::CrossEntropyGrad => Self::CrossEntropyGrad { weighted: node.inputs.len() > 3 },
            Op::Gather => Self::Gather { table: x.shape[0] },
            Op::ScatterAdd => Self::ScatterAdd { table: node.ty.shape[0] },
            Op::Input { .. } | Op::Constant(_) | Op::Unary(_) | Op::Binary(_) | Op::Convert => return None,
            Op::RoutedMatMul { .. } | Op::RoutedMatMulGrad => return None,
            Op::MatMul { .. } | Op::Attention { .. } | Op::AttentionGrad { .. } | Op::Sum { .. } => return None,
            Op::OwnIndices { size, members, member, .. } => {
                Self::OwnIndices { k: k(&node.ty), size: *size, members: *members, member: *member }
            }
            Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } | Op::Concat { .. } | Op::OwnPart => return None,
            Op::Vary | Op::AllReduce | Op::AllGather { .. } | Op::ReduceScatter | Op::AllToAll => return None,
        })
    }
}

impl RowKernel {
    /// The elements of an input or of the result.
    pub const fn elements(&self, extent: Extent) -> u64 {
        match (extent, &self.op) {
            (Extent::Rows | Extent::Named, _) => self.rows * self.width,
            (Extent::Pairs, _) => self.rows * 2,
            (Extent::Indices | Extent::Weights, _) => self.rows,
            (Extent::Row, _) => self.width,
            (
                Extent::Columns | Extent::Chosen,
                RowOp::TopK { k } | RowOp::TakeAlong { k } | RowOp::AddAlong { k } | RowOp::OwnIndices { k, .. },
            ) => self.rows * *k,
            (Extent::Table, RowOp::Gather { table } | RowOp::ScatterAdd { table }) => *table * self.width,
            (Extent::One | Extent::Table | Extent::Columns | Extent::Chosen, _) => 1,
        }
    }

    /// Bytes read and written.
    pub(super) fn traffic(&self) -> u64 {
        let Signature { inputs, result, .. } = self.op.signature();
        // Each row of a table is named once at the most here.
        let named = (self.rows * self.width).min(self.elements(Extent::Table)) * self.dtype.bytes().0;
        let read = |extent: &Extent| match extent {
            Extent::Rows => self.elements(*extent) * self.stored.bytes().0,
            Extent::Indices | Extent::Columns => self.elements(*extent) * DType::I32.bytes().0,
            Extent::Table => self.rows * self.width * self.dtype.bytes().0,
            Extent::Pairs | Extent::Weights | Extent::Row | Extent::One | Extent::Named | Extent::Chosen => {
                self.elements(*extent) * self.dtype.bytes().0
            }
        };
        let made = self.elements(result) * self.result.bytes().0;
        let made = match result {
            Extent::Table => written(named, true) + if self.accumulate { 0 } else { made },
            _ => written(made, self.accumulate),
        };
        inputs.iter().map(read).sum::<u64>() + made
    }
}
