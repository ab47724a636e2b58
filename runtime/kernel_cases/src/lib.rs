//! Every kernel against plain arithmetic in f64, and fused against unfused plans.

/// The tests of a module, and the list of them, for other backends.
macro_rules! cases {
    ($($name:ident,)*) => {
        pub(super) const ALL: &[fn()] = &[$($name),*];

        #[cfg(test)]
        mod tests {
            $(#[test]
            fn $name() {
                super::$name();
            })*
        }
    };
}

#[cfg(test)]
mod functions;
pub mod interpreter;
mod mixed;
mod operations;
mod patterns;

use pipe_distributed::memory::{Memory, Region};
use pipe_ir::graph::{Binary, DType, Graph, Op, Store, TensorType, Unary};
use pipe_ir::ids::NodeId;
use pipe_ir::kernels::{Fusion, KernelPlan, plan_with};
use pipe_ir::training::Optimizer;
use pipe_ir::units::Bytes;
use pipe_runtime::numbers::{decode, encode};
use pipe_runtime::random::Counter;
use pipe_runtime::run_plan;
use std::cell::RefCell;

thread_local! {
    /// Where checks leave their cases, while another backend asks for them.
    static COLLECTED: RefCell<Option<Vec<Case>>> = const { RefCell::new(None) };
}

/// The cases that the tests of all operations and patterns check, for another backend.
pub fn cases() -> Vec<Case> {
    COLLECTED.set(Some(Vec::new()));
    operations::ALL.iter().chain(patterns::ALL).chain(mixed::ALL).for_each(|test| test());
    COLLECTED.take().unwrap_or_default()
}

/// Every optimizer with its default settings, and with each one that is 0 by default set, and not.
#[must_use]
pub fn optimizers() -> Vec<Optimizer> {
    let all = Optimizer::NAMES.iter().filter_map(|name| Some((*name, Optimizer::settings(name)?)));
    all.flat_map(|(name, settings)| {
        let zeros = settings.iter().filter(|setting| setting.default == 0.0).count();
        (0..1 << zeros).filter_map(move |set: u32| {
            let mut nth = 0;
            let values = settings.iter().map(|setting| {
                let is_set = setting.default == 0.0 && set >> nth & 1 == 1;
                nth += u32::from(setting.default == 0.0);
                if is_set { 0.5 } else { setting.default }
            });
            Optimizer::new(name, &values.collect::<Vec<_>>())
        })
    })
    .collect()
}

/// A graph under test with the contents of its operands.
#[derive(Clone)]
pub struct Case {
    /// What is computed.
    pub graph: Graph,
    /// What it reads and stores.
    pub operands: Vec<Operand>,
    random: Counter,
}

/// A buffer with elements of one type.
#[derive(Clone)]
pub struct Operand {
    /// Of its elements.
    pub dtype: DType,
    /// Its elements.
    pub numbers: Vec<f64>,
}

impl Operand {
    /// Which element starts so many bytes after the first.
    fn position(&self, offset: Bytes) -> usize {
        offset.to_usize() / self.dtype.bytes().to_usize()
    }

    /// Their size.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.numbers.len() as u64 * self.dtype.bytes().0)
    }

    /// Writes its numbers to memory.
    pub fn write(&self, region: Region) {
        region.bytes_mut().copy_from_slice(&encode(self.dtype, self.numbers.iter().copied()));
    }

    /// What memory holds instead of its numbers.
    pub fn read(&self, region: Region) -> Vec<f64> {
        decode(self.dtype, region.bytes())
    }
}

impl Case {
    /// No nodes yet; its random numbers are named so.
    pub fn new(name: &str) -> Self {
        Self { graph: Graph::default(), operands: Vec::new(), random: Counter::new(1, name) }
    }

    /// An input with random numbers.
    pub fn input(&mut self, shape: &[u64]) -> NodeId {
        let ty = TensorType::f32(shape);
        let numbers = (0..ty.elements()).map(|_| self.random.normal()).collect();
        self.operand(ty, numbers)
    }

    /// An input with random indices below `bound`.
    pub fn indices(&mut self, shape: &[u64], bound: u64) -> NodeId {
        let ty = TensorType::new(DType::I32, shape);
        let indices = (0..ty.elements()).map(|_| (self.random.next_u64() % bound) as f64).collect();
        self.operand(ty, indices)
    }

    /// An input of these numbers.
    pub fn operand(&mut self, ty: TensorType, numbers: Vec<f64>) -> NodeId {
        let operand = self.operands.len() as u32;
        self.operands.push(Operand { dtype: ty.dtype, numbers });
        self.graph.push(Op::Input { operand, offset: Bytes::ZERO }, vec![], ty)
    }

