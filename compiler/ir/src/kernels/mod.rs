//! Kernels: what a device launches for one executable. A tensor graph becomes a list of kernels and
//! a plan of its scratch.
//!
//! Reshapes, transposes and slices are views: only strides, no bytes move. Trees of element-wise
//! nodes become one kernel. A tensor that is stored to an operand is computed right there; the
//! others get places in scratch. The arithmetic of an element never depends on how nodes were
//! fused: results are equal bit for bit with and without fusion.

mod attention;
mod destination;
mod emit;
mod fusion;
mod joined;
mod operands;
mod reads;
mod routed;
mod rows;
mod scratch;
mod text;
mod traffic;
mod view;

use crate::graph::{Binary, DType, Graph, Op, Unary};
use crate::units::Bytes;
pub use attention::{Attention, Derivatives, STRIP_ROWS, seen};
pub use fusion::Fusion;
pub use routed::{Routed, RoutedProduct};
pub use rows::{Extent, RowKernel, RowOp, Signature};
pub use view::{Dim, Location, Storage, View};

/// The kernels of one executable, in the order in which they run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct KernelPlan {
    /// What to launch.
    pub kernels: Vec<Kernel>,
    /// Bytes of temporaries that they need.
    pub scratch: Bytes,
}

/// One launch.
#[derive(Clone, PartialEq, Debug)]
pub enum Kernel {
    /// Matrix products.
    Gemm(Gemm),
    /// A fused expression, for every element.
    Elementwise(Elementwise),
    /// Moves elements between layouts; both views have the same type and sizes.
    Copy {
        /// Where they are.
        from: View,
        /// Where they go.
        to: View,
    },
    /// Sums over the middle one of three dimensions.
    Sum(Sum),
    /// Work on the rows of contiguous tensors.
    Rows(RowKernel),
    /// Attention, or its derivatives.
    Attention(Attention),
    /// Products of rows with the matrices of their routes, or the derivative by these.
    Routed(Routed),
}

/// `c = a · b`, or `c += a · b`, for every index of the batch dimensions.
#[derive(Clone, PartialEq, Debug)]
pub struct Gemm {
    /// Type of all sums.
    pub dtype: DType,
    /// Type of the elements of a and b: the same, or bfloat16 for sums in single precision.
    pub factors: DType,
    /// Type of the elements of c: that of the sums, or bfloat16 where the factors are, to which sums are rounded.
    pub result: DType,
    /// Sizes of the batch dimensions, outermost first; empty for a single product.
    pub batch: Vec<u64>,
    /// Rows of a and c.
    pub m: u64,
    /// Columns of b and c.
    pub n: u64,
    /// Columns of a and rows of b.
    pub k: u64,
    /// Left factor.
    pub a: Matrix,
    /// Right factor.
    pub b: Matrix,
    /// Result.
    pub c: Matrix,
    /// Whether the product is added to c; never to bfloat16.
    pub accumulate: bool,
}

/// A batch of matrices in memory. Strides count elements.
#[derive(Clone, PartialEq, Debug)]
pub struct Matrix {
    /// Its first element.
    pub at: Location,
    /// From one row to the next.
    pub row: u64,
    /// From one column to the next.
    pub column: u64,
    /// From one matrix to the next, per batch dimension.
    pub batch: Vec<u64>,
}

/// A fused expression over a common iteration space.
#[derive(Clone, PartialEq, Debug)]
pub struct Elementwise {
    /// Sizes of the iteration space, outermost first; the last one is the run that is vectorised.
    pub sizes: Vec<u64>,
    /// What is computed for each element.
    pub expression: Expression,
    /// One per [`Expression::inputs`].
    pub inputs: Vec<Strided>,
    /// One per [`Expression::outputs`].
    pub outputs: Vec<Strided>,
}

/// A tensor that is walked along the iteration space. The stride of the last dimension is 1, or 0 for repeated inputs.
#[derive(Clone, PartialEq, Debug)]
pub struct Strided {
    /// Its first element.
    pub at: Location,
    /// In elements, one per dimension of the iteration space.
    pub strides: Vec<u64>,
}

/// An element-wise computation as straight-line code. Two kernels with equal expressions share their machine code.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Expression {
    /// Type of all values; never bfloat16.
    pub dtype: DType,
    /// What is read.
    pub inputs: Vec<Load>,
    /// Values, each from earlier ones.
    pub steps: Vec<Step>,
    /// What is written.
    pub outputs: Vec<Output>,
}

