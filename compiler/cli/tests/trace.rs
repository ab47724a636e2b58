//! Traces of plans and runs: the form that Perfetto and chrome://tracing read, and that both name
//! the same things alike.

mod process;

use process::{folder, pipec};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const TINY: &str = include_str!("data/adam.pipe");

fn number(event: &Value, key: &str) -> f64 {
    let number = event[key].as_f64().unwrap_or_else(|| panic!("no `{key}` in {event}"));
    assert!(number >= 0.0, "{event}");
    number
}

fn word<'a>(event: &'a Value, key: &str) -> &'a str {
    event[key].as_str().unwrap_or_else(|| panic!("no `{key}` in {event}"))
}

type Spans = BTreeMap<(u64, u64), Vec<(f64, f64)>>;

/// Every event has the fields of its phase and stands on a track that has a name.
fn fits(trace: &Value) {
    assert_eq!((&trace["displayTimeUnit"], &trace["otherData"]["schema"]), (&"ms".into(), &"pipec.trace/1".into()));
    let (mut processes, mut tracks) = (BTreeSet::new(), BTreeSet::new());
    let (mut spans, mut levels): (Spans, BTreeMap<(u64, String), f64>) = (BTreeMap::new(), BTreeMap::new());
    let mut arrows: BTreeMap<u64, Vec<(String, f64)>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().expect("a list") {
        let (pid, tid) = (number(event, "pid") as u64, number(event, "tid") as u64);
        match word(event, "ph") {
            "M" => match word(event, "name") {
                "process_name" => assert!(processes.insert(pid) && event["args"]["name"].is_string(), "{event}"),
                "thread_name" => assert!(tracks.insert((pid, tid)) && event["args"]["name"].is_string(), "{event}"),
                "process_sort_index" | "thread_sort_index" => assert!(event["args"]["sort_index"].is_u64(), "{event}"),
                other => panic!("{other}"),
            },
            "X" => {
                assert!(tracks.contains(&(pid, tid)) && !word(event, "name").is_empty(), "{event}");
                let start = number(event, "ts");
                spans.entry((pid, tid)).or_default().push((start, start + number(event, "dur")));
            }
            "C" => {
                assert!(processes.contains(&pid), "{event}");
                let at = number(event, "ts");
                let before = levels.insert((pid, word(event, "name").to_owned()), at);
                assert!(before.is_none_or(|before| before <= at), "{event}");
                assert!(event["args"]["alive"].as_f64().is_some_and(|level| level >= 0.0), "{event}");
            }
            phase @ ("s" | "t" | "f") => {
                let at = number(event, "ts");
                let around = |(start, end): &(f64, f64)| *start <= at && at <= *end;
                assert!(spans[&(pid, tid)].iter().any(around), "no slice around {event}");
                assert_eq!(event["bp"] == "e", phase != "s", "{event}");
                arrows.entry(event["id"].as_u64().expect("an id")).or_default().push((phase.to_owned(), at));
            }
            other => panic!("{other}"),
        }
    }
    for (id, points) in &arrows {
        let phases: String = points.iter().map(|(phase, _)| phase.as_str()).collect();
        assert!(["sf", "sttf"].contains(&phases.as_str()), "arrow {id}: {phases}");
        assert!(points.windows(2).all(|pair| pair[0].1 <= pair[1].1), "arrow {id} goes back: {points:?}");
    }
    for (track, spans) in &mut spans {
        spans.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
        let apart = |pair: &[(f64, f64)]| pair[0] == pair[1] || pair[0].1 <= pair[1].0 + 1e-6;
        assert!(spans.windows(2).all(apart), "slices of {track:?} overlap");
    }
}

fn read(text: &str) -> Value {
    let trace = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text:.500}"));
    fits(&trace);
    trace
}

fn tracks(trace: &Value) -> BTreeSet<&str> {
    let events = trace["traceEvents"].as_array().expect("a list").iter();
    events.filter(|event| event["name"] == "thread_name").map(|event| word(&event["args"], "name")).collect()
}

/// Names of tasks, with the device of each.
fn tasks(trace: &Value) -> BTreeSet<(u64, &str)> {
    let events = trace["traceEvents"].as_array().expect("a list").iter();
    let tasks = events.filter(|event| event["ph"] == "X" && event["args"]["stage"].is_u64());
    tasks.map(|event| (event["args"]["device"].as_u64().expect("a number"), word(event, "name"))).collect()
}

