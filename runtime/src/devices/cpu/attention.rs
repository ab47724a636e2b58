//! Attention in strips of rows (arXiv 2205.14135): a strip of scores is a product, becomes weights,
//! and is used up by the next products before the next strip comes. Columns before and after those that rows of a
//! strip see are left out of its products. What is stored as bfloat16 is widened, and rounded, one
//! matrix of the batch at a time.

use super::foreign;
use super::number::Number;
use super::rows::softmax;
use crate::devices::cpu::bf16::{self, Wide};
use pipe_distributed::Fault;
use pipe_distributed::memory::Region;
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Attention, Gemm, Location, Matrix, STRIP_ROWS};
use pulp::Arch;
use std::ops::Range;

/// Runs a kernel; `locate` gives the bytes from a location to the end of its place.
pub(super) fn attention<T: Number>(
    arch: Arch,
    kernel: &Attention,
    locate: &dyn Fn(Location) -> Region,
    wide: &mut Wide,
) -> Result<(), Fault> {
    for number in 0..kernel.batch.iter().product() {
        let stored = Head::stored(kernel, number, locate);
        let head = stored.widened(kernel, wide)?;
        for start in (0..kernel.rows).step_by(STRIP_ROWS as usize) {
            let rows = STRIP_ROWS.min(kernel.rows - start);
            let end = if kernel.causal { start + rows + kernel.columns - kernel.rows } else { kernel.columns };
            let seen = stored.seen(kernel, start, rows);
            let first = seen.iter().map(|seen| seen.start).min().unwrap_or(0);
            let room = locate(kernel.room);
            let strip = Strip { arch, kernel, head: &head, room, start, rows, first, columns: end - first, seen };
            match &head.derivatives {
                None => strip.forward::<T>(),
                Some(derivatives) => strip.gradients::<T>(derivatives),
            }
        }
        if kernel.result == DType::BF16 {
            for (numbers, Factor { region, row, column }) in head.results().zip(stored.results()) {
                bf16::store_rows(numbers.region, kernel.width, region, (row, column));
            }
        }
    }
    Ok(())
}

/// A factor or the result of a product: a region that begins with its first element, and its strides.
#[derive(Clone, Copy)]
struct Factor {
    region: Region,
    row: u64,
    column: u64,
}

impl Factor {
    /// Of a matrix of the batch.
    fn of(matrix: &Matrix, dtype: DType, batch: &[u64], number: u64, locate: &dyn Fn(Location) -> Region) -> Self {
        let mut rest = number;
        let first = batch.iter().zip(&matrix.batch).rev().fold(0, |elements, (size, stride)| {
            let own = rest % size;
            rest /= size;
            elements + own * stride
        });
        Self { region: locate(matrix.at), row: matrix.row, column: matrix.column }
            .skipping(first, dtype.bytes().to_usize())
    }

    /// Without so many elements at its start.
    fn skipping(self, elements: u64, bytes: usize) -> Self {
        let start = elements as usize * bytes;
        Self { region: self.region.part(start, self.region.len() - start), ..self }
    }

    /// Without so many rows at its start.
    fn below<T>(self, row: u64) -> Self {
        self.skipping(row * self.row, size_of::<T>())
    }

    const fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    /// Rows without gaps.
    const fn dense(region: Region, width: u64) -> Self {
        Self { region, row: width, column: 1 }
    }
}

/// The tensors of one matrix of the batch.
struct Head {
    queries: Factor,
    keys: Factor,
    values: Factor,
    out: Factor,
    derivatives: Option<HeadDerivatives>,
    /// Indices, one to a row.
    starts: Option<Factor>,
}

/// See [`pipe_ir::kernels::Derivatives`].
struct HeadDerivatives {
    dy: Factor,
    by_keys: Factor,
    by_values: Factor,
}

impl Head {
    /// Where they lie.
    fn stored(kernel: &Attention, number: u64, locate: &dyn Fn(Location) -> Region) -> Self {
        let of = |matrix: &Matrix, dtype: DType| Factor::of(matrix, dtype, &kernel.batch, number, locate);
        let derivatives = kernel.derivatives.as_ref().map(|more| HeadDerivatives {
            dy: of(&more.dy, kernel.factors),
            by_keys: of(&more.by_keys, kernel.result),
            by_values: of(&more.by_values, kernel.result),
        });
        Self {
            queries: of(&kernel.queries, kernel.factors),
            keys: of(&kernel.keys, kernel.factors),
            values: of(&kernel.values, kernel.factors),
            out: of(&kernel.out, kernel.result),
            derivatives,
            starts: kernel.starts.as_ref().map(|starts| of(starts, DType::I32)),
        }
    }

    /// The columns that each of these rows sees. Empty without a window or starts, where each row begins with the
    /// first column.
    fn seen(&self, kernel: &Attention, start: u64, rows: u64) -> Vec<Range<u64>> {
        if kernel.window.is_none() && self.starts.is_none() {
            return Vec::new();
        }
        let seen = (start..start + rows).map(|row| {
            let end = row + 1 + kernel.columns - kernel.rows;
            let of_window = kernel.window.map_or(0, |window| end.saturating_sub(window));
            let of_start = self.starts.as_ref().map_or(0, |starts| {
                let start = starts.region.numbers::<i32>()[(row * starts.row) as usize];
                u64::try_from(start).unwrap_or(0)
            });
            of_window.max(of_start).min(end - 1)..end
        });
        seen.collect()
    }

