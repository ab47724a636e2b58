//! Matrix products by the vendor's library, cuBLASLt: which ones it can compute, and how they look to it.
//!
//! The library computes D = op(L) · op(R) + beta · D on matrices in column-major order, of which a
//! batch is one stride apart. Ours lie in memory with any strides and several batch dimensions. A
//! product fits where the result has unit stride along its rows or columns, and each factor along
//! either; a result in row-major order is the transpose of one in column-major order: C = A · B is
//! the same as Cᵀ = Bᵀ · Aᵀ. One batch dimension becomes the library's, the others become products
//! of their own.

mod layout;
mod library;
#[cfg(test)]
mod tests;

pub(crate) use layout::products;
pub(crate) use library::{Addresses, Library, WORKSPACE, is_here};
use pipe_ir::graph::DType;
use pipe_ir::kernels::Location;

/// One call of the library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Product {
    pub(crate) shape: Shape,
    pub(crate) left: Location,
    pub(crate) right: Location,
    pub(crate) result: Location,
}

/// All that the library's choice of an algorithm depends on. Sizes and strides count elements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Shape {
    /// Of all sums.
    pub(crate) dtype: DType,
    /// Of the factors: the same, or bfloat16.
    pub(crate) factors: DType,
    /// Of what is stored: that of the sums, or bfloat16 if the factors are.
    pub(crate) stored: DType,
    /// Rows of the result, as it lies in column-major order.
    pub(crate) rows: u64,
    /// Columns of the result.
    pub(crate) columns: u64,
    /// Columns of the left factor, rows of the right one.
    pub(crate) inner: u64,
    /// How many products.
    pub(crate) count: u64,
    pub(crate) left: MatrixLayout,
    pub(crate) right: MatrixLayout,
    pub(crate) result: MatrixLayout,
    /// Whether the product is added to what is there.
    pub(crate) accumulate: bool,
}

/// How a matrix of a [`Shape`] lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct MatrixLayout {
    /// From one column to the next, as it is stored.
    pub(crate) leading: u64,
    /// Whether its transpose is stored; never of the result.
    pub(crate) transposed: bool,
    /// From one matrix of the batch to the next.
    pub(crate) step: u64,
    /// Bytes of which every address of its first element is a multiple.
    pub(crate) alignment: u32,
}
