//! `pipec diff`: parts that add up, refitted costs that the other commands take, and traces that do not fit.

mod process;

use process::{folder, pipec};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const TINY: &str = include_str!("data/adam.pipe");
/// Six steps of it on two busy cores, written by `pipec run --trace`.
const TRACE: &str = include_str!("data/adam_trace.json");

fn diff(folder: &Path, arguments: &str) -> Value {
    let report: Value = pipec(folder, &format!("diff {arguments} --format json"), "").with(0).into();
    assert_eq!((&report["schema"], &report["ok"]), (&"pipec.diff/1".into(), &true.into()));
    report
}

fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("no `{name}` in {report:#}"))
}

fn sum(report: &Value, words: &[&str]) -> f64 {
    let parts = report["parts"].as_array().expect("a list").iter();
    let wanted = parts.filter(|part| words.contains(&part["what"].as_str().expect("a word")));
    wanted.map(|part| number(part, "ms")).sum()
}

/// Every stretch of the way from the plan to the run is the sum of its parts, to a thousandth of a nanosecond.
fn adds_up(report: &Value) {
    let [plan, refitted, varied, measured] =
        ["plan_ms", "refitted_ms", "varied_ms", "measured_ms"].map(|name| number(report, name));
    for (from, to, words) in [
        (plan, refitted, &["cost", "pairs", "transfers"][..]),
        (refitted, varied, &["variation"]),
        (varied, measured, &["late_input", "late_start"]),
    ] {
        assert!((to - from - sum(report, words)).abs() < 1e-9, "{words:?} of {report:#}");
    }
}

#[test]
fn a_recorded_run_is_told_as_it_was() {
    let folder = folder("diff-recorded", &[("tiny.pipe", TINY), ("run.json", TRACE)]);
    let out = pipec(&folder, "diff tiny.pipe run.json --search 0", "").with(0).out;
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/adam.diff.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&place, &out).expect("the folder can be written");
    }
    let expected = fs::read_to_string(&place).unwrap_or_default();
    assert_eq!(out, expected, "BLESS=1 writes {} anew", place.display());
    let report = diff(&folder, "tiny.pipe run.json --search 0");
    adds_up(&report);
    assert_eq!((&report["steps"], &report["left_out"]), (&json!([2, 3, 4, 5]), &2.into()));
    let one = diff(&folder, "tiny.pipe run.json --step 1 --search 0");
    adds_up(&one);
    assert_eq!((&one["steps"], &one["left_out"]), (&json!([1]), &5.into()));
}

#[test]
fn refitted_costs_are_those_of_the_refitted_plan_for_every_command() {
    let folder = folder("diff-refitted", &[("tiny.pipe", TINY), ("run.json", TRACE)]);
    let report = diff(&folder, "tiny.pipe run.json --write-profile p.json --write-schedule better.pipe");
    adds_up(&report);
    let makespan = |arguments: &str| {
        number(&pipec(&folder, &format!("check {arguments} --format json"), "").with(0).into(), "makespan")
    };
    let cost = report["cost"].as_str().expect("a text");
    let refitted = number(&report, "refitted_ms");
    assert_eq!(makespan(&format!("tiny.pipe --cost {cost}")), refitted);
    assert_eq!(makespan("tiny.pipe --profile p.json"), refitted);
    let again = diff(&folder, "tiny.pipe run.json --profile p.json --search 0");
    assert_eq!((number(&again, "plan_ms"), sum(&again, &["cost", "pairs", "transfers"])), (refitted, 0.0));
    // What the search found is as long as it is said to be.
    let found = report["better"].as_array().expect("a list").iter().find(|one| one["what"] == "search");
    let found = found.expect("the target can be searched");
    assert_eq!(makespan(&format!("better.pipe --cost {cost}")), number(found, "makespan_ms"));
    assert!(number(found, "gain_ms") >= 0.0, "{found}");
}

