//! The functions of the language: names, arguments, what they need of shapes, and what they add to the tape.

use super::evaluator::{Evaluator, Reported};
use super::operators::{elementwise, not_numbers};
use super::products;
use super::value::{Operand, Value};
use crate::graph::composed;
use pipe_ir::graph::{DType, Op, Unary};
use pipe_syntax::ast::{Call, Expr, ExprKind};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::errors::{named_argument, no_result, unknown_function, wrong_count};
use pipe_syntax::expr::number::Number;
use pipe_syntax::source::Span;
use std::cmp::Ordering;

/// Evaluated arguments.
pub(super) struct Arguments<'c> {
    /// Values with their places. A list is [`Value::Unknown`] here and evaluated by the function that wants it.
    pub values: Vec<(Value, Span)>,
    /// As written.
    pub written: Vec<&'c Expr>,
    /// The whole call.
    pub span: Span,
}

type Made = Result<Value, Reported>;

struct Function {
    name: &'static str,
    /// What it gives.
    doc: &'static str,
    /// The arguments, for messages. One that ends in `..` stands for one or more.
    usage: &'static [&'static str],
    make: fn(&mut Evaluator<'_>, &Arguments<'_>) -> Made,
}

const FUNCTIONS: &[Function] = &[
    Function {
        name: "matmul",
        doc: "The matrix product: `a[.., m, k]` and `b[.., k, n]` give `[.., m, n]`; `b` may be one matrix for all.",
        usage: &["a", "b"],
        make: products::matmul,
    },
    Function {
        name: "exp",
        doc: "e to the power of each element.",
        usage: &["x"],
        make: |evaluator, given| unary(evaluator, given, Unary::Exp),
    },
    Function {
        name: "log",
        doc: "The natural logarithm of each element.",
        usage: &["x"],
        make: |evaluator, given| unary(evaluator, given, Unary::Log),
    },
    Function {
        name: "tanh",
        doc: "The hyperbolic tangent of each element.",
        usage: &["x"],
        make: |evaluator, given| unary(evaluator, given, Unary::Tanh),
    },
    Function {
        name: "relu",
        doc: "Each element, or 0 where it is negative.",
        usage: &["x"],
        make: |evaluator, given| unary(evaluator, given, Unary::Relu),
    },
    Function { name: "sqrt", doc: "The square root of each element, or of a number.", usage: &["x"], make: sqrt },
    Function {
        name: "gelu",
        doc: "Each element times the share of a normal distribution below it, in the tanh form (arXiv 1606.08415).",
        usage: &["x"],
        make: gelu,
    },
    Function {
        name: "min",
        doc: "The smaller of two numbers.",
        usage: &["x", "y"],
        make: |evaluator, given| extreme(evaluator, given, false),
    },
    Function {
        name: "max",
        doc: "The larger of two numbers.",
        usage: &["x", "y"],
        make: |evaluator, given| extreme(evaluator, given, true),
    },
    Function {
        name: "size",
        doc: "How long an axis is; axes count from 0, and from -1 backwards.",
        usage: &["x", "axis"],
        make: size,
    },
    Function {
        name: "sum",
        doc: "Adds up along an axis, which then has size 1.",
        usage: &["x", "axis"],
        make: |evaluator, given| sum(evaluator, given).map(Value::Tensor),
    },
    Function { name: "mean", doc: "The mean along an axis, which then has size 1.", usage: &["x", "axis"], make: mean },
    Function { name: "reshape", doc: "The same elements in another shape.", usage: &["x", "[sizes]"], make: reshape },
    Function {
        name: "transpose",
        doc: "The axes in another order, each of them named once, as in `transpose(x, 1, 0)`.",
        usage: &["x", "axis.."],
        make: transpose,
    },
    Function {
        name: "slice",
        doc: "A part of an axis: `size` positions from `start` on.",
        usage: &["x", "axis", "start", "size"],
        make: slice,
    },
    Function {
        name: "concat",
        doc: "Tensors one behind the other along an axis; the other sizes are equal.",
        usage: &["axis", "x.."],
        make: concat,
    },
    Function {
        name: "softmax",
        doc: "Shares that add up to 1 along the last axis.",
        usage: &["x"],
        make: |evaluator, given| softmax(evaluator, given, false),
    },
    Function {
        name: "causal_softmax",
        doc: "`softmax` in which row i sees columns 0 to i. With more columns than rows, rows are the last positions.",
        usage: &["x"],
        make: |evaluator, given| softmax(evaluator, given, true),
    },
    Function {
        name: "attention",
        doc: "`matmul(softmax(matmul(q, transpose(k))), v)`; the scores never lie in memory as a whole.",
        usage: &["q", "k", "v"],
        make: |evaluator, given| products::attention(evaluator, given, false),
    },
    Function {
        name: "causal_attention",
        doc: "`attention` in which each position sees itself and those before.",
        usage: &["q", "k", "v"],
        make: |evaluator, given| products::attention(evaluator, given, true),
    },
    Function {
        name: "layer_norm",
        doc: "Normalizes along the last axis, then multiplies by `gain` and adds `bias`.",
        usage: &["x", "gain", "bias"],
        make: products::layer_norm,
    },
    Function {
        name: "gather",
        doc: "Rows of a table, by whole numbers: `table[n, m]` and `indices[..]` give `[.., m]`.",
        usage: &["table", "indices"],
        make: products::gather,
    },
    Function {
        name: "cross_entropy",
        doc: "The mean cross-entropy of `logits[.., n]` and the right columns, `targets[..]`, in nats.",
        usage: &["logits", "targets"],
        make: products::cross_entropy,
    },
];

