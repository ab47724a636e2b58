//! Inputs that fuzzers found something with, and the seeds that they start from: nothing panics, hangs or is unsound.

use pipe_compiler::Request;
use pipe_ir::forms::json;
use pipe_ir::instruction::REFERENCE;
use pipe_runtime::checkpoint;
use pipe_tests::cases::{self, compile_text, expect, read, report, root};
use pipe_tests::fuzz;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).map(|entries| entries.filter_map(Result::ok).collect::<Vec<_>>());
    let mut found: Vec<PathBuf> = entries.unwrap_or_default().iter().map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Throws the files of some folders at a target; each takes no longer than ten seconds.
fn throw(target: fn(&[u8]), folders: &[&str]) {
    let mut n_files = 0;
    for path in folders.iter().flat_map(|folder| files(&root().join(folder))).filter(|path| path.is_file()) {
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let started = Instant::now();
        target(&bytes);
        assert!(started.elapsed() < Duration::from_secs(10), "{} takes {:?}", path.display(), started.elapsed());
        n_files += 1;
    }
    assert!(n_files > 0, "{folders:?} have no files");
}

/// Dictionaries have the words of the language and of every instruction, so that fuzzers try new ones too.
#[test]
fn dictionaries_have_every_word() {
    let missing = |name: &str, words: &[&str]| -> Vec<String> {
        let text = read(&root().join("fuzz").join(name));
        let has = |word: &str| {
            text.split(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '_')).any(|known| known == word)
        };
        words.iter().filter(|word| !has(word)).map(|word| format!("{name}: {word}")).collect()
    };
    let instructions: Vec<_> = REFERENCE.iter().map(|row| row.word).collect();
    let keywords: Vec<_> = pipe_ide::reference::keywords().collect();
    let all = [("ir.dict", &instructions), ("json.dict", &instructions), ("pipe.dict", &keywords)];
    assert_eq!(all.map(|(name, words)| missing(name, words)).concat(), [""; 0]);
}

#[test]
fn sources() {
    throw(fuzz::source, &["fuzz/regressions/source", "fuzz/seeds/source", "stdlib/schedules", "stdlib/models"]);
}

#[test]
fn programs_in_text() {
    throw(fuzz::ir, &["fuzz/regressions/ir", "tests/ir/lower", "tests/ir/verify"]);
}

#[test]
fn programs_in_json() {
    throw(fuzz::json, &["fuzz/regressions/json", "fuzz/seeds/json"]);
}

#[test]
fn seeds_are_what_is_written_today() {
    let folder = root().join("tests/ir/lower");
    let failure = |path: &PathBuf| {
        let (compilation, _) = compile_text("seed.pipe", &read(path), &folder, &Request::default());
        let mut written = Vec::new();
        let program = compilation.program.as_ref();
        if program.is_none_or(|verified| json::write(verified.program(), &mut written).is_err()) {
            return Some(format!("{} has no program", path.display()));
        }
        let seed = root().join("fuzz/seeds/json").join(path.file_name().unwrap_or_default());
        expect(&seed.with_extension("json"), &String::from_utf8_lossy(&written))
    };
    report(&cases::files(&folder, "pipe").iter().filter_map(failure).collect::<Vec<_>>());
    let seed = std::fs::read(root().join("fuzz/seeds/checkpoint/model.safetensors"));
    let state = seed.map_err(|error| error.to_string()).and_then(|bytes| checkpoint::from_bytes(&bytes));
    assert!(state.is_ok_and(|state| state.tensors.len() > 1));
}

#[test]
fn checkpoints() {
    throw(fuzz::checkpoint, &["fuzz/regressions/checkpoint", "fuzz/seeds/checkpoint"]);
}

/// Idle devices beside values that none of them touches: as many of both as fit in some megabytes.
#[test]
fn wide_programs_take_no_longer_than_long_ones() {
    let device = |id: u32, run: &str| {
        format!(
            "device d{id} arena 0 peak 0 tokens 0 {{\n  buffers {{\n  }}\n  setup {{\n  }}\n  step {{\n{run}  }}\n}}\n"
        )
    };
    let mut text = "program wide stages 1 microbatches 1\n".to_owned();
    text.extend((0..60_000).map(|id| format!("value v{id}: activation of s0, 64 bytes\n")));
    text.push_str("exec @F.s0 flops 1 ()\n");
    text.push_str(&device(0, "run @F.s0 m0 ()\n"));
    text.extend((1..60_000).map(|id| device(id, "")));
    let started = Instant::now();
    assert!(pipe_ir::text::check(&text).is_ok());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}
