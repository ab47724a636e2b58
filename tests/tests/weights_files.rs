//! Weights from and to safetensors files: what does not fit is told before anything is written, files
//! may be larger than memory, and what is imported and exported unchanged is the same bits.

use pipe_compiler::Request;
use pipe_ir::verify::Verified;
use pipe_runtime::checkpoint;
use pipe_runtime::data::Data;
use pipe_runtime::weights::{self, ExportDType, Shards};
use pipe_runtime::{Backend, Options, Run};
use pipe_tests::cases::{compile_text, root};
use pipe_tests::training::{losses, steps};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("weights_files").join(name);
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn source(family: &str) -> PathBuf {
    root().join("tests/data/transformers").join(family)
}

fn start(family: &str, lines: &str) -> Run {
    start_with(family, "", lines)
}

/// With more settings of the model.
fn start_with(family: &str, settings: &str, lines: &str) -> Run {
    let text = format!(
        "pipeline p {{
            model \"config.json\"(sequence = 8, rows = 2{settings})
            microbatches 4 {lines}
            train {{ data synthetic steps 3 optimizer sgd(learning_rate = 0.1) }}
        }}"
    );
    let (compilation, _) = compile_text("x.pipe", &text, &source(family), &Request::default());
    let program: Arc<Verified> =
        Arc::new(compilation.program.unwrap_or_else(|| panic!("{:#?}", compilation.diagnostics)));
    let data = Arc::new(Data::synthetic(program.program()));
    Run::start(program, &Options::new(Backend::Cpu, 3), data).expect("it starts")
}

/// All weights of a run, by name.
fn weights_of(run: &Run) -> Vec<(String, Vec<u8>)> {
    let state = checkpoint::state(run, 0).expect("a state");
    state.tensors.into_iter().map(|tensor| (tensor.name, tensor.data)).collect()
}

/// The header of a file, and the bytes behind it.
fn opened(path: &Path) -> (Value, Vec<u8>) {
    let bytes = fs::read(path).expect("a file");
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    (serde_json::from_slice(&bytes[8..8 + length]).expect("a header"), bytes[8 + length..].to_vec())
}

fn written(path: &Path, header: &Value, data: &[u8]) {
    let text = header.to_string();
    let bytes = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), data].concat();
    fs::write(path, bytes).expect("a file");
}