#[test]
fn a_plan_differs_from_itself_in_nothing() {
    let folder = folder("diff-plan", &[("tiny.pipe", TINY)]);
    for target in [
        "std:1f1b --cost F=1,B=2,W=1,comm=0.25",
        "std:zb_v --set devices=3 --set microbatches=5 --cost F=1,B=1.5,W=1,comm=0.1",
        "std:interleaved_1f1b --cost F[2]=1.75,comm=0.5",
        "std:dualpipe_v --cost F=1,BW=2,F&BW=2.5,comm=0.25",
        "std:seq_1f1b --cost comm=0.25",
        "std:cyclic_dp --cost comm=0.25",
        "std:chimera",
    ] {
        pipec(&folder, &format!("build {target} --emit perfetto -o plan.json"), "").with(0);
        let words: Vec<&str> = target.splitn(2, ' ').collect();
        let rest = words.get(1).copied().unwrap_or_default();
        let report = diff(&folder, &format!("{} plan.json {rest} --search 0", words[0]));
        adds_up(&report);
        let [plan, refitted, measured] = ["plan_ms", "refitted_ms", "measured_ms"].map(|name| number(&report, name));
        assert!((plan, refitted) == (measured, measured), "{target}: {report:#}");
        assert!(report["losses"].as_array().is_some_and(Vec::is_empty), "{target}: {report:#}");
    }
}

#[test]
fn a_late_transfer_and_a_slow_task_are_found() {
    let folder = folder("diff-found", &[]);
    let target = "std:1f1b --set devices=2 --set microbatches=4 --cost F=1,B=1,W=1,comm=0.25";
    pipec(&folder, &format!("build {target} --emit perfetto -o plan.json"), "").with(0);
    let text = fs::read_to_string(folder.join("plan.json")).expect("written");
    let mut trace: Value = serde_json::from_str(&text).expect("JSON");
    // `BW s1 m0` takes 0.5 ms more, and all that starts behind it is that much later.
    let events = trace["traceEvents"].as_array_mut().expect("a list");
    let slow = events.iter_mut().find(|event| event["name"] == "BW s1 m0" && event["cat"].as_str() != Some("gradient"));
    let slow = slow.expect("it is there");
    slow["dur"] = json!(2500.0);
    let end = slow["ts"].as_f64().expect("a number") + 2000.0;
    for event in events.iter_mut().filter(|event| event["ts"].as_f64().is_some_and(|at| at >= end)) {
        event["ts"] = json!(event["ts"].as_f64().expect("a number") + 500.0);
    }
    fs::write(folder.join("slow.json"), trace.to_string()).expect("the folder can be written");
    let report =
        diff(&folder, &format!("std:1f1b slow.json {} --search 0", target.split_once(' ').expect("options").1));
    adds_up(&report);
    let loss = &report["losses"][0];
    assert_eq!((&loss["task"], &loss["device"]), (&"BW s1 m0".into(), &1.into()), "{report:#}");
    assert_eq!(number(loss, "longer_ms"), 0.5);
    assert_eq!((sum(&report, &["variation"]), sum(&report, &["late_input", "late_start"])), (0.5, 0.0), "{report:#}");
}

/// The trace with every event that is a task changed; an event that becomes null is left out.
fn changed(change: impl Fn(usize, &mut Value)) -> String {
    let mut trace: Value = serde_json::from_str(TRACE).expect("JSON");
    let events = trace["traceEvents"].as_array_mut().expect("a list");
    let tasks = events.iter_mut().filter(|event| event["args"]["stage"].is_u64());
    tasks.enumerate().for_each(|(place, event)| change(place, event));
    events.retain(|event| !event.is_null());
    trace.to_string()
}

