//! The meaning of attention and of its derivatives: every score, row by row.

use super::{Tensor, softmax};

/// The rows of all matrices of a batch, and how many of them a matrix has.
struct Rows<'t> {
    all: Vec<&'t [f64]>,
    height: usize,
}

impl<'t> Rows<'t> {
    fn of(tensor: &'t Tensor) -> Self {
        Self { all: tensor.rows().collect(), height: tensor.shape[tensor.shape.len() - 2] }
    }

    fn matrix(&self, batch: usize) -> &[&'t [f64]] {
        &self.all[batch * self.height..][..self.height]
    }

    fn n_matrices(&self) -> usize {
        self.all.len() / self.height
    }

    fn width(&self) -> usize {
        self.all[0].len()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The scores of a row, of the columns that it sees.
fn scores(q: &Rows<'_>, k: &Rows<'_>, batch: usize, row: usize, causal: bool) -> Vec<f64> {
    let seen = if causal { row + 1 + k.height - q.height } else { k.height };
    k.matrix(batch)[..seen].iter().map(|key| dot(q.matrix(batch)[row], key)).collect()
}

/// Every row of every matrix of queries, in order.
fn each_row(q: &Rows<'_>) -> impl Iterator<Item = (usize, usize)> + use<> {
    let height = q.height;
    (0..q.n_matrices()).flat_map(move |batch| (0..height).map(move |row| (batch, row)))
}

pub(super) fn forward([q, k, v]: [&Tensor; 3], causal: bool) -> Vec<f64> {
    let (q, k, v) = (Rows::of(q), Rows::of(k), Rows::of(v));
    let row = |(batch, row)| {
        let scores = scores(&q, &k, batch, row, causal);
        let mut out = vec![0.0; v.width()];
        for (p, value) in softmax(&scores, scores.len()).iter().zip(v.matrix(batch)) {
            out.iter_mut().zip(*value).for_each(|(sum, value)| *sum += p * value);
        }
        out
    };
    each_row(&q).flat_map(row).collect()
}

pub(super) fn gradients([q, k, v, dy]: [&Tensor; 4], causal: bool) -> Vec<f64> {
    let (q, k, v, dy) = (Rows::of(q), Rows::of(k), Rows::of(v), Rows::of(dy));
    let (width, height) = (q.width(), q.height + 2 * k.height);
    let mut out = vec![0.0; q.n_matrices() * height * width];
    for (batch, row) in each_row(&q) {
        let scores = scores(&q, &k, batch, row, causal);
        let (query, gradient) = (q.matrix(batch)[row], dy.matrix(batch)[row]);
        let weights = softmax(&scores, scores.len());
        let by_weight: Vec<f64> = v.matrix(batch)[..weights.len()].iter().map(|value| dot(gradient, value)).collect();
        let mean = dot(&weights, &by_weight);
        for (column, (weight, by_weight)) in weights.iter().zip(by_weight).enumerate() {
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
