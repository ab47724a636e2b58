//! A plain interpreter of stage graphs, in double precision: what every operation means, without any cleverness.

use crate::model::stage_set::StageSet;
use crate::model::tape::broadcast;
use pipe_ir::graph::{Binary, Node, Op, Unary};
use pipe_ir::program::{Access, Body, Exec};
use pipe_ir::value::{TensorSlot, ValueKind};
use std::collections::BTreeMap;

/// A tensor, row-major.
#[derive(Clone, Debug)]
struct Tensor {
    shape: Vec<usize>,
    data: Vec<f64>,
}

/// What buffers hold: tensors by value and offset.
pub(super) struct Memory<'a> {
    set: &'a StageSet,
    tensors: BTreeMap<(usize, u64), Vec<f64>>,
}

impl<'a> Memory<'a> {
    /// Weights from a function of name and position, gradients zero, nothing else.
    pub(super) fn new(set: &'a StageSet, weight: &dyn Fn(&str, usize) -> f64) -> Self {
        let mut memory = Self { set, tensors: BTreeMap::new() };
        for (index, value) in set.values.iter().enumerate() {
            for slot in &value.tensors {
                let elements = 0..slot.ty.elements() as usize;
                let data = match value.kind {
                    ValueKind::Parameters => elements.map(|position| weight(&slot.name, position)).collect(),
                    ValueKind::ParameterGradients => elements.map(|_| 0.0).collect(),
                    _ => continue,
                };
                memory.tensors.insert((index, slot.offset.0), data);
            }
        }
        memory
    }

    /// Forgets what belongs to the last microbatch and loads the data of the next one: a function of the tensor's name,
    /// the microbatch and the position.
    pub(super) fn load(&mut self, microbatch: u32, data: &dyn Fn(&str, u32, usize) -> f64) {
        let values = &self.set.values;
        self.tensors.retain(|(value, _), _| values[*value].kind.is_persistent());
        for (index, value) in values.iter().enumerate().filter(|(_, value)| value.kind == ValueKind::Data) {
            for slot in &value.tensors {
                let elements = (0..slot.ty.elements() as usize).map(|position| data(&slot.name, microbatch, position));
                self.tensors.insert((index, slot.offset.0), elements.collect());
            }
        }
    }

    pub(super) fn tensor(&self, value: usize, slot: &TensorSlot) -> Vec<f64> {
        self.tensors[&(value, slot.offset.0)].clone()
    }

    pub(super) fn loss(&self) -> f64 {
        let value = self.set.values.iter().position(|value| value.kind == ValueKind::Loss).expect("a loss");
        self.tensors[&(value, 0)][0]
    }

    /// Runs an executable. Reads must find what was written, under the same type.
    pub(super) fn run(&mut self, exec: &Exec) {
        let Body::Graph(graph) = &exec.body else { panic!("only graphs are interpreted") };
        let mut done: Vec<Tensor> = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            let data = match &node.op {
                Op::Input { operand, offset } => {
                    let operand = exec.operands[*operand as usize];
                    assert_eq!(operand.access, Access::Read, "{} reads what it writes", exec.name());
                    let value = &self.set.values[operand.value.index()];
                    let slot = value.tensors.iter().find(|slot| slot.offset == *offset).expect("a slot");
                    assert_eq!(slot.ty, node.ty, "{} reads {} of {}", exec.name(), slot.name, value.name);
                    let key = (operand.value.index(), offset.0);
                    self.tensors.get(&key).unwrap_or_else(|| panic!("{} needs {}", exec.name(), value.name)).clone()
                }
                _ => {
                    let inputs: Vec<&Tensor> = node.inputs.iter().map(|input| &done[input.index()]).collect();
                    evaluate(node, &inputs)
                }
            };
            assert_eq!(data.len() as u64, node.ty.elements(), "{:?} in {}", node.op, exec.name());
            done.push(Tensor { shape: sizes(&node.ty.shape), data });
        }
        for store in &graph.stores {
            let value = exec.operands[store.operand as usize].value;
            let new = &done[store.node.index()].data;
            let slot = &self.set.values[value.index()].tensors.iter().find(|slot| slot.offset == store.offset);
            assert_eq!(slot.expect("a slot").ty, graph.nodes[store.node.index()].ty);
            let old = self.tensors.entry((value.index(), store.offset.0)).or_insert_with(|| vec![0.0; new.len()]);
            for (old, new) in old.iter_mut().zip(new) {
                *old = if store.accumulate { *old + new } else { *new };
            }
        }
    }
}

fn sizes(shape: &[u64]) -> Vec<usize> {
    shape.iter().map(|size| *size as usize).collect()
}

