//! Models from a `config.json` against transformers: `tests/data/transformers/` has tiny models of each family with
//! random weights, and what transformers computes with them in double precision.

use pipe_compiler::Request;
use pipe_ir::graph::{DType, Op};
use pipe_ir::program::Body;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::data::Data;
use pipe_runtime::weights::{self, Shards};
use pipe_runtime::{Backend, Options, Run};
use pipe_tests::cases::{compile_text, read, root};
use pipe_tests::slice::takes_all;
use pipe_tests::training;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

/// Folders of the reference models.
const FAMILIES: [&str; 18] = [
    "gpt2",
    "llama2",
    "llama3",
    "mistral",
    "mistral_window",
    "qwen2",
    "qwen2_window",
    "qwen3",
    "qwen3_window",
    "gemma",
    "mixtral",
    "qwen3_moe",
    "qwen2_moe",
    "deepseek_v2",
    "deepseek_v2_groups",
    "deepseek_v3",
    "qwen3_yarn",
    "deepseek_v3_yarn",
];

/// Devices, and what runs on them.
const LAYOUTS: [&str; 11] = [
    "devices 1 schedule gpipe",
    "devices 2 schedule 1f1b",
    "devices 4 schedule v_half",
    "devices 2 schedule zb_h1",
    "devices 4 schedule 1f1b",
    "devices 2 schedule v_half",
    "devices 4 schedule zb_h1",
    "devices 1 tensor 2 schedule gpipe",
    "devices 2 tensor 2 schedule 1f1b",
    "devices 2 tensor 2 schedule v_half",
    "devices 2 tensor 2 schedule zb_h1",
];

/// Microbatches, rows and positions of the data.
const SHAPE: [usize; 3] = [4, 2, 8];

fn folder(name: &str) -> PathBuf {
    root().join("tests/data/transformers").join(name)
}

fn expected(name: &str) -> Shards {
    Shards::open(&folder(name).join("expected.safetensors")).expect("the figures")
}

/// All numbers of a tensor.
fn numbers(shards: &Shards, name: &str) -> Vec<f64> {
    let count = shards.shape(name).unwrap_or_else(|| panic!("no {name}")).iter().product();
    let bytes = shards.read(name, 0..count, DType::F64).expect("numbers");
    pipe_runtime::numbers::decode(DType::F64, &bytes)
}

fn compile(name: &str, layout: &str, precision: &str, optimizer: &str) -> Arc<Verified> {
    let [microbatches, rows, sequence] = SHAPE;
    let text = format!(
        "pipeline p {{
            model \"config.json\"(sequence = {sequence}, rows = {rows})
            precision {precision}
            microbatches {microbatches}
            {layout}
            train {{ data synthetic init \"model.safetensors\" steps 3 optimizer {optimizer} }}
        }}"
    );
    let (compilation, _) = compile_text("x.pipe", &text, &folder(name), &Request::default());
    let program = compilation.program.unwrap_or_else(|| panic!("{:#?}\n{text}", compilation.diagnostics));
    Arc::new(program.of_members())
}

/// A run that begins with the weights of the file, and learns from the tokens of the figures.
fn start(name: &str, program: &Arc<Verified>, shards: &Shards) -> Run {
    let of = |tensor: &str| numbers(shards, tensor).into_iter().map(|token| token as i32).collect::<Vec<i32>>();
    let (tokens, targets) = (of("tokens"), of("targets"));
    let [microbatches, rows, sequence] = SHAPE;
    let fill =
        move |step: u64, microbatch: pipe_ir::ids::MicrobatchId, slot: &pipe_ir::value::TensorSlot, out: &mut [u8]| {
            let all = if slot.name == "tokens" { &tokens } else { &targets };
            let from = (step as usize * microbatches + microbatch.index()) * rows * sequence;
            for (token, out) in all[from..from + rows * sequence].iter().zip(out.chunks_exact_mut(4)) {
                out.copy_from_slice(&token.to_ne_bytes());
            }
        };
    let data = Data::from_fn(program.program(), Box::new(fill));
    let mut run = Run::start(Arc::clone(program), &Options::new(Backend::Cpu, 0), Arc::new(data)).expect("it starts");
    let init = program.program().training.as_ref().and_then(|training| training.init.clone()).expect("an `init`");
    let notes = weights::fill(&mut run, &folder(name).join(init)).expect("weights");
    assert_eq!(notes, Vec::<String>::new(), "{name}");
    run
}