#[test]
fn traces_that_do_not_fit_are_told_with_place_and_numbers() {
    let folder = folder("diff-wrong", &[("tiny.pipe", TINY), ("run.json", TRACE)]);
    let set = |key: &'static str, value: Value| {
        changed(move |place, event| {
            if place == 43 {
                event[key] = value.clone();
            }
        })
    };
    let argue = |key: &'static str, value: u64| {
        changed(move |place, event| {
            if place == 43 {
                event["args"][key] = value.into();
            }
        })
    };
    let cut = changed(|place, event| {
        if place > 40 {
            *event = Value::Null;
        }
    });
    for (text, told) in [
        (String::new(), "wrong.json: EOF while parsing a value at line 1 column 0"),
        ("{".to_owned(), "EOF while parsing an object at line 1 column 1"),
        ("7".to_owned(), "expected a trace: an object with `traceEvents`, or a list of events at line 1"),
        ("{\"a\": 1}".to_owned(), "there is no `traceEvents`"),
        ("[]".to_owned(), "no task is among its 0 events"),
        (TRACE[..TRACE.len() / 2].to_owned(), "EOF while parsing"),
        (set("dur", json!(-5.0)), "`dur` is -5.0 us, and 0 to 1e12 are read at line"),
        (set("ts", json!(1e300)), "`ts` is 1e+300 us"),
        (set("ts", json!("soon")), "`ts` is not a number of microseconds"),
        (argue("stage", 4_294_967_296), "4294967296 is not the number of a stage"),
        (argue("device", 4_000_000_000), "d4000000000 ran `"),
        (argue("stage", 9), "but `1f1b` has no such task"),
        (argue("device", 1), "which is a task of d0 in `1f1b`; it says that it is of `tiny`"),
        (cut, "the trace was cut, or is of another target"),
    ] {
        fs::write(folder.join("wrong.json"), &text).expect("the folder can be written");
        let ended = pipec(&folder, "diff tiny.pipe wrong.json --search 0", "").with(1);
        assert!(ended.error.contains(told) && ended.out.is_empty(), "{told}\n{}", ended.error);
        let report: Value = pipec(&folder, "diff tiny.pipe wrong.json --format json", "").with(1).into();
        assert!(
            report["ok"] == false && report["error"].as_str().is_some_and(|error| error.contains(told)),
            "{report}"
        );
    }
}

#[test]
fn every_kind_of_schedule_is_lined_up_with_its_run() {
    let folder = folder("diff-kinds", &[]);
    let wide = TINY.replace("blocks = 2", "blocks = 4");
    for schedule in
        ["v_half", "zb_v", "interleaved_1f1b(chunks = 2)", "chimera", "dualpipe_v", "cyclic_dp", "dp_1f1b", "seq_1f1b"]
    {
        fs::write(folder.join("x.pipe"), wide.replace("1f1b", schedule).replace("sequence = 5", "sequence = 6"))
            .expect("the folder can be written");
        pipec(&folder, "run x.pipe --no-checkpoint --steps 8 --trace run.json", "").with(0);
        let report = diff(&folder, "x.pipe run.json --search 0.1");
        adds_up(&report);
        assert!(number(&report, "measured_ms") > 0.0, "{report:#}");
    }
}

/// The devices of a tensor-parallel group are one device of the plan.
#[test]
fn groups_are_lined_up_with_their_devices() {
    let folder =
        folder("diff-tensor", &[("tiny.pipe", &TINY.replace("devices 2", "devices 2 tensor 2").replace("17", "18"))]);
    pipec(&folder, "run tiny.pipe --trace run.json", "").with(0);
    let report = diff(&folder, "tiny.pipe run.json --search 0");
    adds_up(&report);
    assert!(number(&report, "measured_ms") > 0.0, "{report:#}");
}

