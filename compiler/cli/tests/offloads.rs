//! Offload on the command line: what lives with the hosts, what it costs, and that the same is learned.

mod process;

use process::{folder, pipec};
use serde_json::Value;
use std::fs;
use std::path::Path;

const TINY: &str = include_str!("data/adam.pipe");

fn json(folder: &Path, arguments: &str, code: i32) -> Value {
    pipec(folder, arguments, "").with(code).into()
}

#[test]
fn state_lives_with_the_hosts_on_the_command_line() {
    let folder = folder("offload", &[("tiny.pipe", TINY)]);
    let run = |more: &str| json(&folder, &format!("run tiny.pipe --no-checkpoint --format json {more}"), 0);
    let (plain, away) = (run(""), run("--offload optimizer,parameters"));
    assert_eq!(plain["losses"], away["losses"]);
    assert!(plain["per_device"][0].get("host").is_none());
    let host = &away["per_device"][1]["host"];
    assert!(host["arena_bytes"].as_u64() > Some(0) && host["predicted_peak_bytes"] == host["measured_peak_bytes"]);
    let report = json(&folder, "check tiny.pipe --offload optimizer --cost copy=2 --format json", 0);
    let (own, device) = (&report["offload"], &report["per_device"][0]);
    assert_eq!(own["what"], "optimizer");
    assert_eq!(own["per_device"][0]["h2d_bytes"], own["per_device"][0]["d2h_bytes"]);
    assert_eq!(own["per_device"][0]["d2h_bytes"], device["host_peak_bytes"]);
    assert!(own["per_device"][0]["waited"].as_f64() > Some(0.0));
    let table = pipec(&folder, "run tiny.pipe --no-checkpoint --offload parameters", "").with(0).out;
    assert!(table.contains("\n  host  "), "{table}");
    // Resuming goes from one to the other.
    pipec(&folder, "run tiny.pipe --steps 2", "").with(0);
    let resumed = run("--resume saved --offload optimizer,parameters");
    let last = |report: &Value| report["losses"].as_array().and_then(|losses| losses.last().cloned());
    assert_eq!(last(&resumed), last(&plain));
    assert!(pipec(&folder, "check std:1f1b --offload optimizer", "").with(1).error.contains("cannot-offload"));
    assert!(
        pipec(&folder, "check tiny.pipe --offload state", "")
            .with(2)
            .error
            .contains("`activations`, `optimizer` and `parameters`")
    );
    let found = json(&folder, "search tiny.pipe --offload optimizer,parameters --rounds 0 --format json", 0);
    assert!(found["offload"]["what"].is_string());
    // The search orders tasks; what copies add to a step nobody proves.
    let line = "search tiny.pipe --offload optimizer --cost copy=9 --time 60 --rounds 4";
    assert!(pipec(&folder, line, "").with(0).error.contains("makespan of the tasks 13, lower bound 13"), "{line}");
    let found = json(&folder, &format!("{line} --format json"), 0);
    assert_eq!(found["proved_optimal"], false);
    assert!(found["makespan"].as_f64() > found["lower_bound"].as_f64());
}

#[test]
fn activations_leave_for_a_while_on_the_command_line() {
    let folder = folder("offload-activations", &[("tiny.pipe", TINY)]);
    let run = |more: &str| json(&folder, &format!("run tiny.pipe --no-checkpoint --format json {more}"), 0);
    let (plain, away) = (run(""), run("--offload activations"));
    assert_eq!(plain["losses"], away["losses"]);
    let host = &away["per_device"][0]["host"];
    assert!(host["arena_bytes"].as_u64() > Some(0) && host["predicted_peak_bytes"] == host["measured_peak_bytes"]);
    let check = |more: &str| json(&folder, &format!("check tiny.pipe --format json {more}"), 0);
    let (plain, away) = (check("--cost copy=2"), check("--cost copy=2 --offload activations"));
    assert_eq!(plain["makespan"], away["makespan"]);
    let own = &away["offload"]["per_device"][0];
    assert!(own["activations"]["leave"].as_u64() <= own["activations"]["idle"].as_u64());
    assert_eq!((&own["activations"]["bytes"], own["waited"].as_f64()), (&own["d2h_bytes"], Some(0.0)));
    let table = pipec(&folder, "check tiny.pipe --offload activations,optimizer", "").with(0).out;
    assert!(
        table.contains("activations, optimizer  hosts hold ") && table.contains(" idle activations leave d"),
        "{table}"
    );
}

#[test]
fn auto_takes_what_makes_it_fit_and_nothing_where_all_has_room() {
    let folder = folder("offload-auto", &[("tiny.pipe", TINY)]);
    assert!(json(&folder, "check tiny.pipe --offload auto --format json", 0).get("offload").is_none());
    let peak =
        json(&folder, "check tiny.pipe --format json", 0)["per_device"][0]["peak_bytes"].as_u64().unwrap_or_default();
    let text = TINY.replace("devices 2", &format!("devices 2 memory {}B", peak - 1024));
    fs::write(folder.join("full.pipe"), text.replace("schedule 1f1b", "schedule 1f1b\n    offload auto"))
        .expect("a file");
    let report = json(&folder, "check full.pipe --cost copy=1 --format json", 0);
    assert_eq!((&report["offload"]["what"], &report["offload"]["chosen"]), (&"optimizer".into(), &true.into()));
    let away = json(&folder, "run full.pipe --no-checkpoint --format json", 0);
    assert!(
        away["losses"] == json(&folder, "run tiny.pipe --no-checkpoint --format json", 0)["losses"]
            && away["per_device"][1].get("host").is_some()
    );
    assert!(pipec(&folder, "check full.pipe --offload none", "").with(1).error.contains("memory-exceeded"));
}