/// An input of an [`Expression`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Load {
    /// Type of its elements: that of the expression, or bfloat16, which is widened when it is read.
    pub dtype: DType,
    /// Whether one element is repeated along the innermost dimension.
    pub splat: bool,
}

/// One value of an [`Expression`]; operands are positions in [`Expression::steps`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    /// The element of this input.
    Load(u32),
    /// The number with these bits in double precision; the expression's type can hold it.
    Constant(u64),
    /// The bfloat16 that is nearest to a value; so it is the same whether it goes through memory or not.
    Round(u32),
    /// A function of one value.
    Unary(Unary, u32),
    /// A function of two values.
    Binary(Binary, u32, u32),
}

/// A result of an [`Expression`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Output {
    /// Type of its elements: that of the expression, or bfloat16, of which the value then is one.
    pub dtype: DType,
    /// Position in [`Expression::steps`].
    pub step: u32,
    /// Whether it is added to what is there; never to bfloat16.
    pub accumulate: bool,
}

/// `out[i, j] = sum over r of x[i, r, j]`, both contiguous; in the order of r, but in blocks of
/// lanes where `inner` is 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Sum {
    /// Type of the sums.
    pub dtype: DType,
    /// Type of the elements of x: the same, or bfloat16, which is widened when it is read.
    pub stored: DType,
    /// Size of i.
    pub outer: u64,
    /// Size of r.
    pub reduced: u64,
    /// Size of j.
    pub inner: u64,
    /// What is summed.
    pub x: Location,
    /// The sums.
    pub out: Location,
    /// Whether the sums are added to what is there.
    pub accumulate: bool,
}

/// The kernels of a graph, fused, and the scratch that they need. Equal graphs give equal plans.
pub fn plan(graph: &Graph) -> KernelPlan {
    plan_with(graph, Fusion::On)
}

/// As [`plan`], with or without fusion of element-wise nodes: a check that fusion changes no bit.
pub fn plan_with(graph: &Graph, fusion: Fusion) -> KernelPlan {
    let has_parts = graph.nodes.iter().any(|node| node.op == Op::OwnPart);
    let first = has_parts.then(|| graph.of_member(0));
    let graph = reads::direct(first.as_ref().unwrap_or(graph));
    let graph = match fusion {
        Fusion::On => joined::joined(graph),
        Fusion::Off => graph,
    };
    let units = fusion::units(&graph, fusion);
    let emitted = emit::emit(&graph, &units);
    scratch::pack(emitted)
}

impl Kernel {
    /// The word for its kind in profiles.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Gemm(_) => "gemm",
            Self::Elementwise(_) => "elementwise",
            Self::Copy { .. } => "copy",
            Self::Sum(_) => "sum",
            Self::Attention(Attention { derivatives: None, .. }) => "attention",
            Self::Attention(Attention { derivatives: Some(_), .. }) => "attention_grad",
            Self::Routed(Routed { product: RoutedProduct::Rows { .. }, .. }) => "routed_gemm",
            Self::Routed(Routed { product: RoutedProduct::ByMatrices, .. }) => "routed_gemm_grad",
            Self::Rows(rows) => rows.op.signature().kind,
        }
    }

    /// Floating-point operations, 2 per multiply-add, of matrix products, those of attention too; 0
    /// for all other kernels.
    pub fn flops(&self) -> u64 {
        match self {
            Self::Gemm(gemm) => 2 * gemm.batch.iter().product::<u64>() * gemm.m * gemm.n * gemm.k,
            Self::Attention(attention) => attention.flops(),
            Self::Routed(routed) => routed.flops(),
            Self::Elementwise(_) | Self::Copy { .. } | Self::Sum(_) | Self::Rows(_) => 0,
        }
    }

    /// Elements of the iteration space: what the time of all kernels but matrix products grows with.
    pub fn elements(&self) -> u64 {
        match self {
            Self::Gemm(gemm) => gemm.batch.iter().product::<u64>() * gemm.m * gemm.n,
            Self::Elementwise(kernel) => kernel.sizes.iter().product(),
            Self::Copy { to, .. } => to.elements(),
            Self::Sum(sum) => sum.outer * sum.reduced * sum.inner,
            Self::Rows(rows) => rows.rows * rows.width,
            Self::Attention(attention) => attention.seen(),
            Self::Routed(routed) => routed.made(),
        }
    }
}