#[test]
fn what_does_not_fit_is_told_and_nothing_is_written() {
    let folder = folder("unfit");
    let (header, data) = opened(&source("llama2").join("model.safetensors"));
    let query = "model.layers.2.self_attn.q_proj.weight";
    let mut missing = header.clone();
    let entries = missing.as_object_mut().expect("an object");
    let moved = entries.remove(query).expect("it is there");
    entries.insert("another".to_owned(), moved);
    let mut turned = header.clone();
    turned[query]["shape"] = serde_json::json!([8, 32]);
    let mut indices = header.clone();
    indices[query]["dtype"] = "I32".into();
    let cut = &data[..data.len() - 4];
    let cases: [(&str, &Value, &[u8], &str); 4] = [
        (
            "missing",
            &missing,
            &data,
            "does not fit the model: it has no tensor `model.layers.2.self_attn.q_proj.weight`",
        ),
        ("turned", &turned, &data, "as [8, 32], but the model's is [16, 16]"),
        ("indices", &indices, &data, "is of type I32, and numbers are needed"),
        ("cut", &header, cut, "it is cut off"),
    ];
    let mut run = start("llama2", "devices 2 schedule 1f1b");
    let before = weights_of(&run);
    for (name, header, data, reason) in cases {
        let path = folder.join(format!("{name}.safetensors"));
        written(&path, header, data);
        let error = weights::fill(&mut run, &path).expect_err(name).to_string();
        assert!(error.contains(reason), "{name}: {error}");
        assert_eq!(weights_of(&run), before, "{name}");
    }
    for (name, bytes, reason) in [
        ("empty.safetensors", vec![], "it is shorter than the length of a header"),
        ("long.safetensors", vec![255; 64], "and the file has 64"),
        ("model.safetensors.index.json", b"{}".to_vec(), "it is not an index of safetensors files"),
        ("outside.json", br#"{ "weight_map": { "a": "../b" } }"#.to_vec(), "which is not a file in the same folder"),
    ] {
        fs::write(folder.join(name), bytes).expect("a file");
        let error = weights::fill(&mut run, &folder.join(name)).expect_err(name).to_string();
        assert!(error.contains(reason), "{name}: {error}");
    }
    let program = run.program().clone();
    let checked = |path: &Path| weights::check(&program, path).map_err(|error| error.to_string());
    assert_eq!(checked(&source("llama2")), Ok(()));
    assert!(checked(&folder.join("turned.safetensors")).is_err_and(|error| error.contains("[8, 32]")));
    let error = weights::fill(&mut run, &root().join("grammar")).expect_err("no weights").to_string();
    assert!(error.contains("has neither `model.safetensors` nor"), "{error}");
    assert_eq!(weights_of(&run), before);
    // Weights of another family have other names.
    let error = weights::fill(&mut run, &source("gpt2")).expect_err("another family").to_string();
    assert!(error.contains("it has no tensor") && error.contains("more"), "{error}");
}

#[test]
fn what_is_left_over_is_a_note() {
    let folder = folder("left_over");
    let (mut header, mut data) = opened(&source("llama2").join("model.safetensors"));
    let end = data.len();
    data.extend([0; 8]);
    header["extra"] = serde_json::json!({ "dtype": "F32", "shape": [2], "data_offsets": [end, end + 8] });
    let path = folder.join("model.safetensors");
    written(&path, &header, &data);
    let mut run = start("llama2", "devices 2 schedule 1f1b");
    let notes = weights::fill(&mut run, &folder).expect("it fits");
    assert_eq!(notes, [format!("{} also holds `extra`, which the model does not have", path.display())]);
}

/// A sparse file of 80 GB: only the end of it is read.
#[test]
fn files_may_be_larger_than_memory() {
    use std::io::{Seek, SeekFrom, Write};
    let folder = folder("large");
    let (header, data) = opened(&source("llama2").join("model.safetensors"));
    let hole: u64 = 80_000_000_000;
    let mut moved = serde_json::json!({ "hole": { "dtype": "U8", "shape": [hole], "data_offsets": [0, hole] } });
    for (name, entry) in header.as_object().expect("an object").iter().filter(|(name, _)| *name != "__metadata__") {
        let offsets = entry["data_offsets"].as_array().expect("offsets").iter();
        let offsets: Vec<u64> = offsets.map(|offset| offset.as_u64().expect("a number") + hole).collect();
        moved[name] = serde_json::json!({ "dtype": "F32", "shape": entry["shape"], "data_offsets": offsets });
    }
    let path = folder.join("model.safetensors");
    let text = moved.to_string();
    let mut file = fs::File::create(&path).expect("a file");
    file.write_all(&(text.len() as u64).to_le_bytes()).expect("written");
    file.write_all(text.as_bytes()).expect("written");
    file.seek(SeekFrom::Current(hole as i64)).expect("a hole");
    file.write_all(&data).expect("written");
    drop(file);
    let mut run = start("llama2", "devices 2 schedule 1f1b");
    let notes = weights::fill(&mut run, &path).expect("it fits");
    assert!(notes[0].contains("`hole`"), "{notes:?}");
    let mut small = start("llama2", "devices 2 schedule 1f1b");
    weights::fill(&mut small, &source("llama2")).expect("it fits");
    assert_eq!(weights_of(&run), weights_of(&small));
    fs::remove_file(path).expect("it is there");
}

/// Through a checkpoint, with any layout on the way in, in one file and in several.
#[test]
fn what_is_imported_and_exported_is_the_same_bits() {
    let families = ["gpt2", "llama3", "qwen2", "gemma", "mixtral", "qwen2_moe", "deepseek_v3"];
    let layouts =
        ["devices 1 schedule gpipe", "devices 4 schedule zb_h1", "devices 4 schedule dp_1f1b(replicas = 2) zero 3"];
    for (number, family) in families.into_iter().enumerate() {
        let mut run = start(family, layouts[number % layouts.len()]);
        weights::fill(&mut run, &source(family)).expect("it fits");
        let state = checkpoint::from_bytes(
            &checkpoint::to_bytes(&checkpoint::state(&run, 0).expect("a state")).expect("bytes"),
        );
        let state = state.expect("it reads back");
        let own = folder(family);
        for (most, name) in [(u64::MAX, "one"), (20_000, "several")] {
            let to = own.join(name);
            let exported = weights::export(&state, &to, None, most, false).expect("it is written");
            assert_eq!(exported.dtype, "float32");
            assert_eq!(exported.files.len() > 3, name == "several", "{:?}", exported.files);
            let (original, again) = (Shards::open(&source(family)).expect("files"), Shards::open(&to).expect("files"));
            assert_eq!(original.names().collect::<Vec<_>>(), again.names().collect::<Vec<_>>(), "{family}");
            for tensor in original.names() {
                assert_eq!(original.shape(tensor), again.shape(tensor), "{family}: {tensor}");
                let all = 0..original.shape(tensor).expect("it is there").iter().product();
                let read =
                    |shards: &Shards| shards.read(tensor, all.clone(), pipe_ir::graph::DType::F32).expect("numbers");
                assert_eq!(read(&original), read(&again), "{family}: {tensor}");
            }
            let config: Value =
                serde_json::from_str(&fs::read_to_string(to.join("config.json")).expect("a file")).expect("JSON");
            let first: Value =
                serde_json::from_str(&fs::read_to_string(source(family).join("config.json")).expect("a file"))
                    .expect("JSON");
            assert_eq!(config, first, "{family}");
            let error = weights::export(&state, &to, None, most, false).expect_err("it is there").to_string();
            assert!(error.ends_with("is there already: name a new folder"), "{error}");
        }
        // What halves can hold comes back as it was.
        let half = own.join("half");
        weights::export(&state, &half, Some(ExportDType::BF16), u64::MAX, true).expect("it is written");
        weights::fill(&mut run, &half).expect("it fits");
        let rounded = weights_of(&run);
        let again = own.join("again");
        let state = checkpoint::state(&run, 0).expect("a state");
        weights::export(&state, &again, Some(ExportDType::BF16), u64::MAX, false).expect("it is written");
        assert_eq!(
            fs::read(half.join("model.safetensors")).expect("a file"),
            fs::read(again.join("model.safetensors")).expect("a file")
        );
        weights::fill(&mut run, &again).expect("it fits");
        assert_eq!(weights_of(&run), rounded, "{family}");
    }
}

#[test]
fn other_models_are_not_exported() {
    let text = "import std.models.gpt
        pipeline p { model gpt(hidden = 8, heads = 2, blocks = 1, sequence = 4, rows = 1) devices 1 microbatches 1 schedule gpipe
            train { data synthetic steps 1 optimizer sgd(learning_rate = 0.1) } }";
    let (compilation, _) = compile_text("x.pipe", text, Path::new("."), &Request::default());
    let program = Arc::new(compilation.program.expect("a program"));
    let data = Arc::new(Data::synthetic(program.program()));
    let run = Run::start(program, &Options::new(Backend::Cpu, 3), data).expect("it starts");
    let state = checkpoint::state(&run, 0).expect("a state");
    let error =
        weights::export(&state, Path::new("nowhere"), None, u64::MAX, false).expect_err("no config").to_string();
    assert!(error.contains("not of a model from a `config.json`"), "{error}");
    assert!(!Path::new("nowhere").exists());
}

/// LoRA trains updates alone, published files begin them as nothing, and what is exported has them in its weights.
#[test]
fn updates_of_low_rank_are_exported_in_the_weights() {
    let folder = folder("lora");
    for family in ["llama2", "gpt2", "qwen2"] {
        let of = |rank: u32, lines: &str| start_with(family, &format!(", lora = {rank}"), lines);
        let mut plain = of(0, "precision f64 devices 1 schedule gpipe");
        let mut adapted = of(2, "precision f64 devices 2 tensor 2 schedule zb_h1");
        weights::fill(&mut plain, &source(family)).expect("it fits");
        weights::fill(&mut adapted, &source(family)).expect("it fits");
        let given = weights_of(&plain);
        let means = |run: &mut Run, range| {
            let all = losses(&steps(run, range)).into_iter().flatten().map(|(_, loss)| f64::from_bits(loss));
            let all: Vec<f64> = all.collect();
            all.iter().sum::<f64>() / all.len() as f64
        };
        let first = means(&mut plain, 0..1);
        assert!((means(&mut adapted, 0..1) - first).abs() < 1e-12, "{family}: updates begin as nothing");
        steps(&mut adapted, 1..3);
        let state = checkpoint::state(&adapted, 3).expect("a state");
        let is_update = |name: &str| name.contains("_lora_");
        let (updates, others): (Vec<_>, Vec<_>) = state.tensors.iter().partition(|tensor| is_update(&tensor.name));
        assert!(updates.iter().any(|tensor| tensor.name.ends_with("_lora_b")), "{family}");
        for tensor in others {
            let (_, data) = given.iter().find(|(name, _)| *name == tensor.name).expect("a weight of the model");
            assert!(*data == tensor.data, "{family}: `{}` is frozen", tensor.name);
        }
        let learned = means(&mut adapted, 3..4);
        let out = folder.join(family);
        // One more step was taken; weights of the checkpoint are those before it.
        weights::export(&state, &out, Some(ExportDType::F64), u64::MAX, false).expect("it is written");
        let mut merged = of(0, "precision f64 devices 1 schedule gpipe");
        weights::fill(&mut merged, &out).expect("it fits");
        let again = means(&mut merged, 3..4);
        assert!((again - learned).abs() < 1e-12, "{family}: {again} and {learned}");
        assert!((again - first).abs() > 1e-6, "{family}: something was learned");
    }
}
