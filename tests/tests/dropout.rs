//! Dropout: masks that follow from the seed, the step, the microbatch and places alone, whatever the layout.

use pipe_compiler::Request;
use pipe_ir::ids::ValueId;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_syntax::source::{Source, Sources};
use pipe_tests::layouts::{LAYOUTS, compare, learn, verified};
use pipe_tests::ranks::{join, on_ranks};
use pipe_tests::training::{losses, start, steps};
use std::collections::BTreeSet;
use std::sync::Arc;

const SIZES: &str = "vocab = 24, hidden = 16, heads = 4, blocks = 4, sequence = 8, rows = 2";

/// A GPT with these settings beside its sizes, and these lines of a pipeline.
fn gpt(settings: &str, lines: &str) -> Arc<Verified> {
    let microbatches = if lines.contains("data 2") { 2 } else { 4 };
    verified(&format!(
        "import std.models.gpt
        pipeline p {{
            model gpt({SIZES}, {settings})
            microbatches {microbatches}
            {lines}
            train {{ data synthetic steps 20 seed 5 optimizer sgd(learning_rate = 0.5, momentum = 0.9) }}
        }}"
    ))
}

#[test]
fn every_layout_drops_the_same() {
    let program = |dropout: &str, (settings, lines): (&str, &str)| {
        gpt(&format!("dropout = {dropout}{settings}"), &format!("{lines} precision f64"))
    };
    let one = |dropout: &str| learn(&program(dropout, ("", "devices 1 schedule gpipe")), None);
    let (expected, without) = (one("0.2"), one("0"));
    assert!((expected.0 - without.0).abs() > 1e-6 * without.0, "{} and {}", expected.0, without.0);
    for layout in LAYOUTS {
        compare(layout.1, &expected, &learn(&program("0.2", layout), None));
    }
}

/// Scores of attention are dropped, also where heads of queries share those of keys, and where members divide heads.
#[test]
fn every_layout_drops_the_same_scores() {
    for (model, sizes) in [("gpt", SIZES.to_owned()), ("llama", format!("{SIZES}, kv_heads = 2"))] {
        let program = |dropout: &str, (settings, lines): (&str, &str)| {
            let microbatches = if lines.contains("data 2") { 2 } else { 4 };
            verified(&format!(
                "import std.models.{model}
                pipeline p {{
                    model {model}({sizes}, attention_dropout = {dropout}{settings})
                    microbatches {microbatches} precision f64
                    {lines}
                    train {{ data synthetic steps 20 seed 5 optimizer sgd(learning_rate = 0.5, momentum = 0.9) }}
                }}"
            ))
        };
        let one = |dropout: &str| learn(&program(dropout, ("", "devices 1 schedule gpipe")), None);
        let (expected, without) = (one("0.2"), one("0"));
        assert!((expected.0 - without.0).abs() > 1e-9 * without.0, "{} and {}", expected.0, without.0);
        for layout in LAYOUTS.into_iter().filter(|(_, lines)| !lines.contains("seq_1f1b")) {
            compare(layout.1, &expected, &learn(&program("0.2", layout), None));
        }
    }
}

/// What is written out drops what the function drops.
#[test]
fn dropped_scores_are_those_between_softmax_and_values() {
    let of = |attended: &str| {
        let program = verified(&format!(
            "layer only() {{
                data q: f32[2, 4, 5, 3]
                data k: f32[2, 2, 5, 3]
                weight w: [3, 3] = normal(1)
                let keys = matmul(k, w)
                let each = reshape(
                    broadcast(reshape(keys, [2, 2, 1, 5, 3]), [2, 2, 2, 5, 3]),
                    [2, 4, 5, 3]
                )
                loss sum({attended} * q)
            }}
            model m() {{ only() }}
            pipeline p {{
                model m precision f64 devices 1 microbatches 2 schedule gpipe
                train {{ data synthetic steps 3 seed 5 optimizer sgd(learning_rate = 0.1) }}
            }}"
        ));
        learn(&program, None)
    };
    // Masks follow from the place along each axis, and the function groups heads: no place is the same otherwise.
    let grouped = |tensor: &str| format!("reshape({tensor}, [2, 2, 2, 5, 3])");
    let scores = format!("matmul({}, transpose({}, 0, 1, 2, 4, 3))", grouped("q"), grouped("each"));
    let written = format!("matmul(dropout(causal_softmax({scores}), 0.3), {})", grouped("each"));
    compare(
        "written out",
        &of(&format!("reshape({written}, [2, 4, 5, 3])")),
        &of("causal_attention(q, keys, keys, 0, 0, 0.3)"),
    );
}

