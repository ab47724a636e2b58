//! Files of tokens: `.bin`, `.npy` and text feed the same run alike, and what is no such file is refused with a reason.

use pipe_compiler::Request;
use pipe_ir::verify::Verified;
use pipe_tests::cases::compile_text;
use pipe_tests::data_files::{losses_from, npy};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("token_files").join(name);
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn program(file: &str, vocabulary: u32) -> Arc<Verified> {
    let text = format!(
        "import std.models.gpt
        pipeline p {{
            model gpt(vocab = {vocabulary}, hidden = 8, heads = 2, blocks = 1, sequence = 6, rows = 2)
            devices 2 microbatches 3 schedule 1f1b
            train {{ data \"{file}\" steps 2 seed 5 optimizer sgd(learning_rate = 0.1) }}
        }}"
    );
    let (compilation, _) = compile_text("x.pipe", &text, Path::new("."), &Request::default());
    Arc::new(compilation.program.unwrap_or_else(|| panic!("{:#?}", compilation.diagnostics)))
}

/// The losses of two steps, or why the file is refused.
fn learned(folder: &Path, file: &str, vocabulary: u32) -> Result<Vec<Vec<u64>>, String> {
    losses_from(program(file, vocabulary), folder, 0..2)
}

#[test]
fn every_form_of_the_same_tokens_learns_the_same() {
    let folder = folder("forms");
    let tokens: Vec<u8> = (0..200_u32).map(|i| (i * i % 61) as u8).collect();
    let wide = |bytes: usize| -> Vec<u8> {
        tokens.iter().flat_map(|token| u64::from(*token).to_le_bytes()[..bytes].to_vec()).collect()
    };
    let shape = "(200,)";
    let files = [
        ("text.txt", tokens.clone()),
        ("short.bin", wide(2)),
        ("bytes.npy", npy("|u1", shape, &tokens)),
        ("short.npy", npy("<u2", shape, &wide(2))),
        ("unsigned.npy", npy("<u4", shape, &wide(4))),
        ("signed.npy", npy("<i4", shape, &wide(4))),
        ("long.npy", npy("<i8", shape, &wide(8))),
    ];
    let mut all = Vec::new();
    for (name, bytes) in &files {
        fs::write(folder.join(name), bytes).expect("a file");
        all.push(learned(&folder, name, 256).expect("it learns"));
    }
    assert!(all.iter().all(|losses| *losses == all[0]), "{all:?}");
    // A larger vocabulary has wider tokens in `.bin` files.
    fs::write(folder.join("wide.bin"), wide(4)).expect("a file");
    fs::write(folder.join("wide.npy"), npy("<u4", shape, &wide(4))).expect("a file");
    assert_eq!(learned(&folder, "wide.bin", 70_000), learned(&folder, "wide.npy", 70_000));
}

#[test]
fn what_is_no_file_of_tokens_is_refused() {
    let folder = folder("refused");
    let cases = [
        ("odd.bin", vec![0; 201], "is not a file of tokens: it has 201 bytes, and each token would have 2"),
        (
            "few.bin",
            vec![0; 12],
            "has 6 tokens, but one row of a microbatch takes 7 (the sequence and the token after it)",
        ),
        (
            "large.bin",
            [vec![0; 100], vec![255, 1]].concat(),
            "holds the token 511, but the model indexes a table of 256 rows",
        ),
        (
            "below.npy",
            npy("<i4", "(20,)", &[255; 80]),
            "holds a number that is no token: it is below 0, or above 2147483647",
        ),
        (
            "floats.npy",
            npy("<f4", "(20,)", &[0; 80]),
            "its numbers are of type f32; u8, u16, u32, i32 and i64 are read",
        ),
        ("axes.npy", npy("<i4", "(4, 5)", &[0; 80]), "it has several axes, or none; tokens stand along one"),
        ("cut.npy", npy("<i4", "(21,)", &[0; 80]), "too few for 21 numbers: it is cut off"),
        ("text.npy", b"not an array at all".to_vec(), "it is not in NumPy's format"),
        ("short.txt", b"abc".to_vec(), "has 3 bytes, but one row of a microbatch takes 7"),
    ];
    for (name, bytes, reason) in cases {
        fs::write(folder.join(name), bytes).expect("a file");
        let refusal = learned(&folder, name, 256).expect_err(name);
        assert!(refusal.contains(reason), "{name}: {refusal}");
    }
}