/// All of them, with their arguments and what they give.
pub fn usages() -> impl Iterator<Item = (&'static str, String, &'static str)> {
    let usage = |function: &Function| format!("{}({})", function.name, function.usage.join(", "));
    FUNCTIONS.iter().map(move |function| (function.name, usage(function), function.doc))
}

/// Whether something is a function.
pub(super) fn is_function(name: &str) -> bool {
    FUNCTIONS.iter().any(|function| function.name == name)
}

/// The value of a call.
pub(super) fn call(evaluator: &mut Evaluator<'_>, call: &Call) -> Value {
    let Some(function) = FUNCTIONS.iter().find(|function| function.name == call.name.text) else {
        return evaluator.report(unknown_function(&call.name, FUNCTIONS.iter().map(|function| function.name)));
    };
    if let Some(diagnostic) = wrong_arguments(function, call) {
        return evaluator.report(diagnostic);
    }
    let written: Vec<&Expr> = call.arguments.iter().map(|argument| &argument.value).collect();
    let mut is_known = true;
    let values = written.iter().map(|expression| {
        let is_list = matches!(expression.kind, ExprKind::List(_));
        let wants_list = is_list && function.usage.iter().any(|name| name.starts_with('['));
        let value = if wants_list { Value::Unknown } else { evaluator.value(expression) };
        is_known &= wants_list || value != Value::Unknown;
        (value, expression.span)
    });
    let arguments = Arguments { values: values.collect(), written, span: call.span };
    if !is_known {
        return Value::Unknown;
    }
    (function.make)(evaluator, &arguments).unwrap_or(Value::Unknown)
}

fn wrong_arguments(function: &Function, call: &Call) -> Option<Diagnostic> {
    let (given, wanted) = (call.arguments.len(), function.usage.len());
    let is_open = function.usage.last().is_some_and(|last| last.ends_with(".."));
    let usage = format!("write `{}({})`", function.name, function.usage.join(", "));
    let diagnostic = if let Some(name) = call.arguments.iter().find_map(|argument| argument.name.as_ref()) {
        named_argument(call, name)
    } else if given < wanted || given > wanted && !is_open {
        let (least, plural) = (if is_open { "at least " } else { "" }, if wanted == 1 { "" } else { "s" });
        wrong_count(call, &format!("{least}{wanted} argument{plural}"))
    } else {
        return None;
    };
    Some(diagnostic.help(usage))
}