    /// The precisions in which it can be: single only where some of its numbers are stored as bfloat16.
    pub fn precisions(&self) -> &'static [DType] {
        let is_mixed = self.graph.nodes.iter().any(|node| node.ty.dtype == DType::BF16);
        if is_mixed { &[DType::F32] } else { &[DType::F32, DType::F64] }
    }

    /// The same graph with other numbers than `f32`: operands are rounded to them.
    pub fn in_precision(&self, dtype: DType) -> Self {
        let with = |own: DType| if own.is_float() { dtype } else { own };
        let mut graph = self.graph.clone();
        graph.nodes.iter_mut().for_each(|node| node.ty.dtype = with(node.ty.dtype));
        let rounded = |operand: &Operand| {
            let dtype = with(operand.dtype);
            Operand { dtype, numbers: operand.numbers.iter().map(|number| dtype.nearest(*number)).collect() }
        };
        Self { graph, operands: self.operands.iter().map(rounded).collect(), random: self.random.clone() }
    }

    /// The same graph with tensors in bfloat16 where it reads such numbers.
    #[must_use]
    pub fn in_halves(mut self) -> Self {
        for id in 0..self.graph.nodes.len() {
            let dtype = match &self.graph.nodes[id].op {
                // Indices stay what they are.
                Op::Input { .. } if self.graph.nodes[id].ty.dtype == DType::I32 => continue,
                Op::Input { operand, .. } => {
                    let operand = &mut self.operands[*operand as usize];
                    operand.dtype = DType::BF16;
                    operand.numbers.iter_mut().for_each(|number| *number = DType::BF16.nearest(*number));
                    DType::BF16
                }
                Op::Transpose { .. } => self.graph.node(self.graph.nodes[id].inputs[0]).ty.dtype,
                _ => continue,
            };
            self.graph.nodes[id].ty.dtype = dtype;
        }
        self
    }

    fn shape(&self, id: NodeId) -> Vec<u64> {
        self.graph.node(id).ty.shape.clone()
    }

    /// A node of single precision, or of bfloat16 if it only moves such elements.
    pub fn push(&mut self, op: Op, inputs: &[NodeId], shape: &[u64]) -> NodeId {
        let moves = matches!(op, Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } | Op::Concat { .. });
        let dtype = if moves { self.graph.node(inputs[0]).ty.dtype } else { DType::F32 };
        self.graph.push(op, inputs.to_vec(), TensorType::new(dtype, shape))
    }

    /// A tensor as one of another type.
    pub fn converted(&mut self, x: NodeId, dtype: DType) -> NodeId {
        let shape = self.shape(x);
        self.graph.push(Op::Convert, vec![x], TensorType::new(dtype, &shape))
    }

    /// An element-wise function of one tensor.
    pub fn unary(&mut self, unary: Unary, x: NodeId) -> NodeId {
        let shape = self.shape(x);
        self.push(Op::Unary(unary), &[x], &shape)
    }

    /// An element-wise function of two, which are broadcast.
    pub fn binary(&mut self, binary: Binary, a: NodeId, b: NodeId) -> NodeId {
        let (a_shape, b_shape) = (self.shape(a), self.shape(b));
        let rank = a_shape.len().max(b_shape.len());
        let size = |shape: &[u64], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
        let shape: Vec<u64> = (0..rank).map(|axis| size(&a_shape, axis).max(size(&b_shape, axis))).collect();
        self.push(Op::Binary(binary), &[a, b], &shape)
    }

    /// A number in single precision.
    pub fn constant(&mut self, number: f64) -> NodeId {
        self.push(Op::Constant(DType::F32.nearest(number)), &[], &[])
    }

    /// A matrix product.
    pub fn matmul(&mut self, a: NodeId, b: NodeId, transpose_a: bool, transpose_b: bool, shape: &[u64]) -> NodeId {
        self.push(Op::MatMul { transpose_a, transpose_b }, &[a, b], shape)
    }

    /// The same elements with their axes in another order.
    pub fn transpose(&mut self, x: NodeId, permutation: &[u32]) -> NodeId {
        let from = self.shape(x);
        let shape: Vec<u64> = permutation.iter().map(|&axis| from[axis as usize]).collect();
        self.push(Op::Transpose { permutation: permutation.to_vec() }, &[x], &shape)
    }

    /// The same elements in another shape.
    pub fn reshape(&mut self, x: NodeId, shape: &[u64]) -> NodeId {
        self.push(Op::Reshape, &[x], shape)
    }

    /// So many indices of an axis, from this one on.
    pub fn slice(&mut self, x: NodeId, axis: u32, start: u64, size: u64) -> NodeId {
        let mut shape = self.shape(x);
        shape[axis as usize] = size;
        self.push(Op::Slice { axis, start }, &[x], &shape)
    }

    /// Stores a node to an operand of its own.
    pub fn store(&mut self, node: NodeId) {
        let TensorType { dtype, .. } = self.graph.node(node).ty;
        let elements = self.graph.node(node).ty.elements() as usize;
        self.operands.push(Operand { dtype, numbers: vec![f64::NAN; elements] });
        self.store_to(node, self.operands.len() - 1, false);
    }

    /// Adds a node to an operand of its own that holds random numbers.
    pub fn accumulate(&mut self, node: NodeId) {
        let elements = self.graph.node(node).ty.elements();
        let numbers = (0..elements).map(|_| self.random.normal()).collect();
        self.operands.push(Operand { dtype: DType::F32, numbers });
        self.store_to(node, self.operands.len() - 1, true);
    }

    fn store_to(&mut self, node: NodeId, operand: usize, accumulate: bool) {
        self.graph.stores.push(Store {
            node,
            operand: operand as u32,
            offset: Bytes::ZERO,
            accumulate,
            own: Bytes::ZERO,
        });
    }

    /// Its kernels.
    pub fn plan(&self) -> KernelPlan {
        plan_with(&self.graph, Fusion::On)
    }

    /// How many kernels of a kind the plan has.
    fn count(&self, kind: &str) -> usize {
        self.plan().kernels.iter().filter(|kernel| kernel.kind() == kind).count()
    }

    /// Fused and unfused plans give the same bits, and those agree with plain arithmetic, in all precisions.
    fn check(&self) {
        let is_collected =
            COLLECTED.with_borrow_mut(|cases| cases.as_mut().map(|cases| cases.push(self.clone())).is_some());
        if is_collected {
            return;
        }
        for dtype in self.precisions() {
            self.in_precision(*dtype).check_to(if *dtype == DType::F64 { 1e-13 } else { 1e-5 });
        }
    }

    fn check_to(&self, tolerance: f64) {
        let fused = self.run(Fusion::On);
        let unfused = self.run(Fusion::Off);
        let expected = interpreter::run(&self.graph, &self.operands);
        for (operand, ((fused, unfused), expected)) in fused.iter().zip(&unfused).zip(&expected).enumerate() {
            let Some(expected) = expected else { continue };
            let tolerance = self.tolerance(operand, tolerance);
            let scale = expected.iter().fold(1e-3_f64, |scale, x| scale.max(x.abs()));
            for (element, ((fused, unfused), expected)) in fused.iter().zip(unfused).zip(expected).enumerate() {
                assert_eq!(fused.to_bits(), unfused.to_bits(), "operand {operand} element {element}: fusion");
                assert!(
                    (fused - expected).abs() <= tolerance * scale.max(expected.abs()),
                    "operand {operand} element {element}: {fused} instead of {expected}\n{:#?}",
                    self.plan()
                );
            }
        }
    }

    /// What an operand's numbers may differ by, if they do by this much before they are stored:
    /// where the last bit decides, the other neighbour is stored.
    pub fn tolerance(&self, operand: usize, computed: f64) -> f64 {
        if self.operands[operand].dtype == DType::BF16 { computed + 1.0 / 128.0 } else { computed }
    }

    /// The operands after the kernels.
    pub fn run(&self, fusion: Fusion) -> Vec<Vec<f64>> {
        let plan = plan_with(&self.graph, fusion);
        let sizes: Vec<Bytes> = self.operands.iter().map(Operand::bytes).collect();
        let memory =
            Memory::new(sizes.iter().map(|size| size.aligned()).sum::<Bytes>() + plan.scratch).expect("memory");
        let mut offset = Bytes::ZERO;
        let mut regions = Vec::new();
        for (size, operand) in sizes.iter().zip(&self.operands) {
            let region = memory.region(offset, *size);
            operand.write(region);
            regions.push(region);
            offset += size.aligned();
        }
        let scratch = memory.region(offset, plan.scratch);
        scratch.numbers_mut().fill(f32::NAN);
        regions.push(scratch);
        run_plan(plan, &regions).expect("the processor runs every case");
        self.operands.iter().zip(&regions).map(|(operand, region)| operand.read(*region)).collect()
    }
}
