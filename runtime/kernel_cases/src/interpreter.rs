//! Plain arithmetic: a graph evaluated node by node in f64, from the definitions of its operations.

use super::Operand;
use pipe_ir::graph::{Graph, Node, Op};
use pipe_ir::reference::{Tensor, evaluate};

/// What the stored operands hold afterwards; `None` for the others.
pub fn run(graph: &Graph, operands: &[Operand]) -> Vec<Option<Vec<f64>>> {
    let mut tensors: Vec<Tensor> = Vec::new();
    for node in &graph.nodes {
        let inputs: Vec<&Tensor> = node.inputs.iter().map(|input| &tensors[input.index()]).collect();
        let data = read(node, operands).unwrap_or_else(|| evaluate(node, &inputs));
        tensors.push(Tensor::new(&node.ty.shape, data));
    }
    let mut results: Vec<Option<Vec<f64>>> = vec![None; operands.len()];
    for store in &graph.stores {
        let operand = &operands[store.operand as usize];
        let result = results[store.operand as usize].get_or_insert_with(|| operand.numbers.clone());
        let start = operand.position(store.offset);
        for (result, x) in result[start..].iter_mut().zip(tensors[store.node.index()].data()) {
            *result = if store.accumulate { *result + x } else { *x };
        }
    }
    results
}

/// The tensor that an input node reads.
fn read(node: &Node, operands: &[Operand]) -> Option<Vec<f64>> {
    let Op::Input { operand, offset } = &node.op else { return None };
    let operand = &operands[*operand as usize];
    Some(operand.numbers[operand.position(*offset)..][..node.ty.elements() as usize].to_vec())
}
