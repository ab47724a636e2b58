//! The functions of the language: names, arguments, what they need of shapes, and what they add to the tape.

use super::evaluator::{Evaluator, Reported, TOO_LARGE};
use super::operators::{elementwise, not_alike, not_numbers};
use super::value::{Operand, Value};
use super::{dropout, images, products, routing, views};
use crate::Tape;
use crate::graph::composed;
use pipe_ir::graph::{Binary, DType, Double, Op, Unary};
use pipe_ir::ids::NodeId;
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

pub(super) type Made = Result<Value, Reported>;

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
        name: "routed_matmul",
        doc: "Each row times the matrix of its route: `x[.., k]`, `w[e, k, n]` and `routes[..]` give `[.., n]`.",
        usage: &["x", "w", "routes"],
        make: routing::routed_matmul,
    },
    Function {
        name: "exp",
        doc: "e to the power of each element, or of a number.",
        usage: &["x"],
        make: |evaluator, given| of_number_or_tensor(evaluator, given, Unary::Exp, f64::exp),
    },
    Function {
        name: "log",
        doc: "The natural logarithm of each element, or of a number.",
        usage: &["x"],
        make: |evaluator, given| of_number_or_tensor(evaluator, given, Unary::Log, f64::ln),
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
    Function {
        name: "sqrt",
        doc: "The square root of each element, or of a number.",
        usage: &["x"],
        make: |evaluator, given| of_number_or_tensor(evaluator, given, Unary::Sqrt, f64::sqrt),
    },
    Function {
        name: "sin",
        doc: "The sine of each element, or of a number.",
        usage: &["x"],
        make: |evaluator, given| of_number_or_tensor(evaluator, given, Unary::Sin, f64::sin),
    },
    Function {
        name: "cos",
        doc: "The cosine of each element, or of a number.",
        usage: &["x"],
        make: |evaluator, given| of_number_or_tensor(evaluator, given, Unary::Cos, f64::cos),
    },
    Function {
        name: "sigmoid",
        doc: "1 / (1 + e^-x) of each element.",
        usage: &["x"],
        make: |evaluator, given| composition(evaluator, given, composed::sigmoid),
    },
    Function {
        name: "silu",
        doc: "Each element times its sigmoid (arXiv 1702.03118).",
        usage: &["x"],
        make: |evaluator, given| composition(evaluator, given, composed::silu),
    },
    Function {
        name: "gelu",
        doc: "Each element times the share of a normal distribution below it, in the tanh form (arXiv 1606.08415).",
        usage: &["x"],
        make: |evaluator, given| composition(evaluator, given, composed::gelu),
    },
    Function {
        name: "dropout",
        doc: "Each element is 0 with the probability `rate`, else divided by `1 - rate`; not where nothing is trained.",
        usage: &["x", "rate"],
        make: dropout::dropout,
    },
    Function {
        name: "detach",
        doc: "The same tensor, through which no gradient flows back.",
        usage: &["x"],
        make: |evaluator, given| unary(evaluator, given, Unary::Detach),
    },
    Function {
        name: "split",
        doc: "The same tensor. Where `tensor 2` puts devices behind each device, they divide it along an axis.",
        usage: &["x", "axis"],
        make: views::split,
    },
    Function {
        name: "where",
        doc: "`a` where `condition` is above 0, else `b`; shapes broadcast.",
        usage: &["condition", "a", "b"],
        make: where_,
    },
    Function {
        name: "min",
        doc: "The smaller of two numbers, or of each two elements.",
        usage: &["x", "y"],
        make: |evaluator, given| extreme(evaluator, given, false),
    },
    Function {
        name: "max",
        doc: "The larger of two numbers, or of each two elements.",
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
        doc: "Adds up along an axis, which then has size 1; without an axis, all elements.",
        usage: &["x", "axis?"],
        make: |evaluator, given| reduced(evaluator, given, |tape, x, axis| tape.sum(x, axis)),
    },
    Function {
        name: "mean",
        doc: "The mean along an axis, which then has size 1; without an axis, of all elements.",
        usage: &["x", "axis?"],
        make: |evaluator, given| reduced(evaluator, given, composed::mean),
    },
    Function {
        name: "amax",
        doc: "The largest element along an axis, which then has size 1; without an axis, of all elements.",
        usage: &["x", "axis?"],
        make: |evaluator, given| reduced(evaluator, given, composed::amax),
    },
    Function {
        name: "broadcast",
        doc: "A tensor or a number, repeated to a shape.",
        usage: &["x", "[sizes]"],
        make: broadcast,
    },
    Function { name: "positions", doc: "0, 1, 2, .. as a tensor `[n]`.", usage: &["n"], make: positions },
    Function {
        name: "powers",
        doc: "1, base, base * base, .. as a tensor `[n]`, computed in double precision.",
        usage: &["base", "n"],
        make: powers,
    },
    Function {
        name: "reshape",
        doc: "The same elements in another shape.",
        usage: &["x", "[sizes]"],
        make: views::reshape,
    },
    Function {
        name: "transpose",
        doc: "The axes in another order, each of them named once, as in `transpose(x, 1, 0)`.",
        usage: &["x", "axis.."],
        make: views::transpose,
    },
    Function {
        name: "slice",
        doc: "A part of an axis: `size` positions from `start` on.",
        usage: &["x", "axis", "start", "size"],
        make: views::slice,
    },
    Function {
        name: "concat",
        doc: "Tensors one behind the other along an axis; the other sizes are equal.",
        usage: &["axis", "x.."],
        make: views::concat,
    },
    Function {
        name: "conv2d",
        doc: "Convolution: `x[rows, height, width, from]` and `kernel[high, wide, from, to]`; strides of 1, no padding by default.",
        usage: &["x", "kernel", "stride?", "padding?"],
        make: images::conv2d,
    },
    Function {
        name: "max_pool",
        doc: "The largest element of each square of an image `x[rows, height, width, channels]`, by channel.",
        usage: &["x", "size"],
        make: images::max_pool,
    },
    Function {
        name: "mean_pool",
        doc: "The mean of each square of an image `x[rows, height, width, channels]`, by channel.",
        usage: &["x", "size"],
        make: images::mean_pool,
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
        doc: "`attention` in which each position sees itself and those before: `window` at most, none before its \
              start. With a rate of `dropout`, scores are dropped.",
        usage: &["q", "k", "v", "window?", "starts?", "dropout?"],
        make: |evaluator, given| products::attention(evaluator, given, true),
    },
    Function {
        name: "layer_norm",
        doc: "Normalizes along the last axis, multiplies by `gain` and adds `bias`; `epsilon` is 0.00001 by default.",
        usage: &["x", "gain", "bias", "epsilon?"],
        make: products::layer_norm,
    },
    Function {
        name: "rms_norm",
        doc: "Divides by the root mean square along the last axis and multiplies by `gain`; `epsilon` as in `layer_norm`.",
        usage: &["x", "gain", "epsilon?"],
        make: products::rms_norm,
    },
    Function {
        name: "rotary",
        doc: "Turns each pair of elements i and n/2 + i of a row by an angle: `x[.., m, n]`, `angles[m, n/2]`.",
        usage: &["x", "angles"],
        make: products::rotary,
    },
    Function {
        name: "gather",
        doc: "Rows of a table, by whole numbers: `table[n, m]` and `indices[..]` give `[.., m]`.",
        usage: &["table", "indices"],
        make: products::gather,
    },
    Function {
        name: "scatter_add",
        doc: "Adds rows to a table of zeros, by whole numbers: `indices[..]` and `x[.., m]` give `[n, m]`.",
        usage: &["indices", "x", "n"],
        make: routing::scatter_add,
    },
    Function {
        name: "top_k",
        doc: "The columns of the k largest elements of each row, the largest first: `x[.., n]` gives `i32[.., k]`.",
        usage: &["x", "k"],
        make: routing::top_k,
    },
    Function {
        name: "take_along",
        doc: "Elements of each row by their columns: `x[.., n]` and `columns[.., k]` give `[.., k]`.",
        usage: &["x", "columns"],
        make: routing::take_along,
    },
    Function {
        name: "add_along",
        doc: "Zeros `[.., n]`, to which elements are added in columns: `columns[.., k]` and `x[.., k]`.",
        usage: &["columns", "x", "n"],
        make: routing::add_along,
    },
    Function {
        name: "cross_entropy",
        doc: "The mean cross-entropy of `logits[.., n]` and the right columns, `targets[..]`, in nats; rows may have `weights[..]`.",
        usage: &["logits", "targets", "weights?"],
        make: products::cross_entropy,
    },
    Function {
        name: "z_loss",
        doc: "`weight` (1 by default) times the mean over all rows of (log sum e^x)^2, which keeps logits near 0 \
              (arXiv 2204.02311, section 5).",
        usage: &["logits", "weight?"],
        make: products::z_loss,
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
    let least = function.usage.iter().filter(|name| !name.ends_with('?')).count();
    let is_open = function.usage.last().is_some_and(|last| last.ends_with(".."));
    let usage = format!("write `{}({})`", function.name, function.usage.join(", "));
    let diagnostic = if let Some(name) = call.arguments.iter().find_map(|argument| argument.name.as_ref()) {
        named_argument(call, name)
    } else if given < least || given > wanted && !is_open {
        let plural = if wanted == 1 { "" } else { "s" };
        let count = match (is_open, least < wanted) {
            (true, _) => format!("at least {wanted}"),
            (false, true) => format!("{least} {} {wanted}", if wanted - least > 1 { "to" } else { "or" }),
            (false, false) => wanted.to_string(),
        };
        wrong_count(call, &format!("{count} argument{plural}"))
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
    pub(super) fn axis(&self, evaluator: &mut Evaluator<'_>, position: usize, x: Operand) -> Result<usize, Reported> {
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

/// A number by its place, or what stands for it where it is not given.
pub(super) fn number_or(
    evaluator: &mut Evaluator<'_>,
    given: &Arguments<'_>,
    position: usize,
    default: f64,
) -> Result<f64, Reported> {
    let Some((value, span)) = given.values.get(position).copied() else { return Ok(default) };
    match (value, value.to_f64()) {
        (Value::Number(_), Some(number)) => Ok(number),
        _ => evaluator.fail(value.is_not(span, "a number")),
    }
}

fn unary(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>, function: Unary) -> Made {
    let x = given.numbers(evaluator, 0)?;
    Ok(elementwise(evaluator, function, x))
}

/// A function of numbers, and of tensors.
fn of_number_or_tensor(
    evaluator: &mut Evaluator<'_>,
    given: &Arguments<'_>,
    function: Unary,
    of_number: fn(f64) -> f64,
) -> Made {
    let (value, span) = given.values[0];
    if let Value::Tensor(_) = value {
        return unary(evaluator, given, function);
    }
    let Some(number) = value.to_f64() else { return evaluator.fail(value.is_not(span, "a number")) };
    let result = of_number(number);
    if result.is_finite() {
        return Ok(Value::Number(Number::Decimal(result)));
    }
    let message = match function {
        Unary::Sqrt => format!("{number} is negative: it has no square root"),
        Unary::Log => format!("{number} has no logarithm"),
        _ => format!("`{}({number})` is too large for a number", function.word()),
    };
    evaluator.fail(no_result(given.span, message))
}

/// A function of one tensor that others compose.
fn composition(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>, compose: fn(&mut Tape, NodeId) -> NodeId) -> Made {
    let x = given.numbers(evaluator, 0)?;
    Ok(Value::Tensor(compose(evaluator.tape, x.node)))
}

fn where_(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let condition = given.numbers(evaluator, 0)?;
    let (a, b) = (given.numbers(evaluator, 1)?, given.numbers(evaluator, 2)?);
    fit(evaluator, "where", condition, a)?;
    fit(evaluator, "where", condition, b)?;
    fit(evaluator, "where", a, b)?;
    let chosen = composed::choose(evaluator.tape, condition.node, a.node, b.node);
    evaluator.made(chosen, given.span)
}

fn extreme(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>, largest: bool) -> Made {
    let (a, b) = (given.values[0], given.values[1]);
    if matches!(a.0, Value::Tensor(_)) || matches!(b.0, Value::Tensor(_)) {
        let (a, b) = (given.numbers(evaluator, 0)?, given.numbers(evaluator, 1)?);
        fit(evaluator, if largest { "max" } else { "min" }, a, b)?;
        let (above, below) = if largest { (a, b) } else { (b, a) };
        let difference = evaluator.tape.binary(Binary::Sub, above.node, below.node);
        let chosen = composed::choose(evaluator.tape, difference, a.node, b.node);
        return evaluator.made(chosen, given.span);
    }
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

/// A reduction along an axis; without an axis, over all elements to a tensor of shape `[]`.
fn reduced(
    evaluator: &mut Evaluator<'_>,
    given: &Arguments<'_>,
    reduce: impl Fn(&mut Tape, NodeId, usize) -> NodeId,
) -> Made {
    let x = given.numbers(evaluator, 0)?;
    if given.values.len() > 1 {
        let axis = given.axis(evaluator, 1, x)?;
        return Ok(Value::Tensor(reduce(evaluator.tape, x.node, axis)));
    }
    let elements = evaluator.tape.ty(x.node).elements();
    let row = evaluator.tape.reshape(x.node, &[elements]);
    let one = reduce(evaluator.tape, row, 0);
    Ok(Value::Tensor(evaluator.tape.reshape(one, &[])))
}

fn broadcast(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let x = given.numbers(evaluator, 0)?;
    let shape = sizes(evaluator, given, "broadcast")?;
    let ones = evaluator.tape.constant(1.0, &shape);
    if pipe_ir::graph::broadcast(evaluator.tape.shape(x.node), &shape).as_ref() != Some(&shape) {
        let message = format!("{} cannot be repeated to this shape", evaluator.tape.ty(x.node));
        let span = given.written[1].span;
        let diagnostic = Diagnostic::error(Code::ShapeMismatch, span, "this shape", message);
        let help = "shapes are compared from the right: a size that is repeated is 1 or missing";
        return evaluator.fail(x.label(evaluator.tape, diagnostic).help(help));
    }
    let repeated = evaluator.tape.binary(Binary::Mul, x.node, ones);
    evaluator.made(repeated, given.span)
}

/// The most positions that single precision tells apart.
pub(super) const MOST_POSITIONS: u64 = 1 << 24;

fn positions(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let n = evaluator.size(given.values[0])?;
    if n > MOST_POSITIONS && evaluator.tape.precision() == DType::F32 {
        let message = format!("{n} positions are more than single precision can tell apart");
        let error = Diagnostic::error(Code::OutOfRange, given.span, "these positions", message);
        return evaluator.fail(error.help(format!("it counts to {MOST_POSITIONS}; `precision f64` counts further")));
    }
    Ok(Value::Tensor(evaluator.tape.shaped(Op::Positions, &[], &[n])))
}

fn powers(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let base = number_or(evaluator, given, 0, 1.0)?;
    let n = evaluator.size(given.values[1])?;
    let last = evaluator.tape.precision().nearest(base.abs().powf(n.saturating_sub(1) as f64));
    if !last.is_finite() {
        let message = format!("{base} to the power of {} is too large", n - 1);
        let error = Diagnostic::error(Code::OutOfRange, given.span, "the last of these", message);
        return evaluator.fail(error.help(TOO_LARGE));
    }
    Ok(Value::Tensor(evaluator.tape.shaped(Op::Powers { base: Double(base) }, &[], &[n])))
}

/// Reports two tensors whose shapes do not broadcast.
fn fit(evaluator: &mut Evaluator<'_>, function: &str, a: Operand, b: Operand) -> Result<(), Reported> {
    match not_alike(evaluator, function, a, b) {
        Some(diagnostic) => evaluator.fail(diagnostic),
        None => Ok(()),
    }
}

/// The sizes that a function is given as its second argument.
pub(super) fn sizes(
    evaluator: &mut Evaluator<'_>,
    given: &Arguments<'_>,
    function: &str,
) -> Result<Vec<u64>, Reported> {
    let written = given.written[1];
    let ExprKind::List(sizes) = &written.kind else {
        let message = format!("`{function}` wants a list of sizes, such as `[rows, hidden]`");
        return evaluator.fail(Diagnostic::error(Code::WrongType, written.span, "this is no list", message));
    };
    evaluator.shape(sizes, written.span)
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
