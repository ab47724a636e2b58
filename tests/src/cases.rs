//! Tests that are files: finding them, expected outputs that can be blessed, compiling a text.

use pipe_compiler::elaborate::Request as Choice;
use pipe_compiler::{Compilation, Request, compile, phases};
use pipe_schedule::dispatch::Objective;
use pipe_schedule::timing::costs::StageCosts;
use pipe_search::driver::run::{Prepared, prepare};
use pipe_syntax::source::{Source, Sources};
use pipe_syntax::stdlib;
use std::fs;
use std::path::{Path, PathBuf};

/// Why a file cannot be read, as the command line says it: without the number of the error.
#[must_use]
pub fn reason(error: &std::io::Error) -> String {
    let words = error.to_string();
    words.split(" (os error ").next().unwrap_or_default().to_owned()
}

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the tests lie one folder below the root").to_owned()
}

/// Files of a folder with this ending, sorted, those in folders below it included.
#[must_use]
pub fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).map(|entries| entries.filter_map(Result::ok).collect::<Vec<_>>());
    for entry in entries.unwrap_or_default() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The text of a file.
///
/// # Panics
/// If it cannot be read.
#[must_use]
pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Compares a text with an expected file, or writes the file if `BLESS` is set. Returns what is wrong.
#[must_use]
pub fn expect(path: &Path, actual: &str) -> Option<String> {
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, actual).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return None;
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    let differs = || {
        format!(
            "{} differs (`cargo bless` rewrites it)\n--- expected\n{expected}\n--- actual\n{actual}",
            path.display()
        )
    };
    (expected != actual).then(differs)
}

/// Fails with everything that went wrong.
///
/// # Panics
/// If anything did.
pub fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} failures\n\n{}", failures.len(), failures.join("\n\n"));
}

/// Compiles a text under a name; imports are relative to the folder.
#[must_use]
pub fn compile_text(name: &str, text: &str, folder: &Path, request: &Request) -> (Compilation, Sources) {
    let mut sources = Sources::default();
    let root = Source { name: name.to_owned(), text: text.to_owned() };
    let load = |path: &str| fs::read_to_string(folder.join(path)).map_err(|error| reason(&error));
    let compilation = compile(&mut sources, root, &load, request);
    (compilation, sources)
}

/// What to ask for, so that all of a text is compiled: the default, or each phase of its pipeline.
#[must_use]
pub fn requests(name: &str, text: &str, folder: &Path) -> Vec<Request> {
    let root = Source { name: name.to_owned(), text: text.to_owned() };
    let load = |path: &str| fs::read_to_string(folder.join(path)).map_err(|error| reason(&error));
    let of_phase = |phase: String| {
        let mut request = Request::default();
        request.choice.pipeline = Some(phase);
        request
    };
    let phases: Vec<Request> = phases::names(root, &load, None).into_iter().map(of_phase).collect();
    if phases.is_empty() { vec![Request::default()] } else { phases }
}

/// A loader for what imports nothing.
///
/// # Errors
/// Always.
pub fn no_files(path: &str) -> Result<String, String> {
    Err(path.to_owned())
}

/// Compiles a text that imports nothing.
#[must_use]
pub fn compiled(name: &str, text: &str, request: &Request) -> Compilation {
    let root = Source { name: name.to_owned(), text: text.to_owned() };
    compile(&mut Sources::default(), root, &no_files, request)
}

/// A standard schedule of so many devices and microbatches, with its costs as `--cost` has them.
///
/// # Panics
/// If there is none of that name, or costs are not well-formed.
#[must_use]
pub fn standard(name: &str, sizes: [i64; 2], costs: &str) -> Compilation {
    let settings = ["devices", "microbatches"].iter().zip(sizes).map(|(name, size)| ((*name).to_owned(), size));
    let choice = Choice { settings: settings.collect(), ..Choice::default() };
    let costs = Some(StageCosts::parse(costs).expect("costs"));
    let request = Request { choice, costs, ..Request::default() };
    compiled(&format!("std:{name}"), stdlib::schedule(name).expect("a standard schedule"), &request)
}

/// A text that imports nothing as a target of the search.
///
/// # Panics
/// If it is refused.
#[must_use]
pub fn prepared(name: &str, text: &str, request: &Request, objective: Objective) -> Prepared {
    let root = Source { name: name.to_owned(), text: text.to_owned() };
    let prepared = prepare(&mut Sources::default(), root, &no_files, request, objective);
    prepared.unwrap_or_else(|found| panic!("{name}: {:#?}", found.diagnostics))
}

/// Compiles a text as [`compile_text`] does, and if it is accepted asks whether it can be searched,
/// and what is left out.
#[must_use]
pub fn compile_for_search(name: &str, text: &str, folder: &Path) -> (Compilation, Sources) {
    let (request, mut sources) = (Request::default(), Sources::default());
    let root = Source { name: name.to_owned(), text: text.to_owned() };
    let load = |path: &str| fs::read_to_string(folder.join(path)).map_err(|error| reason(&error));
    match prepare(&mut sources, root, &load, &request, Objective::Makespan) {
        Ok(prepared) => {
            let (mut compilation, sources) = compile_text(name, text, folder, &request);
            compilation.diagnostics.extend(prepared.warnings);
            (compilation, sources)
        }
        Err(compilation) => (*compilation, sources),
    }
}

/// Blocks of source in a page of the documentation, with their place.
#[must_use]
pub fn documented(path: &Path) -> Vec<(String, String)> {
    let text = read(path);
    let parts = text.split("```pipe\n").enumerate().skip(1);
    parts
        .map(|(number, part)| {
            (format!("{} block {number}", path.display()), part.split("```").next().unwrap_or_default().to_owned())
        })
        .collect()
}
