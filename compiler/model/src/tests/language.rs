//! What is wrong with a model is said at its place.

use super::{GPT, elaborate, sound};
use crate::MAX_LAYERS;
use pipe_ir::graph::{Op, TensorType};
use pipe_ir::value::Init;

const SOUND: &str = "
    layer start(hidden) {
        data tokens: i32[2, 3]
        weight table: [5, hidden] = normal(0.1)
        output gather(table, tokens)
    }
    layer middle(hidden) {
        input x
        weight gain: [hidden] = ones
        output x * gain
    }
    layer finish() {
        input x
        data targets: i32[2, 3]
        weight up: [4, 5] = normal(1 / 4.0)
        loss cross_entropy(matmul(x, up), targets)
    }
    model m(hidden = 4, n = 2) {
        start(hidden)
        repeat n { middle(hidden) }
        finish()
    }";

/// Codes and the marked texts of what is found after replacing a part of a sound model.
fn found(from: &str, to: &str) -> Vec<(String, String)> {
    assert!(SOUND.contains(from), "{from}");
    let text = SOUND.replacen(from, to, 1);
    let found = elaborate(&text, &[]).expect_err("something is wrong");
    let marked =
        |label: &pipe_syntax::diagnostic::Label| text[label.span.start as usize..label.span.end as usize].to_owned();
    found.iter().map(|diagnostic| (diagnostic.code.name().to_owned(), marked(&diagnostic.labels[0]))).collect()
}

fn assert_found(from: &str, to: &str, expected: &[(&str, &str)]) {
    let found = found(from, to);
    let found: Vec<(&str, &str)> = found.iter().map(|(code, marked)| (code.as_str(), marked.trim_end())).collect();
    assert_eq!(found, expected, "{to}");
}

#[test]
fn a_sound_model_is_a_chain_of_named_layers() {
    let model = sound(SOUND, &[]);
    let names: Vec<&str> = model.layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["0.start", "1.middle", "2.middle", "3.finish"]);
    assert_eq!(model.layers[1].tape.ty(model.layers[1].output), &TensorType::f32(&[2, 3, 4]));
    assert_eq!(model.data.len(), 2);
}

#[test]
fn the_standard_gpt_has_as_many_parameters_as_it_should() {
    let model = sound(GPT, &[]);
    let elements = model.layers.iter().flat_map(|layer| &layer.weights).map(|weight| weight.ty.elements()).sum::<u64>();
    let (vocab, hidden, blocks, sequence) = (256, 128, 4, 128);
    let block = 12 * hidden * hidden + 13 * hidden;
    assert_eq!(elements, vocab * hidden + sequence * hidden + blocks * block + 2 * hidden + hidden * vocab);
}

#[test]
fn shapes_are_checked() {
    let output = "output x * gain";
    assert_found("[hidden] = ones", "[hidden + 1] = ones", &[("shape-mismatch", "x")]);
    assert_found(output, "output matmul(x, gain)", &[("shape-mismatch", "x")]);
    assert_found(output, "output reshape(x * gain, [5])", &[("shape-mismatch", "[5]")]);
    assert_found(output, "output transpose(x * gain, 0, 1)", &[("shape-mismatch", "transpose(x * gain, 0, 1)")]);
    assert_found(output, "output layer_norm(x, gain, x)", &[("shape-mismatch", "x")]);
    assert_found(output, "output sum(x * gain, 3)", &[("out-of-range", "3")]);
    assert_found(output, "output slice(x * gain, 0, 1, 2)", &[("out-of-range", "slice(x * gain, 0, 1, 2)")]);
    assert_found("data targets: i32[2, 3]", "data targets: i32[2, 4]", &[("shape-mismatch", "matmul(x, up)")]);
    assert_found("data targets: i32[2, 3]", "data targets: f32[2, 3]", &[("wrong-type", "targets")]);
    assert_found("[5, hidden]", "[5, hidden - 4]", &[("out-of-range", "hidden - 4")]);
    assert_found(
        "[5, hidden]",
        "[5, hidden * 1000000000000000]",
        &[("too-large", "weight table: [5, hidden * 1000000000000000] = normal(0.1)")],
    );
}