impl Arguments<'_> {
    /// A tensor of numbers.
    pub(super) fn numbers(&self, evaluator: &mut Evaluator<'_>, position: usize) -> Result<Operand, Reported> {
        let operand = self.any(evaluator, position)?;
        match not_numbers(evaluator, operand) {
            Some(diagnostic) => evaluator.fail(diagnostic),
            None => Ok(operand),
        }
    }

    /// A tensor of any type.
    pub(super) fn any(&self, evaluator: &mut Evaluator<'_>, position: usize) -> Result<Operand, Reported> {
        evaluator.tensor(self.values[position])
    }

    /// A tensor of indices.
    pub(super) fn indices(&self, evaluator: &mut Evaluator<'_>, position: usize) -> Result<Operand, Reported> {
        let operand = self.any(evaluator, position)?;
        if evaluator.tape.ty(operand.node).dtype == DType::I32 {
            return Ok(operand);
        }
        let message = "indices are wanted here: a tensor of `i32`";
        evaluator.fail(operand.error(evaluator.tape, Code::WrongType, message))
    }

    /// An axis of a tensor; negative ones count from the end.
    fn axis(&self, evaluator: &mut Evaluator<'_>, position: usize, x: Operand) -> Result<usize, Reported> {
        let rank = evaluator.tape.shape(x.node).len();
        let (value, span) = self.values[position];
        let axis = evaluator.integer((value, span))?;
        let counted = if axis < 0 { i64::try_from(rank).unwrap_or(0).saturating_add(axis) } else { axis };
        match usize::try_from(counted) {
            Ok(counted) if counted < rank => Ok(counted),
            _ => {
                let message = format!("there is no axis {axis} in a tensor with {rank} of them");
                let diagnostic = Diagnostic::error(Code::OutOfRange, span, "this axis", message);
                evaluator.fail(x.label(evaluator.tape, diagnostic).help("axes count from 0, and from -1 backwards"))
            }
        }
    }
}

fn unary(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>, function: Unary) -> Made {
    let x = given.numbers(evaluator, 0)?;
    Ok(elementwise(evaluator, function, x))
}

fn sqrt(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let (value, span) = given.values[0];
    if let Value::Tensor(_) = value {
        return unary(evaluator, given, Unary::Sqrt);
    }
    Ok(match value.to_f64() {
        Some(number) if number >= 0.0 => Value::Number(Number::Decimal(number.sqrt())),
        Some(number) => evaluator.report(no_result(given.span, format!("{number} is negative: it has no square root"))),
        None => evaluator.report(value.is_not(span, "a number")),
    })
}

fn gelu(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.numbers(evaluator, 0)?;
    Ok(Value::Tensor(composed::gelu(evaluator.tape, x.node)))
}

fn extreme(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>, largest: bool) -> Made {
    let (a, b) = (given.values[0], given.values[1]);
    let (Value::Number(one), Value::Number(other)) = (a.0, b.0) else {
        let (value, span) = if a.0.to_f64().is_none() { a } else { b };
        return evaluator.fail(value.is_not(span, "a number"));
    };
    let is_less = one.compare(other) == Some(Ordering::Less);
    Ok(if is_less == largest { b.0 } else { a.0 })
}

fn size(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.any(evaluator, 0)?;
    let axis = given.axis(evaluator, 1, x)?;
    Ok(Value::whole(i64::try_from(evaluator.tape.shape(x.node)[axis]).unwrap_or(i64::MAX)))
}

