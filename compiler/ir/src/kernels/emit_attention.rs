//! Emission of attention: queries, keys and values are read where and as they lie.

use super::emit::Emitter;
use super::view::collapse;
use super::{Attention, Dim, Kernel, Location, Matrix, Place, View};
use crate::graph::Node;
use crate::ids::NodeId;
use crate::units::Bytes;

impl Emitter<'_> {
    /// Attention of three inputs, or the derivatives with the gradient as a fourth.
    pub(super) fn attention(&mut self, id: NodeId, node: &Node, causal: bool) {
        let mut views: Vec<View> = node.inputs.iter().map(|input| self.view(*input)).collect();
        let home = self.place(id);
        let (factors, result) = (views[0].dtype, home.view.dtype);
        views.push(home.view);
        let rank = views[0].dims.len();
        let batches: Vec<&[Dim]> = views.iter().map(|view| &view.dims[..rank - 2]).collect();
        let runs = collapse(&batches);
        let matrix = |position: usize| Matrix {
            at: views[position].at,
            row: views[position].dims[rank - 2].stride,
            column: views[position].dims[rank - 1].stride,
            batch: runs.iter().map(|run| run[position].stride).collect(),
        };
        let mut kernel = Attention {
            dtype: factors.arithmetic(),
            factors,
            result,
            causal,
            batch: runs.iter().map(|run| run[0].size).collect(),
            rows: views[0].dims[rank - 2].size,
            columns: views[1].dims[rank - 2].size,
            width: views[0].dims[rank - 1].size,
            queries: matrix(0),
            keys: matrix(1),
            values: matrix(2),
            dy: (node.inputs.len() > 3).then(|| matrix(3)),
            out: matrix(views.len() - 1),
            accumulate: home.accumulate,
            room: Location { place: Place::Scratch, offset: Bytes::ZERO },
        };
        kernel.room.offset = self.out.reserve(kernel.room_bytes());
        self.out.kernels.push(Kernel::Attention(kernel));
    }
}
