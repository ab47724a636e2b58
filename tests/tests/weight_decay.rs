//! `weight_decay matrices`: what decays after a step, under every layout, by a plain computation.

use pipe_ir::value::ValueKind;
use pipe_tests::pipelines::verified;
use pipe_tests::training::{Bits, bits, start, steps};

/// A small model whose matrices have gains and biases as neighbours.
fn text(devices: u32, lines: &str, training: &str) -> String {
    format!(
        "layer words(vocab, n) {{
            data tokens: i32[8, 6]
            weight table: [vocab, n] = normal(1)
            output gather(table, tokens)
        }}
        layer block(n) {{
            input x
            weight gain: [n] = ones
            weight bias: [n] = normal(0.3)
            weight up: [n, n] = normal(0.3)
            weight up_bias: [n] = normal(0.3)
            weight down: [n, n] = normal(0.3)
            output x + matmul(gelu(matmul(x * gain + bias, up) + up_bias), down)
        }}
        layer guess(n, vocab) {{
            input x
            data targets: i32[8, 6]
            weight gain: [n] = ones
            weight matrix: [n, vocab] = normal(0.3)
            loss cross_entropy(matmul(x * gain, matrix), targets)
        }}
        model small {{
            words(17, 16)
            repeat 6 {{ block(16) }}
            guess(16, 17)
        }}
        pipeline test {{
            model small
            precision f64
            devices {devices} memory 4MiB
            microbatches 6
            {lines}
            train {{ data synthetic steps 4 {training} }}
        }}"
    )
}

/// The weights before and after the first step.
fn first_step(text: &str) -> [Vec<Bits>; 2] {
    let mut run = start(&verified(text), Some(3));
    let before = bits(&run, ValueKind::Parameters);
    steps(&mut run, 0..1);
    [before, bits(&run, ValueKind::Parameters)]
}

const LAYOUTS: [(u32, &str); 7] = [
    (1, "schedule gpipe"),
    (2, "schedule 1f1b"),
    (4, "schedule zb_h1"),
    (2, "schedule interleaved_1f1b(chunks = 2)"),
    (4, "schedule zb_h1 offload parameters, optimizer"),
    (4, "schedule dp_1f1b(replicas = 2) zero 1"),
    (4, "schedule dp_1f1b(replicas = 2) zero 2"),
];

#[test]
fn matrices_lose_their_share_and_gains_and_biases_nothing() {
    for optimizer in ["adamw(", "lion(", "sgd(momentum = 0.5, "] {
        for (devices, lines) in LAYOUTS {
            let line = |decay| format!("optimizer {optimizer}learning_rate = 0.125, weight_decay = {decay})");
            let [before, some] = first_step(&text(devices, lines, &format!("{} weight_decay matrices", line("0.25"))));
            let [same, none] = first_step(&text(devices, lines, &line("0")));
            assert!(before == same, "{lines}");
            let mut n_matrices = 0;
            for (((name, before), (_, some)), (_, none)) in before.iter().zip(&some).zip(&none) {
                let is_matrix = ["table", "up", "down", "matrix"].iter().any(|end| name.ends_with(&format!(".{end}")));
                n_matrices += usize::from(is_matrix);
                let decay = if is_matrix { 0.125 * 0.25 } else { 0.0 };
                for ((before, some), none) in before.iter().zip(some).zip(none) {
                    let [before, some, none] = [before, some, none].map(|bits| f64::from_bits(*bits));
                    let expected = none - decay * before;
                    let close = if is_matrix { 1e-12 } else { 0.0 };
                    assert!(
                        (some - expected).abs() <= close,
                        "{name}: {some}, not {expected} `{optimizer}..)`, {lines}"
                    );
                }
            }
            assert_eq!((n_matrices, before.len()), (14, 33), "{lines}");
        }
    }
}

#[test]
fn all_weights_decay_without_the_line() {
    let line = "optimizer sgd(learning_rate = 0.125, weight_decay = 0.25)";
    let [_, all] = first_step(&text(2, "schedule 1f1b", line));
    let [_, some] = first_step(&text(2, "schedule 1f1b", &format!("{line} weight_decay matrices")));
    let differ = all.iter().zip(&some).filter(|(one, other)| one != other);
    assert_eq!(differ.count(), 19, "gains and biases");
}
