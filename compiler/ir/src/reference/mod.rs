//! The meaning of every graph operation, in plain double precision and without any cleverness: what tests compare with.

mod attention;

use crate::graph::{Binary, NOWHERE, Node, Op, Unary, hash};
use std::cmp::Ordering;

/// A tensor in row-major order.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    shape: Vec<usize>,
    data: Vec<f64>,
}

/// Row-major indices of a shape.
fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let n: usize = shape.iter().product();
    (0..n).map(move |mut rest| {
        let mut index = vec![0; shape.len()];
        for (index, size) in index.iter_mut().zip(shape).rev() {
            *index = rest % size;
            rest /= size;
        }
        index
    })
}

impl Tensor {
    /// A tensor of this shape, from its elements in row-major order.
    ///
    /// # Panics
    /// If there are not as many elements as the shape says.
    pub fn new(shape: &[u64], data: Vec<f64>) -> Self {
        let shape: Vec<usize> = shape.iter().map(|size| *size as usize).collect();
        assert_eq!(data.len(), shape.iter().product::<usize>(), "{shape:?}");
        Self { shape, data }
    }

    /// Its elements in row-major order.
    pub fn data(&self) -> &[f64] {
        &self.data
    }

    /// The element at an index, repeated by the rules of broadcasting.
    fn at(&self, index: &[usize]) -> f64 {
        let own = &index[index.len() - self.shape.len()..];
        let place =
            own.iter().zip(&self.shape).fold(0, |place, (i, size)| place * size + if *size == 1 { 0 } else { *i });
        self.data[place]
    }

    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.data.chunks(self.shape.last().copied().unwrap_or(1))
    }
}

/// A row of a result, from the row's number, its input, its mean and its 1 / deviation.
type NormalRow<'f> = &'f dyn Fn(usize, &[f64], f64, f64) -> Vec<f64>;

