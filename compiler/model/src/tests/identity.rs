//! Identities of models: what they compute counts, what a run may change does not.

use super::super::identity::digest;
use super::{GPT, sound};

const SIZES: [(&str, i64); 6] =
    [("vocab", 17), ("hidden", 16), ("heads", 2), ("blocks", 2), ("sequence", 5), ("rows", 2)];

fn gpt(changes: &[(&str, i64)]) -> String {
    let own = |(name, size): (&'static str, i64)| {
        (name, changes.iter().find(|(other, _)| *other == name).map_or(size, |(_, size)| *size))
    };
    digest(&sound(GPT, &SIZES.map(own))).to_string()
}

#[test]
fn models_differ_by_what_they_compute_and_not_by_their_batch() {
    // Written into every checkpoint: where it changes, so must the version in `identity.rs`.
    assert_eq!(gpt(&[]), "505a0f620ca59460");
    assert_eq!(gpt(&[]), gpt(&[("rows", 3)]));
    for change in [("vocab", 18), ("hidden", 32), ("heads", 4), ("blocks", 3)] {
        assert_ne!(gpt(&[]), gpt(&[change]), "{change:?}");
    }
}

/// A small model in which one part of the text is another.
fn small(from: &str, to: &str) -> String {
    let text = "
        layer start(rows) {
            data xs: f32[rows, 3]
            weight w: [3, 4] = normal(0.1)
            output matmul(xs, w)
        }
        layer middle() {
            input x
            weight w: [4, 4] = normal(0.1)
            let small = x * 0.5
            let bent  = tanh(matmul(small, w))
            output bent + x
        }
        layer finish(rows) {
            input x
            weight w: [4, 5] = normal(0.1)
            data targets: i32[rows]
            loss cross_entropy(matmul(x, w), targets)
        }
        model m(rows = 2) {
            start(rows)
            middle()
            middle()
            finish(rows)
        }";
    assert!(text.contains(from), "{from}");
    digest(&sound(&text.replacen(from, to, 1), &[])).to_string()
}

#[test]
fn models_of_the_same_weights_differ_by_their_operations_constants_and_wiring() {
    let own = small("rows = 2", "rows = 2");
    let others = [
        ("tanh(", "relu("),
        ("x * 0.5", "x * 0.25"),
        ("bent + x", "bent + small"),
        ("bent + x", "bent - x"),
        ("matmul(small, w)", "matmul(small, transpose(w, 1, 0))"),
        ("            middle()\n            middle()", "            middle()"),
    ];
    for (from, to) in others {
        assert_ne!(small(from, to), own, "{from} -> {to}");
    }
    let same = [
        ("rows = 2", "rows = 7"),
        ("normal(0.1)", "normal(0.3)"),
        ("let small = x * 0.5", "let unused = exp(x)\n            let small = x * 0.5"),
    ];
    for (from, to) in same {
        assert_eq!(small(from, to), own, "{from} -> {to}");
    }
}