/// Every index of a shape, in row-major order.
fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let shape = shape.to_vec();
    (0..shape.iter().product()).map(move |flat: usize| {
        let mut rest = flat;
        let mut index: Vec<usize> = shape.iter().rev().map(|size| (rest % size, rest /= size).0).collect();
        index.reverse();
        index
    })
}

impl Tensor {
    /// The element at an index, aligned at the right; 1-sized dimensions repeat.
    fn at(&self, index: &[usize]) -> f64 {
        let index = &index[index.len() - self.shape.len()..];
        let flat =
            index.iter().zip(&self.shape).fold(0, |flat, (at, size)| flat * size + if *size == 1 { 0 } else { *at });
        self.data[flat]
    }

    /// The rows along the last dimension.
    fn rows(&self) -> std::slice::Chunks<'_, f64> {
        self.data.chunks(*self.shape.last().expect("at least one dimension"))
    }
}

fn evaluate(node: &Node, inputs: &[&Tensor]) -> Vec<f64> {
    let shape = sizes(&node.ty.shape);
    match &node.op {
        Op::Input { .. } => unreachable!("read from memory"),
        Op::Constant(value) => vec![f64::from(*value); shape.iter().product()],
        Op::Unary(function) => inputs[0].data.iter().map(|x| unary(*function, *x)).collect(),
        Op::Binary(function) => {
            let (a, b) = (inputs[0], inputs[1]);
            let wide = |tensor: &Tensor| tensor.shape.iter().map(|size| *size as u64).collect::<Vec<u64>>();
            assert_eq!(broadcast(&wide(a), &wide(b)).as_ref(), Some(&node.ty.shape));
            indices(&shape).map(|index| binary(*function, a.at(&index), b.at(&index))).collect()
        }
        Op::MatMul { transpose_a, transpose_b } => matmul(&shape, inputs, *transpose_a, *transpose_b),
        Op::Sum { axis } => {
            let axis = *axis as usize;
            let along =
                |index: Vec<usize>| (0..inputs[0].shape[axis]).map(|at| inputs[0].at(&with(&index, axis, at))).sum();
            indices(&shape).map(along).collect()
        }
        Op::Reshape => inputs[0].data.clone(),
        Op::Transpose { permutation } => {
            let source = |index: Vec<usize>| {
                let mut from = vec![0; index.len()];
                permutation.iter().zip(&index).for_each(|(axis, at)| from[*axis as usize] = *at);
                inputs[0].at(&from)
            };
            indices(&shape).map(source).collect()
        }
        Op::Slice { axis, start } => {
            let axis = *axis as usize;
            indices(&shape).map(|index| inputs[0].at(&with(&index, axis, index[axis] + *start as usize))).collect()
        }
        Op::Concat { axis } => indices(&shape).map(|index| concatenated(inputs, &index, *axis as usize)).collect(),
        Op::Gather => {
            let rows: Vec<&[f64]> = inputs[0].rows().collect();
            inputs[1].data.iter().flat_map(|row| rows[*row as usize].to_vec()).collect()
        }
        Op::ScatterAdd => {
            let mut table = vec![0.0; shape.iter().product()];
            for (row, dy) in inputs[0].data.iter().zip(inputs[1].rows()) {
                dy.iter().enumerate().for_each(|(column, dy)| table[*row as usize * shape[1] + column] += dy);
            }
            table
        }
        op => rowwise(op, inputs),
    }
}

fn with(index: &[usize], axis: usize, at: usize) -> Vec<usize> {
    let mut index = index.to_vec();
    index[axis] = at;
    index
}

fn concatenated(inputs: &[&Tensor], index: &[usize], axis: usize) -> f64 {
    let mut at = index[axis];
    for input in inputs {
        if at < input.shape[axis] {
            let flat = index.iter().zip(&input.shape).enumerate();
            let flat = flat.fold(0, |flat, (own, (i, size))| flat * size + if own == axis { at } else { *i });
            return input.data[flat];
        }
        at -= input.shape[axis];
    }
    unreachable!("the parts fill the axis")
}

fn unary(function: Unary, x: f64) -> f64 {
    match function {
        Unary::Neg => -x,
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Tanh => x.tanh(),
        Unary::Sqrt => x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Relu => x.max(0.0),
        Unary::Step => f64::from(u8::from(x > 0.0)),
    }
}

fn binary(function: Binary, a: f64, b: f64) -> f64 {
    match function {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
    }
}