/// The elements of a node's tensor, from its inputs in the order of [`Node::inputs`].
///
/// # Panics
/// If the graph is not one that the verifier accepts, or the node is an [`Op::Input`], which has no meaning of its own.
pub fn evaluate(node: &Node, inputs: &[&Tensor]) -> Vec<f64> {
    let input = |position: usize| inputs[position];
    let shape: Vec<usize> = node.ty.shape.iter().map(|size| *size as usize).collect();
    let each = |f: &dyn Fn(&[usize]) -> f64| indices(&shape).map(|index| f(&index)).collect::<Vec<f64>>();
    let with_statistics = |f: NormalRow<'_>| {
        let rows = input(0).rows().zip(input(1).rows()).enumerate();
        rows.flat_map(|(row, (x, statistics))| f(row, x, statistics[0], statistics[1])).collect::<Vec<f64>>()
    };
    // What a row weighs by the input at a position, if there is one.
    let weight = |position: usize, row: usize| inputs.get(position).map_or(1.0, |weights| weights.data[row]);
    match &node.op {
        Op::Input { .. } => unreachable!("operands are read by whoever has them"),
        Op::Constant(number) => vec![*number; node.ty.elements() as usize],
        Op::Positions => (0..node.ty.elements()).map(|position| position as f64).collect(),
        Op::Powers { base } => (0..node.ty.elements()).map(|position| base.0.powf(position as f64)).collect(),
        Op::Unary(f) => input(0).data.iter().map(|x| unary(*f, *x)).collect(),
        Op::Convert => input(0).data.iter().map(|x| node.ty.dtype.nearest(*x)).collect(),
        Op::Binary(f) => each(&|index| binary(*f, input(0).at(index), input(1).at(index))),
        Op::MatMul { transpose_a, transpose_b } => matmul(input(0), input(1), *transpose_a, *transpose_b, &shape),
        Op::RoutedMatMul { transpose } => routed(input(0), input(1), input(2), *transpose),
        Op::RoutedMatMulGrad => routed_gradient(input(0), input(1), input(2), &shape),
        Op::Sum { axis } => each(&|index| {
            let mut index = index.to_vec();
            (0..input(0).shape[*axis as usize])
                .map(|i| {
                    index[*axis as usize] = i;
                    input(0).at(&index)
                })
                .sum()
        }),
        Op::Reshape => input(0).data.clone(),
        Op::Transpose { permutation } => each(&|index| {
            let mut from = vec![0; index.len()];
            for (i, axis) in index.iter().zip(permutation) {
                from[*axis as usize] = *i;
            }
            input(0).at(&from)
        }),
        Op::Slice { axis, start } => each(&|index| {
            let mut index = index.to_vec();
            index[*axis as usize] += *start as usize;
            input(0).at(&index)
        }),
        Op::Concat { axis } => each(&|index| concatenated(inputs, *axis as usize, index)),
        Op::Attention { causal, window } => {
            let starts = node.inputs.get(3).map(|_| input(3));
            let sight = attention::Sight { causal: *causal, window: *window, starts };
            attention::forward([input(0), input(1), input(2)], &sight)
        }
        Op::AttentionGrad { causal, window } => {
            let starts = node.inputs.get(4).map(|_| input(4));
            let sight = attention::Sight { causal: *causal, window: *window, starts };
            attention::gradients([input(0), input(1), input(2), input(3)], &sight)
        }
        Op::Gather => {
            let width = input(0).shape[1];
            let row = |i: &f64| match is_somewhere(*i) {
                true => input(0).data[*i as usize * width..][..width].to_vec(),
                false => vec![0.0; width],
            };
            input(1).data.iter().flat_map(row).collect()
        }
        Op::ScatterAdd => {
            let mut table = vec![0.0; node.ty.elements() as usize];
            let width = node.ty.shape[1] as usize;
            for (index, row) in input(0).data.iter().zip(input(1).rows()).filter(|(index, _)| is_somewhere(**index)) {
                table[*index as usize * width..].iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
            table
        }
        Op::NormStatistics { epsilon, rms } => {
            let statistics = input(0).rows().flat_map(|x| {
                let mean = if *rms { 0.0 } else { x.iter().sum::<f64>() / x.len() as f64 };
                let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
                [mean, 1.0 / (variance + epsilon).sqrt()]
            });
            statistics.collect()
        }
        Op::Normalize => with_statistics(&|_, x, mean, rstd| {
            let bias = |column: usize| inputs.get(3).map_or(0.0, |bias| bias.data[column]);
            let scaled = x.iter().zip(&input(2).data).enumerate();
            scaled.map(|(column, (x, gain))| (x - mean) * rstd * gain + bias(column)).collect()
        }),
        Op::NormalizeGradInput { rms } => with_statistics(&|row, x, mean, rstd| {
            let dy = input(3).rows().nth(row).expect("as many rows");
            let g: Vec<f64> = dy.iter().zip(&input(2).data).map(|(dy, gain)| dy * gain).collect();
            let n: Vec<f64> = x.iter().map(|x| (x - mean) * rstd).collect();
            let mean_g = if *rms { 0.0 } else { g.iter().sum::<f64>() / g.len() as f64 };
            let mean_gn = g.iter().zip(&n).map(|(g, n)| g * n).sum::<f64>() / g.len() as f64;
            g.iter().zip(&n).map(|(g, n)| rstd * (g - mean_g - n * mean_gn)).collect()
        }),
        Op::NormalizeGradGain => {
            let mut sum = vec![0.0; node.ty.elements() as usize];
            for ((x, statistics), dy) in input(0).rows().zip(input(1).rows()).zip(input(2).rows()) {
                for ((sum, x), dy) in sum.iter_mut().zip(x).zip(dy) {
                    *sum += dy * (x - statistics[0]) * statistics[1];
                }
            }
            sum
        }
        Op::Softmax { causal } => {
            let height = input(0).shape.iter().rev().nth(1).copied().unwrap_or(1);
            let seen = |row: usize, width: usize| {
                if *causal { (row % height + 1 + width.saturating_sub(height)).min(width) } else { width }
            };
            input(0).rows().enumerate().flat_map(|(row, x)| softmax(x, seen(row, x.len()))).collect()
        }
        Op::SoftmaxGrad => {
            let rows = input(0).rows().zip(input(1).rows());
            rows.flat_map(|(y, dy)| {
                let total: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
                y.iter().zip(dy).map(move |(y, dy)| y * (dy - total)).collect::<Vec<f64>>()
            })
            .collect()
        }
        Op::TopK => {
            let k = shape.last().copied().unwrap_or(1);
            input(0).rows().flat_map(|x| largest(x, k)).collect()
        }
        Op::TakeAlong => {
            let rows = input(0).rows().zip(input(1).rows());
            let at = |x: &[f64], column: f64| if is_somewhere(column) { x[column as usize] } else { 0.0 };
            rows.flat_map(|(x, columns)| columns.iter().map(move |column| at(x, *column))).collect()
        }
        Op::AddAlong => {
            let mut sums = vec![0.0; node.ty.elements() as usize];
            let rows = input(0).rows().zip(input(1).rows());
            for ((columns, dy), sums) in rows.zip(sums.chunks_mut(shape.last().copied().unwrap_or(1))) {
                let some = columns.iter().zip(dy).filter(|(column, _)| is_somewhere(**column));
                some.for_each(|(column, dy)| sums[*column as usize] += dy);
            }
            sums
        }
        Op::OwnPart => input(0).data[..node.ty.elements() as usize].to_vec(),
        Op::OwnIndices { size, member, .. } => {
            let own = |index: f64| index - (size * member) as f64;
            let is_own = |index: &f64| (0.0..*size as f64).contains(&own(*index));
            input(0).data.iter().map(|index| if is_own(index) { own(*index) } else { f64::from(NOWHERE) }).collect()
        }
        Op::Vary | Op::AllReduce | Op::AllGather { .. } | Op::ReduceScatter | Op::AllToAll => {
            unreachable!("exchanges stand between pieces of a task")
        }
        Op::CrossEntropy => {
            let rows = (0..).zip(input(0).rows().zip(&input(1).data));
            let losses = rows.map(|(row, (x, t))| -softmax(x, x.len())[*t as usize].ln() * weight(2, row));
            vec![losses.sum::<f64>() / input(1).data.len() as f64]
        }
        Op::CrossEntropyGrad => {
            let factor = input(2).data[0] / input(1).data.len() as f64;
            let rows = (0..).zip(input(0).rows().zip(&input(1).data));
            rows.flat_map(|(row, (x, t))| {
                let (y, factor) = (softmax(x, x.len()), factor * weight(3, row));
                (0..x.len()).map(|i| (y[i] - f64::from(i == *t as usize)) * factor).collect::<Vec<f64>>()
            })
            .collect()
        }
    }
}