/// All weights, under the names of Hugging Face.
fn weights_of(run: &Run) -> BTreeMap<String, Vec<f64>> {
    let program = run.program();
    let config = program.training.as_ref().and_then(|training| training.config.as_deref()).expect("a config");
    let family = weights::family(config).expect("a family");
    let mut found = BTreeMap::new();
    for (id, value) in program.values.iter().enumerate().filter(|(_, value)| value.kind == ValueKind::Parameters) {
        for (tensor, slot) in value.tensors.iter().enumerate() {
            let all = run.read(pipe_ir::ids::ValueId::from_index(id), tensor).expect("numbers");
            let saved = weights::saved(&family, &slot.name, slot.undivided().shape[0]).expect("a name");
            let each = all.len() / saved.names.len();
            for (names, numbers) in saved.names.iter().zip(all.chunks(each)) {
                found.insert(names[0].clone(), numbers.to_vec());
            }
        }
    }
    found
}

/// How far two tensors are apart, against the largest number that is expected.
fn distance(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0_f64, |largest, x| largest.max(x.abs()));
    let apart = found.iter().zip(expected).fold(0_f64, |apart, (a, b)| apart.max((a - b).abs()));
    if largest == 0.0 { apart } else { apart / largest }
}

fn mean(report: &pipe_runtime::StepReport) -> f64 {
    let losses = training::losses(std::slice::from_ref(report)).remove(0);
    losses.iter().map(|(_, loss)| f64::from_bits(*loss)).sum::<f64>() / losses.len() as f64
}

/// Layouts that a family is tried on: all of them in a campaign, else the first and two others.
fn layouts(family: usize) -> Vec<&'static str> {
    if takes_all() {
        return LAYOUTS.to_vec();
    }
    vec![LAYOUTS[0], LAYOUTS[1 + family % 6], LAYOUTS[1 + (family + 3) % 6], LAYOUTS[7 + family % 4]]
}

/// Takes three steps, and says what is off: peaks are as predicted, and losses and weights as in these figures.
fn three_steps((name, layout): (&str, &str), optimizer: &str, figures: &Shards) -> String {
    let mut failures = String::new();
    let program = compile(name, layout, "f64", optimizer);
    let mut run = start(name, &program, &expected(name));
    for (step, expected) in numbers(figures, "losses").iter().enumerate() {
        let report = run.step(step as u64).expect("a step");
        training::assert_peaks(program.program(), std::slice::from_ref(&report));
        let found = mean(&report);
        if (found - expected).abs() > 1e-10 * expected.abs() {
            let _ = writeln!(failures, "{name}, {layout}: loss {step} is {found} instead of {expected}");
        }
    }
    for (tensor, found) in weights_of(&run) {
        let apart = distance(&found, &numbers(figures, &format!("weight.{tensor}")));
        if apart > 1e-10 {
            let _ = writeln!(failures, "{name}, {layout}: {tensor} is {apart:e} from what it should be");
        }
    }
    failures
}