#[test]
fn halves_that_ran_at_once_have_their_parts_of_the_time() {
    let folder = folder("diff-halves", &[("x.pipe", &TINY.replace("1f1b", "zb_h1"))]);
    let program = pipec(&folder, "build x.pipe --emit ir", "").with(0).out;
    assert!(program.contains("run @BW.s0 m0") && program.contains("run @B.s1 m0"), "{program}");
    pipec(&folder, "run x.pipe --no-checkpoint --steps 4 --trace run.json", "").with(0);
    adds_up(&diff(&folder, "x.pipe run.json --search 0 --write-profile run.profile.json"));
    // Halves, with the operations of each, as `pipec profile` measures them.
    pipec(&folder, "profile x.pipe --steps 4 -o own.profile.json", "").with(0);
    let [traced, own] = ["run.profile.json", "own.profile.json"].map(|name| {
        let profile: Value =
            serde_json::from_str(&fs::read_to_string(folder.join(name)).expect("it is there")).expect("JSON");
        let tasks = profile["tasks"].as_array().expect("a list").iter();
        let mut tasks: Vec<_> =
            tasks.map(|task| format!("{} {} {}", task["stage"], task["kind"], task["flops"])).collect();
        tasks.sort();
        pipec(&folder, &format!("check x.pipe --profile {name}"), "").with(0);
        tasks
    });
    assert_eq!(traced, own);
}

#[test]
fn the_order_that_ran_is_planned_also_where_costs_would_reorder_it() {
    let wide =
        TINY.replace("blocks = 2", "blocks = 4").replace("1f1b", "v_half").replace("microbatches 4", "microbatches 6");
    let folder = folder("diff-order", &[("x.pipe", &wide)]);
    pipec(&folder, "run x.pipe --no-checkpoint --steps 4 --trace run.json", "").with(0);
    for cost in ["F=1,B=9,W=1", "F=5,B=1,W=3,comm=2", "F[0]=9"] {
        adds_up(&diff(&folder, &format!("x.pipe run.json --cost {cost} --search 0")));
    }
}

/// What a page of plan and run shows.
fn shown(folder: &Path, name: &str) -> Value {
    let page = fs::read_to_string(folder.join(name)).expect("the page is there");
    let data = page.split("<script id=\"picture\" type=\"application/json\">").nth(1).expect("data");
    serde_json::from_str(data.split("</script>").next().expect("an end")).expect("JSON")
}

#[test]
fn a_page_has_plan_and_run_on_one_time_axis_with_the_report_between_them() {
    let folder = folder("diff-page", &[("tiny.pipe", TINY), ("run.json", TRACE)]);
    let report = diff(&folder, "tiny.pipe run.json --search 0");
    let told = pipec(&folder, "diff tiny.pipe run.json --search 0 -o both.html", "").with(0).out;
    assert!(told.ends_with("wrote both.html\n"), "{told}");
    let page = shown(&folder, "both.html");
    assert_eq!(page["diff"], report);
    let [plan, run] = [0, 1].map(|version| &page["versions"][version]);
    assert_eq!((&plan["name"], &run["name"]), (&"plan".into(), &"run".into()));
    for (version, figure) in [(plan, "plan_ms"), (run, "measured_ms")] {
        let picture = &version["picture"];
        assert_eq!((&picture["schema"], &picture["clock"]["unit"]), (&"pipec.picture/1".into(), &"ms".into()));
        let ticks = picture["clock"]["ticks_per_unit"].as_f64().expect("a number");
        assert_eq!(number(picture, "makespan") / ticks, number(&report, figure), "{figure}");
        for device in picture["devices"].as_array().expect("a list") {
            let idle = device["idle"].as_array().expect("a list").iter();
            let idle: f64 = idle.map(|one| number(one, "time")).sum();
            assert_eq!(number(device, "busy") + idle, number(picture, "makespan"), "{device}");
        }
    }
    for same in ["kind", "stage", "microbatch"] {
        assert_eq!(plan["picture"]["tasks"][same], run["picture"]["tasks"][same]);
    }
    assert!(plan["picture"]["tasks"]["late"].is_null() && run["picture"]["tasks"]["late"].is_array());
}

