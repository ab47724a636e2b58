//! House rules that lints cannot hold: headers, sizes, comments that name files, examples that compile.

use pipe_tests::cases::{compile_text, documented, files, read, report, requests, root};
use pipe_tests::imports::{cycles, imports};
use std::path::{Path, PathBuf};

/// Longest source file, in lines.
const MOST_LINES: usize = 600;

fn rust_files() -> Vec<PathBuf> {
    ["compiler", "runtime", "tests", "benches"].iter().flat_map(|part| files(&root().join(part), "rs")).collect()
}

#[test]
fn files_open_with_what_they_are_for_and_hold_one_idea() {
    let mut failures = Vec::new();
    for path in rust_files() {
        let text = read(&path);
        if !text.starts_with("//! ") {
            failures.push(format!("{}: does not open with a `//!` sentence", path.display()));
        }
        let lines = text.lines().count();
        if lines > MOST_LINES {
            failures.push(format!("{}: {lines} lines, more than {MOST_LINES}", path.display()));
        }
    }
    report(&failures);
}

#[test]
fn memory_unsafety_stays_in_the_files_that_argue_for_it() {
    let allowed = [
        "runtime/distributed/src/memory.rs",
        "runtime/src/devices/cpu/foreign.rs",
        "runtime/cuda/src/driver/gpu.rs",
        "runtime/cuda/src/driver/graph.rs",
        "runtime/cuda/src/driver/memory.rs",
        "runtime/cuda/src/driver/mod.rs",
        "runtime/cuda/src/driver/module.rs",
        "runtime/cuda/src/driver/nvrtc.rs",
        "runtime/cuda/src/driver/stream.rs",
        "runtime/cuda/src/found.rs",
        "runtime/cuda/src/kernels/tests/emulated.rs",
        "runtime/cuda/src/nccl/library.rs",
        "runtime/cuda/src/gemm/library.rs",
    ];
    let marks = [concat!("unsa", "fe {"), concat!("unsa", "fe impl"), concat!("unsa", "fe fn")];
    let mut failures = Vec::new();
    for path in rust_files() {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let text = read(&path);
        let uses = marks.iter().any(|mark| text.contains(mark));
        if uses && !allowed.contains(&name.as_str()) {
            failures.push(format!("{name}: has `unsafe`"));
        }
    }
    report(&failures);
}

/// The tables at the top of a `mod.rs` or `lib.rs` name modules that are there, and comments have at most 120 columns.
#[test]
fn tables_of_modules_are_true_and_comments_are_wrapped() {
    const MOST_COLUMNS: usize = 120;
    let mut failures = Vec::new();
    for path in rust_files() {
        let text = read(&path);
        let is_root = path.ends_with("mod.rs") || path.ends_with("lib.rs");
        for (number, line) in (1..).zip(text.lines()) {
            let row = line.strip_prefix("//! | `").and_then(|row| row.split_once("` |"));
            if let Some((module, _)) = row.filter(|_| is_root)
                && !text.contains(&format!("mod {module};"))
            {
                failures.push(format!("{}:{number}: there is no module `{module}`", path.display()));
            }
            let is_table = line.trim_start().starts_with("//! |");
            if line.trim_start().starts_with("//") && !is_table && line.chars().count() > MOST_COLUMNS {
                failures.push(format!("{}:{number}: a comment of more than {MOST_COLUMNS} columns", path.display()));
            }
        }
    }
    report(&failures);
}

#[test]
fn nothing_unfinished_is_left_behind() {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("#[igno", "re"), concat!("#[should_pan", "ic")];
    let mut failures = Vec::new();
    for path in rust_files() {
        for (line, text) in (1..).zip(read(&path).lines()) {
            if marks.iter().any(|mark| text.contains(mark)) {
                failures.push(format!("{}:{line}: {}", path.display(), text.trim()));
            }
        }
    }
    report(&failures);
}

#[test]
fn examples_are_accepted_and_say_why_one_would_want_them() {
    let folder = root().join("examples");
    let mut failures = Vec::new();
    for path in files(&folder, "pipe") {
        let text = read(&path);
        if !text.starts_with("//") {
            failures.push(format!("{}: does not open with a comment", path.display()));
        }
        let home = path.parent().unwrap_or(&folder);
        for request in requests(&path.display().to_string(), &text, home) {
            let (compilation, _) = compile_text(&path.display().to_string(), &text, home, &request);
            if !compilation.diagnostics.is_empty() {
                failures.push(format!("{}: {:#?}", path.display(), compilation.diagnostics));
            }
        }
    }
    report(&failures);
}

/// Binaries of a package, by the rules of cargo.
fn binaries(package: &Path) -> usize {
    let manifest = read(&package.join("Cargo.toml"));
    let declared = manifest.lines().filter(|line| line.trim() == "[[bin]]").count();
    let alone = usize::from(package.join("src/main.rs").exists());
    let folder = package.join("src/bin").read_dir();
    declared + alone + folder.map_or(0, Iterator::count)
}