#[test]
fn plans_of_every_kind_have_the_form() {
    let folder = folder("trace-plans", &[("tiny.pipe", TINY)]);
    for target in [
        "std:1f1b",
        "std:1f1b --cost F=1,B=1,W=1,comm=2.5",
        "std:zb_v --set devices=3 --set microbatches=7 --cost comm=0.1",
        "std:dualpipe_v --cost F&BW=2.5,comm=0.3",
        "std:seq_1f1b",
        "std:dp_1f1b --cost comm=0.5",
        "std:cyclic_dp --cost comm=0.5",
        "tiny.pipe",
        "tiny.pipe --offload optimizer,parameters --cost copy=0.3,comm=0.1",
    ] {
        read(&pipec(&folder, &format!("build {target} --emit perfetto"), "").with(0).out);
    }
    // Also without a program, or where memory does not suffice.
    let spread = "schedule wide { stages 2 place s on if s == 0 then 0..2 else s order d { if d == 0 { F[0] BW[0] } else { F[0] F[1] BW[1] BW[0] } } }";
    read(
        &pipec(&folder, "build - --set devices=2 --set microbatches=1 --cost comm=1 --emit perfetto", spread)
            .with(0)
            .out,
    );
    read(&pipec(&folder, "build std:1f1b --memory 1 --emit perfetto", "").with(1).out);
    assert_eq!(pipec(&folder, "build std:1f1b --set microbatches=0 --emit perfetto", "").with(1).out, "");
}

#[test]
fn a_run_above_its_plan_has_the_form_and_the_measured_moments() {
    let files = [("tiny.pipe", TINY), ("run.json", include_str!("data/adam_trace.json"))];
    let folder = folder("trace-both", &files);
    pipec(&folder, "diff tiny.pipe run.json --step 3 --search 0 -q -o both.json", "").with(0);
    let both = read(&fs::read_to_string(folder.join("both.json")).expect("written"));
    assert_eq!(tracks(&both), ["plan", "plan, refitted costs", "run"].into());
    let report: Value = pipec(&folder, "diff tiny.pipe run.json --step 3 --search 0 --format json", "").with(0).into();
    let events = both["traceEvents"].as_array().expect("a list");
    let track = |name: &str| -> BTreeSet<u64> {
        let own = events.iter().filter(|event| event["name"] == "thread_name" && event["args"]["name"] == name);
        own.map(|event| event["tid"].as_u64().expect("a number")).collect()
    };
    for (name, figure) in [("plan", "plan_ms"), ("plan, refitted costs", "refitted_ms"), ("run", "measured_ms")] {
        let tracks = track(name);
        let own = events.iter().filter(|event| event["ph"] == "X" && tracks.contains(&(number(event, "tid") as u64)));
        let end = own.map(|event| number(event, "ts") + number(event, "dur")).fold(0.0, f64::max);
        assert!((end / 1e3 - report[figure].as_f64().expect("a number")).abs() < 1e-9, "{name} ends at {end} us");
    }
}

#[test]
fn queues_transfers_and_the_critical_path_are_there() {
    let folder = folder("trace-queues", &[]);
    let command = "build std:1f1b --set devices=2 --set microbatches=2 --cost F=1,B=1,W=1,comm=2.5 --emit perfetto";
    let trace = read(&pipec(&folder, command, "").with(0).out);
    let expected = [
        "compute",
        "in d0 activation",
        "in d0 activation (2)",
        "in d1 gradient",
        "out d0 gradient",
        "out d1 activation",
        "out d1 activation (2)",
    ];
    assert_eq!(tracks(&trace), expected.into());
    let events = trace["traceEvents"].as_array().expect("a list");
    let path: f64 =
        events.iter().filter(|event| event["args"]["critical"] == true).map(|event| number(event, "dur")).sum();
    // The tasks of the path and a transfer each way make the step.
    assert_eq!(path + 5_000.0, trace["otherData"]["makespan_ns"].as_f64().expect("a number") / 1e3);
}

#[test]
fn a_run_has_the_names_of_its_plan() {
    let folder = folder("trace-run", &[("tiny.pipe", TINY)]);
    pipec(&folder, "run tiny.pipe --steps 3 --no-checkpoint --trace run.json", "").with(0);
    let run = read(&fs::read_to_string(folder.join("run.json")).expect("written"));
    let plan = read(&pipec(&folder, "build tiny.pipe --emit perfetto", "").with(0).out);
    let (planned, ran) = (tasks(&plan), tasks(&run));
    let only_run: BTreeSet<_> = ran.difference(&planned).filter(|(_, name)| !name.starts_with("U ")).collect();
    assert!(planned.is_subset(&ran) && only_run.is_empty(), "{planned:?}\n{ran:?}");
    let arrows = |trace: &Value| {
        trace["traceEvents"].as_array().expect("a list").iter().filter(|event| event["ph"] == "f").count()
    };
    assert_eq!(arrows(&run), 3 * arrows(&plan));
    assert_eq!((&run["otherData"]["what"], &run["otherData"]["steps"]), (&"run".into(), &3.into()));
}
