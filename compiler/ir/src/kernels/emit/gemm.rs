//! Emission of matrix products: any strides will do, so that operands are read where and as they lie.

use super::Emitter;
use crate::graph::{DType, Node};
use crate::ids::NodeId;
use crate::kernels::view::collapse;
use crate::kernels::{Dim, Gemm, Kernel, Matrix, View};
use crate::units::Bytes;

/// Addresses that are multiples of 4KiB apart share a few lines of the first cache.
const FAR_APART: Bytes = Bytes(4096);
/// Rows of the result from which a copy of the right factor pays off.
const MANY_ROWS: u64 = 128;

/// A batch of matrices as dimensions.
#[derive(Clone)]
struct Factor {
    view: View,
    batch: Vec<Dim>,
    row: Dim,
    column: Dim,
}

impl Factor {
    /// The last two dimensions are rows and columns, or columns and rows.
    fn new(view: View, transposed: bool) -> Self {
        let (batch, last) = view.dims.split_at(view.dims.len() - 2);
        let (row, column) = if transposed { (last[1], last[0]) } else { (last[0], last[1]) };
        Self { batch: batch.to_vec(), row, column, view }
    }

    /// Batch dimensions and rows as rows alone.
    fn with_folded_rows(&self) -> Option<Self> {
        let dims: Vec<Dim> = self.batch.iter().copied().chain([self.row]).collect();
        Some(Self { view: self.view.clone(), batch: Vec::new(), row: View::as_one(&dims)?, column: self.column })
    }

    /// Batch dimensions and columns as columns alone.
    fn with_folded_columns(&self) -> Option<Self> {
        let dims: Vec<Dim> = self.batch.iter().copied().chain([self.column]).collect();
        Some(Self { view: self.view.clone(), batch: Vec::new(), row: self.row, column: View::as_one(&dims)? })
    }

    /// Repeated over the batch dimensions of the result.
    fn repeated(mut self, batch: &[u64]) -> Self {
        self.batch = self.view.with_dims(self.batch).broadcast(batch).dims;
        self
    }
}

impl Emitter<'_> {
    pub(super) fn matmul(&mut self, id: NodeId, node: &Node, transpose_a: bool, transpose_b: bool) {
        let mut a = Factor::new(self.view(node.inputs[0]), transpose_a);
        let mut b = self.right_factor(node, transpose_b);
        let home = self.place(id);
        let mut c = Factor::new(home.view, false);
        if c.batch.is_empty() && !a.batch.is_empty() {
            // The sum runs over the batch too: columns of a and rows of b.
            a = self.folded(a, transpose_a, Factor::with_folded_columns);
            b = self.folded(b, transpose_b, Factor::with_folded_rows);
        } else if b.batch.is_empty()
            && let (Some(folded_a), Some(folded_c)) = (a.with_folded_rows(), c.with_folded_rows())
        {
            (a, c) = (folded_a, folded_c);
        } else {
            let batch: Vec<u64> = c.batch.iter().map(|dim| dim.size).collect();
            (a, b) = (a.repeated(&batch), b.repeated(&batch));
        }
        self.out.kernels.push(Kernel::Gemm(gemm(&a, &b, &c, home.accumulate)));
    }

    /// The right factor as it lies, or row by row in a copy where its columns are so far apart that
    /// they would push each other out of the cache while the library gathers them. A copy costs far
    /// less than it saves once there are many rows. Factors stored as bfloat16 are for devices with
    /// tensor cores, which read any layout; others widen them first.
    fn right_factor(&mut self, node: &Node, transposed: bool) -> Factor {
        let factor = Factor::new(self.view(node.inputs[1]), transposed);
        let n_rows: u64 = node.ty.elements() / factor.column.size;
        let stride = factor.column.stride * factor.view.dtype.bytes().0;
        let is_far_apart = factor.row.stride == 1 && stride.is_multiple_of(FAR_APART.0);
        let is_narrow = factor.view.dtype == DType::BF16;
        if !factor.batch.is_empty() || !is_far_apart || is_narrow || factor.column.size == 1 || n_rows < MANY_ROWS {
            return factor;
        }
        let rows = factor.view.with_dims(vec![factor.row, factor.column]);
        Factor::new(self.materialized(&rows), false)
    }

    /// A factor whose batch is folded away, from a copy where it lies unevenly.
    fn folded(&mut self, factor: Factor, transposed: bool, fold: fn(&Factor) -> Option<Factor>) -> Factor {
        fold(&factor).unwrap_or_else(|| {
            let copy = self.materialized(&factor.view);
            fold(&Factor::new(copy, transposed)).unwrap_or(factor)
        })
    }
}

fn gemm(a: &Factor, b: &Factor, c: &Factor, accumulate: bool) -> Gemm {
    let runs = collapse(&[&a.batch, &b.batch, &c.batch]);
    let matrix = |factor: &Factor, position: usize| Matrix {
        at: factor.view.at,
        row: factor.row.stride,
        column: factor.column.stride,
        batch: runs.iter().map(|run| run[position].stride).collect(),
    };
    Gemm {
        dtype: a.view.dtype.arithmetic(),
        factors: a.view.dtype,
        result: c.view.dtype,
        batch: runs.iter().map(|run| run[0].size).collect(),
        m: c.row.size,
        n: c.column.size,
        k: a.column.size,
        a: matrix(a, 0),
        b: matrix(b, 1),
        c: matrix(c, 2),
        accumulate,
    }
}
