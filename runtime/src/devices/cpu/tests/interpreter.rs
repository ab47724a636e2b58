//! Plain arithmetic: a graph evaluated node by node in f64, from the definitions of its operations.

use pipe_ir::graph::{DType, Graph, Node, Op};
use pipe_ir::reference::{Tensor, evaluate};

/// What the stored operands hold afterwards; `None` for the others.
pub(super) fn run(graph: &Graph, operands: &[Vec<f32>]) -> Vec<Option<Vec<f64>>> {
    let mut tensors: Vec<Tensor> = Vec::new();
    for node in &graph.nodes {
        let inputs: Vec<&Tensor> = node.inputs.iter().map(|input| &tensors[input.index()]).collect();
        let data = read(node, operands).unwrap_or_else(|| evaluate(node, &inputs));
        tensors.push(Tensor::new(&node.ty.shape, data));
    }
    let mut results: Vec<Option<Vec<f64>>> = vec![None; operands.len()];
    for store in &graph.stores {
        let before = || operands[store.operand as usize].iter().map(|x| f64::from(*x)).collect();
        let result = results[store.operand as usize].get_or_insert_with(before);
        let start = store.offset.to_usize() / 4;
        for (result, x) in result[start..].iter_mut().zip(tensors[store.node.index()].data()) {
            *result = if store.accumulate { *result + x } else { *x };
        }
    }
    results
}

/// The tensor that an input node reads; indices lie among the operands as the bits of floats.
fn read(node: &Node, operands: &[Vec<f32>]) -> Option<Vec<f64>> {
    let Op::Input { operand, offset } = &node.op else { return None };
    let start = offset.to_usize() / 4;
    let contents = &operands[*operand as usize][start..start + node.ty.elements() as usize];
    let number = |x: &f32| if node.ty.dtype == DType::I32 { f64::from(x.to_bits()) } else { f64::from(*x) };
    Some(contents.iter().map(number).collect())
}
