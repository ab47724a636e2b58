//! Functions that choose: the largest elements, elements by their columns, rows by their routes.

use super::evaluator::{Evaluator, Reported};
use super::functions::Arguments;
use super::value::{Operand, Value};
use pipe_ir::graph::Op;
use pipe_syntax::diagnostic::{Code, Diagnostic};

type Made = Result<Value, Reported>;

/// The shape of a tensor that has rows.
fn rows_of(evaluator: &mut Evaluator<'_>, x: Operand, function: &str) -> Result<Vec<u64>, Reported> {
    let shape = evaluator.tape.shape(x.node).to_vec();
    if shape.is_empty() {
        let message = format!("`{function}` works along the last axis, but this tensor has none");
        return evaluator.fail(x.error(evaluator.tape, Code::ShapeMismatch, message));
    }
    Ok(shape)
}

/// Reports two tensors that do not fit.
fn mismatch<T>(
    evaluator: &mut Evaluator<'_>,
    a: Operand,
    b: Operand,
    function: &str,
    help: &str,
) -> Result<T, Reported> {
    let (left, right) = (evaluator.tape.ty(a.node), evaluator.tape.ty(b.node));
    let message = format!("`{function}` cannot join {left} and {right}");
    let diagnostic = a.error(evaluator.tape, Code::ShapeMismatch, message);
    let diagnostic = b.label(evaluator.tape, diagnostic).help(help);
    evaluator.fail(diagnostic)
}

/// The columns of the largest elements of each row.
pub(super) fn top_k(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.numbers(evaluator, 0)?;
    let shape = rows_of(evaluator, x, "top_k")?;
    let k = evaluator.size(given.values[1])?;
    let n = shape[shape.len() - 1];
    if k > n {
        let message = format!("`top_k` of {k} elements, but a row has {n}");
        let diagnostic = Diagnostic::error(Code::OutOfRange, given.values[1].1, "more than a row has", message);
        return evaluator.fail(x.label(evaluator.tape, diagnostic));
    }
    Ok(Value::Tensor(evaluator.tape.top_k(x.node, k)))
}

/// Elements of each row, by their columns.
pub(super) fn take_along(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.numbers(evaluator, 0)?;
    let columns = given.indices(evaluator, 1)?;
    let (rows, of_columns) = (rows_of(evaluator, x, "take_along")?, rows_of(evaluator, columns, "take_along")?);
    if rows[..rows.len() - 1] != of_columns[..of_columns.len() - 1] {
        let help = "columns have the shape of `x` but for the last axis";
        return mismatch(evaluator, x, columns, "take_along", help);
    }
    let taken = evaluator.tape.take_along(x.node, columns.node);
    evaluator.made(taken, given.span)
}

/// Zeros, and elements added to them.
pub(super) fn add_along(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let columns = given.indices(evaluator, 0)?;
    let x = given.numbers(evaluator, 1)?;
    let n = evaluator.size(given.values[2])?;
    let mut shape = rows_of(evaluator, columns, "add_along")?;
    let repeated = pipe_ir::graph::broadcast(evaluator.tape.shape(x.node), &shape);
    if repeated.as_ref() != Some(&shape) {
        return mismatch(evaluator, columns, x, "add_along", "there is an element for each column");
    }
    let ones = evaluator.tape.constant(1.0, &shape);
    let full = if evaluator.tape.shape(x.node) == shape {
        x.node
    } else {
        evaluator.tape.binary(pipe_ir::graph::Binary::Mul, x.node, ones)
    };
    let last = shape.len() - 1;
    shape[last] = n;
    let sums = evaluator.tape.shaped(Op::AddAlong, &[columns.node, full], &shape);
    evaluator.made(sums, given.span)
}

/// A table of zeros, and rows added to it.
pub(super) fn scatter_add(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let indices = given.indices(evaluator, 0)?;
    let x = given.numbers(evaluator, 1)?;
    let n = evaluator.size(given.values[2])?;
    let shape = rows_of(evaluator, x, "scatter_add")?;
    if shape[..shape.len() - 1] != *evaluator.tape.shape(indices.node) {
        return mismatch(evaluator, indices, x, "scatter_add", "there is an index for each row of `x`");
    }
    let table = [n, shape[shape.len() - 1]];
    let sums = evaluator.tape.shaped(Op::ScatterAdd, &[indices.node, x.node], &table);
    evaluator.made(sums, given.span)
}

/// Each row times the matrix of its route.
pub(super) fn routed_matmul(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let (x, weights) = (given.numbers(evaluator, 0)?, given.numbers(evaluator, 1)?);
    let routes = given.indices(evaluator, 2)?;
    let shape = rows_of(evaluator, x, "routed_matmul")?;
    let (width, leading) = (shape[shape.len() - 1], shape[..shape.len() - 1].to_vec());
    if leading != evaluator.tape.shape(routes.node) {
        return mismatch(evaluator, x, routes, "routed_matmul", "there is a route for each row of `x`");
    }
    let (source, transpose) =
        super::products::unswapped(evaluator.tape, weights.node).map_or((weights.node, false), |source| (source, true));
    let columns = match *evaluator.tape.shape(weights.node) {
        [_, rows, columns] if rows == width => columns,
        _ => return mismatch(evaluator, x, weights, "routed_matmul", "for `x[.., k]`, the matrices are `[e, k, n]`"),
    };
    let result = [leading, vec![columns]].concat();
    let inputs = [x.node, source, routes.node];
    let product = evaluator.tape.shaped(Op::RoutedMatMul { transpose }, &inputs, &result);
    evaluator.made(product, given.span)
}
