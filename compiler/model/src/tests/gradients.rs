//! Gradients against finite differences: every function on its own, through weights and through activations, and a
//! whole GPT.

use super::{FUSED, GPT, SPLIT, Step, compile, noise, sound, step};
use crate::Model;

/// Weights that keep logarithms, roots and quotients well away from their poles.
fn positive(name: &str, position: usize) -> f64 {
    1.5 + 0.5 * noise(name, position)
}

/// Compares with central differences of the loss, one for each of some elements of every weight.
pub(super) fn check(model: &Model, n_stages: usize, weight: fn(&str, usize) -> f64) {
    let set = compile(model, n_stages, &FUSED, 1);
    let found = step(&set, 1, &weight);
    assert_eq!(found, step(&compile(model, n_stages, &SPLIT, 1), 1, &weight), "split and fused agree");
    let loss_with = |name: &str, position: usize, by: f64| {
        let moved = |other: &str, at: usize| weight(other, at) + if other == name && at == position { by } else { 0.0 };
        step(&set, 1, &moved).losses[0]
    };
    let Step { gradients, .. } = found;
    assert!(!gradients.is_empty());
    for (name, gradient) in gradients {
        let stride = gradient.len().div_ceil(7);
        for (position, derived) in gradient.into_iter().enumerate().step_by(stride) {
            let h = 1e-5;
            let measured = (loss_with(&name, position, h) - loss_with(&name, position, -h)) / (2.0 * h);
            let difference = (measured - derived).abs();
            assert!(difference < 1e-6 * (1.0 + measured.abs()), "{name}[{position}]: {derived}, measured {measured}");
        }
    }
}

/// A model of three layers: two tensors that depend on weights flow as one, an expression of both (`a`: [2, 3, 4] and
/// `b`: [4, 3]) is taken, and its squares with random signs are added up.
fn around(expression: &str, shape: &str) -> String {
    format!(
        "layer start() {{
            data tokens: i32[6]
            weight first: [5, 6] = normal(1)
            output gather(first, tokens)
        }}
        layer middle() {{
            input x
            data tokens: i32[6]
            data indices: i32[2, 3]
            weight scale: [6] = ones
            weight gain: [4] = ones
            weight bias: [4] = zeros
            weight table: [5, 4] = normal(1)
            let y = x * scale
            let a = reshape(slice(y, 1, 0, 4), [2, 3, 4]) * gain + gather(table, indices) * bias
            let b = transpose(slice(reshape(y, [3, 12]), 1, 1, 4), 1, 0)
            let c = slice(y, 0, 2, 1) + slice(scale, 0, 0, 6)
            let result = {expression}
            output reshape(result, [{shape}]) + sum(sum(c, 0), 1) + reshape(sum(sum(sum(a, 0), 1), 2), [1, 1]) * 0.1 + sum(sum(b, 0), 1) * 0.1
                 + sum(sum(reshape(gather(table, tokens), [6, 4]), 0), 1)
        }}
        layer finish() {{
            input x
            weight signs: [{shape}] = ones
            loss reshape(sum(reshape(x * x * signs * 0.01, [size(x, 0) * size(x, 1)]), 0), [])
        }}
        model m() {{ start() middle() finish() }}"
    )
}

