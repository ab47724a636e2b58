//! `pipec search` as a whole process: what it prints, writes and exits with, and that what it writes works.

mod process;

use process::{folder, pipec};
use serde_json::Value;
use std::fs;
use std::path::Path;

const TINY: &str = include_str!("data/tiny.pipe");

/// A model of which half is the state of the optimizer.
const TINY_STATE: &str = "import std.models.gpt
pipeline state {
    model gpt(vocab = 17, hidden = 16, heads = 2, blocks = 2, sequence = 16, rows = 2)
    devices 2 memory MEMORY
    microbatches 4
    schedule 1f1b
    train {
        data synthetic
        steps 3
        optimizer adamw(learning_rate = 0.001)
    }
}
";

fn json(folder: &Path, arguments: &str, code: i32) -> Value {
    pipec(folder, arguments, "").with(code).into()
}

#[test]
fn stages_recompute_where_nothing_fits_without_or_where_it_is_shorter() {
    let folder = folder("search-recompute", &[("tiny.pipe", TINY)]);
    // Two stages on each device, and memory for one: the first of them recomputes.
    let target = "std:v_half --set devices=2 --set microbatches=3 --memory 0.5 --rounds 1 --time 60 --format json";
    let report = json(&folder, &format!("search {target}"), 0);
    assert_eq!((&report["ok"], &report["peak_activation"]), (&true.into(), &0.5.into()));
    assert_eq!(report["recompute"]["stages"], serde_json::json!([0, 1]));
    assert!(
        report["source"]
            .as_str()
            .is_some_and(|source| source.contains("Recomputed: s0, s1.") && source.contains("R[0]"))
    );
    // Where every stage has to recompute already, there is no more room to be had.
    let text = pipec(&folder, "search std:v_half --memory 0.25", "").with(1).error;
    assert!(text.contains("d0 needs 0.5 units for a single microbatch, and 0.25 are allowed"), "{text}");
    // One activation on each device lets one microbatch run at a time, unless stages recompute.
    let target = "search std:1f1b --set devices=3 --set microbatches=6 --memory 1 --rounds 2 --time 60 --format json";
    let (plain, again) = (json(&folder, target, 0), json(&folder, &format!("{target} --may-recompute"), 0));
    let makespan = |report: &Value| report["makespan"].as_f64().unwrap_or_default();
    assert_eq!(makespan(&plain), 42.0);
    assert_eq!(makespan(&again), 26.0);
    assert_eq!((&again["peak_activation"], again["recompute"]["stages"][0].as_u64()), (&1.0.into(), Some(0)));
    // With enough memory nobody does.
    let target =
        "search std:1f1b --set devices=3 --set microbatches=6 --may-recompute --rounds 1 --time 60 --format json";
    assert!(json(&folder, target, 0).get("recompute").is_none());
}

#[test]
fn state_lives_with_the_hosts_where_that_is_shorter_or_nothing_fits_without() {
    let folder = folder("search-offload", &[]);
    let write = |memory: &str| {
        let text = TINY_STATE.replace("MEMORY", memory);
        fs::write(folder.join("state.pipe"), text).expect("a file");
    };
    let costs = "--cost F=1,BW=2,B=1,W=1,copy=1 --rounds 0 --format json";
    let found = |more: &str| json(&folder, &format!("search state.pipe {costs} {more}"), 0);
    write("124KiB");
    let (without, with) = (found(""), found("--may-offload"));
    assert!(without.get("offload").is_none() && without["makespan"] == 20.0, "{without}");
    write("128KiB");
    let plain = found("--may-offload");
    assert!(plain.get("offload").is_none() && plain["makespan"] == 14.0, "no copies where none are needed: {plain}");
    write("124KiB");
    assert!(with["offload"]["what"] == "optimizer" && with["makespan"].as_f64() < Some(14.1), "{with}");
    let source = with["source"].as_str().expect("a source");
    assert!(source.contains("    schedule found\n    offload optimizer\n"), "{source}");
    fs::write(folder.join("found.pipe"), source).expect("a file");
    let analysis = json(&folder, "check found.pipe --cost F=1,BW=2,B=1,W=1,copy=1 --format json", 0);
    assert_eq!(analysis["makespan"], with["makespan"]);
    write("60KiB");
    let refused = json(&folder, &format!("search state.pipe {costs} --may-offload --set microbatches=1"), 1);
    assert_eq!(refused["diagnostics"][0]["code"], "memory-exceeded");
    let unknown = json(&folder, "search state.pipe --may-offload --format json", 1);
    assert_eq!(unknown["diagnostics"][0]["code"], "cannot-offload");
}

