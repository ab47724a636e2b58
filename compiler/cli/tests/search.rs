//! `pipec search` as a whole process: what it prints, writes and exits with, and that what it writes works.

mod process;

use process::{folder, pipec};
use serde_json::Value;
use std::fs;
use std::path::Path;

const TINY: &str = include_str!("data/tiny.pipe");

fn json(folder: &Path, arguments: &str, code: i32) -> Value {
    pipec(folder, arguments, "").with(code).into()
}

#[test]
fn the_examples_of_the_help_work() {
    let folder = folder("search-help", &[("tiny.pipe", TINY)]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let help = pipec(&folder, "search --help", "").with(0).out;
    let examples: Vec<&str> = help.lines().filter_map(|line| line.strip_prefix("  pipec search ")).collect();
    assert!(examples.len() >= 3, "{help}");
    for example in examples {
        let example = example.replace("examples/", &format!("{}/examples/", root.display())).replace("--time 60", "");
        pipec(&folder, &format!("search {example} --time 0.1 --quiet"), "").with(0);
    }
    for written in ["found.pipe", "better.pipe"] {
        assert!(folder.join(written).exists(), "{written}");
    }
}

#[test]
fn the_readme_shows_what_is_found() {
    let folder = folder("search-readme", &[("tiny.pipe", TINY)]);
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).expect("a file");
    let block = readme.split("```text\n$ pipec search ").nth(1).and_then(|rest| rest.split("```").next());
    let (arguments, shown) = block.and_then(|block| block.split_once('\n')).expect("a command and its output");
    let found = pipec(&folder, &format!("search {arguments} --time 120"), "").with(0).out;
    let shown: String = shown.lines().take_while(|line| line.trim() != "..").map(|line| format!("{line}\n")).collect();
    assert!(shown.lines().count() > 5 && found.starts_with(&shown), "{shown}\nis shown, but found is\n{found}");
}

/// A figure of the last line on standard error, such as `lower bound`.
fn told(line: &str, name: &str) -> f64 {
    let rest = line.split(&format!("{name} ")).nth(1).unwrap_or_else(|| panic!("{line}"));
    let figure = rest.split([',', '%']).next().and_then(|figure| figure.parse().ok());
    figure.unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn bound_gap_and_proof_are_those_of_the_objective() {
    let folder = folder("search-objective", &[("tiny.pipe", TINY)]);
    let targets = [
        "std:zb_v --set devices=3 --set microbatches=6 --cost F=1,B=1.5,W=1",
        "std:v_half --set devices=4 --set microbatches=5 --cost F=2,B=3,W=1,comm=0.5 --memory 2",
        "std:zb_h1 --set devices=4 --set microbatches=12",
        "std:dualpipe_v --set devices=2 --set microbatches=4 --cost F=1,BW=2,B=1,W=1,F&BW=2.5",
    ];
    for (target, objective) in targets.iter().flat_map(|target| [(target, "makespan"), (target, "longest-stage")]) {
        let search = format!("search {target} --objective {objective} --rounds 1 --time 60");
        let report = json(&folder, &format!("{search} --format json"), 0);
        let of = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name} of {search}"));
        let is_makespan = objective == "makespan";
        let found = of(if is_makespan { "makespan" } else { "longest_stage" });
        assert_eq!(report["objective"], objective);
        assert!(of("lower_bound") <= found && of("makespan_lower_bound") <= of("makespan"), "{search}");
        assert!(of("lower_bound") <= of("makespan_lower_bound") && of("lower_bound") > 0.0, "{search}");
        assert!((of("gap") - (found / of("lower_bound") - 1.0)).abs() < 1e-9, "{search}");
        assert_eq!(report["proved_optimal"], found == of("lower_bound"), "{search}");
        // Without an option nothing is otherwise.
        assert!(!is_makespan || of("makespan_lower_bound") == of("lower_bound"), "{search}");
        // What people read says the same.
        let text = pipec(&folder, &format!("{search} -o x.pipe"), "").with(0);
        let last = text.error.lines().last().unwrap_or_default();
        let words = if is_makespan { "makespan" } else { "longest span" };
        assert!(last.starts_with(words) && last.contains("not proved") != (found == of("lower_bound")), "{last}");
        assert_eq!((told(last, words), told(last, "lower bound")), (found, of("lower_bound")), "{search}");
        let line = text.out.lines().find(|line| line.trim_start().starts_with("lower bound")).expect("a line");
        assert_eq!(line.split_whitespace().nth(2).and_then(|figure| figure.parse().ok()), Some(of("lower_bound")));
        assert_eq!(line.contains("of the longest span, "), !is_makespan, "{line}");
        assert_eq!(line.contains("reached"), found == of("lower_bound"), "{line}");
        let makespan = format!("{} of the makespan", of("makespan_lower_bound"));
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(text.out.lines().any(|line| words(line) == makespan), !is_makespan, "{}", text.out);
    }
    let rejected = json(&folder, "search std:v_half --memory 0.25 --objective longest-stage --format json", 1);
    assert_eq!((&rejected["objective"], &rejected["proved_optimal"]), (&"longest-stage".into(), &false.into()));
}