#[test]
fn names_and_arguments_are_checked() {
    let output = "output x * gain";
    assert_found(output, "output x * gian", &[("unknown-name", "gian")]);
    assert_found(output, "output softmaxx(x * gain)", &[("unknown-name", "softmaxx")]);
    assert_found(output, "output softmax(x, gain)", &[("wrong-arguments", "softmax(x, gain)")]);
    assert_found("middle(hidden) }", "midle(hidden) }", &[("unknown-name", "midle")]);
    assert_found("middle(hidden) }", "middle() }", &[("wrong-arguments", "middle()")]);
    assert_found("middle(hidden) }", "middle(hidden, 2) }", &[("wrong-arguments", "2")]);
    assert_found(
        "middle(hidden) }",
        "middle(width = 2) }",
        &[("wrong-arguments", "middle(width = 2)"), ("wrong-arguments", "width")],
    );
    assert_found(output, "let gain = x output x * gain", &[("duplicate-name", "gain")]);
    assert_found("normal(0.1)", "normal(0 - 1)", &[("out-of-range", "0 - 1")]);
    assert_found("normal(0.1)", "normal(1 / 0)", &[("arithmetic", "1 / 0")]);
    assert_found(output, "output x % gain", &[("wrong-type", "x")]);
    assert_found(output, "output if x then x else gain", &[("wrong-type", "x")]);
    assert_found(output, "output [1, 2]", &[("wrong-type", "[1, 2]")]);
}

#[test]
fn sizes_and_counts_must_be_whole() {
    let output = "output x * gain";
    assert_found("[5, hidden]", "[5, hidden / 3]", &[("wrong-type", "hidden / 3")]);
    assert_found("repeat n", "repeat n / 4", &[("wrong-type", "n / 4")]);
    assert_found("middle(hidden) }", "middle(hidden / 3) }", &[("wrong-type", "hidden")]);
    assert_found(output, "output sum(x * gain, 1 / 2)", &[("wrong-type", "1 / 2")]);
    // What comes out whole is.
    sound(&SOUND.replace("[5, hidden]", "[5, hidden / 3 * 3]"), &[]);
    sound(&SOUND.replace("repeat n", "repeat 5 / 2 - 5 / 2 % 1"), &[]);
}

#[test]
fn a_quotient_of_whole_numbers_is_no_whole_number() {
    let constants = |text: &str| {
        let model = sound(&SOUND.replace("output x * gain", text), &[]);
        let nodes = model.layers[1].tape.nodes().iter();
        nodes
            .filter_map(|node| if let Op::Constant(value) = node.op { Some(value) } else { None })
            .collect::<Vec<f64>>()
    };
    assert_eq!(constants("output x * gain * (1 / 256)"), [0.003_906_25]);
    assert_eq!(constants("let share = 3 / 4 / 2  output x * share * gain"), [0.375]);
    let model = sound(&SOUND.replace("normal(0.1)", "normal(1 / hidden)"), &[]);
    assert_eq!(model.layers[0].weights[0].init, Init::Normal(0.25));
}

#[test]
fn layers_must_lead_from_data_to_loss() {
    assert_found("output x * gain", "", &[("missing-item", "middle")]);
    assert_found("output x * gain", "output x", &[("unused-tensor", "gain")]);
    assert_found("output x * gain", "output x * gain output x", &[("repeated-item", "output x")]);
    assert_found("        finish()\n", "", &[("broken-chain", "m")]);
    assert_found(
        "        start(hidden)\n",
        "        middle(hidden) start(hidden)\n",
        &[("broken-chain", "middle(hidden)")],
    );
    assert_found(
        "        finish()\n",
        "        finish() middle(hidden) finish()\n",
        &[("broken-chain", "middle(hidden)")],
    );
    assert_found(
        "loss cross_entropy(matmul(x, up), targets)",
        "loss matmul(x, up) * sum(up, 0)",
        &[("shape-mismatch", "loss matmul(x, up) * sum(up, 0)")],
    );
    assert_found("start(hidden)\n", "start(hidden) start(hidden)\n", &[("broken-chain", "start(hidden)")]);
}

#[test]
fn everything_is_reported_once_and_in_order() {
    let text = SOUND
        .replace("output gather(table, tokens)", "output gather(table, token)")
        .replace("up: [4, 5]", "up: [4, 0]");
    let found = elaborate(&text, &[]).expect_err("two mistakes");
    assert_eq!(
        found.iter().map(|diagnostic| diagnostic.code.name()).collect::<Vec<_>>(),
        ["unknown-name", "out-of-range"]
    );
    assert!(found[0].notes[0].contains("0.start"));
}

#[test]
fn absurd_models_are_refused_quickly() {
    let found = elaborate(SOUND, &[("n", i64::MAX)]).expect_err("too many layers");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].code.name(), "too-large");
    assert!(found[0].message.contains(&MAX_LAYERS.to_string()));
    let empty = SOUND.replace("repeat n { middle(hidden) }", "repeat n { repeat n { let k = n } }");
    assert!(elaborate(&empty, &[("n", i64::MAX)]).is_ok());
}

