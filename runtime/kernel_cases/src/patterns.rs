//! Patterns of real models: how many kernels they become, and that nothing is copied.

use super::Case;
use pipe_ir::graph::{Binary, DType, Op, Unary};
use pipe_ir::ids::NodeId;

cases! {
    a_perceptron_is_two_products_and_two_fused_kernels,
    attention_copies_nothing,
    a_group_that_would_wait_for_itself_is_not_fused,
    an_operand_that_is_read_and_stored_is_stored_last,
    one_tensor_may_be_stored_twice_and_added_once,
    constants_can_be_stored_and_multiplied,
    equal_graphs_give_equal_plans,
}

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
fn gelu(case: &mut Case, x: NodeId) -> NodeId {
    let constants = [0.044_715, 0.797_884_6, 1.0, 0.5].map(|number| case.constant(number));
    let square = case.binary(Binary::Mul, x, x);
    let cube = case.binary(Binary::Mul, square, x);
    let scaled = case.binary(Binary::Mul, cube, constants[0]);
    let sum = case.binary(Binary::Add, x, scaled);
    let inner = case.binary(Binary::Mul, sum, constants[1]);
    let tanh = case.unary(Unary::Tanh, inner);
    let gate = case.binary(Binary::Add, tanh, constants[2]);
    let half = case.binary(Binary::Mul, x, constants[3]);
    case.binary(Binary::Mul, half, gate)
}

fn a_perceptron_is_two_products_and_two_fused_kernels() {
    let mut case = Case::new("perceptron");
    let (x, w1, b1) = (case.input(&[2, 9, 8]), case.input(&[8, 32]), case.input(&[32]));
    let (w2, b2) = (case.input(&[32, 8]), case.input(&[8]));
    let up = case.matmul(x, w1, false, false, &[2, 9, 32]);
    let up = case.binary(Binary::Add, up, b1);
    let active = gelu(&mut case, up);
    let down = case.matmul(active, w2, false, false, &[2, 9, 8]);
    let down = case.binary(Binary::Add, down, b2);
    let y = case.binary(Binary::Add, down, x);
    case.store(up);
    case.store(y);
    case.check();
    assert_eq!((case.count("gemm"), case.count("elementwise"), case.plan().kernels.len()), (2, 2, 4));
}

/// Causal attention with 4 heads of 8 out of one product, forwards and backwards.
fn attention(case: &mut Case, batch: u64, length: u64) {
    let (heads, width, model) = (4, 8, 32);
    let (x, weights, dy) =
        (case.input(&[batch, length, model]), case.input(&[model, 96]), case.input(&[batch, length, model]));
    let qkv = case.matmul(x, weights, false, false, &[batch, length, 96]);
    let heads_of = |case: &mut Case, x: NodeId| {
        let split = case.reshape(x, &[batch, length, heads, width]);
        case.transpose(split, &[0, 2, 1, 3])
    };
    let [q, k, v] = [0, 32, 64].map(|start| {
        let part = case.slice(qkv, 2, start, model);
        heads_of(case, part)
    });
    let square = [batch, heads, length, length];
    let scores = case.matmul(q, k, false, true, &square);
    let scale = case.constant(0.353_553_4);
    let scores = case.binary(Binary::Mul, scores, scale);
    let p = case.push(Op::Softmax { causal: true }, &[scores], &square);
    let mixed = case.matmul(p, v, false, false, &[batch, heads, length, width]);
    let back = case.transpose(mixed, &[0, 2, 1, 3]);
    let y = case.reshape(back, &[batch, length, model]);
    let dmixed = heads_of(case, dy);
    let dp = case.matmul(dmixed, v, false, true, &square);
    let dv = case.matmul(p, dmixed, true, false, &[batch, heads, length, width]);
    let ds = case.push(Op::SoftmaxGrad, &[p, dp], &square);
    let ds = case.binary(Binary::Mul, ds, scale);
    let dq = case.matmul(ds, k, false, false, &[batch, heads, length, width]);
    let dk = case.matmul(ds, q, true, false, &[batch, heads, length, width]);
    let parts = [dq, dk, dv].map(|d| {
        let back = case.transpose(d, &[0, 2, 1, 3]);
        case.reshape(back, &[batch, length, model])
    });
    let dqkv = case.push(Op::Concat { axis: 2 }, &parts, &[batch, length, 96]);
    let dweights = case.matmul(x, dqkv, true, false, &[model, 96]);
    let dbias = case.reshape(dqkv, &[batch * length, 96]);
    let dbias = case.push(Op::Sum { axis: 0 }, &[dbias], &[1, 96]);
    let dbias = case.reshape(dbias, &[96]);
    case.store(y);
    case.accumulate(dweights);
    case.accumulate(dbias);
}

