//! Muon: orthogonalizes the momentum of each matrix by Newton-Schulz iterations (arXiv 2502.16982).
//!
//! The iterations are matrix products, so they are a tensor graph and use the kernels that every device already has.
//! Coefficients and epsilon are those of `torch.optim.Muon`. PyTorch iterates in bfloat16, pipec in the type of the
//! weights.

use crate::graph::{Binary, DType, Graph, Op, Store, TensorType, Unary};
use crate::ids::NodeId;
use crate::kernels::{Kernel, plan};
use crate::units::Bytes;
use crate::value::{TensorSlot, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Newton-Schulz iterations of an update.
const ITERATIONS: usize = 5;

/// a, b and c of the iteration `X <- a X + (b G + c G G) X`, where `G = X Xᵀ` (K. Jordan, Muon: An optimizer for
/// hidden layers in neural networks, 2024).
const COEFFICIENTS: [f64; 3] = [3.4445, -4.775, 2.0315];

/// Lower bound of the norm that a matrix is divided by before the first iteration.
const EPSILON: f64 = 1e-7;

/// A batch of matrices of equal shape, contiguous in memory: a tensor `[rows, columns]` or `[count, rows, columns]`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Matrices {
    /// Type of the elements.
    pub dtype: DType,
    /// Number of matrices.
    pub count: u64,
    /// Rows of each.
    pub rows: u64,
    /// Columns of each.
    pub columns: u64,
}

/// Kernels that orthogonalize a batch of matrices in a scratch buffer.
#[derive(Clone, PartialEq, Debug)]
pub struct Orthogonalization {
    /// In launch order.
    pub kernels: Vec<Kernel>,
    /// Offset of the input matrices in the scratch buffer.
    pub from: Bytes,
    /// Offset of the orthogonalized matrices in the scratch buffer.
    pub to: Bytes,
    /// Size of the scratch buffer.
    pub scratch: Bytes,
}

impl Matrices {
    /// The matrices of a tensor of this type. `None` if it has not two or three axes, or has a single row or column.
    pub fn of(ty: &TensorType) -> Option<Self> {
        let (count, rows, columns) = match *ty.shape {
            [rows, columns] => (1, rows, columns),
            [count, rows, columns] => (count, rows, columns),
            _ => return None,
        };
        (rows > 1 && columns > 1).then_some(Self { dtype: ty.dtype, count, rows, columns })
    }

    /// Elements of all matrices.
    pub fn elements(&self) -> u64 {
        self.count * self.rows * self.columns
    }

