//! Matrices that an optimizer changes as a whole: Muon makes the direction of a step orthogonal.
//!
//! Newton-Schulz iterations need products of matrices only, so that they are a tensor graph whose kernels every device
//! has already. The numbers are those of `torch.optim.Muon`, which rounds to bfloat16 in between; here all of them stay
//! in the type of the weights.

use crate::graph::{Binary, DType, Graph, Op, Store, TensorType, Unary};
use crate::ids::NodeId;
use crate::kernels::{Kernel, plan};
use crate::units::Bytes;
use crate::value::{TensorSlot, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Iterations that make a matrix orthogonal.
const ITERATIONS: usize = 5;

/// Of an iteration `X <- a X + (b G + c G G) X`, where `G = X Xᵀ` (K. Jordan, Muon: An optimizer for hidden layers in
/// neural networks, 2024).
const COEFFICIENTS: [f64; 3] = [3.4445, -4.775, 2.0315];

/// The least that a matrix is divided by, to begin with.
const EPSILON: f64 = 1e-7;

/// Matrices of equal shape, one behind the other: what a tensor with two axes is, or one with three, the first of which
/// counts them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Matrices {
    /// Type of the elements.
    pub dtype: DType,
    /// How many there are.
    pub count: u64,
    /// Rows of each.
    pub rows: u64,
    /// Columns of each.
    pub columns: u64,
}

/// What makes matrices orthogonal, on a buffer of scratch.
#[derive(Clone, PartialEq, Debug)]
pub struct Orthogonalization {
    /// In their order.
    pub kernels: Vec<Kernel>,
    /// Where the matrices begin in the scratch.
    pub from: Bytes,
    /// Where the orthogonal ones begin.
    pub to: Bytes,
    /// All that is needed of the scratch.
    pub scratch: Bytes,
}

impl Matrices {
    /// What a tensor of this type is. `None` if it is no matrix, or has a single row or column.
    pub fn of(ty: &TensorType) -> Option<Self> {
        let (count, rows, columns) = match *ty.shape {
            [rows, columns] => (1, rows, columns),
            [count, rows, columns] => (count, rows, columns),
            _ => return None,
        };
        (rows > 1 && columns > 1).then_some(Self { dtype: ty.dtype, count, rows, columns })
    }

    /// All of them.
    pub fn elements(&self) -> u64 {
        self.count * self.rows * self.columns
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.elements() * self.dtype.bytes().0)
    }

    /// What the learning rate is multiplied with, so that a step changes as much as one of AdamW, and rate and decay
    /// can be the same: 0.2 sqrt(max(rows, columns)) (arXiv 2502.16982, equation 4).
    pub fn factor(&self) -> f64 {
        0.2 * (self.rows.max(self.columns) as f64).sqrt()
    }

    /// Floating-point operations of the products that make them orthogonal, 2 per multiply-add.
    pub fn flops(&self) -> u64 {
        let (short, long) = (self.rows.min(self.columns), self.rows.max(self.columns));
        let products = short.saturating_mul(short).saturating_mul(long.saturating_mul(2).saturating_add(short));
        (ITERATIONS as u64).saturating_mul(self.count).saturating_mul(products).saturating_mul(2)
    }

    /// What makes them orthogonal, where the scratch is this operand.
    pub fn orthogonalization(&self, operand: u32) -> Orthogonalization {
        // Temporaries are at the beginning of the scratch: their size does not depend on what lies behind them.
        let temporaries = plan(&self.graph(operand, [Bytes::ZERO; 2])).scratch.aligned();
        let from = temporaries;
        let to = Bytes(from.0 + self.bytes().aligned().0);
        let planned = plan(&self.graph(operand, [from, to]));
        debug_assert!(planned.scratch <= temporaries);
        Orthogonalization { kernels: planned.kernels, from, to, scratch: Bytes(to.0 + self.bytes().0) }
    }

    /// The iterations: of what lies at one place of an operand, to another place.
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

    /// The root of the sum of the squares of each matrix, but never less than [`EPSILON`]. Rows are added up first.
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
    /// Each number for itself, as AdamW does; its second moments begin here in the state.
    Numbers(Bytes),
    /// Whole matrices.
    Matrices(Matrices),
}

/// The weights of an update that changes matrices as a whole, each with how it is changed: its state says so, which has
/// second moments, `<weight>.1`, of all others. `None` for what is no matrix, and has none.
pub fn rules<'p>(parameters: &'p Value, state: &Value) -> Vec<(&'p TensorSlot, Option<Rule>)> {
    let second = |slot: &'_ TensorSlot| Some((slot.name.strip_suffix(".1")?.to_owned(), slot.offset));
    let second: BTreeMap<String, Bytes> = state.tensors.iter().filter_map(second).collect();
    let rule = |slot: &TensorSlot| match second.get(&slot.name) {
        Some(offset) => Some(Rule::Numbers(*offset)),
        None => Matrices::of(&slot.ty).map(Rule::Matrices),
    };
    parameters.tensors.iter().map(|slot| (slot, rule(slot))).collect()
}

/// Bytes of scratch that an update of these rules needs.
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

    /// Places follow each other: temporaries, the matrices, the orthogonal ones.
    #[test]
    fn places_do_not_overlap() {
        for matrices in shapes() {
            let made = matrices.orthogonalization(0);
            let temporaries = plan(&matrices.graph(0, [made.from, made.to])).scratch;
            assert!(temporaries <= made.from && made.from.0 + matrices.bytes().0 <= made.to.0);
            assert_eq!(made.scratch, Bytes(made.to.0 + matrices.bytes().0));
        }
    }

    /// By the reference: all singular values come near to 1, between 0.6 and 1.3, so that the squares of a matrix add
    /// up to about as many as it has rows or columns; a matrix of zeros stays zero.
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
