//! `frozen`: weights that stay as they are, to the last bit, and take neither gradients nor state; the others learn
//! what they would beside trained ones.

use pipe_ir::value::ValueKind;
use pipe_tests::pipelines::{program, verified};
use pipe_tests::training::{Bits, assert_peaks, bits, distance, learn, start, steps};

/// A small model with low-rank updates beside large products; `how` is what stands behind the large ones.
fn text(how: &str, devices: u32, lines: &str) -> String {
    format!(
        "schedule pipedream {{
            stages D place s on s
            weights newest
            block every 3 {{ F[s] at s BW[s] at D + 2 * (D - 1 - s) }}
        }}
        layer words(vocab, n) {{
            data tokens: i32[8, 6]
            weight table: [vocab, n] = normal(1)
            output gather(table, tokens)
        }}
        layer adapted(n, rank) {{
            input x
            weight base: [n, n] = normal(0.3) {how}
            weight a: [n, rank] = normal(0.3)
            weight b: [rank, n] = zeros
            output x + gelu(matmul(x, base) + matmul(matmul(x, a), b))
        }}
        layer guess(n, vocab) {{
            input x
            data targets: i32[8, 6]
            weight gain: [n] = ones
            weight matrix: [n, vocab] = normal(0.3)
            loss cross_entropy(matmul(x * gain, matrix), targets)
        }}
        model lora {{
            let first = words(17, 16) {how}
            repeat 6 {{ adapted(16, 2) }}
            guess(16, 17)
        }}
        pipeline test {{
            model lora
            precision f64
            devices {devices} memory 4MiB
            microbatches 6
            {lines}
            train {{
                data synthetic
                steps 4
                optimizer adamw(learning_rate = 0.01, weight_decay = 0.1)
            }}
        }}"
    )
}

/// Weights whose name ends like one of these.
fn named<'b>(all: &'b [Bits], ends: &[&str]) -> Vec<&'b Bits> {
    all.iter().filter(|(name, _)| ends.iter().any(|end| name.ends_with(end))).collect()
}

const FROZEN: [&str; 2] = ["table", "base"];
const TRAINED: [&str; 4] = [".a", ".b", "gain", "matrix"];

#[test]
fn frozen_weights_stay_to_the_last_bit_and_the_others_learn() {
    for (devices, lines) in [
        (1, "schedule gpipe"),
        (2, "schedule 1f1b"),
        (4, "schedule zb_h1"),
        (4, "schedule zb_h1 offload parameters, optimizer"),
        (2, "schedule v_half recompute all"),
        (2, "schedule interleaved_1f1b(chunks = 2)"),
        (4, "schedule dp_1f1b(replicas = 2) zero 2"),
        (4, "schedule pipedream"),
    ] {
        let text = text("frozen", devices, lines);
        let program = verified(&text);
        let mut run = start(&program, Some(3));
        let before = bits(&run, ValueKind::Parameters);
        let reports = steps(&mut run, 0..3);
        assert_peaks(program.program(), &reports);
        let after = bits(&run, ValueKind::Parameters);
        assert!(named(&before, &FROZEN) == named(&after, &FROZEN), "{lines}");
        for (one, other) in named(&before, &TRAINED).into_iter().zip(named(&after, &TRAINED)) {
            assert!(one != other, "{} learned nothing: {lines}", one.0);
        }
        assert_eq!(named(&after, &FROZEN).len(), 7);
        let values = program.program().values.iter();
        let gradients = values.filter(|value| value.kind == ValueKind::ParameterGradients);
        let mut names = gradients.flat_map(|value| &value.tensors).map(|tensor| tensor.name.as_str());
        assert!(!names.any(|name| FROZEN.iter().any(|end| name.ends_with(end))), "{lines}");
    }
}

#[test]
fn every_layout_learns_the_same() {
    let alone = learn(&verified(&text("frozen", 1, "schedule gpipe")), None);
    for (devices, lines) in
        [(2, "schedule 1f1b"), (4, "schedule zb_h1"), (2, "schedule zb_v"), (3, "schedule 1f1b cut [2, 5, 1]")]
    {
        assert!(learn(&verified(&text("frozen", devices, lines)), Some(5)) == alone, "{lines}");
    }
}