    /// Numbers to compute with, and room for results, where they are not stored so.
    fn widened(&self, kernel: &Attention, wide: &mut Wide) -> Result<Self, Fault> {
        let Attention { rows, columns, width, .. } = *kernel;
        let made = if self.derivatives.is_some() { rows + 2 * columns } else { rows };
        let room = wide.of_result(kernel.result, made * width)?;
        let result = |out: Factor, from: u64, count: u64| {
            let start = (from * width) as usize * size_of::<f32>();
            let part = |room: Region| room.part(start, (count * width) as usize * size_of::<f32>());
            room.map_or(out, |room| Factor::dense(part(room), width))
        };
        let mut factor = |position: usize, from: Factor, rows: u64| {
            if kernel.factors != DType::BF16 {
                return Ok(from);
            }
            let numbers = wide.of_rows(position, from.region, (from.row, from.column), (rows, width))?;
            Ok(Factor::dense(numbers, width))
        };
        let derivatives = |more: &HeadDerivatives| -> Result<HeadDerivatives, Fault> {
            Ok(HeadDerivatives {
                dy: factor(3, more.dy, rows)?,
                by_keys: result(more.by_keys, rows, columns),
                by_values: result(more.by_values, rows + columns, columns),
            })
        };
        Ok(Self {
            derivatives: self.derivatives.as_ref().map(derivatives).transpose()?,
            queries: factor(0, self.queries, rows)?,
            keys: factor(1, self.keys, columns)?,
            values: factor(2, self.values, columns)?,
            out: result(self.out, 0, rows),
            starts: None,
        })
    }

    /// All that is made.
    fn results(&self) -> impl Iterator<Item = Factor> {
        let more = self.derivatives.iter().flat_map(|more| [more.by_keys, more.by_values]);
        [self.out].into_iter().chain(more)
    }
}

/// One strip of one matrix of the batch.
struct Strip<'k> {
    arch: Arch,
    kernel: &'k Attention,
    head: &'k Head,
    room: Region,
    /// First row, and how many rows.
    start: u64,
    rows: u64,
    /// First column that some of them see, and how many from there on.
    first: u64,
    columns: u64,
    /// What each of them sees, if they do not all begin with the first.
    seen: Vec<Range<u64>>,
}

impl Strip<'_> {
    fn forward<T: Number>(&self) {
        let weights = self.weights::<T>();
        let (values, out) = (self.head.values.below::<T>(self.first), self.head.out.below::<T>(self.start));
        self.product::<T>((self.rows, self.kernel.width, self.columns), weights, values, out, self.kernel.accumulate);
    }

    /// With weights P and their gradients dP = dy · vᵀ, scores have the gradients dS = P * (dP -
    /// sum(P * dP)); those of queries are dS · k, of keys dSᵀ · q and of values Pᵀ · dy.
    fn gradients<T: Number>(&self, derivatives: &HeadDerivatives) {
        let (kernel, head) = (self.kernel, self.head);
        let (keys, values) = (head.keys.below::<T>(self.first), head.values.below::<T>(self.first));
        let weights = self.weights::<T>();
        let dy = derivatives.dy.below::<T>(self.start);
        let (by_weight, by_score) = (self.strip::<T>(0), self.strip::<T>(2));
        self.product::<T>((self.rows, self.columns, kernel.width), dy, values.transposed(), by_weight, false);
        softmax::softmax_grad(
            self.arch,
            weights.region.numbers::<T>(),
            by_weight.region.numbers::<T>(),
            self.columns as usize,
            by_score.region.numbers_mut::<T>(),
        );
        let (queries, out) = (head.queries.below::<T>(self.start), head.out.below::<T>(self.start));
        self.product::<T>((self.rows, kernel.width, self.columns), by_score, keys, out, false);
        self.add_to_columns::<T>(derivatives.by_keys, by_score, queries);
        self.add_to_columns::<T>(derivatives.by_values, weights, dy);
    }

    /// softmax(q · kᵀ) of these rows, as a strip.
    fn weights<T: Number>(&self) -> Factor {
        let (queries, keys) = (self.head.queries.below::<T>(self.start), self.head.keys.below::<T>(self.first));
        let (scores, weights) = (self.strip::<T>(0), self.strip::<T>(1));
        self.product::<T>((self.rows, self.columns, self.kernel.width), queries, keys.transposed(), scores, false);
        let causal = self.kernel.causal.then_some(self.rows);
        let (from, to) = (scores.region.numbers::<T>(), weights.region.numbers_mut::<T>());
        if self.seen.is_empty() {
            softmax::softmax(self.arch, from, self.columns as usize, causal, to);
            return weights;
        }
        let own = |column: u64| (column - self.first) as usize;
        let seen: Vec<_> = self.seen.iter().map(|seen| own(seen.start)..own(seen.end)).collect();
        softmax::softmax_of(self.arch, from, &seen, to);
        weights
    }

    /// Adds stripᵀ · from to rows of a result, one for each column that the strip sees. A column
    /// that no strip before this one saw begins with 0.
    fn add_to_columns<T: Number>(&self, out: Factor, strip: Factor, from: Factor) {
        let known = match self.start {
            0 => 0,
            _ if self.kernel.causal => self.first + self.columns - self.rows,
            _ => self.columns,
        };
        let numbers = out.region.numbers_mut::<T>();
        let end = self.first + self.columns;
        for (column, at) in (known..end).flat_map(|column| (0..self.kernel.width).map(move |at| (column, at))) {
            numbers[(column * out.row + at * out.column) as usize] = T::ZERO;
        }
        let out = out.below::<T>(self.first);
        self.product::<T>((self.columns, self.kernel.width, self.rows), strip.transposed(), from, out, true);
    }

    /// The room of a strip of scores.
    fn strip<T>(&self, number: u64) -> Factor {
        let (start, len) = (number * self.kernel.strip_bytes().0, self.rows * self.columns);
        Factor::dense(self.room.part(start as usize, len as usize * size_of::<T>()), self.columns)
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