fn sum(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Result<pipe_ir::ids::NodeId, Reported> {
    let x = given.numbers(evaluator, 0)?;
    let axis = given.axis(evaluator, 1, x)?;
    Ok(evaluator.tape.sum(x.node, axis))
}

fn mean(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.numbers(evaluator, 0)?;
    let axis = given.axis(evaluator, 1, x)?;
    Ok(Value::Tensor(composed::mean(evaluator.tape, x.node, axis)))
}

fn reshape(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.any(evaluator, 0)?;
    let written = given.written[1];
    let ExprKind::List(sizes) = &written.kind else {
        let message = "`reshape` wants a list of sizes, such as `[rows, hidden]`";
        return evaluator.fail(Diagnostic::error(Code::WrongType, written.span, "this is no list", message));
    };
    let shape = evaluator.shape(sizes, written.span)?;
    let (before, after) = (evaluator.tape.ty(x.node).elements(), shape.iter().product::<u64>());
    if before != after {
        let message = format!("{} has {before} elements, but the new shape has {after}", evaluator.tape.ty(x.node));
        let diagnostic = Diagnostic::error(Code::ShapeMismatch, written.span, format!("{after} elements"), message);
        return evaluator.fail(diagnostic.label(x.span, format!("{before} elements")));
    }
    Ok(Value::Tensor(evaluator.tape.reshape(x.node, &shape)))
}

fn transpose(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.any(evaluator, 0)?;
    let rank = evaluator.tape.shape(x.node).len();
    let mut permutation = Vec::with_capacity(rank);
    for position in 1..given.values.len() {
        let axis = given.axis(evaluator, position, x)?;
        permutation.push(crate::graph::tape::to_u32(axis));
    }
    let mut sorted = permutation.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != rank || permutation.len() != rank {
        let message = format!("`transpose` must name each of the {rank} axes of {} once", evaluator.tape.ty(x.node));
        let diagnostic = Diagnostic::error(Code::ShapeMismatch, given.span, "called here", message);
        return evaluator.fail(x.label(evaluator.tape, diagnostic));
    }
    Ok(Value::Tensor(evaluator.tape.transpose(x.node, &permutation)))
}

fn slice(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.any(evaluator, 0)?;
    let axis = given.axis(evaluator, 1, x)?;
    let start = evaluator.integer(given.values[2])?;
    let size = evaluator.size(given.values[3])?;
    let whole = evaluator.tape.shape(x.node)[axis];
    match u64::try_from(start) {
        Ok(start) if start.checked_add(size).is_some_and(|end| end <= whole) => {
            Ok(Value::Tensor(evaluator.tape.slice(x.node, axis, start, size)))
        }
        _ => {
            let message = format!("{size} elements from {start} on are not all in an axis of size {whole}");
            let diagnostic = Diagnostic::error(Code::OutOfRange, given.span, "this slice", message);
            evaluator.fail(x.label(evaluator.tape, diagnostic))
        }
    }
}

fn concat(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let first = given.numbers(evaluator, 1)?;
    let axis = given.axis(evaluator, 0, first)?;
    let mut parts = vec![first.node];
    for position in 2..given.values.len() {
        let part = given.numbers(evaluator, position)?;
        let mut expected = evaluator.tape.shape(first.node).to_vec();
        expected[axis] = evaluator.tape.shape(part.node).get(axis).copied().unwrap_or(0);
        if evaluator.tape.shape(part.node) != expected {
            let message = format!("tensors that are joined along axis {axis} must agree in all others");
            let diagnostic = part.error(evaluator.tape, Code::ShapeMismatch, message);
            return evaluator.fail(first.label(evaluator.tape, diagnostic));
        }
        parts.push(part.node);
    }
    let joined = evaluator.tape.concat(&parts, axis);
    evaluator.made(joined, given.span)
}

fn softmax(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>, causal: bool) -> Made {
    let x = given.numbers(evaluator, 0)?;
    let shape = evaluator.tape.shape(x.node).to_vec();
    let least = if causal { 2 } else { 1 };
    if shape.len() < least {
        let message = format!("a soft-maximum needs at least {least} axes here");
        return evaluator.fail(x.error(evaluator.tape, Code::ShapeMismatch, message));
    }
    Ok(Value::Tensor(evaluator.tape.shaped(Op::Softmax { causal }, &[x.node], &shape)))
}
