//! The kernels of routed products: each row of a tensor times the matrix that its route names.

use super::Location;
use crate::graph::DType;
use crate::units::Bytes;

/// Products of rows with the matrices of their routes, or the derivative by these. All tensors are contiguous.
///
/// Rows are first sorted by route, and keep their order within a route. So the order of sums is fixed.
#[derive(Clone, PartialEq, Debug)]
pub struct Routed {
    /// Type of all sums.
    pub dtype: DType,
    /// Type of the elements of both factors: the same, or bfloat16 for sums in single precision.
    pub factors: DType,
    /// What is computed.
    pub product: RoutedProduct,
    /// Number of matrices.
    pub matrices: u64,
    /// Number of rows, and of routes.
    pub rows: u64,
    /// Elements of a row of x.
    pub inner: u64,
    /// Elements of a row of the result, or of dy.
    pub width: u64,
    /// The rows.
    pub x: Location,
    /// The matrices, or dy.
    pub other: Location,
    /// An index for each row.
    pub routes: Location,
    /// The result, of [`Routed::dtype`].
    pub out: Location,
    /// Whether it is added to what is there; of derivatives only.
    pub accumulate: bool,
    /// The first of [`Routed::room_bytes`].
    pub room: Location,
}

/// See the nodes of the same names in [`crate::graph::Op`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoutedProduct {
    /// Rows times matrices.
    Rows {
        /// Whether matrices are stored as [width, inner].
        transpose: bool,
    },
    /// The derivative by the matrices.
    ByMatrices,
}

impl Routed {
    /// Bytes of the sorted rows, in words of 32 bits: the first place of each route, the end of all, and the rows.
    pub const fn room_bytes(&self) -> Bytes {
        Bytes((self.matrices + 1 + self.rows) * 4)
    }

    /// Elements of the result.
    pub const fn made(&self) -> u64 {
        match self.product {
            RoutedProduct::Rows { .. } => self.rows * self.width,
            RoutedProduct::ByMatrices => self.matrices * self.inner * self.width,
        }
    }

    /// Elements of the second factor.
    pub const fn others(&self) -> u64 {
        match self.product {
            RoutedProduct::Rows { .. } => self.matrices * self.inner * self.width,
            RoutedProduct::ByMatrices => self.rows * self.width,
        }
    }

    /// Floating-point operations, 2 per multiply-add.
    pub const fn flops(&self) -> u64 {
        2 * self.rows * self.inner * self.width
    }
}
