//! Functions of several tensors that must fit each other: products, normalisation, tables, the loss.

use super::dropout;
use super::evaluator::{Evaluator, Reported};
use super::functions::{self, Arguments};
use super::value::{Operand, Value};
use crate::graph::composed;
use crate::graph::tape::{Leaf, Tape};
use pipe_ir::graph::{Binary, Node, Op, TensorType, Unary};
use pipe_ir::ids::NodeId;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::Span;

type Made = Result<Value, Reported>;

/// The error about two tensors that do not fit.
fn mismatch(tape: &Tape, a: Operand, b: Operand, message: String, help: &str) -> Diagnostic {
    b.label(tape, a.error(tape, Code::ShapeMismatch, message)).help(help)
}

/// a[.., m, k] · b[.., k, n], or b[k, n] for all of a.
pub(super) fn matmul(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let (a, b) = (given.numbers(evaluator, 0)?, given.numbers(evaluator, 1)?);
    let (left, right) = (evaluator.tape.shape(a.node).to_vec(), evaluator.tape.shape(b.node).to_vec());
    let fits = match (left.as_slice(), right.as_slice()) {
        ([rows @ .., _, inner], [other @ .., also_inner, _]) => {
            inner == also_inner && (other.is_empty() || rows == other)
        }
        _ => false,
    };
    if !fits {
        let message =
            format!("`matmul` cannot multiply {} by {}", evaluator.tape.ty(a.node), evaluator.tape.ty(b.node));
        let help = "the last size of the first must be the last but one of the second; sizes before them must be equal, \
                    or the second has none";
        let diagnostic = mismatch(evaluator.tape, a, b, message, help);
        return evaluator.fail(diagnostic);
    }
    let product = folded(evaluator.tape, a.node, b.node);
    evaluator.made(product, given.span)
}

/// Products of tensors whose last two axes were swapped read the tensors as they were.
fn folded(tape: &mut Tape, a: NodeId, b: NodeId) -> NodeId {
    let is_batched = tape.shape(a).len() == tape.shape(b).len();
    let (a, transpose_a) = unswapped(tape, a).filter(|_| is_batched).map_or((a, false), |source| (source, true));
    let (b, transpose_b) = unswapped(tape, b).map_or((b, false), |source| (source, true));
    tape.matmul(a, transpose_a, b, transpose_b)
}

/// The source of a transpose that swaps the last two axes.
pub(super) fn unswapped(tape: &Tape, id: NodeId) -> Option<NodeId> {
    let Node { op: Op::Transpose { permutation }, inputs, .. } = tape.node(id) else { return None };
    let rank = permutation.len();
    let mut swapped: Vec<u32> = (0..).take(rank).collect();
    swapped.swap(rank - 2, rank - 1);
    (*permutation == swapped).then(|| inputs[0])
}

/// The mean of (log sum e^logits[.., n])^2, times a weight.
pub(super) fn z_loss(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let logits = given.numbers(evaluator, 0)?;
    if evaluator.tape.shape(logits.node).is_empty() {
        let message = "`z_loss` needs rows of logits, and this is one number";
        return evaluator.fail(logits.error(evaluator.tape, Code::ShapeMismatch, message));
    }
    let weight = functions::number_or(evaluator, given, 1, 1.0)?;
    if weight < 0.0 {
        let message = format!("the weight of a `z_loss` is 0 or more, and this one is {weight}");
        let error = Diagnostic::error(Code::OutOfRange, given.values[1].1, "this weight", message);
        return evaluator.fail(error.help("a loss with a negative weight drives logits away from 0; 0 is none"));
    }
    let loss = composed::z_loss(evaluator.tape, logits.node);
    Ok(Value::Tensor(if weight == 1.0 { loss } else { evaluator.tape.scale(loss, weight) }))
}

