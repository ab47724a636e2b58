//! Every error has sources that cause it: `tests/ui/<code>/<case>.pipe` marks the guilty lines with
//! `//~ <code>`, and `<case>.stderr` shows what the user sees. Schedules of PyTorch (`<case>.csv`)
//! have no room for marks: they cause nothing else.

use pipe_compiler::cluster::Cluster;
use pipe_compiler::profile::Profile;
use pipe_compiler::torch::export::{Form, export};
use pipe_compiler::{Compilation, Request};
use pipe_search::tune::{TuneRequest, problem};
use pipe_syntax::diagnostic::{Code, Label, edited};
use pipe_syntax::source::{FileId, Source, Sources};
use pipe_syntax::torch::Runtime;
use pipe_syntax::torch::version::Version;
use pipe_tests::cases::{compile_for_search, compile_text, expect, files, read, reason, report, root};
use pipec::output::diagnostics::{Look, draw};
use std::path::Path;

/// Lines of a source with the codes that they are marked with.
fn marks(text: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let Some((_, codes)) = text.split_once("//~") else { continue };
        found.extend(codes.split_whitespace().map(|code| (line, code.to_owned())));
    }
    found.sort();
    found
}

/// The code that the cases of a folder are for.
fn code_of(folder: &Path) -> &str {
    folder.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Compiles a source; where the code is the search's, for the search, where it is that of profiles, with
/// its own or one of two stages, where it is that of clusters, with one of two nodes, and where it is that
/// of experts, with one of many.
fn compiled(code: &str, name: &str, text: &str, folder: &Path) -> (Compilation, Sources) {
    if [Code::CannotSearch, Code::PairsLeftOut].map(Code::name).contains(&code) {
        return compile_for_search(name, text, folder);
    }
    if code == Code::CannotTune.name() {
        return tuned(name, text, folder);
    }
    if code == Code::CannotExport.name() {
        return exported(name, text, folder);
    }
    let version = (code == Code::TorchVersion.name()).then(|| "2.9".parse().expect("a version"));
    let torch = Runtime { version, ..Runtime::default() };
    let profile = (code == Code::UnusableProfile.name()).then(|| {
        let own = Path::new(name).with_extension("json");
        let path = if folder.join(&own).exists() { own } else { "two_stages.json".into() };
        let text = read(&root().join("tests/ui/unusable-profile").join(&path));
        Profile::read(Source { name: path.display().to_string(), text }).expect("a profile")
    });
    let file = [
        (Code::UnusableCluster, "tests/ui/unusable-cluster/two_nodes.toml"),
        (Code::ExpertsNotModelled, "examples/cluster.toml"),
    ];
    let file = file.into_iter().find(|(own, _)| own.name() == code).map(|(_, path)| root().join(path));
    let cluster = file.map(|path| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        Cluster::read(Source { name, text: read(&path) }).expect("a cluster")
    });
    compile_text(name, text, folder, &Request { profile, cluster, torch, ..Request::default() })
}

/// What speaks against writing a source in the form of PyTorch.
fn exported(name: &str, text: &str, folder: &Path) -> (Compilation, Sources) {
    let (mut compilation, sources) = compile_text(name, text, folder, &Request::default());
    let analysis = compilation.analysis.as_ref().filter(|_| compilation.report.ok);
    let found = analysis.and_then(|analysis| export(analysis, Form::Tasks, Version::NEWEST.into()).err());
    compilation.diagnostics.extend(found.into_iter().flatten());
    (compilation, sources)
}

/// What speaks against tuning a source.
fn tuned(name: &str, text: &str, folder: &Path) -> (Compilation, Sources) {
    let cluster = read(&root().join("tests/data/tune/tiny.toml"));
    let cluster = Cluster::read(Source { name: "tiny.toml".to_owned(), text: cluster }).expect("a cluster");
    let request = Request { cluster: Some(cluster), ..Request::default() };
    let mut sources = Sources::default();
    let source = Source { name: name.to_owned(), text: text.to_owned() };
    let load = |path: &str| std::fs::read_to_string(folder.join(path)).map_err(|error| reason(&error));
    let found = problem(&mut sources, source, &load, &request, TuneRequest::default()).err().unwrap_or_default();
    (Compilation::rejected(name, found, &sources), sources)
}

fn check_case(path: &Path) -> Vec<String> {
    let text = read(path);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new("."));
    let (compilation, sources) = compiled(code_of(folder), name, &text, folder);
    let place = |diagnostic: &pipe_syntax::diagnostic::Diagnostic| {
        let in_source = |label: &&Label| sources.get(label.span.file).name == name;
        let label = diagnostic.labels.iter().find(in_source).or(diagnostic.labels.first());
        let span = label.map(|label| label.span);
        span.map_or(0, |span| sources.line_column(span.file, span.start).0)
    };
    let mut found: Vec<(u32, String)> =
        compilation.diagnostics.iter().map(|one| (place(one), one.code.to_string())).collect();
    found.sort();
    let drawn = draw(&compilation.diagnostics, &sources, Look { width: 120, colours: false });
    let mut failures = Vec::new();
    if name.ends_with(".csv") {
        let own = code_of(folder);
        if found.is_empty() || found.iter().any(|(_, code)| code != own) {
            failures.push(format!("{}: found {found:?}\n{drawn}", path.display()));
        }
    } else if found != marks(&text) {
        failures.push(format!("{}: marked {:?}, found {found:?}\n{drawn}", path.display(), marks(&text)));
    }
    failures.extend(expect(&path.with_extension("stderr"), &drawn));
    failures
}