#[test]
fn a_page_shows_the_late_starts_that_are_there_and_no_others() {
    let folder = folder("diff-late", &[]);
    let options = "--set devices=2 --set microbatches=4 --cost F=1,B=1,W=1,comm=0.25";
    pipec(&folder, &format!("build std:1f1b {options} --emit perfetto -o plan.json"), "").with(0);
    let text = fs::read_to_string(folder.join("plan.json")).expect("written");
    let mut trace: Value = serde_json::from_str(&text).expect("JSON");
    // All that starts with `BW s1 m1` or behind it does so 0.75 ms later. Of these, `F s0 m2` of
    // the other device had not waited for it, either.
    let events = trace["traceEvents"].as_array_mut().expect("a list");
    let name = "BW s1 m1";
    let late = events.iter().find(|event| event["name"] == name && event["args"]["stage"].is_u64());
    let from = late.expect("it is there")["ts"].as_f64().expect("a number");
    for event in events.iter_mut().filter(|event| event["ts"].as_f64().is_some_and(|at| at >= from)) {
        event["ts"] = json!(event["ts"].as_f64().expect("a number") + 750.0);
    }
    fs::write(folder.join("late.json"), trace.to_string()).expect("the folder can be written");
    pipec(&folder, &format!("diff std:1f1b late.json {options} --search 0 -q -o late.html"), "").with(0);
    let page = shown(&folder, "late.html");
    let run = &page["versions"][1]["picture"];
    let ticks = run["clock"]["ticks_per_unit"].as_f64().expect("a number");
    let tasks = &run["tasks"];
    let column = |name: &str, task: usize| tasks[name][task].as_f64().unwrap_or(0.0);
    let count = tasks["count"].as_u64().expect("a number") as usize;
    let late: Vec<usize> = (0..count).filter(|task| column("late", *task) > 0.0).collect();
    let place = |task: usize| [column("kind", task), column("stage", task), column("microbatch", task)];
    assert_eq!(late.iter().map(|task| place(*task)).collect::<Vec<_>>(), [[0.0, 0.0, 2.0], [3.0, 1.0, 1.0]], "{tasks}");
    assert!(late.iter().all(|task| column("late", *task) / ticks == 0.75), "{tasks}");
    for device in 0..2 {
        let idle = run["devices"][device]["idle"].as_array().expect("a list");
        let told: f64 = idle.iter().filter(|one| one["cause"] == "late").map(|one| number(one, "time")).sum();
        assert_eq!(told / ticks, 0.75, "{idle:?}");
    }
}

/// Two devices for each stage.
const GROUPS: &str = "\
schedule groups {
    stages D / 2
    place s on 2 * s..2 * (s + 1)
    block every 3 { F[s] at s  BW[s] at S + 2 * (S - 1 - s) }
}
";

#[test]
fn a_task_of_several_devices_runs_on_all_of_them_at_once() {
    let folder = folder("diff-groups", &[("x.pipe", GROUPS)]);
    pipec(&folder, "build x.pipe --set devices=4 --emit perfetto -o plan.json", "").with(0);
    let report = diff(&folder, "x.pipe plan.json --set devices=4 --search 0 -o x.html");
    adds_up(&report);
    let text = fs::read_to_string(folder.join("plan.json")).expect("written");
    let mut trace: Value = serde_json::from_str(&text).expect("JSON");
    let events = trace["traceEvents"].as_array_mut().expect("a list");
    let is_there = |event: &&mut Value| event["name"] == "F s1 m0" && event["args"]["device"] == 3;
    let event = events.iter_mut().find(is_there).expect("it is there");
    event["dur"] = json!(750.0);
    fs::write(folder.join("torn.json"), trace.to_string()).expect("the folder can be written");
    let ended = pipec(&folder, "diff x.pipe torn.json --set devices=4 --search 0 -o torn.html", "").with(1);
    let told =
        "step 0: `F s1 m0` ran on d2 for 1000000 ns from 1000000 ns on, and on d3 for 750000 ns from 1000000 ns on";
    assert!(ended.error.contains(told) && !folder.join("torn.html").exists(), "{}", ended.error);
}