/// softmax(q[.., m, w] · k[.., n, w]ᵀ) · v[.., n, w], without the scores as a whole.
pub(super) fn attention(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>, causal: bool) -> Made {
    let operands = [given.numbers(evaluator, 0)?, given.numbers(evaluator, 1)?, given.numbers(evaluator, 2)?];
    let [queries, keys, values] = operands;
    let help = "queries are [.., heads, m, w], keys and values [.., heads, n, w]; each head of keys is for one head of \
                queries, or for equally many; all sizes before are equal";
    let [q, k, v] = operands.map(|operand| evaluator.tape.shape(operand.node).to_vec());
    let message = match (q.as_slice(), k.as_slice()) {
        ([rows @ .., m, w], [other @ .., n, also_w]) if shared_heads(rows, other).is_some() && w == also_w => {
            if causal && n < m {
                Some((
                    queries,
                    keys,
                    format!("`causal_attention` needs a key for each of the {m} queries, but there are {n}"),
                ))
            } else if k != v {
                let (left, right) = (evaluator.tape.ty(keys.node), evaluator.tape.ty(values.node));
                Some((keys, values, format!("keys {left} and values {right} must have the same shape")))
            } else {
                None
            }
        }
        _ => {
            let (left, right) = (evaluator.tape.ty(queries.node), evaluator.tape.ty(keys.node));
            Some((queries, keys, format!("queries {left} do not fit keys {right}")))
        }
    };
    if let Some((one, other, message)) = message {
        let diagnostic = mismatch(evaluator.tape, one, other, message, help);
        return evaluator.fail(diagnostic);
    }
    let [queries, keys, values] = operands.map(|operand| operand.node);
    let ([leading @ .., rows, width], [of_keys @ .., columns, _]) = (q.as_slice(), k.as_slice()) else {
        unreachable!("their shapes were just compared");
    };
    let sharing = shared_heads(leading, of_keys).unwrap_or(1);
    let (window, starts) = (window(evaluator, given, *columns)?, starts(evaluator, given, operands[0])?);
    if let Some(rate) = dropout::rate_of(evaluator, given, 5)? {
        if window.is_some() || starts.is_some() {
            let message = format!(
                "scores of attention with {} cannot be dropped, and the rate of dropout is {rate}",
                if starts.is_some() { "documents" } else { "a window" }
            );
            let error = Diagnostic::error(Code::OutOfRange, given.values[5].1, "this rate", message);
            return evaluator.fail(error.help("set the rate to 0, and drop what the attention gives"));
        }
        let shapes = (&*grouped(of_keys, sharing, *rows, *width), &*grouped(of_keys, 1, *columns, *width));
        let operands = [queries, keys, values];
        let result = dropped_attention(evaluator, (operands, causal), shapes, (rate, given.span));
        let result = if sharing == 1 { result } else { evaluator.tape.reshape(result, &q) };
        return evaluator.made(result, given.span);
    }
    let op = Op::Attention { causal, window };
    if sharing == 1 {
        let starts = starts.map(|starts| with_ones(evaluator.tape, starts, leading.len()));
        let inputs: Vec<NodeId> = [queries, keys, values].into_iter().chain(starts).collect();
        let result = evaluator.tape.shaped(op, &inputs, &q);
        return evaluator.made(result, given.span);
    }
    // Heads of queries that share one of keys are an axis of their own, along which keys and values are repeated.
    let grouped = |heads: u64, rows: u64| [of_keys, &[heads, rows, *width]].concat();
    let queries = evaluator.tape.reshape(queries, &grouped(sharing, *rows));
    let [keys, values] = [keys, values].map(|tensor| evaluator.tape.reshape(tensor, &grouped(1, *columns)));
    let starts = starts.map(|starts| with_ones(evaluator.tape, starts, leading.len() + 1));
    let inputs: Vec<NodeId> = [queries, keys, values].into_iter().chain(starts).collect();
    let result = evaluator.tape.shaped(op, &inputs, &grouped(sharing, *rows));
    let result = evaluator.tape.reshape(result, &q);
    evaluator.made(result, given.span)
}

/// Sizes of a tensor whose heads are grouped by the head of keys that they share.
fn grouped(of_keys: &[u64], heads: u64, rows: u64, width: u64) -> Vec<u64> {
    match heads {
        1 => [of_keys, &[rows, width]].concat(),
        _ => [of_keys, &[heads, rows, width]].concat(),
    }
}