#[test]
fn the_two_commands_of_the_readme_find_what_they_run() {
    let text = read(&root().join("README.md"));
    let commands = text.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(commands, Some("cargo run --release -- run examples/shakespeare.pipe\ncargo test\n"));
    assert!(root().join("examples/shakespeare.pipe").exists());
    let manifest = read(&root().join("Cargo.toml"));
    let members = manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).expect("members");
    let members: Vec<&str> = members.split(',').map(|member| member.trim().trim_matches('"')).collect();
    assert!(members.contains(&"compiler/cli") && !manifest.contains("default-members"), "{members:?}");
    // `cargo run` without a name runs the only binary of the workspace, and refuses if there are two.
    let counts: Vec<_> = members.iter().map(|member| (*member, binaries(&root().join(member)))).collect();
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<usize>(), 1, "{counts:?}");
}

#[test]
fn sources_in_the_documentation_are_accepted() {
    let mut pages = files(&root().join("docs"), "md");
    pages.extend(["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(|name| root().join(name)));
    let mut failures = Vec::new();
    for (place, text) in pages.iter().filter(|page| page.exists()).flat_map(|page| documented(page)) {
        let folder = root().join("examples");
        for request in requests(&place, &text, &folder) {
            let (compilation, _) = compile_text(&place, &text, &folder, &request);
            if !compilation.report.ok {
                failures.push(format!("{place}: {:#?}", compilation.diagnostics));
            }
        }
    }
    report(&failures);
}

/// The crates of compiler and runtime, with the folders of their sources.
fn crates() -> Vec<(String, PathBuf)> {
    let manifests = files(&root(), "toml").into_iter().filter(|path| path.ends_with("Cargo.toml"));
    let folders = manifests.filter_map(|path| Some(path.parent()?.to_owned()));
    let is_ours = |folder: &PathBuf| {
        let name = folder.strip_prefix(root()).unwrap_or(folder);
        name.starts_with("compiler") || name.starts_with("runtime")
    };
    folders
        .filter(is_ours)
        .map(|folder| (folder.strip_prefix(root()).unwrap_or(&folder).display().to_string(), folder.join("src")))
        .collect()
}

#[test]
fn no_crate_holds_more_than_a_quarter_and_no_cycle_more_than_eight_files() {
    let lines = |sources: &PathBuf| files(sources, "rs").iter().map(|path| read(path).lines().count()).sum::<usize>();
    let sizes: Vec<(String, usize)> = crates().iter().map(|(name, sources)| (name.clone(), lines(sources))).collect();
    let total: usize = sizes.iter().map(|(_, lines)| lines).sum();
    let mut failures = Vec::new();
    for ((name, lines), (_, sources)) in sizes.iter().zip(crates()) {
        let largest = cycles(&imports(&sources)).into_iter().next().unwrap_or_default();
        println!(
            "{name}: {lines} lines, {:.1}% of {total}; largest cycle: {}",
            100.0 * *lines as f64 / total as f64,
            largest.len()
        );
        if lines * 4 > total {
            failures.push(format!("{name}: {lines} of {total} lines, more than a quarter"));
        }
        if largest.len() > 8 {
            failures.push(format!("{name}: {} files import each other: {}", largest.len(), largest.join(", ")));
        }
    }
    report(&failures);
}

/// Whether a word in backquotes is meant as a path of this repository.
fn is_path(word: &str) -> bool {
    let is_file = [".rs", ".pest", ".md", ".py", ".toml"].iter().any(|ending| word.ends_with(ending));
    let folders =
        ["compiler/", "runtime/", "grammar/", "stdlib/", "tests/", "docs/", "python/", "editors/", "fuzz/", "benches/"];
    let is_plain = word.chars().all(|mark| mark.is_alphanumeric() || "_-./".contains(mark));
    is_plain && folders.iter().any(|folder| word.starts_with(folder)) && (is_file || word.ends_with('/'))
}

#[test]
fn paths_that_documents_and_comments_name_exist() {
    let mut texts = files(&root().join("docs"), "md");
    texts.extend(["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(|name| root().join(name)));
    texts.extend(rust_files());
    let mut failures = Vec::new();
    for path in texts.iter().filter(|path| !path.components().any(|part| part.as_os_str() == "node_modules")) {
        for (line, text) in (1..).zip(read(path).lines()) {
            if path.extension().is_some_and(|ending| ending == "rs") && !text.trim_start().starts_with("//") {
                continue;
            }
            for word in text.split('`').skip(1).step_by(2).filter(|word| is_path(word)) {
                if !root().join(word).exists() {
                    failures.push(format!("{}:{line}: there is no `{word}`", path.display()));
                }
            }
        }
    }
    report(&failures);
}