const JOINED: &str = "
    layer start() {
        data tokens: i32[2, 3]
        weight table: [5, 4] = normal(0.1)
        output gather(table, tokens)
    }
    layer dense() {
        input x
        weight up: [4, 4] = normal(0.1)
        output matmul(x, up)
    }
    layer join() {
        input a
        input b
        output a * b
    }
    layer finish() {
        input x
        data targets: i32[2, 3]
        weight up: [4, 5] = normal(0.1)
        loss cross_entropy(matmul(x, up), targets)
    }
    model m(n = 2) {
        let first = start()
        repeat n { let inner = dense()  join() from inner, first }
        let left = dense()
        let right = start()
        let same = left
        join() from right, same
        finish()
    }";

#[test]
fn layers_read_what_they_name_or_the_layer_before() {
    let model = sound(JOINED, &[]);
    let inputs: Vec<&[usize]> = model.layers.iter().map(|layer| &layer.inputs[..]).collect();
    let expected: [&[usize]; 9] = [&[], &[0], &[1, 0], &[2], &[3, 0], &[4], &[], &[6, 5], &[7]];
    assert_eq!(inputs, expected);
    let wrong = JOINED.replace("from right, same", "from inner, same");
    let found = elaborate(&wrong, &[]).expect_err("names of a repeated part end with it");
    assert_eq!(found[0].code.name(), "unknown-name");
}

#[test]
fn layers_without_functions_of_their_name_are_meant_as_layers() {
    let wrong = JOINED.replace("let left = dense()", "let left = dens()");
    let found = elaborate(&wrong, &[]).expect_err("a slip");
    assert_eq!(found[0].message, "no layer is called `dens`");
}

#[test]
fn loops_count_and_layers_have_indices() {
    let join = "layer join() { input x input y output x + y } model m";
    let text = SOUND.replace("model m", join).replace(
        "repeat n { middle(hidden) }",
        "for k in 0..n { let skip[k] = middle(hidden) }
        let x[0] = middle(hidden)
        for k in 0..n { let x[k + 1] = join() from x[k], skip[n - 1 - k] }",
    );
    let looped = sound(&text, &[("n", 3)]);
    let written = SOUND.replace("model m", join).replace(
        "repeat n { middle(hidden) }",
        "let a = middle(hidden) let b = middle(hidden) let c = middle(hidden)
        let p = middle(hidden)
        let q = join() from p, c let r = join() from q, b let s = join() from r, a",
    );
    let written = sound(&written, &[("n", 3)]);
    let inputs = |model: &crate::Model| model.layers.iter().map(|layer| layer.inputs.clone()).collect::<Vec<_>>();
    assert_eq!(inputs(&looped), inputs(&written));
    assert_eq!(inputs(&looped)[5..8], [vec![4, 3], vec![5, 2], vec![6, 1]]);
    // A loop may count from anywhere, and inside of another one.
    let nested = SOUND.replace("repeat n { middle(hidden) }", "for k in 2..4 { for j in 0..k { middle(hidden) } }");
    assert_eq!(sound(&nested, &[]).layers.len(), 7);
}

#[test]
fn indices_of_layers_are_checked() {
    let repeat = "repeat n { middle(hidden) }";
    let after = |lines: &str| format!("for k in 0..n {{ let x[k] = middle(hidden) }} {lines}");
    for (lines, expected) in [
        ("middle(hidden) from x[2]", ("unknown-name", "x[2]")),
        ("middle(hidden) from x", ("wrong-type", "x")),
        ("let a = middle(hidden) middle(hidden) from a[0]", ("wrong-type", "a[0]")),
        ("let x = middle(hidden)", ("duplicate-name", "x")),
        ("let a = middle(hidden) let a[0] = middle(hidden)", ("duplicate-name", "a")),
        ("let x[1] = middle(hidden)", ("duplicate-name", "x[1")),
        ("middle(hidden) from y[0]", ("unknown-name", "y")),
        ("for j in 0..n / 0.5 + 0.5 { middle(hidden) }", ("wrong-type", "n / 0.5 + 0.5")),
        ("for j in 0..99999 { for k in 0..99999 { } }", ("too-large", "99999")),
    ] {
        assert_found(repeat, &after(lines), &[expected]);
    }
    assert_found(repeat, "for k in 0..n { let x[0] = middle(hidden) }", &[("duplicate-name", "x[0")]);
}