#[test]
fn every_function_has_the_derivative_that_differences_measure() {
    let cases = [
        ("a + gain", "6, 4"),
        ("a - transpose(b, 1, 0)", "6, 4"),
        ("a * sum(a, 2)", "6, 4"),
        ("a / (gain + 1)", "6, 4"),
        ("1 / a", "6, 4"),
        ("-a", "6, 4"),
        ("exp(a * 0.1)", "6, 4"),
        ("log(a)", "6, 4"),
        ("tanh(a)", "6, 4"),
        ("sqrt(a)", "6, 4"),
        ("relu(a - 5)", "6, 4"),
        ("gelu(a - 3)", "6, 4"),
        ("sum(a, 1)", "2, 4"),
        ("mean(a, -1)", "6, 1"),
        ("transpose(a, 2, 0, 1)", "8, 3"),
        ("slice(a, 1, 1, 2) * slice(a, 1, 0, 2)", "4, 4"),
        ("concat(1, a, slice(a, 1, 0, 1))", "8, 4"),
        ("softmax(a)", "6, 4"),
        ("causal_softmax(a)", "6, 4"),
        ("causal_softmax(transpose(a, 0, 2, 1))", "8, 3"),
        ("attention(a * 0.3, a * 0.2, a - gain)", "6, 4"),
        ("attention(a * 0.1, slice(a, 1, 1, 2), slice(a, 1, 0, 2))", "6, 4"),
        ("causal_attention(a * 0.3, a, a * bias)", "6, 4"),
        ("causal_attention(slice(a, 1, 1, 2), a * 0.2, a)", "4, 4"),
        ("causal_attention(transpose(a, 0, 2, 1), transpose(a * gain, 0, 2, 1) * 0.1, transpose(a, 0, 2, 1))", "8, 3"),
        ("layer_norm(a, gain, bias)", "6, 4"),
        ("matmul(a, b)", "6, 3"),
        ("matmul(a, transpose(transpose(b, 1, 0) * 1, 1, 0))", "6, 3"),
        ("matmul(a, transpose(a, 0, 2, 1))", "6, 3"),
        ("matmul(transpose(a, 0, 2, 1), a)", "8, 4"),
        ("matmul(transpose(a, 0, 2, 1), transpose(transpose(matmul(a, b), 0, 2, 1), 0, 2, 1))", "8, 3"),
        ("matmul(transpose(matmul(a, b), 0, 2, 1), transpose(transpose(a, 0, 2, 1) * 1, 0, 2, 1))", "6, 4"),
        ("matmul(transpose(a, 0, 2, 1), transpose(transpose(a, 0, 2, 1), 0, 2, 1))", "8, 4"),
        ("matmul(a, transpose(table, 1, 0))", "6, 5"),
        ("gather(table, tokens)", "6, 4"),
        ("sin(a)", "6, 4"),
        ("split(a, 0) * a", "6, 4"),
        ("cos(a * 2)", "6, 4"),
        ("sigmoid(a - 2)", "6, 4"),
        ("silu(a - 2)", "6, 4"),
        ("where(a > gain * 2, a * a, gain)", "6, 4"),
        ("where(a <= 2, a, bias)", "6, 4"),
        ("max(a, gain * 2) - min(a, 2 * bias)", "6, 4"),
        ("a * (a >= 3) + a * (a == a) - (a < bias) - (a != a)", "6, 4"),
        ("a * (log(-a) == log(-a)) + a * (a >= log(-a)) + a * (log(-a) != a)", "6, 4"),
        ("broadcast(gain, [6, 4]) * broadcast(sum(a), [6, 1])", "6, 4"),
        ("mean(a) * gain", "1, 4"),
        ("amax(a, -1) + amax(a, 0)", "6, 4"),
        ("amax(a) * gain", "1, 4"),
        ("a * positions(4) * powers(0.5, 4)", "6, 4"),
        ("layer_norm(a, gain, bias, 0.1)", "6, 4"),
        ("rms_norm(a, gain)", "6, 4"),
        ("rms_norm(a * 0.1, bias, 0.5)", "6, 4"),
        ("rotary(a, reshape(positions(6), [3, 2]) * 0.7)", "6, 4"),
        ("rotary(a, reshape(positions(6), [3, 2]) * transpose(slice(b, 0, 0, 2), 1, 0))", "6, 4"),
        ("gain * z_loss(a)", "1, 4"),
        ("dropout(a, 0.3) * gain + dropout(a, 0.5)", "6, 4"),
        ("gain * z_loss(a * bias - 3) + z_loss(gain)", "1, 4"),
        ("reshape(conv2d(reshape(a, [2, 3, 4, 1]), reshape(table * 0.1, [2, 2, 1, 5])), [12, 5])", "12, 5"),
        ("reshape(conv2d(reshape(a, [1, 4, 3, 2]), reshape(b, [3, 2, 2, 1]), 2, 1), [2, 2])", "2, 2"),
        ("reshape(conv2d(reshape(a, [1, 2, 3, 4]), reshape(b, [1, 1, 4, 3])), [6, 3])", "6, 3"),
        ("reshape(max_pool(reshape(a, [1, 4, 3, 2]), 2), [2, 2]) * 2", "2, 2"),
        ("reshape(mean_pool(reshape(a * a, [2, 4, 3, 1]), 2), [4, 1])", "4, 1"),
        ("take_along(a, top_k(a, 2))", "6, 2"),
        ("add_along(top_k(a, 2), slice(a, 2, 1, 2), 5)", "6, 5"),
        ("scatter_add(indices, a * bias, 7)", "7, 4"),
        ("routed_matmul(a, reshape(table * 1, [5, 4, 1]) * gain, indices)", "6, 4"),
        ("routed_matmul(a, transpose(reshape(table, [5, 1, 4]) * 1, 0, 2, 1), indices)", "6, 1"),
        ("attention(concat(1, a, a * gain), a * 0.3, a * bias)", "12, 4"),
        ("causal_attention(concat(0, a, a * gain) * 0.2, slice(a, 0, 0, 1), slice(a, 0, 1, 1) * bias)", "12, 4"),
    ];
    for (expression, shape) in cases {
        println!("{expression}");
        let model = sound(&around(expression, shape), &[]);
        for n_stages in [1, 3] {
            check(&model, n_stages, positive);
        }
    }
}

#[test]
fn the_loss_has_the_derivative_that_differences_measure() {
    let text = "layer start() {
            data tokens: i32[2, 3]
            weight table: [5, 4] = normal(1)
            output gather(table, tokens)
        }
        layer finish() {
            input x
            data targets: i32[2, 3]
            weight up: [4, 5] = normal(1)
            loss cross_entropy(matmul(x, up), targets)
        }
        model m() { start() finish() }";
    for n_stages in [1, 2] {
        check(&sound(text, &[]), n_stages, noise);
    }
}

#[test]
fn a_whole_gpt_has_the_derivative_that_differences_measure() {
    let arguments = [("vocab", 5), ("hidden", 6), ("heads", 2), ("blocks", 2), ("sequence", 4), ("rows", 2)];
    for n_stages in [1, 4] {
        check(&sound(GPT, &arguments), n_stages, noise);
    }
}
