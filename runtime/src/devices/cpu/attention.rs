//! Attention in strips of rows (arXiv 2205.14135): a strip of scores is a product, becomes weights, and is used up by the next products
//! before the next strip comes. Columns that no row of a strip sees are left out of its products.

use super::number::Number;
use super::{foreign, softmax};
use crate::memory::Region;
use pipe_ir::kernels::{Attention, Gemm, Location, Matrix, STRIP_ROWS};
use pulp::Arch;

/// One strip of one matrix of the batch, and where its kernel's tensors are.
struct Strip<'k> {
    arch: Arch,
    kernel: &'k Attention,
    locate: &'k dyn Fn(Location) -> Region,
    /// Number of its matrix in the batch.
    number: u64,
    /// First row, how many rows, and how many columns they see.
    start: u64,
    rows: u64,
    columns: u64,
}

/// Runs a kernel; `locate` gives the bytes from a location to the end of its place.
pub(super) fn attention<T: Number>(arch: Arch, kernel: &Attention, locate: &dyn Fn(Location) -> Region) {
    for number in 0..kernel.batch.iter().product() {
        for start in (0..kernel.rows).step_by(STRIP_ROWS as usize) {
            let rows = STRIP_ROWS.min(kernel.rows - start);
            let columns = if kernel.causal { start + rows + kernel.columns - kernel.rows } else { kernel.columns };
            let strip = Strip { arch, kernel, locate, number, start, rows, columns };
            match &kernel.dy {
                None => strip.forward::<T>(),
                Some(dy) => strip.gradients::<T>(dy),
            }
        }
    }
}

/// A factor or the result of a product: a region that begins with its first element, and its strides.
#[derive(Clone, Copy)]
struct Factor {
    region: Region,
    row: u64,
    column: u64,
}

impl Factor {
    const fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }
}

impl Strip<'_> {
    fn forward<T: Number>(&self) {
        let weights = self.weights::<T>();
        let (values, out) = (self.factor::<T>(&self.kernel.values, 0), self.factor::<T>(&self.kernel.out, self.start));
        self.product::<T>((self.rows, self.kernel.width, self.columns), weights, values, out, self.kernel.accumulate);
    }

    /// With weights P and their gradients dP = dy · vᵀ, scores have the gradients dS = P * (dP - sum(P * dP)); those of queries are dS · k,
    /// of keys dSᵀ · q and of values Pᵀ · dy.
    fn gradients<T: Number>(&self, dy: &Matrix) {
        let kernel = self.kernel;
        let weights = self.weights::<T>();
        let dy = self.factor::<T>(dy, self.start);
        let (by_weight, by_score) = (self.strip::<T>(0), self.strip::<T>(2));
        let values = self.factor::<T>(&kernel.values, 0).transposed();
        self.product::<T>((self.rows, self.columns, kernel.width), dy, values, by_weight, false);
        softmax::softmax_grad(
            self.arch,
            weights.region.numbers::<T>(),
            by_weight.region.numbers::<T>(),
            self.columns as usize,
            by_score.region.numbers_mut::<T>(),
        );
        let (queries, keys) = (self.factor::<T>(&kernel.queries, self.start), self.factor::<T>(&kernel.keys, 0));
        let out = self.factor::<T>(&kernel.out, self.start);
        self.product::<T>((self.rows, kernel.width, self.columns), by_score, keys, out, false);
        self.add_to_columns::<T>(kernel.rows, by_score, queries);
        self.add_to_columns::<T>(kernel.rows + kernel.columns, weights, dy);
    }

    /// softmax(q · kᵀ) of these rows, as a strip.
    fn weights<T: Number>(&self) -> Factor {
        let (queries, keys) =
            (self.factor::<T>(&self.kernel.queries, self.start), self.factor::<T>(&self.kernel.keys, 0));
        let (scores, weights) = (self.strip::<T>(0), self.strip::<T>(1));
        self.product::<T>((self.rows, self.columns, self.kernel.width), queries, keys.transposed(), scores, false);
        let causal = self.kernel.causal.then_some(self.rows);
        let (from, to) = (scores.region.numbers::<T>(), weights.region.numbers_mut::<T>());
        softmax::softmax(self.arch, from, self.columns as usize, causal, to);
        weights
    }

    /// Adds stripᵀ · from to the rows of the result from `row` on, one for each column that the strip sees. A column that no strip before
    /// this one saw begins with 0.
    fn add_to_columns<T: Number>(&self, row: u64, strip: Factor, from: Factor) {
        let out = self.factor::<T>(&self.kernel.out, row);
        let known = match self.start {
            0 => 0,
            _ if self.kernel.causal => self.columns - self.rows,
            _ => self.columns,
        };
        let numbers = out.region.numbers_mut::<T>();
        for (column, at) in (known..self.columns).flat_map(|column| (0..self.kernel.width).map(move |at| (column, at)))
        {
            numbers[(column * out.row + at * out.column) as usize] = T::ZERO;
        }
        self.product::<T>((self.columns, self.kernel.width, self.rows), strip.transposed(), from, out, true);
    }

    /// The room of a strip of scores.
    fn strip<T>(&self, number: u64) -> Factor {
        let (start, len) = (number * self.kernel.strip_bytes().0, self.rows * self.columns);
        let region = (self.locate)(self.kernel.room).part(start as usize, len as usize * size_of::<T>());
        Factor { region, row: self.columns, column: 1 }
    }

    /// A matrix of the batch, from a row on.
    fn factor<T>(&self, matrix: &Matrix, row: u64) -> Factor {
        let mut rest = self.number;
        let sizes = self.kernel.batch.iter().zip(&matrix.batch).rev();
        let batch = sizes.fold(0, |elements, (size, stride)| {
            let own = rest % size;
            rest /= size;
            elements + own * stride
        });
        let bytes = (batch + row * matrix.row) as usize * size_of::<T>();
        let all = (self.locate)(matrix.at);
        Factor { region: all.part(bytes, all.len() - bytes), row: matrix.row, column: matrix.column }
    }

    fn product<T: Number>(&self, (m, n, k): (u64, u64, u64), a: Factor, b: Factor, c: Factor, accumulate: bool) {
        let at = self.kernel.room;
        let matrix = |factor: Factor| Matrix { at, row: factor.row, column: factor.column, batch: Vec::new() };
        let (dtype, batch) = (self.kernel.dtype, Vec::new());
        let gemm = Gemm {
            dtype,
            factors: dtype,
            result: dtype,
            batch,
            m,
            n,
            k,
            a: matrix(a),
            b: matrix(b),
            c: matrix(c),
            accumulate,
        };
        foreign::gemm::<T>(&gemm, a.region, b.region, c.region);
    }
}