#[test]
fn gradients_are_those_beside_trained_weights() {
    let first = |how: &str| {
        let mut run = start(&verified(&text(how, 2, "schedule zb_h1")), None);
        steps(&mut run, 0..1);
        bits(&run, ValueKind::ParameterGradients)
    };
    let (all, some) = (first(""), first("frozen"));
    let same: Vec<Bits> = named(&all, &TRAINED).into_iter().cloned().collect();
    assert_eq!((all.len(), some.len()), (21, 14));
    // A sum of products is one product where it has one summand, so not all bits are the same.
    assert!(distance(&same, &some) < 1e-12);
}

#[test]
fn frozen_weights_take_no_gradients_and_no_state() {
    let bytes = |how: &str, kind: ValueKind| -> u64 {
        let program = verified(&text(how, 2, "schedule 1f1b"));
        program.program().values.iter().filter(|value| value.kind == kind).map(|value| value.bytes.0).sum()
    };
    let (a, b, rest) = (16 * 2, 2 * 16, 16 + 16 * 17);
    let trained = 8 * (6 * (a + b) + rest);
    let frozen = 8 * (17 * 16 + 6 * 16 * 16);
    let aligned = |bytes: u64| bytes.next_multiple_of(64);
    assert_eq!(bytes("frozen", ValueKind::ParameterGradients), trained);
    assert_eq!(bytes("frozen", ValueKind::OptimizerState), 2 * trained);
    assert_eq!(bytes("frozen", ValueKind::Parameters), trained + frozen);
    assert_eq!(bytes("", ValueKind::Parameters), aligned(trained + frozen));
    let peak = |how: &str| {
        let program = verified(&text(how, 2, "schedule 1f1b"));
        program.program().devices.iter().map(|device| device.peak.0).collect::<Vec<_>>()
    };
    // Each device holds less by at least the gradients and the state of what is frozen.
    for ((less, more), weights) in peak("frozen").into_iter().zip(peak("")).zip([17 * 16 + 3 * 256, 3 * 256]) {
        assert!(less + 3 * 8 * weights <= more, "{less} of {more}");
    }
}

/// Only the last layer of a model learns: the others have neither gradients nor anything kept for them.
#[test]
fn no_gradient_goes_where_nothing_learns() {
    let head_only = |devices: u32, lines: &str| {
        let text = text("frozen", devices, lines);
        text.replace("adapted(16, 2) }", "adapted(16, 2) frozen }")
    };
    let alone = learn(&verified(&head_only(1, "schedule gpipe")), None);
    for (devices, lines) in
        [(4, "schedule 1f1b"), (4, "schedule zb_h1"), (2, "schedule v_half recompute all"), (4, "schedule gpipe")]
    {
        let program = verified(&head_only(devices, lines));
        let of_kind = |kind: ValueKind| program.program().values.iter().filter(move |value| value.kind == kind);
        assert_eq!(of_kind(ValueKind::Gradient).count(), 0, "{lines}");
        let kept = [ValueKind::SavedForInput, ValueKind::SavedForWeight].into_iter().flat_map(of_kind);
        let last = program.program().n_stages - 1;
        assert!(kept.clone().count() > 0 && kept.clone().all(|value| value.stage.0 == last), "{lines}");
        assert!(learn(&program, Some(2)) == alone, "{lines}");
    }
}

#[test]
fn a_tied_weight_is_frozen_where_its_owner_is() {
    let tied = |how: &str| {
        let text = text(how, 2, "schedule 1f1b");
        let text = text.replace("weight matrix: [n, vocab]", "weight matrix: [vocab, n]");
        let text = text.replace("x * gain, matrix", "x * gain, transpose(matrix, 1, 0)");
        text.replace("guess(16, 17)\n", "guess(16, 17) with matrix = first.table\n")
    };
    let mut run = start(&verified(&tied("frozen")), None);
    let before = bits(&run, ValueKind::Parameters);
    steps(&mut run, 0..2);
    let after = bits(&run, ValueKind::Parameters);
    assert!(named(&before, &["table"]) == named(&after, &["table"]));
    assert!(named(&before, &["gain"]) != named(&after, &["gain"]));
    assert!(!named(&before, &["table"]).is_empty());
}

#[test]
fn a_model_that_is_all_frozen_trains_nothing() {
    let text = text("frozen", 2, "schedule 1f1b")
        .replace("= zeros", "= zeros frozen")
        .replace("rank] = normal(0.3)", "rank] = normal(0.3) frozen")
        .replace("guess(16, 17)\n", "guess(16, 17) frozen\n");
    let why = program(&text).expect_err("refused");
    assert!(why.contains("all 21 weights of `lora` are frozen, so there is nothing to train"), "{why}");
}
