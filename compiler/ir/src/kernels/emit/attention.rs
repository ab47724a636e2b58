//! Emission of attention: queries, keys and values are read where and as they lie, and each
//! derivative goes where its reader wants it.

use super::Emitter;
use crate::graph::{Node, Op};
use crate::ids::NodeId;
use crate::kernels::destination::{self, Part};
use crate::kernels::view::collapse;
use crate::kernels::{Attention, Derivatives, Dim, Kernel, Location, Matrix, Storage, View};
use crate::units::Bytes;

impl Emitter<'_> {
    /// Attention of three inputs, or the derivatives with the gradient as a fourth.
    pub(super) fn attention(&mut self, id: NodeId, node: &Node, causal: bool, window: Option<u64>) {
        let is_grad = matches!(node.op, Op::AttentionGrad { .. });
        let n_factors = if is_grad { 4 } else { 3 };
        let mut views: Vec<View> = node.inputs[..n_factors].iter().map(|input| self.view(*input)).collect();
        // Keys and values may be repeated for several heads of queries.
        let sizes: Vec<u64> = views[0].dims.iter().map(|dim| dim.size).collect();
        for view in &mut views[1..3] {
            let own: Vec<u64> = view.dims[sizes.len() - 2..].iter().map(|dim| dim.size).collect();
            *view = view.broadcast(&[&sizes[..sizes.len() - 2], &own].concat());
        }
        let starts = node.inputs.get(n_factors).map(|starts| {
            let rows = sizes[sizes.len() - 2];
            let view = self.view(*starts).broadcast(&[&sizes[..sizes.len() - 2], &[rows]].concat());
            // A column, so that it has as many axes as the matrices.
            View { dims: [view.dims, vec![Dim { size: 1, stride: 0 }]].concat(), ..view }
        });
        let home = self.place(id);
        let (factors, result) = (views[0].dtype, home.view.dtype);
        views.extend(if is_grad { self.parts(id, &home.view) } else { vec![home.view] });
        let (n_matrices, has_starts) = (views.len(), starts.is_some());
        views.extend(starts);
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
            window,
            starts: has_starts.then(|| matrix(n_matrices)),
            batch: runs.iter().map(|run| run[0].size).collect(),
            rows: views[0].dims[rank - 2].size,
            columns: views[1].dims[rank - 2].size,
            width: views[0].dims[rank - 1].size,
            queries: matrix(0),
            keys: matrix(1),
            values: matrix(2),
            out: matrix(if is_grad { 4 } else { 3 }),
            derivatives: is_grad
                .then(|| Box::new(Derivatives { dy: matrix(3), by_keys: matrix(5), by_values: matrix(6) })),
            accumulate: home.accumulate,
            room: Location { place: Storage::Scratch, offset: Bytes::ZERO },
        };
        kernel.room.offset = self.out.reserve(kernel.room_bytes());
        self.out.kernels.push(Kernel::Attention(kernel));
    }

    /// Where the derivatives by queries, keys and values go: to the places of the slices that they
    /// are, or into the whole.
    fn parts(&mut self, id: NodeId, whole: &View) -> Vec<View> {
        let axis = whole.dims.len() - 2;
        let parts = destination::parts(self.graph, &self.liveness, id).into_iter();
        let places = parts.map(|Part { rows, slice }| match slice {
            Some(slice) => self.place(slice).view,
            None => whole.sliced(axis as u32, rows.start, rows.end - rows.start),
        });
        places.collect()
    }
}