#[test]
fn what_the_help_of_a_refusal_names_is_found_and_more_memory_finds_nothing_longer() {
    let folder = folder("search-sweep", &[]);
    let mut shortest = f64::MAX;
    for memory in [100, 110, 114, 124] {
        let text = TINY_STATE.replace("MEMORY", &format!("{memory}KiB")).replace("microbatches 4", "microbatches 2");
        fs::write(folder.join("state.pipe"), text).expect("a file");
        let search = "search state.pipe --cost F=1,BW=2,B=1,W=1,copy=1 --rounds 0 --format json";
        // From 112 KiB on there is room for one microbatch after the other with all state on the devices.
        let without = json(&folder, search, i32::from(memory < 112));
        let help = without["diagnostics"][0]["help"].as_str();
        assert_eq!(help.is_some_and(|help| help.contains("`offload optimizer` would fit")), memory < 112, "{without}");
        let with = json(&folder, &format!("{search} --may-offload"), 0);
        let makespan = with["makespan"].as_f64().expect("a time");
        assert!(with["ok"] == true && makespan <= shortest, "{memory} KiB: {makespan} after {shortest}");
        shortest = makespan;
    }
}

#[test]
fn every_step_of_memory_lets_something_shorter_be_found() {
    let folder = folder("search-steps", &[]);
    // One microbatch after the other, in `BW`; in `B` and `W`, between which more waits; and 1F1B
    // whose last stage has `B` and `W`.
    for (memory, shortest) in [(112, 24.0), (122, 24.0), (124, 20.0), (125, 14.0), (132, 14.0)] {
        let text = TINY_STATE.replace("MEMORY", &format!("{memory}KiB"));
        fs::write(folder.join("state.pipe"), text).expect("a file");
        let found = json(&folder, "search state.pipe --cost F=1,BW=2,B=1,W=1 --rounds 1 --format json", 0);
        assert_eq!(found["makespan"].as_f64(), Some(shortest), "{memory} KiB: {found}");
    }
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

#[test]
fn the_report_for_programs_is_that_of_check_and_more() {
    let folder = folder("search-json", &[("tiny.pipe", TINY)]);
    let target = "std:v_half --set devices=4 --set microbatches=8 --cost F=1,B=1,W=1";
    let found = json(&folder, &format!("search {target} --memory 2 --time 30 --format json"), 0);
    assert_eq!((&found["schema"], &found["ok"]), (&Value::from("pipec.search/1"), &Value::from(true)));
    let check = json(&folder, &format!("check {target} --format json"), 0);
    for field in check.as_object().expect("an object").keys() {
        assert!(found.get(field).is_some(), "{field}");
    }
    assert_eq!((&found["proved_optimal"], &found["makespan"]), (&Value::from(true), &Value::from(59.0)));
    assert_eq!((&found["lower_bound"], &found["gap"]), (&Value::from(59.0), &Value::from(0.0)));
    assert_eq!(found["peak_activation"], Value::from(2.0));
    assert!(found["seconds"].as_f64().is_some_and(|seconds| (0.0..60.0).contains(&seconds)));

    // The source is a target like any other, with the same figures.
    let source = found["source"].as_str().expect("a text");
    let line = "check - --set devices=4 --set microbatches=8 --memory 2 --format json";
    let again: Value = pipec(&folder, line, source).with(0).into();
    for field in ["makespan", "longest_stage", "peak_activation", "tasks", "per_device"] {
        assert_eq!(again[field], found[field], "{field}");
    }
}

#[test]
fn what_cannot_be_searched_is_refused_with_numbers_and_help() {
    let folder = folder("search-refused", &[("tiny.pipe", TINY)]);
    for (arguments, code, words) in [
        (
            "std:chimera",
            1,
            "error[cannot-search]: the search cannot order `chimera`: it has a stage whose microbatches run on",
        ),
        ("std:cyclic_dp", 1, "error[cannot-search]"),
        (
            "std:seq_1f1b",
            1,
            "error[cannot-search]: the search cannot order `seq_1f1b`: its microbatches are cut into slices",
        ),
        (
            "std:v_half --set devices=4 --memory 0.25",
            1,
            "d0 needs 0.5 units for a single microbatch, and 0.25 are allowed",
        ),
        ("std:v_half --set devices=4 --memory 0.25", 1, "allow at least `--memory 0.5`"),
        ("tiny.pipe --set devices=99", 1, "error["),
        ("std:v_hafl", 2, "has no schedule `v_hafl`; did you mean `v_half`?"),
        ("missing.pipe", 2, "missing.pipe: No such file"),
        ("std:1f1b --time soon", 2, "expected a number of seconds, as in `10` or `0.5`"),
        ("std:1f1b --objective speed", 2, "possible values: makespan, longest-stage"),
        ("std:1f1b -o nowhere/found.pipe", 2, "nowhere/found.pipe"),
    ] {
        let output = pipec(&folder, &format!("search {arguments} --time 1"), "").with(code);
        assert!(output.error.contains(words), "{arguments}\n{}", output.error);
        assert_eq!(output.out, "", "{arguments}");
    }
    let refused = json(&folder, "search std:chimera --format json", 1);
    assert_eq!((&refused["schema"], &refused["ok"]), (&Value::from("pipec.search/1"), &Value::from(false)));
    assert_eq!((&refused["source"], &refused["proved_optimal"]), (&Value::Null, &Value::from(false)));
    assert_eq!(refused["diagnostics"][0]["code"], Value::from("cannot-search"));
}

#[test]
fn without_time_there_still_is_an_answer() {
    let folder = folder("search-timeless", &[("tiny.pipe", TINY)]);
    let arguments = "std:1f1b --set devices=4 --set microbatches=8 --memory 4 --time 0";
    let output = pipec(&folder, &format!("search {arguments}"), "").with(0);
    pipec(&folder, "check - --set devices=4 --set microbatches=8 --memory 4", &output.out).with(0);
    assert!(output.error.contains("makespan"), "{}", output.error);
}

#[test]
fn a_pipeline_keeps_all_but_its_schedule_and_runs_with_what_was_found() {
    let folder = folder("search-pipeline", &[("tiny.pipe", TINY)]);
    let output = pipec(&folder, "search tiny.pipe --time 0.5 --memory 2 -o better.pipe", "").with(0);
    assert!(output.out.contains("accepted"), "{}", output.out);
    let better = fs::read_to_string(folder.join("better.pipe")).expect("a file");
    let kept: String = TINY.replace("schedule 1f1b", "schedule found");
    assert!(better.starts_with(&kept), "{better}");
    assert!(better.contains("schedule found {"), "{better}");

    let losses = |file: &str| {
        let report = json(&folder, &format!("run {file} --no-checkpoint --format json"), 0);
        report["losses"].clone()
    };
    assert_eq!(losses("better.pipe"), losses("tiny.pipe"));
    let search = json(&folder, "search tiny.pipe --time 0.2 --format json", 0);
    let check = json(&folder, "check tiny.pipe --format json", 0);
    assert!(search["makespan"].as_f64() <= check["makespan"].as_f64());
    assert!(search["per_device"][0]["peak_bytes"].is_number());

    // Standard input is a target like any other.
    let from_input = pipec(&folder, "search - --time 0.2 --quiet", TINY).with(0);
    assert!(from_input.out.starts_with(&kept), "{}", from_input.out);
}

#[test]
fn progress_goes_to_standard_error_and_quiet_silences_it() {
    let folder = folder("search-progress", &[("tiny.pipe", TINY)]);
    let arguments = "search std:zb_h1 --set devices=3 --set microbatches=6 --time 0.3";
    let output = pipec(&folder, arguments, "").with(0);
    assert!(output.out.starts_with("/// Found by `pipec search std:zb_h1`: makespan "), "{}", output.out);
    let last = output.error;
    assert!(last.lines().all(|line| line.contains("makespan") && line.contains("lower bound")), "{last}");
    assert_eq!(pipec(&folder, &format!("{arguments} --quiet"), "").with(0).error, "");
}

#[test]
fn where_fusing_pays_some_microbatches_of_a_stage_are_split_and_others_not() {
    let folder = folder("search-fused", &[("tiny.pipe", TINY)]);
    let target = "std:1f1b --set devices=2 --set microbatches=4 --cost F=1,B=1,W=1,BW=1.5 --memory 2";
    let found = json(&folder, &format!("search {target} --time 60 --rounds 4 --format json"), 0);
    assert_eq!((&found["proved_optimal"], &found["lower_bound"]), (&Value::from(true), &Value::from(12.0)));
    let source = found["source"].as_str().expect("a source");
    assert!(source.contains("BW[1]") && source.contains(" W[1]"), "{source}");
    for name in ["1f1b", "zb_h1"] {
        let standard = json(&folder, &format!("check {} --format json", target.replace("1f1b", name)), 0);
        assert!(standard["makespan"].as_f64() > Some(12.0), "{name}: {}", standard["makespan"]);
    }
}

#[test]
fn halves_without_costs_follow_from_both_at_once_and_are_named() {
    let line = "schedule line { stages D place s on s order d { repeat M { F[d] } repeat M { BW[d] } } }";
    let pipeline = |costs: &str| format!("{line} pipeline p {{ devices 6 microbatches 3 schedule line cost {costs} }}");
    let files = [("only.pipe", &pipeline("F = 1, BW = 2, F[4..6] = 2, BW[4..6] = 4")[..])];
    let all = "F = 1, BW = 2, B = 1, W = 1, F[4..6] = 2, BW[4..6] = 4, B[4..6] = 2, W[4..6] = 2";
    let folder = folder("search-halves", &[files[0], ("all.pipe", &pipeline(all))]);
    let gpipe = "std:gpipe --set devices=2 --set microbatches=6 --cost";
    let cases = [
        (format!("{gpipe} F=1,BW=5"), format!("{gpipe} F=1,B=2.5,W=2.5"), 36.0, vec![("B", 2.5), ("W", 2.5)]),
        (format!("{gpipe} F=1,BW=5,B=1"), format!("{gpipe} F=1,B=1,W=4"), 36.0, vec![("W", 4.0)]),
        ("only.pipe".into(), "all.pipe".into(), 18.0, vec![("B", 1.0), ("B", 2.0), ("W", 1.0), ("W", 2.0)]),
    ];
    for (only, all, work, halves) in cases {
        let search = |target: &str| json(&folder, &format!("search {target} --rounds 1 --time 60 --format json"), 0);
        let (only, all) = (search(&only), search(&all));
        assert_eq!((&only["makespan"], &only["lower_bound"]), (&all["makespan"], &all["lower_bound"]));
        assert!(only["makespan"].as_f64() >= Some(work), "{}", only["makespan"]);
        let derived = |report: &Value| -> Vec<(String, f64)> {
            let each = report["derived_costs"].as_array().into_iter().flatten();
            each.map(|half| (half["kind"].as_str().expect("a kind").into(), half["time"].as_f64().expect("a time")))
                .collect()
        };
        assert_eq!(derived(&only), halves.iter().map(|(kind, time)| ((*kind).to_owned(), *time)).collect::<Vec<_>>());
        assert_eq!((derived(&all), &only["diagnostics"]), (Vec::new(), &Value::Array(Vec::new())));
    }
    let told = pipec(&folder, &format!("search {gpipe} F=1,BW=5 --rounds 0 --time 60"), "").with(0).error;
    assert!(told.ends_with("costs of `B` and `W` that were not given are derived from `BW`: B 2.5, W 2.5\n"), "{told}");
    // A schedule that has only halves: they are named, and the cost that it has no task for is a warning.
    let (split, both) = ("check std:zb_h1 --cost F=1,B=4.5,W=4.5", "check std:zb_h1 --cost F=1,BW=9");
    let report = json(&folder, &format!("{both} --format json"), 0);
    assert_eq!(report["makespan"], json(&folder, &format!("{split} --format json"), 0)["makespan"]);
    assert_eq!((&report["ok"], &report["diagnostics"][0]["code"]), (&true.into(), &"unused-cost".into()));
    let text = pipec(&folder, both, "").with(0);
    assert!(text.out.contains("halves of BW   B 4.5, W 4.5 without costs of their own"), "{}", text.out);
    assert!(
        text.error.contains("`BW` takes 9, but `zb_h1` has no such task: `B` and `W` follow from it"),
        "{}",
        text.error
    );
    // One that splits nothing takes nothing from them.
    let report = json(&folder, "check std:1f1b --cost F=1,BW=9 --format json", 0);
    assert_eq!((&report["derived_costs"], report["diagnostics"].as_array().map(Vec::len)), (&Value::Null, Some(0)));
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
        let words = if is_makespan { "makespan" } else { "longest stage" };
        assert!(last.starts_with(words) && last.contains("not proved") != (found == of("lower_bound")), "{last}");
        assert_eq!((told(last, words), told(last, "lower bound")), (found, of("lower_bound")), "{search}");
        let line = text.out.lines().find(|line| line.trim_start().starts_with("lower bound")).expect("a line");
        assert_eq!(line.split_whitespace().nth(2).and_then(|figure| figure.parse().ok()), Some(of("lower_bound")));
        assert_eq!(line.contains("of the longest stage, "), !is_makespan, "{line}");
        assert_eq!(line.contains("reached"), found == of("lower_bound"), "{line}");
        let makespan = format!("{} of the makespan", of("makespan_lower_bound"));
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(text.out.lines().any(|line| words(line) == makespan), !is_makespan, "{}", text.out);
    }
    let rejected = json(&folder, "search std:v_half --memory 0.25 --objective longest-stage --format json", 1);
    assert_eq!((&rejected["objective"], &rejected["proved_optimal"]), (&"longest-stage".into(), &false.into()));
}