    /// Bytes of all matrices.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.elements() * self.dtype.bytes().0)
    }

    /// Factor of the learning rate that matches the RMS of AdamW's updates: 0.2 sqrt(max(rows, columns)) (arXiv
    /// 2502.16982, equation 4).
    pub fn factor(&self) -> f64 {
        0.2 * (self.rows.max(self.columns) as f64).sqrt()
    }

    /// Floating-point operations of the matrix products of all iterations, 2 per multiply-add.
    pub fn flops(&self) -> u64 {
        let (short, long) = (self.rows.min(self.columns), self.rows.max(self.columns));
        let products = short.saturating_mul(short).saturating_mul(long.saturating_mul(2).saturating_add(short));
        (ITERATIONS as u64).saturating_mul(self.count).saturating_mul(products).saturating_mul(2)
    }

    /// The kernels of all iterations; `operand` is the position of the scratch buffer.
    pub fn orthogonalization(&self, operand: u32) -> Orthogonalization {
        // Temporaries come first in the scratch buffer. Their size does not depend on the offsets of the matrices.
        let temporaries = plan(&self.graph(operand, [Bytes::ZERO; 2])).scratch.aligned();
        let from = temporaries;
        let to = Bytes(from.0 + self.bytes().aligned().0);
        let planned = plan(&self.graph(operand, [from, to]));
        debug_assert!(planned.scratch <= temporaries);
        Orthogonalization { kernels: planned.kernels, from, to, scratch: Bytes(to.0 + self.bytes().0) }
    }

    /// The iterations as a graph, from one offset of an operand to another.
    fn graph(&self, operand: u32, [from, to]: [Bytes; 2]) -> Graph {
        let shape = |rows: u64, columns: u64| match self.count {
            1 => TensorType::new(self.dtype, &[rows, columns]),
            count => TensorType::new(self.dtype, &[count, rows, columns]),
        };
        let whole = shape(self.rows, self.columns);
        let mut graph = Graph::default();
        let given = graph.push(Op::Input { operand, offset: from }, Vec::new(), whole.clone());
        let [a, b, c] = COEFFICIENTS.map(|number| constant(&mut graph, self.dtype, number));
        let norm = self.norm(&mut graph, given, shape);
        let mut x = graph.push(Op::Binary(Binary::Div), vec![given, norm], whole.clone());
        let is_wide = self.rows <= self.columns;
        let short = self.rows.min(self.columns);
        let square = shape(short, short);
        for _ in 0..ITERATIONS {
            let product = Op::MatMul { transpose_a: !is_wide, transpose_b: is_wide };
            let gram = graph.push(product, vec![x, x], square.clone());
            let plain = || Op::MatMul { transpose_a: false, transpose_b: false };
            let squared = graph.push(plain(), vec![gram, gram], square.clone());
            let gram = graph.push(Op::Binary(Binary::Mul), vec![gram, b], square.clone());
            let squared = graph.push(Op::Binary(Binary::Mul), vec![squared, c], square.clone());
            let sum = graph.push(Op::Binary(Binary::Add), vec![gram, squared], square.clone());
            let factors = if is_wide { vec![sum, x] } else { vec![x, sum] };
            let moved = graph.push(plain(), factors, whole.clone());
            let kept = graph.push(Op::Binary(Binary::Mul), vec![x, a], whole.clone());
            x = graph.push(Op::Binary(Binary::Add), vec![kept, moved], whole.clone());
        }
        graph.stores.push(Store { node: x, operand, offset: to, accumulate: false, own: Bytes::ZERO });
        graph
    }

    /// The Frobenius norm of each matrix, at least [`EPSILON`]. Each row is summed first.
    fn norm(&self, graph: &mut Graph, x: NodeId, shape: impl Fn(u64, u64) -> TensorType) -> NodeId {
        let axis = u32::from(self.count > 1);
        let squares = graph.push(Op::Binary(Binary::Mul), vec![x, x], shape(self.rows, self.columns));
        let rows = graph.push(Op::Sum { axis: axis + 1 }, vec![squares], shape(self.rows, 1));
        let sum = graph.push(Op::Sum { axis }, vec![rows], shape(1, 1));
        let root = graph.push(Op::Unary(Unary::Sqrt), vec![sum], shape(1, 1));
        let least = constant(graph, self.dtype, EPSILON);
        let above = graph.push(Op::Binary(Binary::Sub), vec![root, least], shape(1, 1));
        let above = graph.push(Op::Unary(Unary::Relu), vec![above], shape(1, 1));
        graph.push(Op::Binary(Binary::Add), vec![above, least], shape(1, 1))
    }
}

fn constant(graph: &mut Graph, dtype: DType, number: f64) -> NodeId {
    graph.push(Op::Constant(dtype.nearest(number)), Vec::new(), TensorType::new(dtype, &[]))
}

/// How an update changes a weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Element by element, as AdamW does; the offset of the second moments in the state.
    Numbers(Bytes),
    /// As whole matrices.
    Matrices(Matrices),
}

/// The weights of a Muon update, each with its rule. A weight with second moments in the state (`<weight>.1`) is
/// updated element by element, every other one as matrices. `None` if a weight has no second moments and is no matrix.
pub fn rules<'p>(parameters: &'p Value, state: &Value) -> Vec<(&'p TensorSlot, Option<Rule>)> {
    let second = |slot: &'_ TensorSlot| Some((slot.name.strip_suffix(".1")?.to_owned(), slot.offset));
    let second: BTreeMap<String, Bytes> = state.tensors.iter().filter_map(second).collect();
    let rule = |slot: &TensorSlot| match second.get(&slot.name) {
        Some(offset) => Some(Rule::Numbers(*offset)),
        None => Matrices::of(&slot.ty).map(Rule::Matrices),
    };
    parameters.tensors.iter().map(|slot| (slot, rule(slot))).collect()
}

