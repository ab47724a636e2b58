//! Tensor graphs as text: one line per node and store.

use super::cursor::{Cursor, ParseError};
use super::print::push_id;
use super::tables::{list, parse_type, push_list};
use crate::graph::{Binary, DType, Graph, Node, Op, Store, Unary};
use crate::ids::NodeId;
use crate::program::Body;
use crate::units::Bytes;

const UNARY: [(&str, Unary); 8] = [
    ("neg", Unary::Neg),
    ("exp", Unary::Exp),
    ("log", Unary::Log),
    ("tanh", Unary::Tanh),
    ("sqrt", Unary::Sqrt),
    ("reciprocal", Unary::Reciprocal),
    ("relu", Unary::Relu),
    ("step", Unary::Step),
];

const BINARY: [(&str, Binary); 4] =
    [("add", Binary::Add), ("sub", Binary::Sub), ("mul", Binary::Mul), ("div", Binary::Div)];

/// Operations without attributes.
const PLAIN: [(&str, Op); 12] = [
    ("convert", Op::Convert),
    ("reshape", Op::Reshape),
    ("gather", Op::Gather),
    ("scatter_add", Op::ScatterAdd),
    ("normalize", Op::Normalize),
    ("normalize_grad_input", Op::NormalizeGradInput),
    ("normalize_grad_gain", Op::NormalizeGradGain),
    ("softmax_grad", Op::SoftmaxGrad),
    ("cross_entropy", Op::CrossEntropy),
    ("cross_entropy_grad", Op::CrossEntropyGrad),
    ("softmax", Op::Softmax { causal: false }),
    ("matmul", Op::MatMul { transpose_a: false, transpose_b: false }),
];

/// The word of an operation in the textual IR.
pub(crate) fn word(op: &Op) -> &'static str {
    match op {
        Op::Input { .. } => "input",
        Op::Constant(_) => "constant",
        Op::Unary(function) => UNARY.iter().find(|(_, other)| other == function).map_or("?", |(word, _)| word),
        Op::Binary(function) => BINARY.iter().find(|(_, other)| other == function).map_or("?", |(word, _)| word),
        Op::MatMul { .. } => "matmul",
        Op::Sum { .. } => "sum",
        Op::Transpose { .. } => "transpose",
        Op::Slice { .. } => "slice",
        Op::Concat { .. } => "concat",
        Op::NormStatistics { .. } => "norm_statistics",
        Op::Softmax { .. } => "softmax",
        Op::Attention { .. } => "attention",
        Op::AttentionGrad { .. } => "attention_grad",
        Op::Convert
        | Op::Reshape
        | Op::Gather
        | Op::ScatterAdd
        | Op::Normalize
        | Op::NormalizeGradInput
        | Op::NormalizeGradGain
        | Op::SoftmaxGrad
        | Op::CrossEntropy
        | Op::CrossEntropyGrad => PLAIN.iter().find(|(_, other)| other == op).map_or("?", |(word, _)| word),
    }
}

/// Prints what an executable does: nothing for an abstract one.
pub(super) fn print_body(body: &Body, out: &mut String) {
    match body {
        Body::Abstract => {}
        Body::Optimizer => out.push_str(" optimizer"),
        Body::Graph(graph) => {
            out.push_str(" {\n");
            for (index, node) in graph.nodes.iter().enumerate() {
                print_node(index, node, out);
            }
            for store in &graph.stores {
                let verb = if store.accumulate { "accumulate" } else { "store" };
                out.push_str(&format!("  {verb} {} -> {} at {}\n", store.node, store.operand, store.offset.0));
            }
            out.push('}');
        }
    }
}

fn print_node(index: usize, node: &Node, out: &mut String) {
    out.push_str(&format!("  n{index} = {}", word(&node.op)));
    for input in &node.inputs {
        out.push(' ');
        push_id(out, NodeId::PREFIX, input.0);
    }
    push_attributes(node, out);
    out.push_str(&format!(" : {}\n", node.ty));
}

/// What an operation has beside its word and inputs, after a space.
pub(super) fn push_attributes(node: &Node, out: &mut String) {
    match &node.op {
        Op::Input { operand, offset } => out.push_str(&format!(" {operand} at {}", offset.0)),
        Op::Constant(number) => push_number(out, *number, node.ty.dtype),
        Op::MatMul { transpose_a, transpose_b } => {
            out.push_str(if *transpose_a { " transpose_a" } else { "" });
            out.push_str(if *transpose_b { " transpose_b" } else { "" });
        }
        Op::Sum { axis } | Op::Concat { axis } => out.push_str(&format!(" axis {axis}")),
        Op::Transpose { permutation } => {
            out.push(' ');
            push_list(out, permutation);
        }
        Op::Slice { axis, start } => out.push_str(&format!(" axis {axis} from {start}")),
        Op::NormStatistics { epsilon } => {
            out.push_str(" epsilon");
            push_number(out, *epsilon, node.ty.dtype);
        }
        Op::Softmax { causal } | Op::Attention { causal } | Op::AttentionGrad { causal } => {
            out.push_str(if *causal { " causal" } else { "" });
        }
        _ => {}
    }
}

/// A number in the shortest form from which a number of its type is read again.
#[expect(clippy::cast_possible_truncation, reason = "the type says that the number is single precision")]
fn push_number(out: &mut String, number: f64, dtype: DType) {
    match dtype {
        DType::F32 => out.push_str(&format!(" {:?}", number as f32)),
        DType::F64 | DType::BF16 | DType::I32 => out.push_str(&format!(" {number:?}")),
    }
}