#[test]
fn a_target_with_pairs_is_searched_without_them_and_that_is_said() {
    let folder = folder("search-pairs", &[("tiny.pipe", TINY)]);
    let target =
        "std:dualpipe_v --set devices=2 --set microbatches=4 --cost F=1,BW=2,B=1,W=1,F&BW=2 --time 20 --rounds 2";
    let output = pipec(&folder, &format!("search {target}"), "").with(0);
    assert!(output.error.contains("warning[pairs-left-out]: the search lets no two tasks share a device, as "));
    let found = json(&folder, &format!("search {target} --format json"), 0);
    assert_eq!((&found["ok"], &found["proved_optimal"]), (&Value::from(true), &Value::from(false)));
    assert_eq!(found["diagnostics"][0]["code"], Value::from("pairs-left-out"));
    let check = json(&folder, &format!("check {} --format json", target.split(" --time").next().expect("a target")), 0);
    assert!(found["lower_bound"].as_f64() <= check["makespan"].as_f64(), "{}", check["makespan"]);

    // Where nothing is gained by them, nothing is said, and proofs hold.
    let line = "search std:1f1b --set devices=2 --set microbatches=3 --time 20 --format json --cost F=1,B=1,W=1";
    assert_eq!(json(&folder, line, 0)["diagnostics"], Value::Array(Vec::new()));
    assert_eq!(json(&folder, &format!("{line},F&BW=2"), 0)["diagnostics"][0]["code"], Value::from("pairs-left-out"));
}

