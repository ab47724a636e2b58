//! The table of tensor operations: one row per operation; enums, words, text, numbers of inputs and
//! classes follow from it.
//!
//! A row names the class of an operation, its word in the textual IR, its inputs in the order of
//! [`super::Node::inputs`] (`more` stands for any number of them) and its attributes in the order of
//! their text. A literal before an attribute is written before it; the literal of a flag or of an
//! optional number only where it is set.

use super::DType;
use super::attribute::{Attribute, Double};
use crate::text::cursor::{Cursor, ParseError};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// What operations have in common for passes that do not ask which one it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Made of no tensor.
    Source,
    /// Each element follows from those in its place: neighbours in a graph share kernels.
    Elementwise,
    /// Products of elements, added up; factors may be `bf16`.
    Product,
    /// Elements, added up.
    Sum,
    /// The same elements in another arrangement: nothing is computed.
    View,
    /// Tensors side by side.
    Join,
    /// A kernel over the rows of tensors of numbers.
    Rows,
    /// A kernel over rows, one of whose inputs, or the result, has indices.
    Indexed,
    /// What the members of a device exchange. It stands between two pieces of a task, and in no executable.
    Exchange,
}

crate::words! {
    /// Element-wise function of one tensor.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Unary {
        /// -x
        Neg "neg"
        /// e^x
        Exp "exp"
        /// natural logarithm
        Log "log"
        /// hyperbolic tangent
        Tanh "tanh"
        /// square root
        Sqrt "sqrt"
        /// 1 / x
        Reciprocal "reciprocal"
        /// max(x, 0)
        Relu "relu"
        /// 1 where x > 0, else 0: the derivative of relu
        Step "step"
        /// sine
        Sin "sin"
        /// cosine
        Cos "cos"
        /// x, through which no gradient flows back
        Detach "detach"
    }
}

crate::words! {
    /// Element-wise function of two tensors, broadcast against each other.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Binary {
        /// a + b
        Add "add"
        /// a - b
        Sub "sub"
        /// a * b
        Mul "mul"
        /// a / b
        Div "div"
        /// a where b > 0, else 0, even where a is infinite or no number
        Mask "mask"
        /// a number from 0 to below 1 that follows from the bits of a and b, as [`super::hash`] says
        Hash "hash"
    }
}

macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        $class:ident $name:ident $word:literal [$($input:ident),* $(; $more:ident)?]
        $(($only:ident: $only_type:ty = $only_what:literal))?
        $({ $($(#[$serde:meta])* $($before:literal)? $field:ident: $type:ty = $what:literal),* })?
    )*) => {
        /// What a node computes.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Op {
            /// Of one tensor, element-wise.
            Unary(Unary),
            /// Of two tensors, element-wise with broadcasting.
            Binary(Binary),
            $(
                $(#[$doc])*
                $name $(($only_type))? $({ $(#[doc = $what] $(#[$serde])* $field: $type),* })?,
            )*
        }

        impl Op {
            /// Its word in the textual IR.
            pub const fn word(&self) -> &'static str {
                match self {
                    Self::Unary(function) => function.word(),
                    Self::Binary(function) => function.word(),
                    $(Self::$name { .. } => $word,)*
                }
            }

            /// What it has in common with others.
            pub const fn class(&self) -> Class {
                match self {
                    Self::Unary(_) | Self::Binary(_) => Class::Elementwise,
                    $(Self::$name { .. } => Class::$class,)*
                }
            }

            /// Whether the operation takes this number of inputs.
            pub const fn takes(&self, inputs: usize) -> bool {
                match self {
                    Self::Unary(_) => inputs == 1,
                    Self::Binary(_) => inputs == 2,
                    $(Self::$name { .. } => {
                        let names: &[&str] = &[$(stringify!($input)),*];
                        let more: &[&str] = &[$(stringify!($more))?];
                        inputs == names.len() || inputs > names.len() && !more.is_empty()
                    })*
                }
            }

            /// Appends its attributes, of a node of this type, each after a space.
            pub(crate) fn write_attributes(&self, dtype: DType, out: &mut String) {
                match self {
                    Self::Unary(_) | Self::Binary(_) => {}
                    $(Self::$name $(($only))? $({ $($field),* })? => {
                        $($only.write("", dtype, out);)?
                        $($($field.write(concat!($($before)?), dtype, out);)*)?
                    })*
                }
            }

            /// The operation with this word, and its attributes; `None` if there is no such word.
            pub(crate) fn parse(word: &str, cursor: &mut Cursor<'_>) -> Result<Option<Self>, ParseError> {
                Ok(match word {
                    $($word => Some(Self::$name
                        $((Attribute::parse("", $only_what, cursor)?))?
                        $({ $($field: Attribute::parse(concat!($($before)?), $what, cursor)?),* })?
                    ),)*
                    _ => {
                        let unary = Unary::from_word(word).map(Self::Unary);
                        unary.or_else(|| Binary::from_word(word).map(Self::Binary))
                    }
                })
            }

            /// Every operation, with one of two examples of each attribute.
            #[cfg(test)]
            pub(crate) fn examples(first: bool) -> Vec<Self> {
                let unary = Unary::ALL.iter().copied().map(Self::Unary);
                let functions = unary.chain(Binary::ALL.iter().copied().map(Self::Binary));
                functions.chain([$(
                    Self::$name
                        $((<$only_type>::example(first)))?
                        $({ $($field: <$type>::example(first)),* })?
                ),*]).collect()
            }
        }
    };
}

operations! {
    /// A tensor inside an operand of the executable (see [`crate::program::Exec::operands`]).
    Source Input "input" [] {
        operand: u32 = "the position of an operand",
        "at" offset: Bytes = "an offset in bytes"
    }
    /// Every element is this number, which the node's type can hold.
    Source Constant "constant" [] (number: f64 = "a number")
    /// 0, 1, 2, .. along the only axis.
    Source Positions "positions" []
    /// 1, base, base^2, .. along the only axis, each computed in double precision.
    Source Powers "powers" [] { "base" base: Double = "a number" }
    /// Element-wise, from `f32` to `bf16` by [`super::rounded`], or back.
    Elementwise Convert "convert" [x]
    /// a[.., m, k] · b[.., k, n] -> [.., m, n], added up in `f32` where both factors are `bf16`.
    /// Leading dimensions are equal, or b has rank 2 and is shared, or both are folded by the
    /// transposes below. With `transpose_a` the last two dimensions of a are read as [k, m]; with
    /// `transpose_b` those of b as [n, k].
    Product MatMul "matmul" [a, b] {
        "transpose_a" transpose_a: bool = "whether a is stored as [.., k, m]",
        "transpose_b" transpose_b: bool = "whether b is stored as [.., n, k]"
    }
    /// (x[.., k], weights[e, k, n], routes i32[..]) -> [.., n]: each row times the matrix that its
    /// route names, added up as in `MatMul`. With `transpose` the weights are stored as [e, n, k].
    Product RoutedMatMul "routed_matmul" [x, weights, routes] {
        "transpose" transpose: bool = "whether weights are stored as [e, n, k]"
    }
    /// (x[.., k], dy[.., n], routes i32[..]) -> [e, k, n]: for each matrix, xᵀ · dy over the rows that
    /// go there, in their order. The derivative of `RoutedMatMul` by its weights.
    Product RoutedMatMulGrad "routed_matmul_grad" [x, dy, routes]
    /// The sum over one axis, which keeps its place with size 1.
    Sum Sum "sum" [x] { "axis" axis: u32 = "a dimension" }
    /// The same elements in row-major order under another shape.
    View Reshape "reshape" [x]
    /// Dimension i of the result is dimension `permutation[i]` of x.
    View Transpose "transpose" [x] { permutation: Vec<u32> = "a dimension" }
    /// Elements `start..start + size` of one axis (the size is the result's).
    View Slice "slice" [x] { "axis" axis: u32 = "a dimension", "from" start: u64 = "the first element" }
    /// Tensors joined along one axis.
    Join Concat "concat" [x; more] { "axis" axis: u32 = "a dimension" }
    /// (table[v, h], indices i32[..]) -> [.., h]: rows of the table.
    Indexed Gather "gather" [table, indices]
    /// (indices i32[..], dy[.., h]) -> [v, h]: adds each row of dy to the row of a zero table that its index names, in
    /// the order of the indices. The derivative of `Gather`.
    Indexed ScatterAdd "scatter_add" [indices, dy]
    /// x[.., h] -> [.., 2]: mean and 1 / sqrt(variance + epsilon) of every row. With `rms` the mean
    /// counts as 0, and the variance is the mean of the squares (arXiv 1910.07467). The node's type
    /// can hold epsilon.
    Rows NormStatistics "norm_statistics" [x] {
        "rms" rms: bool = "whether the mean counts as 0",
        "epsilon" epsilon: f64 = "a number"
    }
    /// `(x[.., h], statistics[.., 2], gain[h], bias[h]) -> [.., h]`: (x - mean) * rstd * gain + bias.
    /// There may be no bias.
    Rows Normalize "normalize" [x, statistics, gain; bias]
    /// Derivative of normalisation by x; `rms` as in `NormStatistics`.
    Rows NormalizeGradInput "normalize_grad_input" [x, statistics, gain, dy] {
        "rms" rms: bool = "as in `NormStatistics`"
    }
    /// Derivative of normalisation by its gain.
    Rows NormalizeGradGain "normalize_grad_gain" [x, statistics, dy]
    /// x[.., m, n]: e^(x - max) / sum over the last dimension. With `causal`, row i of the last two dimensions sees
    /// columns 0..=i only, or 0..=i + n - m where n > m; the others become 0.
    Rows Softmax "softmax" [x] { "causal" causal: bool = "whether the rows are masked" }
    /// (q[.., m, w], k[.., n, w], v[.., n, w]) -> [.., m, w]: softmax(q · kᵀ) · v. The scores, m
    /// rows and n columns of them, never lie in memory as a whole. Leading dimensions of k and v of
    /// size 1 are repeated, for heads of queries that share them (arXiv 2305.13245). With `causal`,
    /// n is at least m, and row i sees columns 0..=i + n - m only (arXiv 2205.14135). A `window` of w
    /// leaves the last w of them (arXiv 2004.05150). `starts`, i32[.., m] with the leading dimensions
    /// of the keys, is optional: a row sees no column before its start, but always its last one. Both
    /// need `causal`. Of `bf16` makes `f32`.
    Product Attention "attention" [q, k, v; starts] {
        "causal" causal: bool = "whether the rows are masked",
        #[serde(default, skip_serializing_if = "Option::is_none")]
        "window" window: Option<u64> = "how many columns a row sees at most"
    }
    /// (q, k, v, dy) -> [.., m + 2 n, w]: derivatives of `Attention` by q, k and v, concatenated
    /// along the rows. The leading dimensions are those of q. `starts` is optional.
    Product AttentionGrad "attention_grad" [q, k, v, dy; starts] {
        "causal" causal: bool = "as in `Attention`",
        #[serde(default, skip_serializing_if = "Option::is_none")]
        "window" window: Option<u64> = "as in `Attention`"
    }
    /// Derivative of softmax by its input, from its output y: y * (dy - sum(y * dy)).
    Rows SoftmaxGrad "softmax_grad" [y, dy]
    /// x[.., n] -> i32[.., k]: the columns of the k largest elements of each row, the largest first.
    /// Equal elements keep the order of their columns; NaN is below all numbers.
    Indexed TopK "top_k" [x]
    /// (x[.., n], columns i32[.., k]) -> [.., k]: these elements of each row.
    Indexed TakeAlong "take_along" [x, columns]
    /// (columns i32[.., k], dy[.., k]) -> [.., n]: zeros, to which each element is added in its column, in order. The
    /// derivative of `TakeAlong`.
    Indexed AddAlong "add_along" [columns, dy]
    /// `(logits[.., v], targets i32[..], weights[..]) -> []`: mean over all rows of
    /// `-log softmax(logits)[target] * weight`. Weights are optional, and 1 without them.
    Indexed CrossEntropy "cross_entropy" [logits, targets; weights]
    /// (logits[.., v], targets i32[..], dloss[], weights[..]) -> [.., v]: derivative of `CrossEntropy` by the logits.
    Indexed CrossEntropyGrad "cross_entropy_grad" [logits, targets, dloss; weights]
    /// x, which every member has. Its gradient is the sum of what the members have of it.
    View Vary "vary" [x]
    /// The sum of x over all members, in their order; the same on each.
    Exchange AllReduce "all_reduce" [x]
    /// x of every member, in their order: [..] -> [members, ..]. With `shared` every member goes on alike, and so has
    /// the same gradient; without, the gradient is the sum of what the members have of it.
    Exchange AllGather "all_gather" [x] {
        "members" members: u64 = "a number of members",
        "shared" shared: bool = "whether all go on alike"
    }
    /// x[members, ..] -> [..]: each member's own part of the sum over all members, in their order.
    Exchange ReduceScatter "reduce_scatter" [x]
    /// x[members, ..] of every member -> [members, ..]: the part of each of them that is meant for this
    /// member, in their order. Its gradient goes back the same way.
    Exchange AllToAll "all_to_all" [x]
    /// x[members, ..] -> [1, ..]: the part of the member that runs.
    View OwnPart "own_part" [x]
    /// indices i32[..] below `all` -> i32[..]: counted from the first of the `size` that the member
    /// that runs has, or [`NOWHERE`] where another one has it; `member` in a program is 0.
    Indexed OwnIndices "own_indices" [indices] {
        "size" size: u64 = "how many each member has",
        "all" all: u64 = "how many there are",
        "members" members: u64 = "a number of members",
        "member" member: u64 = "which member"
    }
}

/// An index that names nothing: what is gathered by it is 0, and what is scattered by it is left out.
pub const NOWHERE: i32 = i32::MIN;
