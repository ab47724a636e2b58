//! Every kernel against plain arithmetic in f64, and fused against unfused plans.

mod functions;
mod interpreter;
mod operations;
mod patterns;

use super::compile::launch;
use super::jit::Jit;
use super::launch::Launcher;
use crate::memory::Memory;
use crate::random::Counter;
use pipe_ir::graph::{Binary, DType, Graph, Op, Store, TensorType, Unary};
use pipe_ir::ids::NodeId;
use pipe_ir::kernels::{Fusion, KernelPlan, plan_with};
use pipe_ir::units::Bytes;

/// A graph under test with the contents of its operands; indices are stored as the bits of their numbers.
struct Case {
    graph: Graph,
    operands: Vec<Vec<f32>>,
    random: Counter,
}

impl Case {
    fn new(name: &str) -> Self {
        Self { graph: Graph::default(), operands: Vec::new(), random: Counter::new(1, name) }
    }

    /// An input with random numbers.
    fn input(&mut self, shape: &[u64]) -> NodeId {
        let ty = TensorType::f32(shape);
        let numbers = (0..ty.elements()).map(|_| self.random.normal()).collect();
        self.operand(ty, numbers)
    }

    /// An input with random indices below `bound`.
    fn indices(&mut self, shape: &[u64], bound: u64) -> NodeId {
        let ty = TensorType { dtype: DType::I32, shape: shape.to_vec() };
        let indices = (0..ty.elements()).map(|_| f32::from_bits((self.random.next_u64() % bound) as u32)).collect();
        self.operand(ty, indices)
    }

    fn operand(&mut self, ty: TensorType, contents: Vec<f32>) -> NodeId {
        let operand = self.operands.len() as u32;
        self.operands.push(contents);
        self.graph.push(Op::Input { operand, offset: Bytes::ZERO }, vec![], ty)
    }

    fn shape(&self, id: NodeId) -> Vec<u64> {
        self.graph.node(id).ty.shape.clone()
    }

    fn push(&mut self, op: Op, inputs: &[NodeId], shape: &[u64]) -> NodeId {
        self.graph.push(op, inputs.to_vec(), TensorType::f32(shape))
    }

    fn unary(&mut self, unary: Unary, x: NodeId) -> NodeId {
        let shape = self.shape(x);
        self.push(Op::Unary(unary), &[x], &shape)
    }

    fn binary(&mut self, binary: Binary, a: NodeId, b: NodeId) -> NodeId {
        let (a_shape, b_shape) = (self.shape(a), self.shape(b));
        let rank = a_shape.len().max(b_shape.len());
        let size = |shape: &[u64], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
        let shape: Vec<u64> = (0..rank).map(|axis| size(&a_shape, axis).max(size(&b_shape, axis))).collect();
        self.push(Op::Binary(binary), &[a, b], &shape)
    }

    fn constant(&mut self, number: f32) -> NodeId {
        self.push(Op::Constant(number), &[], &[])
    }

    fn matmul(&mut self, a: NodeId, b: NodeId, transpose_a: bool, transpose_b: bool, shape: &[u64]) -> NodeId {
        self.push(Op::MatMul { transpose_a, transpose_b }, &[a, b], shape)
    }

    fn transpose(&mut self, x: NodeId, permutation: &[u32]) -> NodeId {
        let from = self.shape(x);
        let shape: Vec<u64> = permutation.iter().map(|&axis| from[axis as usize]).collect();
        self.push(Op::Transpose { permutation: permutation.to_vec() }, &[x], &shape)
    }

    fn reshape(&mut self, x: NodeId, shape: &[u64]) -> NodeId {
        self.push(Op::Reshape, &[x], shape)
    }

    fn slice(&mut self, x: NodeId, axis: u32, start: u64, size: u64) -> NodeId {
        let mut shape = self.shape(x);
        shape[axis as usize] = size;
        self.push(Op::Slice { axis, start }, &[x], &shape)
    }

    /// Stores a node to an operand of its own.
    fn store(&mut self, node: NodeId) {
        let elements = self.graph.node(node).ty.elements() as usize;
        self.operands.push(vec![f32::NAN; elements]);
        self.store_to(node, self.operands.len() - 1, false);
    }

    /// Adds a node to an operand of its own that holds random numbers.
    fn accumulate(&mut self, node: NodeId) {
        let elements = self.graph.node(node).ty.elements();
        let numbers = (0..elements).map(|_| self.random.normal()).collect();
        self.operands.push(numbers);
        self.store_to(node, self.operands.len() - 1, true);
    }

    fn store_to(&mut self, node: NodeId, operand: usize, accumulate: bool) {
        self.graph.stores.push(Store { node, operand: operand as u32, offset: Bytes::ZERO, accumulate });
    }

    fn plan(&self) -> KernelPlan {
        plan_with(&self.graph, Fusion::On)
    }

    /// How many kernels of a kind the plan has.
    fn count(&self, kind: &str) -> usize {
        self.plan().kernels.iter().filter(|kernel| kernel.kind() == kind).count()
    }

    /// Fused and unfused plans give the same bits, and those agree with plain arithmetic.
    fn check(&self) {
        let fused = self.run(Fusion::On);
        let unfused = self.run(Fusion::Off);
        let expected = interpreter::run(&self.graph, &self.operands);
        for (operand, ((fused, unfused), expected)) in fused.iter().zip(&unfused).zip(&expected).enumerate() {
            let Some(expected) = expected else { continue };
            let scale = expected.iter().fold(1e-3_f64, |scale, x| scale.max(x.abs()));
            for (element, ((fused, unfused), expected)) in fused.iter().zip(unfused).zip(expected).enumerate() {
                assert_eq!(fused.to_bits(), unfused.to_bits(), "operand {operand} element {element}: fusion");
                let error = (f64::from(*fused) - expected).abs();
                assert!(
                    error <= 1e-5 * scale.max(expected.abs()),
                    "operand {operand} element {element}: {fused} instead of {expected}\n{:#?}",
                    self.plan()
                );
            }
        }
    }

    /// The operands after the kernels.
    fn run(&self, fusion: Fusion) -> Vec<Vec<f32>> {
        let plan = plan_with(&self.graph, fusion);
        let mut jit = Jit::new().unwrap();
        let mut launches: Vec<_> = plan.kernels.into_iter().map(|kernel| launch(kernel, &mut jit).unwrap()).collect();
        let sizes: Vec<Bytes> = self.operands.iter().map(|operand| Bytes(operand.len() as u64 * 4)).collect();
        let memory = Memory::new(sizes.iter().map(|size| size.aligned()).sum::<Bytes>() + plan.scratch).unwrap();
        let mut offset = Bytes::ZERO;
        let mut regions = Vec::new();
        for (size, contents) in sizes.iter().zip(&self.operands) {
            let region = memory.region(offset, *size);
            region.f32s_mut().copy_from_slice(contents);
            regions.push(region);
            offset += size.aligned();
        }
        let scratch = memory.region(offset, plan.scratch);
        scratch.f32s_mut().fill(f32::NAN);
        regions.push(scratch);
        Launcher::new(false).graph(&mut launches, Some(self.operands.len()), regions.iter().copied()).unwrap();
        regions[..self.operands.len()].iter().map(|region| region.f32s().to_vec()).collect()
    }
}