/// A `config.json` says the rates; GPT-2 has 0.1 where it says none.
#[test]
fn a_config_drops_as_it_says() {
    let program = |rates: &str, train: &str| {
        let config = format!(
            "{{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_head\": 4, \"n_layer\": 2, \"vocab_size\": 24, \
             \"n_positions\": 16{rates}}}"
        );
        let text = format!(
            "pipeline p {{
                model \"config.json\"(sequence = 8, rows = 2) precision f64 devices 1 microbatches 2 schedule gpipe
                train {{ data synthetic steps 3 seed 5 {train} optimizer sgd(learning_rate = 0.5) }}
            }}"
        );
        let load = |_: &str| Ok(config.clone());
        let root = Source { name: "x.pipe".to_owned(), text };
        let compilation = pipe_compiler::compile(&mut Sources::default(), root, &load, &Request::default());
        Arc::new(compilation.program.unwrap_or_else(|| panic!("{:#?}", compilation.diagnostics)))
    };
    let loss = |program: &Arc<Verified>| learn(program, None).0;
    let unsaid = loss(&program("", ""));
    let rates = |embedding: &str, residual: &str, attention: &str| {
        format!(", \"embd_pdrop\": {embedding}, \"resid_pdrop\": {residual}, \"attn_pdrop\": {attention}")
    };
    assert_eq!(unsaid.to_bits(), loss(&program(&rates("0.1", "0.1", "0.1"), "")).to_bits());
    let each = [("0", "0", "0"), ("0.1", "0", "0"), ("0", "0.1", "0"), ("0", "0", "0.1")]
        .map(|(embedding, residual, attention)| loss(&program(&rates(embedding, residual, attention), "")).to_bits());
    assert_eq!(each.into_iter().collect::<BTreeSet<_>>().len(), 4, "each rate drops something");
}

#[test]
fn ranks_drop_the_same() {
    let program = gpt("dropout = 0.2", "devices 4 schedule dp_1f1b(replicas = 2)");
    let alone = losses(&steps(&mut start(&program, None), 0..2));
    let reports = on_ranks(4, |job| {
        let mut run = join(&program, None, &job);
        losses(&steps(&mut run, 0..2))
    });
    assert_eq!(reports[0], alone);
}

/// The gradients of weights whose dropout is summed up: 0, or as large for all.
const WEIGHTS: &str = "
    layer first(n) {
        data x: f32[1]
        weight a: [n, 64, 8] = ones
        weight b: [n, 64, 8] = ones
        output x * (sum(dropout(a, 0.25)) + sum(dropout(b, 0.25)))
    }
    layer second(n) {
        input y
        weight c: [n, 64, 8] = ones
        loss reshape(sum(y, 0), []) * 0.000001 + sum(dropout(c, 0.25))
    }
    model m(n = 40) { first(n) second(n) }";

#[test]
fn masks_have_the_rate_and_differ() {
    let lines = "devices 1 microbatches 1 schedule gpipe";
    let train = "data synthetic steps 9 optimizer sgd(learning_rate = 0.000001)";
    let program = verified(&format!("{WEIGHTS} pipeline p {{ model m {lines} train {{ {train} }} }}"));
    let mut run = start(&program, None);
    let mut masks: Vec<(String, Vec<bool>)> = Vec::new();
    for step in 0..2 {
        run.step(step).expect("a step");
        let values = run.program().values.iter().enumerate();
        let gradients = values.filter(|(_, value)| value.kind == ValueKind::ParameterGradients);
        for (index, value) in gradients {
            for (tensor, slot) in value.tensors.iter().enumerate() {
                let numbers = run.read(ValueId::from_index(index), tensor).expect("gradients");
                let kept = numbers.iter().find(|number| **number != 0.0).copied().expect("some are kept");
                assert!(numbers.iter().all(|number| *number == 0.0 || *number == kept), "{}", slot.name);
                masks.push((slot.name.clone(), numbers.iter().map(|number| *number == 0.0).collect()));
            }
        }
    }
    // Counts of independent draws of this probability lie within 5 standard deviations.
    let check = |what: &str, count: usize, of: usize, probability: f64| {
        let (mean, deviation) = (of as f64 * probability, (of as f64 * probability * (1.0 - probability)).sqrt());
        assert!((count as f64 - mean).abs() < 5.0 * deviation, "{what}: {count} of {of}, {mean} expected");
    };
    for (number, (name, mask)) in masks.iter().enumerate() {
        check(name, mask.iter().filter(|dropped| **dropped).count(), mask.len(), 0.25);
        for distance in [1, 2, 8, 64, 512, 513] {
            let pairs = mask.iter().zip(&mask[distance..]);
            let both = pairs.filter(|(one, other)| **one && **other).count();
            check(&format!("{name}, {distance} apart"), both, mask.len() - distance, 0.0625);
        }
        for (other_name, other) in &masks[..number] {
            let both = mask.iter().zip(other).filter(|(one, other)| **one && **other).count();
            check(&format!("{name} and {other_name}"), both, mask.len(), 0.0625);
        }
    }
    // Axes: how many are dropped in each plane.
    for (name, mask) in &masks {
        for (stride, size) in [(512, 40), (8, 64), (1, 8)] {
            for plane in 0..size {
                let own = mask.iter().enumerate().filter(|(at, _)| at / stride % size == plane);
                let dropped = own.filter(|(_, dropped)| **dropped).count();
                check(&format!("{name}, plane {plane} of {size}"), dropped, mask.len() / size, 0.25);
            }
        }
    }
}

#[test]
fn nothing_is_dropped_where_nothing_is_trained() {
    let of = |settings: &str| {
        let program = gpt(settings, "devices 2 schedule 1f1b frozen all");
        losses(&steps(&mut start(&program, None), 0..1))
    };
    assert_eq!(of("dropout = 0.3"), of("dropout = 0"));
}

#[test]
fn a_model_is_the_same_whatever_it_drops() {
    let of = |settings: &str| {
        let program = gpt(settings, "devices 2 schedule 1f1b");
        program.program().training.as_ref().and_then(|training| training.model).expect("a digest")
    };
    assert_eq!(of("dropout = 0.3"), of("dropout = 0"));
    let program = gpt("dropout = 0", "devices 2 schedule 1f1b");
    assert!(program.program().values.iter().flat_map(|value| &value.tensors).all(|slot| !slot.is_key()));
}
