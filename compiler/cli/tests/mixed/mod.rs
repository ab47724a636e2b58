//! `precision bf16` on GPUs: what is learned beside the CPU device, with products of our own and of the library.

use crate::machine::Machine;
use crate::{assert_agree, check, losses, source};
use std::fs;

/// A transformer whose attention is written out.
fn mixed(line: &str) -> String {
    let layers = "
        layer mix(hidden) {
            input x
            weight gain: [hidden] = ones
            weight bias: [hidden] = zeros
            weight qkv: [hidden, 3 * hidden] = normal(0.2)
            weight out: [hidden, hidden] = normal(0.2)
            let joint = matmul(layer_norm(x, gain, bias), qkv)
            let scores = matmul(slice(joint, 2, 0, hidden), transpose(slice(joint, 2, hidden, hidden), 0, 2, 1))
            let mixed = matmul(causal_softmax(scores * 0.25), slice(joint, 2, 2 * hidden, hidden))
            output x + gelu(matmul(mixed, out))
        }
        model written(vocab = 17, hidden = 16, sequence = 5, rows = 2) {
            embedding(vocab, hidden, sequence, rows)
            repeat 2 { mix(hidden) }
            head(hidden, vocab, sequence, rows)
        }
        pipeline";
    let text = source("bf16", 2, 4, line);
    let called = "model gpt(vocab = 17, hidden = 16, heads = 2, blocks = 2, sequence = 5, rows = 2)";
    assert!(text.contains(called), "{text}");
    text.replace(called, "model written").replacen("pipeline", layers, 1)
}

/// Sums in another order are rounded to other halves now and then.
const TOLERANCE: f64 = 2e-3;

#[test]
fn schedules_learn_what_they_learn_on_the_cpu() {
    for (name, line) in [
        ("plain", "1f1b"),
        ("split", "zb_v"),
        ("again", "zb_h1 recompute all"),
        ("slices", "seq_1f1b(slices = 5)"),
        ("shares", "dp_1f1b(replicas = 2) zero 2"),
        ("offload", "1f1b offload activations"),
    ] {
        check(&format!("mixed-{name}"), &mixed(line), (4, TOLERANCE), &["2"]);
    }
    check("mixed-heads", &source("bf16", 2, 4, "zb_h1"), (20, TOLERANCE), &["1"]);
}

#[test]
fn the_same_bits_whatever_the_order_of_streams() {
    let Some(machine) = Machine::new("mixed-orders", &mixed("dp_1f1b(replicas = 2)")) else { return };
    let learn = |name: &str, arguments: &str, seed: &str| {
        let line = format!("--backend cuda --steps 2 --checkpoint {name} {arguments}");
        (losses(&machine.run(&line, &[("PIPEC_FAKE_SEED", seed)])), machine.learned(name))
    };
    let expected = learn("first", "", "1");
    assert!(learn("again", "", "2") == expected, "another order");
    assert!(learn("calls", "--no-capture", "3") == expected, "without a graph");
    assert!(learn("stress", "--stress 4", "4") == expected, "under stress");
}

#[test]
fn products_of_the_library_agree() {
    let Some(machine) = Machine::new("mixed-library", &mixed("zb_v")) else { return };
    let expected = machine.run("--backend cpu --no-checkpoint --steps 3", &[]);
    let folder = machine.libraries.display();
    let (path, log) = (format!("{folder}:{folder}/products"), machine.folder.join("log"));
    let variables = [("LD_LIBRARY_PATH", path.as_str()), ("PIPEC_FAKE_LOG", log.to_str().expect("a path of words"))];
    let found = machine.run("--backend cuda --no-checkpoint --steps 3", &variables);
    assert_agree("library", &expected, &found, TOLERANCE);
    let calls = fs::read_to_string(&log).expect("a log");
    assert!(calls.contains("pipec_fake_enqueue"), "no product is the library's");
}