fn matmul(shape: &[usize], inputs: &[&Tensor], transpose_a: bool, transpose_b: bool) -> Vec<f64> {
    let (a, b) = (inputs[0], inputs[1]);
    let rank = a.shape.len();
    let inner = a.shape[if transpose_a { rank - 2 } else { rank - 1 }];
    let place = |index: &[usize], row: usize, column: usize, transposed: bool, rank: usize| {
        let mut place = index[index.len() - rank..rank.max(2) - 2 + index.len() - rank].to_vec();
        place.extend(if transposed { [column, row] } else { [row, column] });
        place
    };
    let element = |index: Vec<usize>| {
        let (row, column) = (index[rank - 2], index[rank - 1]);
        let product = |k| {
            let left = a.at(&place(&index, row, k, transpose_a, rank));
            left * b.at(&place(&index, k, column, transpose_b, b.shape.len()))
        };
        (0..inner).map(product).sum()
    };
    indices(shape).map(element).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Normalisation, soft-maximum and loss, with their derivatives: row by row.
fn rowwise(op: &Op, inputs: &[&Tensor]) -> Vec<f64> {
    let x = inputs[0];
    match op {
        Op::NormStatistics { epsilon } => x.rows().flat_map(|row| statistics(row, f64::from(*epsilon))).collect(),
        Op::Normalize => {
            let (gain, bias) = (&inputs[2].data, &inputs[3].data);
            let normal = |(row, s): (&[f64], &[f64])| -> Vec<f64> {
                row.iter().zip(gain).zip(bias).map(|((x, g), b)| (x - s[0]) * s[1] * g + b).collect()
            };
            x.rows().zip(inputs[1].rows()).flat_map(normal).collect()
        }
        Op::NormalizeGradInput => {
            let gain = &inputs[2].data;
            x.rows()
                .zip(inputs[1].rows())
                .zip(inputs[3].rows())
                .flat_map(|((x, s), dy)| norm_input(x, s, gain, dy))
                .collect()
        }
        Op::NormalizeGradGain => {
            let mut sums = vec![0.0; *x.shape.last().expect("a row")];
            for ((x, s), dy) in x.rows().zip(inputs[1].rows()).zip(inputs[2].rows()) {
                sums.iter_mut().zip(x).zip(dy).for_each(|((sum, x), dy)| *sum += dy * (x - s[0]) * s[1]);
            }
            sums
        }
        Op::Softmax { causal } => {
            let n_rows = x.shape[x.shape.len().max(2) - 2];
            let visible = |row: usize, width: usize| if *causal { (row % n_rows + 1).min(width) } else { width };
            x.rows().enumerate().flat_map(|(at, row)| softmax(row, visible(at, row.len()))).collect()
        }
        Op::SoftmaxGrad => x
            .rows()
            .zip(inputs[1].rows())
            .flat_map(|(y, dy)| y.iter().zip(dy).map(|(one, d)| one * (d - dot(y, dy))).collect::<Vec<f64>>())
            .collect(),
        Op::CrossEntropy => {
            let losses =
                x.rows().zip(&inputs[1].data).map(|(row, target)| -softmax(row, row.len())[*target as usize].ln());
            vec![losses.sum::<f64>() / inputs[1].data.len() as f64]
        }
        Op::CrossEntropyGrad => {
            let share = inputs[2].data[0] / inputs[1].data.len() as f64;
            let gradient = |(row, target): (&[f64], &f64)| -> Vec<f64> {
                let mut row = softmax(row, row.len());
                row[*target as usize] -= 1.0;
                row.iter().map(|p| p * share).collect()
            };
            x.rows().zip(&inputs[1].data).flat_map(gradient).collect()
        }
        other => unreachable!("{other:?} is not row by row"),
    }
}

fn statistics(row: &[f64], epsilon: f64) -> [f64; 2] {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    [mean, 1.0 / (variance + epsilon).sqrt()]
}

fn norm_input(x: &[f64], s: &[f64], gain: &[f64], dy: &[f64]) -> Vec<f64> {
    let n = x.len() as f64;
    let normal: Vec<f64> = x.iter().map(|x| (x - s[0]) * s[1]).collect();
    let scaled: Vec<f64> = dy.iter().zip(gain).map(|(dy, gain)| dy * gain).collect();
    let (mean, along) = (scaled.iter().sum::<f64>() / n, dot(&scaled, &normal) / n);
    scaled.iter().zip(&normal).map(|(g, x)| s[1] * (g - mean - x * along)).collect()
}

fn softmax(row: &[f64], visible: usize) -> Vec<f64> {
    let largest = row[..visible].iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut powers: Vec<f64> = row.iter().map(|x| (x - largest).exp()).collect();
    powers[visible..].fill(0.0);
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}