/// Size of the scratch buffer that an update with these rules needs.
pub fn scratch(rules: &[(&TensorSlot, Option<Rule>)]) -> Bytes {
    let matrices = rules.iter().filter_map(|(_, rule)| match rule {
        Some(Rule::Matrices(matrices)) => Some(*matrices),
        Some(Rule::Numbers(_)) | None => None,
    });
    let shapes: BTreeSet<Matrices> = matrices.collect();
    shapes.iter().map(|shape| shape.orthogonalization(0).scratch).max().unwrap_or(Bytes::ZERO)
}

#[cfg(test)]
mod tests {
    use super::{EPSILON, Matrices};
    use crate::graph::{DType, Op, TensorType};
    use crate::kernels::{Kernel, plan};
    use crate::reference::{Tensor, evaluate};
    use crate::units::Bytes;

    fn shapes() -> [Matrices; 4] {
        [(1, 4, 6), (1, 6, 4), (3, 5, 5), (2, 3, 7)].map(|(count, rows, columns)| Matrices {
            dtype: DType::F64,
            count,
            rows,
            columns,
        })
    }

    #[test]
    fn matrices_have_two_axes_or_three_and_more_than_a_row() {
        let of = |shape: &[u64]| Matrices::of(&TensorType::f32(shape)).map(|own| (own.count, own.rows, own.columns));
        assert_eq!(of(&[4, 6]), Some((1, 4, 6)));
        assert_eq!(of(&[3, 4, 6]), Some((3, 4, 6)));
        for none in [&[6][..], &[1, 6], &[6, 1], &[3, 1, 6], &[2, 3, 4, 5]] {
            assert_eq!(of(none), None);
        }
    }

    #[test]
    fn operations_are_those_of_the_kernels() {
        for matrices in shapes() {
            let made = matrices.orthogonalization(0);
            assert_eq!(made.kernels.iter().map(Kernel::flops).sum::<u64>(), matrices.flops());
        }
    }

    /// The scratch buffer holds temporaries, input and output, in this order.
    #[test]
    fn places_do_not_overlap() {
        for matrices in shapes() {
            let made = matrices.orthogonalization(0);
            let temporaries = plan(&matrices.graph(0, [made.from, made.to])).scratch;
            assert!(temporaries <= made.from && made.from.0 + matrices.bytes().0 <= made.to.0);
            assert_eq!(made.scratch, Bytes(made.to.0 + matrices.bytes().0));
        }
    }

    /// Singular values end between 0.6 and 1.3. So the squared norm of a matrix is near its rank; zeros stay zeros.
    #[test]
    fn singular_values_come_near_to_one() {
        for matrices in shapes() {
            let graph = matrices.graph(0, [Bytes::ZERO; 2]);
            let count = matrices.elements() as usize;
            let run = |numbers: &[f64]| {
                let mut made: Vec<Tensor> = Vec::new();
                for node in &graph.nodes {
                    let inputs: Vec<&Tensor> = node.inputs.iter().map(|input| &made[input.index()]).collect();
                    let is_given = matches!(node.op, Op::Input { .. });
                    let data = if is_given { numbers.to_vec() } else { evaluate(node, &inputs) };
                    made.push(Tensor::new(&node.ty.shape, data));
                }
                made.last().expect("nodes").data().to_vec()
            };
            let numbers: Vec<f64> = (0..count).map(|index| ((index * index + 3 * index) % 17) as f64 - 8.0).collect();
            let each = (matrices.rows * matrices.columns) as usize;
            for matrix in run(&numbers).chunks(each) {
                let squares: f64 = matrix.iter().map(|own| own * own).sum();
                let short = matrices.rows.min(matrices.columns) as f64;
                assert!((0.36 * short..1.69 * short).contains(&squares), "{matrices:?}: {squares}");
            }
            assert!(run(&vec![0.0; count]).iter().all(|own| *own == 0.0), "0 / {EPSILON} is 0");
        }
    }
}
