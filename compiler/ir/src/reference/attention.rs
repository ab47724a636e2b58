//! The meaning of attention and of its derivatives: every score, row by row.

use super::{Tensor, softmax};
use std::ops::Range;

/// The rows of all matrices of a batch, and how many of them a matrix has.
struct Rows<'t> {
    all: Vec<&'t [f64]>,
    height: usize,
    /// Sizes of the batch, and of the one that this one is repeated to.
    leading: [&'t [usize]; 2],
}

impl<'t> Rows<'t> {
    /// Repeated to the leading dimensions of queries.
    fn of(tensor: &'t Tensor, queries: &'t Tensor) -> Self {
        let leading = |tensor: &'t Tensor| &tensor.shape[..tensor.shape.len() - 2];
        let height = tensor.shape[tensor.shape.len() - 2];
        Self { all: tensor.rows().collect(), height, leading: [leading(tensor), leading(queries)] }
    }

    fn matrix(&self, batch: usize) -> &[&'t [f64]] {
        &self.all[matrix_of(self.leading, batch) * self.height..][..self.height]
    }

    fn n_matrices(&self) -> usize {
        self.all.len() / self.height
    }

    fn width(&self) -> usize {
        self.all[0].len()
    }
}

/// Which matrix of a tensor belongs to one of the queries, where axes of size 1 are repeated.
fn matrix_of([own, queries]: [&[usize]; 2], batch: usize) -> usize {
    let (mut rest, mut number, mut stride) = (batch, 0, 1);
    for (own, size) in own.iter().zip(queries).rev() {
        number += if *own == 1 { 0 } else { rest % size } * stride;
        stride *= own;
        rest /= size;
    }
    number
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Which columns rows see.
pub(super) struct Sight<'t> {
    pub(super) causal: bool,
    pub(super) window: Option<u64>,
    /// The first column for each row, as a tensor without columns.
    pub(super) starts: Option<&'t Tensor>,
}

impl Sight<'_> {
    /// The columns that a row sees.
    fn seen(&self, (q, k): (&Rows<'_>, &Rows<'_>), batch: usize, row: usize) -> Range<usize> {
        if !self.causal {
            return 0..k.height;
        }
        let end = row + 1 + k.height - q.height;
        let of_window = self.window.map_or(0, |window| end.saturating_sub(window as usize));
        let of_start = self.starts.map_or(0, |starts| {
            // Repeated as keys are, with a column for each query.
            let leading = [&starts.shape[..starts.shape.len() - 1], q.leading[1]];
            let number = matrix_of(leading, batch);
            starts.data[number * q.height + row].max(0.0) as usize
        });
        of_window.max(of_start).min(end - 1)..end
    }
}

/// The scores of a row, of these columns.
fn scores(q: &Rows<'_>, k: &Rows<'_>, batch: usize, row: usize, seen: &Range<usize>) -> Vec<f64> {
    k.matrix(batch)[seen.clone()].iter().map(|key| dot(q.matrix(batch)[row], key)).collect()
}

/// Every row of every matrix of queries, in order.
fn each_row(q: &Rows<'_>) -> impl Iterator<Item = (usize, usize)> + use<> {
    let height = q.height;
    (0..q.n_matrices()).flat_map(move |batch| (0..height).map(move |row| (batch, row)))
}

pub(super) fn forward([q, k, v]: [&Tensor; 3], sight: &Sight<'_>) -> Vec<f64> {
    let (q, k, v) = (Rows::of(q, q), Rows::of(k, q), Rows::of(v, q));
    let row = |(batch, row)| {
        let seen = sight.seen((&q, &k), batch, row);
        let scores = scores(&q, &k, batch, row, &seen);
        let mut out = vec![0.0; v.width()];
        for (p, value) in softmax(&scores, scores.len()).iter().zip(&v.matrix(batch)[seen]) {
            out.iter_mut().zip(*value).for_each(|(sum, value)| *sum += p * value);
        }
        out
    };
    each_row(&q).flat_map(row).collect()
}

pub(super) fn gradients([q, k, v, dy]: [&Tensor; 4], sight: &Sight<'_>) -> Vec<f64> {
    let (q, k, v, dy) = (Rows::of(q, q), Rows::of(k, q), Rows::of(v, q), Rows::of(dy, q));
    let (width, height) = (q.width(), q.height + 2 * k.height);
    let mut out = vec![0.0; q.n_matrices() * height * width];
    for (batch, row) in each_row(&q) {
        let seen = sight.seen((&q, &k), batch, row);
        let scores = scores(&q, &k, batch, row, &seen);
        let (query, gradient) = (q.matrix(batch)[row], dy.matrix(batch)[row]);
        let weights = softmax(&scores, scores.len());
        let by_weight: Vec<f64> = v.matrix(batch)[seen.clone()].iter().map(|value| dot(gradient, value)).collect();
        let mean = dot(&weights, &by_weight);
        for (column, (weight, by_weight)) in seen.zip(weights.iter().zip(by_weight)) {
            let by_score = weight * (by_weight - mean);
            let parts = [
                (row, by_score, k.matrix(batch)[column]),
                (q.height + column, by_score, query),
                (q.height + k.height + column, *weight, gradient),
            ];
            for (to, factor, from) in parts {
                let out = &mut out[(batch * height + to) * width..][..width];
                out.iter_mut().zip(from).for_each(|(sum, from)| *sum += factor * from);
            }
        }
    }
    out
}