/// Reads what an executable does.
pub(super) fn parse_body(cursor: &mut Cursor<'_>) -> Result<Body, ParseError> {
    if cursor.take("optimizer") {
        return Ok(Body::Optimizer);
    }
    if !cursor.take("{") {
        return Ok(Body::Abstract);
    }
    let mut graph = Graph::default();
    while cursor.peek() == Some(b'n') {
        let here = cursor.clone();
        let id = cursor.id('n', "a node such as `n0`")?;
        if id as usize != graph.nodes.len() {
            return Err(here.expected(format!("`n{}`", graph.nodes.len())));
        }
        cursor.expect("=")?;
        graph.nodes.push(parse_node(cursor)?);
    }
    while !cursor.take("}") {
        let accumulate = cursor.choice(&[("store", false), ("accumulate", true), ("}", false)])?;
        let node = node_id(cursor)?;
        cursor.expect("->")?;
        let operand = cursor.small("the position of an operand")?;
        cursor.expect("at")?;
        let offset = Bytes(cursor.number("an offset in bytes")?);
        graph.stores.push(Store { node, operand, offset, accumulate });
    }
    Ok(Body::Graph(graph))
}

fn node_id(cursor: &mut Cursor<'_>) -> Result<NodeId, ParseError> {
    cursor.id('n', "a node such as `n0`").map(NodeId)
}

fn parse_node(cursor: &mut Cursor<'_>) -> Result<Node, ParseError> {
    let here = cursor.clone();
    let word = cursor.word("an operation")?;
    let mut inputs = Vec::new();
    while cursor.peek() == Some(b'n') {
        inputs.push(node_id(cursor)?);
    }
    let op = parse_op(word, cursor)?.ok_or_else(|| here.expected("an operation"))?;
    cursor.expect(":")?;
    Ok(Node { op, inputs, ty: parse_type(cursor)? })
}

fn axis(cursor: &mut Cursor<'_>) -> Result<u32, ParseError> {
    cursor.expect("axis")?;
    cursor.small("a dimension")
}

/// A number before the type of its node, which says whether it is read as a single-precision one.
fn number(cursor: &mut Cursor<'_>) -> Result<f64, ParseError> {
    let mut text = cursor.clone();
    let number = cursor.float("a number")?;
    let mut ahead = cursor.clone();
    if ahead.take(":") && ahead.peek_word() == Some("f32") {
        return text.float::<f32>("a number").map(f64::from);
    }
    Ok(number)
}

/// The operation with this word, and its attributes; `None` if there is no such word.
fn parse_op(word: &str, cursor: &mut Cursor<'_>) -> Result<Option<Op>, ParseError> {
    if let Some((_, function)) = UNARY.iter().find(|(name, _)| *name == word) {
        return Ok(Some(Op::Unary(*function)));
    }
    if let Some((_, function)) = BINARY.iter().find(|(name, _)| *name == word) {
        return Ok(Some(Op::Binary(*function)));
    }
    Ok(Some(match word {
        "input" => {
            let operand = cursor.small("the position of an operand")?;
            cursor.expect("at")?;
            Op::Input { operand, offset: Bytes(cursor.number("an offset in bytes")?) }
        }
        "constant" => Op::Constant(number(cursor)?),
        "matmul" => Op::MatMul { transpose_a: cursor.take("transpose_a"), transpose_b: cursor.take("transpose_b") },
        "sum" => Op::Sum { axis: axis(cursor)? },
        "transpose" => Op::Transpose { permutation: list(cursor, |cursor| cursor.small("a dimension"))? },
        "slice" => {
            let axis = axis(cursor)?;
            cursor.expect("from")?;
            Op::Slice { axis, start: cursor.number("the first element")? }
        }
        "concat" => Op::Concat { axis: axis(cursor)? },
        "norm_statistics" => {
            cursor.expect("epsilon")?;
            Op::NormStatistics { epsilon: number(cursor)? }
        }
        "softmax" => Op::Softmax { causal: cursor.take("causal") },
        "attention" => Op::Attention { causal: cursor.take("causal") },
        "attention_grad" => Op::AttentionGrad { causal: cursor.take("causal") },
        _ => return Ok(PLAIN.iter().find(|(name, _)| *name == word).map(|(_, op)| op.clone())),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::TensorType;
    use crate::text::cursor::Cursor;

    #[test]
    fn every_operation_round_trips() {
        let mut ops = vec![
            Op::Input { operand: 3, offset: Bytes(64) },
            Op::Constant(f64::from(-1.5e-7_f32)),
            Op::MatMul { transpose_a: true, transpose_b: false },
            Op::MatMul { transpose_a: false, transpose_b: true },
            Op::Sum { axis: 2 },
            Op::Transpose { permutation: vec![2, 0, 1] },
            Op::Slice { axis: 1, start: 7 },
            Op::Concat { axis: 0 },
            Op::NormStatistics { epsilon: f64::from(1e-5_f32) },
            Op::Softmax { causal: true },
            Op::Attention { causal: false },
            Op::Attention { causal: true },
            Op::AttentionGrad { causal: false },
            Op::AttentionGrad { causal: true },
        ];
        ops.extend(UNARY.map(|(_, function)| Op::Unary(function)));
        ops.extend(BINARY.map(|(_, function)| Op::Binary(function)));
        ops.extend(PLAIN.map(|(_, op)| op));
        let mut graph = Graph::default();
        for op in ops {
            let inputs = (0..graph.nodes.len().min(3)).map(NodeId::from_index).collect();
            graph.push(op, inputs, TensorType::f32(&[2, 3]));
        }
        for accumulate in [false, true] {
            graph.stores.push(Store { node: NodeId(4), operand: 1, offset: Bytes(128), accumulate });
        }
        let body = Body::Graph(graph);
        let mut text = String::new();
        print_body(&body, &mut text);
        assert_eq!(parse_body(&mut Cursor::new(&text)), Ok(body), "{text}");
    }
}