/// Attention whose scores lie in memory, because a part of them is dropped.
fn dropped_attention(
    evaluator: &mut Evaluator<'_>,
    ([queries, keys, values], causal): ([NodeId; 3], bool),
    (of_queries, of_keys): (&[u64], &[u64]),
    (rate, span): (f64, Span),
) -> NodeId {
    let tape = &mut *evaluator.tape;
    let is_shared = of_queries.len() > of_keys.len();
    let (queries, keys, values) = if is_shared {
        // Each head of queries has keys and values of its own.
        let (columns, width) = (of_keys[of_keys.len() - 2], of_keys[of_keys.len() - 1]);
        let (before, heads) = (&of_keys[..of_keys.len() - 2], of_queries[of_queries.len() - 3]);
        let mut repeated = |tensor: NodeId| {
            let one = tape.reshape(tensor, &[before, &[1, columns, width]].concat());
            let ones = tape.constant(1.0, &[before, &[heads, columns, width]].concat());
            tape.binary(Binary::Mul, one, ones)
        };
        let (keys, values) = (repeated(keys), repeated(values));
        (tape.reshape(queries, of_queries), keys, values)
    } else {
        (queries, keys, values)
    };
    let scores = tape.matmul(queries, false, keys, true);
    let shape = tape.shape(scores).to_vec();
    let shares = tape.shaped(Op::Softmax { causal }, &[scores], &shape);
    let (key, nth) = evaluator.keys.next(evaluator.tape, span);
    let kept = composed::dropout(evaluator.tape, shares, key, nth, rate);
    evaluator.tape.matmul(kept, false, values, false)
}

/// The window of an attention, if one is given that hides any of these columns.
fn window(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>, columns: u64) -> Result<Option<u64>, Reported> {
    let Some((value, span)) = given.values.get(3).copied() else { return Ok(None) };
    let window = evaluator.integer((value, span))?;
    match u64::try_from(window) {
        // One that is as long as there are keys hides nothing.
        Ok(window) => Ok((window > 0 && window < columns).then_some(window)),
        Err(_) => {
            let message = format!("a window of {window} positions: it must be positive, or 0 for none");
            evaluator.fail(Diagnostic::error(Code::OutOfRange, span, "this number", message))
        }
    }
}

/// The first positions that queries may look at, `i32[.., m]` without an axis of heads, if they are given.
fn starts(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>, queries: Operand) -> Result<Option<NodeId>, Reported> {
    // 0 is none, where a rate of dropout follows.
    if given.values.get(4).is_none_or(|(value, _)| value.as_whole() == Some(0)) {
        return Ok(None);
    }
    let starts = given.indices(evaluator, 4)?;
    let shape = evaluator.tape.shape(queries.node).to_vec();
    let wanted = match shape.as_slice() {
        [leading @ .., _heads, rows, _] => [leading, &[*rows]].concat(),
        [rows, ..] => vec![*rows],
        [] => Vec::new(),
    };
    if evaluator.tape.shape(starts.node) == wanted {
        return Ok(Some(starts.node));
    }
    let (left, right) = (evaluator.tape.ty(starts.node), evaluator.tape.ty(queries.node));
    let message = format!("starts {left} do not fit queries {right}");
    let help = "there is one for each position: queries are [.., heads, m, w], starts `i32[.., m]`";
    let diagnostic = mismatch(evaluator.tape, queries, starts, message, help);
    evaluator.fail(diagnostic)
}

/// Starts with an axis of size 1 for each axis of heads, so that they have as many axes before the last as this.
fn with_ones(tape: &mut Tape, starts: NodeId, leading: usize) -> NodeId {
    let TensorType { dtype, mut shape } = tape.ty(starts).clone();
    let rows = shape.pop().unwrap_or(1);
    shape.resize(leading, 1);
    shape.push(rows);
    tape.push(Op::Reshape, vec![starts], TensorType { dtype, shape })
}

/// How many heads of queries share each head of keys, where these are the sizes before the last two axes.
fn shared_heads(queries: &[u64], keys: &[u64]) -> Option<u64> {
    match (queries, keys) {
        _ if queries == keys => Some(1),
        ([before @ .., heads], [also @ .., of_keys]) if before == also && heads.is_multiple_of(*of_keys) => {
            Some(heads / of_keys)
        }
        _ => None,
    }
}

/// Layer normalisation over the last axis.
pub(super) fn layer_norm(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    normalize(evaluator, given, "layer_norm", true)
}

/// The same by the root mean square (arXiv 1910.07467).
pub(super) fn rms_norm(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    normalize(evaluator, given, "rms_norm", false)
}

/// What is added to a variance unless a layer says otherwise.
const EPSILON: f64 = 1e-5;