#[test]
fn a_standard_block_that_is_as_short_is_the_answer() {
    let folder = folder("search-block", &[("tiny.pipe", TINY)]);
    let found =
        json(&folder, "search std:zb_h2 --set devices=4 --set microbatches=8 --time 20 --rounds 2 --format json", 0);
    assert_eq!((&found["makespan"], &found["proved_optimal"]), (&Value::from(27.0), &Value::from(true)));
    let source = found["source"].as_str().expect("a source");
    assert!(source.contains("    block every 3 {\n        F[s] at s\n"), "{source}");
}

#[test]
fn in_little_memory_what_is_found_is_no_longer_than_a_target_that_fits() {
    let folder = folder("search-memory", &[("tiny.pipe", TINY)]);
    let costs = "cost F = 2, B = 2, W = 2, BW = 3.4, comm = 0.2";
    let tight =
        TINY.replace("devices 3", "devices 3 memory 28KiB").replace("cost F = 2, B = 3, W = 1, comm = 1", costs);
    fs::write(folder.join("tight.pipe"), tight).expect("a file");
    let check = json(&folder, "check tight.pipe --format json", 0);
    for time in [0, 3] {
        let found = json(&folder, &format!("search tight.pipe --time {time} --rounds 1 --format json"), 0);
        assert!(found["makespan"].as_f64() <= check["makespan"].as_f64(), "{time}: {}", found["makespan"]);
        assert!(found["lower_bound"].as_f64() <= found["makespan"].as_f64());
        for device in found["per_device"].as_array().expect("devices") {
            assert!(device["peak_bytes"].as_u64() <= Some(28 << 10), "{device}");
        }
    }
}
