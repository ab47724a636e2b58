//! Clusters through the commands: what is timed, ordered and refused.

mod process;

use process::{Ended, folder, pipec};
use serde_json::Value;
use std::path::PathBuf;

const CONFIG: &str = include_str!("../../../tests/data/configs/gpt2.json");
const CLUSTER: &str = include_str!("../../../examples/cluster.toml");
const PIPELINE: &str = "pipeline p {
    model \"config.json\"(sequence = 1024, tensor = 2, data = 4)
    devices 4
    microbatches 8
    schedule 1f1b
}
";
/// Three nodes of which the first one is far from the second.
const UNEVEN: &str = r#"
nodes = 3
devices = 16
device = { memory = "1GiB", flops = "100TFLOPS" }
links.node = { bandwidth = "300GB/s", latency = "3us" }
[links.cluster]
bandwidth = { unit = "GB/s", rows = [["-", 1, 40], [1, "-", 40], [40, 40, "-"]] }
latency = "9us"
"#;

fn with(name: &str, cluster: &str) -> PathBuf {
    folder(name, &[("config.json", CONFIG), ("p.pipe", PIPELINE), ("c.toml", cluster)])
}

#[test]
fn times_are_milliseconds_of_the_cluster() {
    let folder = with("clusters-check", CLUSTER);
    let Ended { out, error, .. } = pipec(&folder, "check p.pipe --cluster c.toml", "").with(0);
    assert_eq!(error, "");
    for line in ["times          ms          from c.toml", "devices        32          of 128: 16 nodes of 8"] {
        assert!(out.contains(line), "{out}");
    }
    assert!(out.contains("utilisation    ") && out.contains("gradients      ") && out.contains("of 80GiB"), "{out}");
    let report: Value = pipec(&folder, "check p.pipe --cluster c.toml --format json", "").with(0).into();
    let figure = |name: &str| report["cluster"][name].as_f64().expect("a figure");
    assert_eq!((report["cluster"]["time_unit"].as_str(), figure("devices_used")), (Some("ms"), 32.0));
    assert!((0.0..0.63).contains(&figure("mfu")) && figure("tokens_per_second") > 0.0);
    let plot = pipec(&folder, "plot p.pipe --cluster c.toml", "").with(0).out;
    assert!(plot.contains("d3"), "{plot}");
    let quick = pipec(&folder, "check p.pipe --cluster c.toml --cost F=0.001,BW=0.002,comm=0", "").with(0).out;
    assert!(quick.contains("F 0.0"), "{quick}");
}

#[test]
fn hosts_have_the_memory_of_the_cluster() {
    let folder = with("clusters-host", &CLUSTER.replace("2TiB", "48GiB"));
    let host = |line: &str, arguments: &str| {
        let text = PIPELINE.replace("devices 4\n", &format!("devices 4{line}\n    offload optimizer\n"));
        std::fs::write(folder.join("p.pipe"), text).expect("the folder can be written");
        pipec(&folder, &format!("check p.pipe {arguments}"), "").with(0).out
    };
    // A node has 8 devices.
    assert!(host("", "--cluster c.toml").contains("of 6GiB"), "{}", host("", "--cluster c.toml"));
    assert!(host(" memory 80GiB host 7GiB", "--cluster c.toml").contains("of 7GiB"));
    assert!(!host("", "").contains("of 6GiB"));
    // What is copied at the end of a step is no exchange of gradients.
    let report = |offload: &str| {
        let line = format!("check p.pipe --cluster c.toml --offload {offload} --format json");
        Value::from(pipec(&folder, &line, "").with(0))
    };
    let (plain, away) = (report("none"), report("optimizer"));
    assert_eq!(plain["cluster"]["exchange"], away["cluster"]["exchange"]);
    assert!(plain["makespan"].as_f64() < away["makespan"].as_f64(), "copies take time");
}

#[test]
fn bytes_and_nanoseconds_are_searched_together() {
    let folder = with("clusters-search", CLUSTER);
    let found = pipec(&folder, "search p.pipe --cluster c.toml --time 2 --rounds 1", "").with(0).out;
    assert!(found.contains("makespan"), "{found}");
}

#[test]
fn the_best_order_of_nodes_is_told_and_kept() {
    let folder = with("clusters-map", UNEVEN);
    let out = pipec(&folder, "check p.pipe --cluster c.toml --map 10", "").with(0).out;
    assert!(out.contains("`nodes = [0, 2]`: no order is shorter"), "{out}");
    let makespan = |out: &str| {
        let line = out.lines().find(|line| line.contains("makespan")).expect("it is told");
        line.split_whitespace().nth(1).expect("a figure").to_owned()
    };
    let kept = PIPELINE.replace("data = 4", "data = 4, nodes = [0, 2]");
    let again = pipec(&folder, "check - --cluster c.toml", &kept).with(0).out;
    assert_eq!(makespan(&out), makespan(&again));
}