fn normalize(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>, name: &str, biased: bool) -> Made {
    let x = given.numbers(evaluator, 0)?;
    let gain = given.numbers(evaluator, 1)?;
    let bias = if biased { Some(given.numbers(evaluator, 2)?) } else { None };
    let position = if biased { 3 } else { 2 };
    let epsilon = functions::number_or(evaluator, given, position, EPSILON)?;
    if epsilon < 0.0 {
        let (_, span) = given.values[position];
        let message = format!("`epsilon` is {epsilon}; it is added to a variance, and cannot be negative");
        return evaluator.fail(Diagnostic::error(Code::OutOfRange, span, "this number", message));
    }
    let Some(width) = evaluator.tape.shape(x.node).last().copied() else {
        let message = format!("`{name}` works along the last axis, but this tensor has none");
        return evaluator.fail(x.error(evaluator.tape, Code::ShapeMismatch, message));
    };
    for part in [Some(gain), bias].into_iter().flatten() {
        if evaluator.tape.shape(part.node) != [width] {
            let what = if biased { "gain and bias" } else { "the gain" };
            let message = format!("{what} of `{name}` must have the shape [{width}] of the last axis");
            let help = if biased {
                "declare it as `weight gain: [hidden] = ones` or `weight bias: [hidden] = zeros`"
            } else {
                "declare it as `weight gain: [hidden] = ones`"
            };
            let diagnostic = mismatch(evaluator.tape, part, x, message, help);
            return evaluator.fail(diagnostic);
        }
    }
    let bias = bias.map(|bias| bias.node);
    Ok(Value::Tensor(evaluator.tape.normalize(x.node, gain.node, bias, epsilon)))
}

/// Pairs of each row, turned by angles.
pub(super) fn rotary(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let (x, angles) = (given.numbers(evaluator, 0)?, given.numbers(evaluator, 1)?);
    let fits = match (evaluator.tape.shape(x.node), evaluator.tape.shape(angles.node)) {
        ([.., rows, width], [positions, half]) => rows == positions && *width == 2 * half,
        _ => false,
    };
    if !fits {
        let (left, right) = (evaluator.tape.ty(x.node), evaluator.tape.ty(angles.node));
        let message = format!("`rotary` cannot turn {left} by {right}");
        let help = "there is an angle for each position and each pair: `x[.., m, n]`, `angles[m, n / 2]`";
        let diagnostic = mismatch(evaluator.tape, x, angles, message, help);
        return evaluator.fail(diagnostic);
    }
    let turned = composed::rotary(evaluator.tape, x.node, angles.node);
    evaluator.made(turned, given.span)
}

/// Rows of a table.
pub(super) fn gather(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let table = given.numbers(evaluator, 0)?;
    let indices = given.indices(evaluator, 1)?;
    if evaluator.tape.shape(table.node).len() != 2 {
        let message = "`gather` takes rows of a table, which has two axes";
        return evaluator.fail(table.error(evaluator.tape, Code::ShapeMismatch, message));
    }
    let rows = evaluator.tape.gather(table.node, indices.node);
    evaluator.made(rows, given.span)
}

/// The mean loss of predictions. No gradient flows into weights.
pub(super) fn cross_entropy(evaluator: &mut Evaluator<'_>, given: &Arguments<'_>) -> Made {
    let logits = given.numbers(evaluator, 0)?;
    let targets = given.indices(evaluator, 1)?;
    let shape = evaluator.tape.shape(logits.node).to_vec();
    if shape.split_last().map(|(_, rows)| rows) != Some(evaluator.tape.shape(targets.node)) {
        let (left, right) = (evaluator.tape.ty(logits.node), evaluator.tape.ty(targets.node));
        let message = format!("`cross_entropy` cannot compare {left} with {right}");
        let help = "the targets have the shape of the logits without the last axis";
        let diagnostic = mismatch(evaluator.tape, logits, targets, message, help);
        return evaluator.fail(diagnostic);
    }
    let mut inputs = vec![logits.node, targets.node];
    if given.values.len() > 2 {
        let weights = given.numbers(evaluator, 2)?;
        if evaluator.tape.shape(weights.node) != evaluator.tape.shape(targets.node) {
            let (left, right) = (evaluator.tape.ty(targets.node), evaluator.tape.ty(weights.node));
            let message = format!("`cross_entropy` cannot weigh {left} with {right}");
            let diagnostic =
                mismatch(evaluator.tape, targets, weights, message, "there is a weight for each of the targets");
            return evaluator.fail(diagnostic);
        }
        let is_data = matches!(evaluator.tape.leaf_of(weights.node), Some(Leaf::Data(_)));
        inputs.push(if is_data { weights.node } else { evaluator.tape.unary(Unary::Detach, weights.node) });
    }
    Ok(Value::Tensor(evaluator.tape.shaped(Op::CrossEntropy, &inputs, &[])))
}