#[test]
fn three_steps_learn_what_transformers_learns() {
    let mut failures = String::new();
    for (number, name) in FAMILIES.into_iter().enumerate() {
        let figures = expected(name);
        for layout in layouts(number) {
            failures += &three_steps((name, layout), "adamw(learning_rate = 0.001)", &figures);
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Muon in the blocks and AdamW elsewhere: `tests/data/transformers/muon.py` does the same with those of PyTorch.
#[test]
fn three_steps_of_muon_are_those_of_torch() {
    let mut failures = String::new();
    for (number, name) in ["gpt2", "llama3", "mixtral"].into_iter().enumerate() {
        let figures = Shards::open(&folder(name).join("muon.safetensors")).expect("the figures");
        for layout in layouts(number).into_iter().filter(|layout| !layout.contains("tensor")) {
            failures += &three_steps((name, layout), "muon(learning_rate = 0.001)", &figures);
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// A step with plain gradient descent tells the gradients.
#[test]
fn gradients_are_those_of_transformers() {
    let mut failures = String::new();
    let precisions = [("f64", 1e-10), ("f32", 1e-5)];
    for (number, name) in FAMILIES.into_iter().enumerate() {
        let cases = layouts(number).into_iter().flat_map(|layout| precisions.map(|precision| (layout, precision)));
        for (layout, (precision, tolerance)) in cases {
            let shards = expected(name);
            // A power of two: the update is exact, and much larger than the weights, so f32 rounding does not hide it.
            let program = compile(name, layout, precision, "sgd(learning_rate = 1024)");
            let mut run = start(name, &program, &shards);
            let before = weights_of(&run);
            let loss = mean(&run.step(0).expect("a step"));
            let expected = numbers(&shards, "losses")[0];
            if (loss - expected).abs() > tolerance * expected.abs() {
                let _ = writeln!(failures, "{name}, {layout}, {precision}: the loss is {loss} instead of {expected}");
            }
            for (tensor, after) in weights_of(&run) {
                let gradient: Vec<f64> =
                    before[&tensor].iter().zip(&after).map(|(before, after)| (before - after) / 1024.0).collect();
                let key = format!("gradient.{tensor}");
                let Some(_) = shards.shape(&key) else {
                    assert!(gradient.iter().all(|number| *number == 0.0), "{name}: {tensor} is not trained");
                    continue;
                };
                let mut exact = numbers(&shards, &key);
                let mut gradient = gradient;
                if name == "gpt2" && tensor.ends_with("attn.c_attn.bias") {
                    // Those of keys are 0, but for rounding.
                    exact.drain(16..32);
                    gradient.drain(16..32);
                }
                let apart = distance(&gradient, &exact);
                if apart > tolerance {
                    let _ =
                        writeln!(failures, "{name}, {layout}, {precision}: the gradient of {tensor} is {apart:e} off");
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Each file fits its `config.json`: no tensor of the model is missing there, and none is left over.
#[test]
fn every_weight_has_its_name() {
    for name in FAMILIES {
        let program = compile(name, LAYOUTS[0], "f32", "sgd(learning_rate = 1)");
        let shards = Shards::open(&folder(name)).expect("weights");
        let run = start(name, &program, &expected(name));
        let found = weights_of(&run);
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(names, shards.names().collect::<Vec<_>>(), "{name}");
        for (tensor, numbers_of_run) in &found {
            assert_eq!(numbers_of_run, &numbers(&shards, tensor), "{name}: {tensor}");
        }
    }
}

/// A window shorter than a row hides scores, whose operations are not counted; one as long as a row hides nothing.
#[test]
fn windows_take_fewer_operations() {
    let request = Request::default();
    let pipeline = |sequence: u64| {
        let text = format!(
            "pipeline p {{ model \"config.json\"(sequence = {sequence}) devices 1 microbatches 1 schedule gpipe
                train {{ data synthetic steps 1 optimizer sgd(learning_rate = 1) }} }}"
        );
        compile_text("x.pipe", &text, &folder("mistral_window"), &request).0
    };
    let attentions = |sequence: u64| {
        let program = pipeline(sequence).program.expect("a program");
        let bodies = program.program().execs.iter().filter_map(|exec| match &exec.body {
            Body::Graph(graph) => Some(graph.nodes.clone()),
            Body::Abstract | Body::Optimizer | Body::Squares => None,
        });
        let windows = bodies.flatten().filter_map(|node| match node.op {
            Op::Attention { causal: true, window } | Op::AttentionGrad { causal: true, window } => Some(window),
            _ => None,
        });
        windows.collect::<Vec<_>>()
    };
    assert!(attentions(3).iter().all(Option::is_none));
    assert!(attentions(4).len() >= 12 && attentions(4).iter().all(|window| *window == Some(3)));
}

/// Published files describe models with the published number of weights.
#[test]
fn published_models_have_their_weights() {
    let list = read(&root().join("tests/data/models/published.json"));
    let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
    let rows = list["parameters"]["rows"].as_array().expect("rows");
    let rows: Vec<(String, u64)> = rows
        .iter()
        .filter_map(|row| Some((format!("{}.json", row["config"].as_str()?), row["parameters"].as_u64()?)))
        .collect();
    assert!(rows.len() >= 15, "only {} files", rows.len());
    for (name, expected) in rows {
        let text = format!(
            "pipeline p {{ model \"{name}\"(sequence = 16) devices 1 microbatches 1 schedule gpipe
                train {{ data synthetic steps 1 optimizer sgd(learning_rate = 1) }} }}"
        );
        let (found, _) = compile_text("x.pipe", &text, &root().join("tests/data/configs"), &Request::default());
        let program = found.program.unwrap_or_else(|| panic!("{name}: {:#?}", found.diagnostics));
        let weights = program.program().values.iter().filter(|value| value.kind == ValueKind::Parameters);
        let own: u64 = weights.flat_map(|value| &value.tensors).map(|slot| slot.ty.elements()).sum();
        assert_eq!(own, expected, "{name}");
    }
}