/// Whether an index names something.
fn is_somewhere(index: f64) -> bool {
    index != f64::from(NOWHERE)
}

/// The columns of the k largest numbers of a row.
fn largest(row: &[f64], k: usize) -> Vec<f64> {
    let mut columns: Vec<usize> = (0..row.len()).collect();
    // What is no number is below all others.
    let key = |column: usize| if row[column].is_nan() { (false, 0.0) } else { (true, row[column]) };
    columns.sort_by(|a, b| key(*b).partial_cmp(&key(*a)).unwrap_or(Ordering::Equal).then(a.cmp(b)));
    columns.into_iter().take(k).map(|column| column as f64).collect()
}

/// Each row times its matrix.
fn routed(x: &Tensor, weights: &Tensor, routes: &Tensor, transpose: bool) -> Vec<f64> {
    let [_, rows, columns] = weights.shape[..] else { unreachable!("a matrix for each route") };
    let (inner, width) = if transpose { (columns, rows) } else { (rows, columns) };
    let of = |route: usize, i: usize, j: usize| {
        weights.data[route * inner * width + if transpose { j * inner + i } else { i * width + j }]
    };
    let rows = x.rows().zip(&routes.data);
    rows.flat_map(|(x, route)| {
        if !is_somewhere(*route) {
            return vec![0.0; width];
        }
        let element = move |j| x.iter().enumerate().map(|(i, x)| x * of(*route as usize, i, j)).sum::<f64>();
        (0..width).map(element).collect::<Vec<f64>>()
    })
    .collect()
}

fn routed_gradient(x: &Tensor, dy: &Tensor, routes: &Tensor, shape: &[usize]) -> Vec<f64> {
    let mut sums = vec![0.0; shape.iter().product()];
    let rows = x.rows().zip(dy.rows()).zip(&routes.data);
    for ((x, dy), route) in rows.filter(|(_, route)| is_somewhere(**route)) {
        let matrix = &mut sums[*route as usize * x.len() * dy.len()..][..x.len() * dy.len()];
        for (x, sums) in x.iter().zip(matrix.chunks_mut(dy.len())) {
            sums.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += x * dy);
        }
    }
    sums
}

fn concatenated(inputs: &[&Tensor], axis: usize, index: &[usize]) -> f64 {
    let mut index = index.to_vec();
    for tensor in inputs {
        if index[axis] < tensor.shape[axis] {
            return tensor.at(&index);
        }
        index[axis] -= tensor.shape[axis];
    }
    unreachable!("the inputs cover the result")
}

/// A function of one number.
pub fn unary(f: Unary, x: f64) -> f64 {
    match f {
        Unary::Neg => -x,
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Tanh => x.tanh(),
        Unary::Sqrt => x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Relu => x.max(0.0),
        Unary::Step => f64::from(x > 0.0),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Detach => x,
    }
}

fn binary(f: Binary, a: f64, b: f64) -> f64 {
    match f {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Mask => {
            if b > 0.0 {
                a
            } else {
                0.0
            }
        }
        Binary::Hash => f64::from(hash(a as f32, b as f32)),
    }
}

/// Batches are repeated where a factor has fewer dimensions, and summed over where the result has.
fn matmul(a: &Tensor, b: &Tensor, transpose_a: bool, transpose_b: bool, shape: &[usize]) -> Vec<f64> {
    let last = |tensor: &Tensor| [tensor.shape[tensor.shape.len() - 2], tensor.shape[tensor.shape.len() - 1]];
    let k = if transpose_a { last(a)[0] } else { last(a)[1] };
    let summed: Vec<usize> = if shape.len() == 2 { a.shape[..a.shape.len() - 2].to_vec() } else { Vec::new() };
    let element = |index: &[usize]| {
        let (batch, place) = index.split_at(index.len() - 2);
        let mut sum = 0.0;
        for extra in indices(&summed) {
            for i in 0..k {
                let batch = [batch, &extra].concat();
                let a_place = if transpose_a { [i, place[0]] } else { [place[0], i] };
                let b_place = if transpose_b { [place[1], i] } else { [i, place[1]] };
                sum += a.at(&[batch.as_slice(), &a_place].concat()) * b.at(&[batch.as_slice(), &b_place].concat());
            }
        }
        sum
    };
    indices(shape).map(|index| element(&index)).collect()
}

fn softmax(row: &[f64], seen: usize) -> Vec<f64> {
    let top = row[..seen].iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b));
    let total: f64 = row[..seen].iter().map(|x| (x - top).exp()).sum();
    row.iter().enumerate().map(|(i, x)| if i < seen { (x - top).exp() / total } else { 0.0 }).collect()
}
