//! `data "tokens.bin"(document = 0)`: several documents in a row, each of which learns what it learns alone.

use pipe_runtime::data::{Data, DataError};
use pipe_runtime::windows::Steps;
use pipe_tests::layouts::{LAYOUTS, Learned, compare, learn, verified};
use std::fs;
use std::path::{Path, PathBuf};

/// Tokens of a file in a folder of its own.
fn folder(name: &str, tokens: &[u16]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("documents").join(name);
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("train.bin"), tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>())
        .expect("a file");
    folder
}

/// A model with rows of this length, and lines of its pipeline.
fn text(model: &str, sequence: usize, lines: &str, data: &str) -> String {
    let (file, sizes) = match model {
        "gpt2" => ("gpt", "vocab = 24, hidden = 16, heads = 4, blocks = 4, positions = 32".to_owned()),
        "latent" => ("llama", format!("{LATENT}, {MIXTURE}")),
        "window" => ("llama", "vocab = 24, hidden = 16, heads = 4, kv_heads = 2, blocks = 4, window = 3".to_owned()),
        model => (model, "vocab = 24, hidden = 16, heads = 4, blocks = 4".to_owned()),
    };
    let name = if model == "gpt2" { model } else { file };
    format!(
        "import std.models.{file}
        pipeline p {{
            model {name}({sizes}, sequence = {sequence}, {lines}
            train {{ data {data} steps 20 seed 5 optimizer sgd(learning_rate = 0.5) }}
        }}"
    )
}

const LATENT: &str = "vocab = 24, hidden = 16, heads = 4, blocks = 4, latent = 8, query_rank = 8, plain_width = 4, \
                      rotated_width = 4, value_width = 4";
/// No expert has a limit of tokens, so that documents share experts without touching each other.
const MIXTURE: &str = "experts = 4, chosen = 2, expert_wide = 8";

/// A step of one row in double precision: the loss, and all weights after it.
fn alone(model: &str, name: &str, tokens: &[u16], documents: bool) -> Learned {
    let (setting, details) = if documents { ("documents = 1", "(document = 0)") } else { ("documents = 0", "") };
    let lines = format!("rows = 1, {setting}) devices 1 microbatches 1 precision f64 schedule gpipe");
    let program = verified(&text(model, tokens.len() - 1, &lines, &format!("\"train.bin\"{details}")));
    let folder = folder(name, tokens);
    let data = Data::open(program.program(), &folder).expect("data");
    let options = pipe_runtime::Options::new(pipe_runtime::Backend::Cpu, 0);
    let mut run = pipe_runtime::Run::start(program, &options, std::sync::Arc::new(data)).expect("it starts");
    let loss = run.step(0).expect("a step").losses[0].1;
    let tensors = pipe_runtime::checkpoint::state(&run, 1).expect("read").tensors.into_iter();
    (loss, tensors.map(|own| (own.name, pipe_runtime::numbers::decode(own.ty.dtype, &own.data))).collect())
}

/// Rows of one document have as many predictions as tokens before the last: the mean of all is weighed by these.
#[test]
fn documents_of_a_row_learn_what_each_learns_alone() {
    let documents: [&[u16]; 4] = [&[5, 7, 9, 2, 0], &[3, 0], &[11, 12, 13, 3, 5, 8, 8, 1, 0], &[4, 5, 6, 6, 19]];
    let row = documents.concat();
    for model in ["gpt2", "llama", "window", "latent"] {
        let (loss, together) = alone(model, &format!("{model}_together"), &row, true);
        let each = documents.iter().enumerate().map(|(number, document)| {
            let learned = alone(model, &format!("{model}_{number}"), document, false);
            ((document.len() - 1) as f64, learned)
        });
        let start: Vec<_> = each.collect();
        let all: f64 = start.iter().map(|(count, _)| count).sum();
        let mean = start.iter().map(|(count, (loss, _))| count * loss).sum::<f64>() / all;
        assert!((loss - mean).abs() <= 1e-12 * mean, "{model}: {loss} instead of {mean}");
        for (name, found) in &together {
            // The update is linear in the gradient, so that of the mean is the mean of the updates.
            let expected = (0..found.len())
                .map(|at| start.iter().map(|(count, (_, tensors))| count * tensors[name][at]).sum::<f64>() / all);
            let largest = found.iter().fold(1e-3_f64, |most, x| most.max(x.abs()));
            let apart = expected.zip(found).fold(0.0_f64, |most, (a, b)| most.max((a - b).abs()));
            assert!(apart <= 1e-12 * largest, "{model}, {name}: {apart:e}");
        }
        let (mixed, _) = alone(model, &format!("{model}_mixed"), &row, false);
        assert!((mixed - loss).abs() > 1e-6, "{model}: documents without ends see each other");
    }
}

/// Documents of 1 to 9 tokens.
fn many() -> Vec<u16> {
    let lengths = [4, 9, 1, 6, 2, 8, 3, 7, 5].into_iter().cycle().take(120);
    let document = |(number, length): (u16, u16)| (1..length).map(move |at| 1 + (at * 7 + number * 5) % 23).chain([0]);
    (0..).zip(lengths).flat_map(document).collect()
}

#[test]
fn every_layout_keeps_documents_apart() {
    let folder = folder("layouts", &many());
    for (model, data) in [("gpt", "\"train.bin\"(document = 0)"), ("llama", "\"train.bin\"(document = 0) shuffled")] {
        let of = |settings: &str, lines: &str| {
            let microbatches = if lines.contains("data 2") { 2 } else { 4 };
            let lines = format!("rows = 2, documents = 1{settings}) microbatches {microbatches} precision f64 {lines}");
            learn(&verified(&text(model, 8, &lines, data)), Some(&folder))
        };
        let expected = of("", "devices 1 schedule gpipe");
        for (settings, lines) in LAYOUTS {
            compare(&format!("{model}, {lines}"), &expected, &of(settings, lines));
        }
    }
}

/// A file read in order: each prediction that counts weighs the same, in whichever microbatch it is.
#[test]
fn an_evaluation_is_the_mean_over_all_that_counts() {
    let tokens = many();
    let folder = folder("evaluation", &tokens);
    let lines = "rows = 2, documents = 1) devices 1 microbatches 3 precision f64 schedule gpipe";
    let program = verified(&text("gpt", 8, lines, "\"train.bin\"(document = 0)"));
    let source = program.program().training.as_ref().expect("a training").data.clone();
    let data = Data::in_order(program.program(), &source, &folder, Steps::All).expect("data");
    let order = data.order().expect("an order");
    let (mut weights, mut ends) = (Vec::new(), 0);
    for place in 0..order.counted() {
        for (id, value) in program.program().values.iter().enumerate() {
            for slot in value.tensors.iter().filter(|slot| slot.name == "counted") {
                let mut bytes = vec![0; value.bytes.to_usize()];
                let microbatch = pipe_ir::ids::MicrobatchId((place % 3) as u32);
                data.load(place / 3, pipe_ir::ids::ValueId::from_index(id), microbatch, &mut bytes).expect("data");
                let own = &bytes[slot.offset.to_usize()..][..slot.ty.bytes().to_usize()];
                weights.extend(pipe_runtime::numbers::decode(slot.ty.dtype, own));
            }
        }
    }
    let read = order.read() as usize * 8;
    ends += tokens[..read].iter().filter(|token| **token == 0).count();
    assert_eq!(weights.len(), read);
    assert_eq!(weights.iter().filter(|weight| **weight == 0.0).count(), ends);
    let expected = read as f64 / (read - ends) as f64;
    assert!(weights.iter().all(|weight| *weight == 0.0 || (weight - expected).abs() < 1e-12));
}

#[test]
fn an_end_that_no_token_can_be_is_refused() {
    let folder = folder("beyond", &many());
    let lines = "rows = 2, documents = 1) devices 1 microbatches 1 schedule gpipe";
    let program = verified(&text("gpt", 8, lines, "\"train.bin\"(document = 24)"));
    let error = Data::open(program.program(), Path::new(&folder)).err().expect("an error");
    assert!(matches!(error, DataError::NoEnd { token: 24, vocabulary: 24 }), "{error}");
}