#[test]
fn what_cannot_be_used_is_refused() {
    let folder = with("clusters-refused", "nodes = 3\ndevices = 16\n");
    let wrong = pipec(&folder, "check p.pipe --cluster c.toml", "").with(1).error;
    assert!(wrong.contains("error[unusable-cluster]") && wrong.contains("c.toml:1:1"), "{wrong}");
    let found: Value = pipec(&folder, "check p.pipe --cluster c.toml --format json", "").with(1).into();
    assert_eq!(found["diagnostics"][0]["code"], "unusable-cluster");
    let missing = pipec(&folder, "check p.pipe --cluster none.toml", "").with(2).error;
    assert!(missing.contains("none.toml"), "{missing}");
    pipec(&folder, "check p.pipe --map 5", "").with(2);
    let explained = pipec(&folder, "explain unusable-cluster", "").with(0).out;
    assert!(explained.contains("cluster.toml"), "{explained}");
}

/// A profile of two stages whose kinds of tasks reach different rates, the first so many times as fast.
fn profile(times: u64) -> String {
    let task = |stage: u32, kind: &str, teraflops: u64| {
        format!(r#"{{"stage": {stage}, "kind": "{kind}", "ns": 1000, "flops": {}}}"#, 1_000_000 * teraflops)
    };
    let tasks = [task(0, "F", 640 * times), task(0, "B", 590), task(1, "W", 560)].join(", ");
    format!(r#"{{"schema": "pipec.profile/1", "target": "x", "stages": 2, "transfer_ns": 0, "tasks": [{tasks}]}}"#)
}

#[test]
fn the_rates_of_a_profile_tune_and_check_any_layout() {
    let folder = with("clusters-rates", CLUSTER);
    std::fs::write(folder.join("fast.json"), profile(9)).expect("writable");
    std::fs::write(folder.join("m.json"), profile(1)).expect("writable");
    let tune = "tune p.pipe --cluster c.toml --schedules 1f1b,zb_v --set data=8 --format json -o best.pipe";
    let report = |arguments: &str| -> Value { pipec(&folder, arguments, "").with(0).into() };
    let even = report(tune);
    let tuned = report(&format!("{tune} --profile m.json"));
    assert!(even["setting"]["rates"].is_null());
    let rates = &tuned["setting"]["rates"];
    assert_eq!((rates["profile"].as_str(), rates["flops"]["BW"].as_u64()), (Some("m.json"), Some(575_000_000_000_000)));
    assert_ne!(even["best"][0]["step"], tuned["best"][0]["step"]);
    let source = std::fs::read_to_string(folder.join("best.pipe")).expect("written");
    let check = "check best.pipe --cluster c.toml --rates m.json";
    assert!(source.contains(&format!("//     pipec {check}\n")), "{source}");
    let checked = report(&format!("{check} --format json"));
    assert_eq!(checked["makespan"], tuned["best"][0]["step"]);
    let line = "rates          TFLOPS      from m.json: F 640.0, B 590.0, W 560.0, BW 575.0, R 640.0\n";
    let out = pipec(&folder, check, "").with(0).out;
    assert!(out.contains(line) && out.contains("tasks reach 60.3%"), "{out}");
    let error = pipec(&folder, "tune p.pipe --cluster c.toml --profile fast.json", "").with(1).error;
    assert!(
        error.contains("`F` of `fast.json` reaches 5760000 GFLOPS, and a device of `c.toml` 989500 GFLOPS"),
        "{error}"
    );
    let error = pipec(&folder, "check p.pipe --rates m.json", "").with(2).error;
    assert!(error.contains("--cluster <PATH>"), "{error}");
}

#[test]
fn candidates_that_are_not_listed_are_counted() {
    let folder = with("clusters-more", CLUSTER);
    let tune = "tune p.pipe --cluster c.toml --schedules 1f1b,gpipe,zb_h1 --set data=8 --best 1";
    let report: Value = pipec(&folder, &format!("{tune} --format json"), "").with(0).into();
    let listed = report["slower"].as_array().map_or(0, Vec::len);
    let more = report["slower_more"].as_u64().unwrap_or_default();
    assert!(listed == 10 && more > 0 && report["does_not_fit_more"].is_u64(), "{report}");
    let line = format!("\n       and {} more, the next 5 with `--format json`; `--set`", 5 + more);
    let out = pipec(&folder, tune, "").with(0).out;
    assert!(out.contains(&line), "{out}");
}
