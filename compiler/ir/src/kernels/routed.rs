//! The kernels of routed products: each row of a tensor times the matrix that its route names.

use super::emit::Emitter;
use super::{Kernel, Location, Storage};
use crate::graph::{DType, Node, TensorType};
use crate::ids::NodeId;
use crate::units::Bytes;

/// Products of rows with the matrices of their routes, or the derivative by these. All tensors are contiguous.
///
/// Rows are first put in the order of their routes, those of one route in their own order. So sums have one order.
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
    /// Bytes beside the tensors: where the rows of each route begin, and where they all end; then the rows in the order
    /// of their routes. Words of 32 bits.
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

impl Emitter<'_> {
    pub(super) fn routed(&mut self, id: NodeId, node: &Node, transpose: bool) {
        self.product(id, node, RoutedProduct::Rows { transpose });
    }

    pub(super) fn routed_gradient(&mut self, id: NodeId, node: &Node) {
        self.product(id, node, RoutedProduct::ByMatrices);
    }

    fn product(&mut self, id: NodeId, node: &Node, product: RoutedProduct) {
        let ty = |position: usize| -> &TensorType { &self.graph.node(node.inputs[position]).ty };
        let last = |ty: &TensorType| ty.shape.last().copied().unwrap_or(1);
        let (factors, inner, rows) = (ty(0).dtype, last(ty(0)), ty(2).elements());
        let (matrices, width) = match product {
            RoutedProduct::Rows { .. } => (ty(1).shape[0], last(&node.ty)),
            RoutedProduct::ByMatrices => (node.ty.shape[0], last(ty(1))),
        };
        let [x, other, routes] = [0, 1, 2].map(|position: usize| self.contiguous(node.inputs[position]));
        let home = self.place(id);
        let mut kernel = Routed {
            dtype: factors.arithmetic(),
            factors,
            product,
            matrices,
            rows,
            inner,
            width,
            x,
            other,
            routes,
            out: home.view.at,
            accumulate: home.accumulate,
            room: Location { place: Storage::Scratch, offset: Bytes::ZERO },
        };
        kernel.room.offset = self.out.reserve(kernel.room_bytes());
        self.out.kernels.push(Kernel::Routed(kernel));
    }
}
