//! Models from a `config.json`, through the commands: what is checked, drawn and searched, and what is refused.

mod process;

use process::{Ended, folder, pipec};
use serde_json::Value;
use std::path::PathBuf;

const CONFIG: &str = include_str!("../../../examples/llama3_70b.json");
const PIPELINE: &str = "pipeline p {
    model \"config.json\"(sequence = 4096, tensor = 8, data = 2, recompute = none)
    devices 8 memory 80GiB
    microbatches 16
    schedule 1f1b
}
";

fn with_model(name: &str) -> PathBuf {
    folder(name, &[("config.json", CONFIG), ("p.pipe", PIPELINE)])
}

#[test]
fn check_prints_a_row_for_every_stage() {
    let folder = with_model("models-check");
    let Ended { out, error, .. } = pipec(&folder, "check p.pipe", "").with(0);
    assert_eq!(error, "");
    assert!(
        out.contains("model          llama       70,553,706,496 parameters, 128 devices with tensor 8 and data 2"),
        "{out}"
    );
    assert!(out.contains("\n  s0     d0      embedding, 0 to "), "{out}");
    assert!(out.lines().last().is_some_and(|line| line.contains("to 79, head") && line.ends_with("of 80GiB")), "{out}");
    let report: Value = pipec(&folder, "check p.pipe --format json", "").with(0).into();
    assert_eq!(report["model"]["parameters"], 70_553_706_496_u64);
    assert_eq!(report["model"]["tokens"], 4_096 * 16 * 2);
    assert_eq!(report["per_stage"].as_array().map(Vec::len), Some(8));
    let stage = &report["per_stage"][0];
    assert_eq!((&stage["live_microbatches"], &stage["limit_bytes"]), (&Value::from(8), &Value::from(80_u64 << 30)));
    assert!(
        report["per_device"][0]["holds"][0]["bytes"].as_u64() > report["per_device"][0]["holds"][1]["bytes"].as_u64()
    );
    assert_eq!(report.get("changes"), None, "nothing else is tried of what fits");
}

#[test]
fn what_does_not_fit_is_told_with_what_would() {
    let folder = with_model("models-limit");
    let Ended { out, error, .. } = pipec(&folder, "check p.pipe --set sequence=8192 --set devices=4", "").with(1);
    assert!(error.contains("help: the cheapest change that fits is `sequence_parallel = 1`"), "{error}");
    assert!(out.contains("sequence_parallel = 1  ") && out.contains("  fits\n"), "{out}");
    let out =
        pipec(&folder, "check p.pipe --set sequence=8192 --set devices=4 --set sequence_parallel=1", "").with(0).out;
    assert!(out.contains("accepted"), "{out}");
}

#[test]
fn it_is_drawn_and_searched_but_neither_built_nor_run() {
    let folder = with_model("models-refused");
    for command in ["build p.pipe", "run p.pipe", "run p.pipe --backend null"] {
        let error = pipec(&folder, command, "").with(1).error;
        assert!(
            error.starts_with("error[no-tensor-graph]: `config.json` says the sizes of a model"),
            "{command}: {error}"
        );
    }
    assert!(pipec(&folder, "plot p.pipe", "").with(0).out.starts_with("1f1b: makespan "));
    let found: Value = pipec(&folder, "search p.pipe --time 1 --format json", "").with(0).into();
    let peak = found["per_device"]
        .as_array()
        .and_then(|devices| devices.iter().filter_map(|one| one["peak_bytes"].as_u64()).max());
    assert!(found["source"].as_str().is_some_and(|source| source.contains("model \"config.json\"(sequence = 4096")));
    assert!(peak.is_some_and(|peak| peak > 0 && peak <= 80 << 30), "{peak:?}");
    assert!(found["lower_bound"].as_f64() <= found["makespan"].as_f64());
}
