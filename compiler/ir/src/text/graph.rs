//! Tensor graphs as text: one line per node and store.

use super::cursor::{Cursor, ParseError};
use super::print::push_id;
use super::tables::parse_type;
use crate::graph::{Graph, Node, Op, Store};
use crate::ids::NodeId;
use crate::program::Body;
use crate::units::Bytes;

/// Prints what an executable does: nothing for an abstract one.
pub(super) fn print_body(body: &Body, out: &mut String) {
    match body {
        Body::Abstract => {}
        Body::Optimizer => out.push_str(" optimizer"),
        Body::Squares => out.push_str(" squares"),
        Body::Graph(graph) => {
            out.push_str(" {\n");
            for (index, node) in graph.nodes.iter().enumerate() {
                print_node(index, node, out);
            }
            for store in &graph.stores {
                let verb = if store.accumulate { "accumulate" } else { "store" };
                let own = if store.own.is_zero() { String::new() } else { format!(" own {}", store.own.0) };
                out.push_str(&format!("  {verb} {} -> {} at {}{own}\n", store.node, store.operand, store.offset.0));
            }
            out.push('}');
        }
    }
}

fn print_node(index: usize, node: &Node, out: &mut String) {
    out.push_str(&format!("  n{index} = {}", node.op.word()));
    for input in &node.inputs {
        out.push(' ');
        push_id(out, NodeId::PREFIX, input.0);
    }
    node.op.write_attributes(node.ty.dtype, out);
    out.push_str(&format!(" : {}\n", node.ty));
}

/// Reads what an executable does.
pub(super) fn parse_body(cursor: &mut Cursor<'_>) -> Result<Body, ParseError> {
    if cursor.take("optimizer") {
        return Ok(Body::Optimizer);
    }
    if cursor.take("squares") {
        return Ok(Body::Squares);
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
        let own = if cursor.take("own") { cursor.number("a number of bytes")? } else { 0 };
        graph.stores.push(Store { node, operand, offset, accumulate, own: Bytes(own) });
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
    let op = Op::parse(word, cursor)?.ok_or_else(|| here.expected("an operation"))?;
    cursor.expect(":")?;
    Ok(Node { op, inputs, ty: parse_type(cursor)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::TensorType;
    use crate::text::cursor::Cursor;

    #[test]
    fn every_operation_round_trips() {
        let mut graph = Graph::default();
        for op in [false, true].into_iter().flat_map(Op::examples) {
            let inputs = (0..graph.nodes.len().min(3)).map(NodeId::from_index).collect();
            graph.push(op, inputs, TensorType::f32(&[2, 3]));
        }
        for accumulate in [false, true] {
            let own = Bytes(if accumulate { 0 } else { 64 });
            graph.stores.push(Store { node: NodeId(4), operand: 1, offset: Bytes(128), accumulate, own });
        }
        let body = Body::Graph(graph);
        let mut text = String::new();
        print_body(&body, &mut text);
        assert_eq!(parse_body(&mut Cursor::new(&text)), Ok(body), "{text}");
    }
}