#[test]
fn sources_cause_the_errors_that_they_are_marked_with() {
    let cases = ["pipe", "csv"].map(|ending| files(&root().join("tests/ui"), ending));
    let failures: Vec<_> = cases.iter().flatten().flat_map(|path| check_case(path)).collect();
    report(&failures);
}

/// What each edit of a case writes, and whether the finding is gone then.
fn tried(path: &Path) -> (String, Vec<String>) {
    let (text, folder) = (read(path), path.parent().unwrap_or(Path::new(".")));
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (first, sources) = compiled(code_of(folder), name, &text, folder);
    let (mut written, mut failures) = (String::new(), Vec::new());
    for one in first.diagnostics.iter().filter(|one| !one.edits().is_empty()) {
        let help = one.help.as_deref().unwrap_or("no help");
        written += &format!("\n{}/{name}: {}\n  help: {help}\n", code_of(folder), one.message);
        let file = one.edits().first().map_or(FileId(0), |edit| edit.span.file);
        let old = &sources.get(file).text;
        let new = edited(old, one.edits());
        let (before, behind): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
        before.iter().filter(|line| !behind.contains(line)).for_each(|line| written += &format!("- {line}\n"));
        behind.iter().filter(|line| !before.contains(line)).for_each(|line| written += &format!("+ {line}\n"));
        // The text of another file cannot be handed in: what its edit writes is seen above.
        if sources.get(file).name != name {
            continue;
        }
        let (second, _) = compiled(code_of(folder), name, &new, folder);
        let (left, was) = (second.diagnostics.len(), first.diagnostics.len());
        if second.diagnostics.iter().any(|other| (other.code, &other.message) == (one.code, &one.message)) {
            failures.push(format!("{}: still found after its edit: {}\n{new}", path.display(), one.message));
        }
        let others = if left < was { String::new() } else { format!("then {left} as before\n") };
        written += &if left == 0 { "accepted\n".to_owned() } else { others };
    }
    (written, failures)
}

#[test]
fn edits_make_what_they_are_for_go_away() {
    let cases = files(&root().join("tests/ui"), "pipe");
    let (written, failures): (Vec<String>, Vec<Vec<String>>) = cases.iter().map(|path| tried(path)).unzip();
    report(&failures.concat());
    let head = "Edits that findings of the cases in this folder offer, each made alone.\n";
    report(
        &expect(&root().join("tests/ui/edits.txt"), &(head.to_owned() + &written.concat()))
            .into_iter()
            .collect::<Vec<_>>(),
    );
}

#[test]
fn every_code_has_a_case() {
    let cases = root().join("tests/ui");
    let has = |code: &Code, ending: &str| !files(&cases.join(code.name()), ending).is_empty();
    let missing = Code::ALL.iter().filter(|code| !has(code, "pipe") && !has(code, "csv"));
    report(&missing.map(|code| format!("tests/ui/{code}/ has no case")).collect::<Vec<_>>());
}

#[test]
fn headlines_are_facts_in_lower_case() {
    let mut failures = Vec::new();
    for path in files(&root().join("tests/ui"), "stderr") {
        for line in read(&path).lines() {
            let Some((_, headline)) = line.split_once("]: ").filter(|(head, _)| head.contains("error[")) else {
                continue;
            };
            let shouts = headline.ends_with('.') || headline.contains("invalid") || headline.contains("please");
            if shouts {
                failures.push(format!("{}: {headline}", path.display()));
            }
        }
    }
    report(&failures);
}

/// The blocks of a page that are sources, each with a name for it.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let block = |part: &str| {
        let (name, rest) = part
            .strip_prefix("pipe\n")
            .map(|rest| ("x.pipe", rest))
            .or(part.strip_prefix("csv\n").map(|rest| ("x.csv", rest)))?;
        Some((name, rest.split("```").next().unwrap_or_default().to_owned()))
    };
    page.split("```").skip(1).step_by(2).filter_map(block).collect()
}

fn check_page(code: Code) -> Vec<String> {
    let page = code.page();
    let blocks = blocks(page);
    let [example, fix] = blocks.as_slice() else {
        return vec![format!("{code}: the page has {} blocks of source, not an example and a fix", blocks.len())];
    };
    let mut failures: Vec<String> = ["## Why it matters", "## Example", "## Fix"]
        .into_iter()
        .filter(|part| !page.contains(part))
        .map(|part| format!("{code}: the page has no part `{part}`"))
        .collect();
    let codes = |(name, text): &(&str, String)| -> Vec<String> {
        let folder = if code == Code::ExpertsNotModelled { "tests/data/configs" } else { "examples" };
        let (compilation, _) = compiled(code.name(), name, text, &root().join(folder));
        compilation.diagnostics.iter().map(|diagnostic| diagnostic.code.to_string()).collect()
    };
    let of_example = codes(example);
    if of_example.is_empty() || of_example.iter().any(|found| found != code.name()) {
        failures.push(format!("{code}: the example causes {of_example:?}"));
    }
    let of_fix = codes(fix);
    if !of_fix.is_empty() {
        failures.push(format!("{code}: the fix causes {of_fix:?}"));
    }
    failures
}

#[test]
fn pages_have_four_parts_and_their_sources_do_as_they_say() {
    report(&Code::ALL.iter().flat_map(|code| check_page(*code)).collect::<Vec<_>>());
}