fn attention_copies_nothing() {
    for (batch, length) in [(1, 1), (2, 5), (3, 18)] {
        let mut case = Case::new("attention");
        attention(&mut case, batch, length);
        case.check();
    }
    let mut case = Case::new("attention");
    attention(&mut case, 2, 5);
    let kernels = case.plan().kernels;
    assert_eq!((case.count("copy"), case.count("gemm"), kernels.len()), (0, 8, 13), "{kernels:#?}");
    let mut case = Case::new("kernels of attention");
    let (qkv, dy) = (case.input(&[2, 5, 96]), case.input(&[2, 5, 32]));
    attention_of_heads(&mut case, qkv, dy);
    assert_eq!(case.plan().kernels.len(), 2);
}

/// The same by kernels of attention, of 2 times 5 queries, stored as its inputs are.
pub(super) fn attention_of_heads(case: &mut Case, qkv: NodeId, dy: NodeId) {
    let heads_of = |case: &mut Case, x: NodeId| {
        let split = case.reshape(x, &[2, 5, 4, 8]);
        case.transpose(split, &[0, 2, 1, 3])
    };
    let beside = |case: &mut Case, x: NodeId| {
        let back = case.transpose(x, &[0, 2, 1, 3]);
        case.reshape(back, &[2, 5, 32])
    };
    let [q, k, v] = [0, 32, 64].map(|start| {
        let part = case.slice(qkv, 2, start, 32);
        heads_of(case, part)
    });
    let dy = heads_of(case, dy);
    let y = case.push(Op::Attention { causal: true, window: None }, &[q, k, v], &[2, 4, 5, 8]);
    let gradients = case.push(Op::AttentionGrad { causal: true, window: None }, &[q, k, v, dy], &[2, 4, 15, 8]);
    let stored = case.graph.node(qkv).ty.dtype;
    let [y, gradients] = [y, gradients].map(|x| if stored == DType::F32 { x } else { case.converted(x, stored) });
    let y = beside(case, y);
    let parts = [0, 5, 10].map(|start| {
        let part = case.slice(gradients, 2, start, 5);
        beside(case, part)
    });
    let joined = case.push(Op::Concat { axis: 2 }, &parts, &[2, 5, 96]);
    case.store(y);
    case.store(joined);
    case.check();
}

fn a_group_that_would_wait_for_itself_is_not_fused() {
    let mut case = Case::new("around");
    let (x, w) = (case.input(&[4, 4]), case.input(&[4, 4]));
    let a = case.unary(Unary::Exp, x);
    let b = case.matmul(a, w, false, false, &[4, 4]);
    let c = case.binary(Binary::Add, a, b);
    let d = case.unary(Unary::Tanh, a);
    let e = case.binary(Binary::Mul, c, d);
    case.store(e);
    case.check();
    assert_eq!((case.count("gemm"), case.count("elementwise")), (1, 2));
}

fn an_operand_that_is_read_and_stored_is_stored_last() {
    let mut case = Case::new("swap");
    let x = case.input(&[6]);
    let y = case.unary(Unary::Exp, x);
    let z = case.unary(Unary::Tanh, x);
    case.store(z);
    case.store_to(y, 0, false);
    case.check();
}

fn one_tensor_may_be_stored_twice_and_added_once() {
    let mut case = Case::new("stores");
    let (x, w) = (case.input(&[3, 4]), case.input(&[4, 5]));
    let y = case.matmul(x, w, false, false, &[3, 5]);
    case.store(y);
    case.store(y);
    case.accumulate(y);
    case.store(x);
    case.check();
}

fn constants_can_be_stored_and_multiplied() {
    let mut case = Case::new("constants");
    let ones = case.push(Op::Constant(1.5), &[], &[4, 5]);
    let w = case.input(&[5, 3]);
    let y = case.matmul(ones, w, false, false, &[4, 3]);
    case.store(ones);
    case.store(y);
    case.check();
}

fn equal_graphs_give_equal_plans() {
    let mut case = Case::new("attention");
    attention(&mut case, 2, 7);
    assert_eq!(case.plan(), case.plan());
}
