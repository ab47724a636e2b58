//! Emission of routed products: all operands in row-major bytes, with room to sort the rows.

use super::Emitter;
use crate::graph::{Node, TensorType};
use crate::ids::NodeId;
use crate::kernels::{Kernel, Location, Routed, RoutedProduct, Storage};
use crate::units::Bytes;

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
