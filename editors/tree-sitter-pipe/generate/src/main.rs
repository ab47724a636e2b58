//! Writes `src/parser.c`, `src/node-types.json` and their headers from `src/grammar.json`.

use std::path::Path;
use std::process::ExitCode;
use tree_sitter_generate::{ABI_VERSION_MAX, OptLevel, generate_parser_in_directory};

fn main() -> ExitCode {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let (grammar, nowhere) = (folder.join("src/grammar.json"), None::<&Path>);
    let mut found = Vec::new();
    let written = generate_parser_in_directory(
        folder,
        nowhere,
        Some(grammar),
        ABI_VERSION_MAX,
        None,
        None,
        true,
        OptLevel::default(),
        &mut found,
    );
    for one in &found {
        eprintln!("{one:?}");
    }
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
