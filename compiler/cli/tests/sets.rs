//! Stages on several devices at once, through the commands: what is checked, drawn and searched, and what is refused.

mod process;

use process::{Ended, folder, pipec};
use serde_json::Value;
use std::fs;

const EMBEDDING: &str = "schedule embedding_on_all {
    stages D + 1
    place s on if s == 0 then 0..D else s - 1
    order d {
        repeat M { F[0] F[d + 1] }
        repeat M { BW[d + 1] BW[0] }
    }
}

pipeline p {
    devices 3
    microbatches 4
    schedule embedding_on_all
    cost F = 1, B = 2, W = 0, B[0] = 1
}
";

#[test]
fn check_counts_a_task_once_and_computes_no_instructions() {
    let folder = folder("sets-check", &[("embedding.pipe", EMBEDDING)]);
    let Ended { out, error, .. } = pipec(&folder, "check embedding.pipe", "").with(0);
    assert!(out.starts_with("p under embedding_on_all: 3 devices, 4 stages, 4 microbatches, 32 tasks\n"), "{out}");
    assert!(out.contains("accepted, deadlock free"), "{out}");
    assert_eq!(error, "");
    let report: Value = pipec(&folder, "check embedding.pipe --format json", "").with(0).into();
    assert_eq!((&report["ok"], &report["tasks"]), (&Value::from(true), &Value::from(32)));
    assert_eq!((&report["instructions"], &report["collectives"]), (&Value::Null, &Value::Null));
    // Every device holds the embedding's activations and its own stage's.
    let peaks =
        report["per_device"].as_array().expect("devices").iter().map(|device| device["peak_activation"].clone());
    assert_eq!(peaks.collect::<Vec<_>>(), vec![Value::from(6.0); 3]);
}

#[test]
fn instructions_are_refused_with_place_and_help() {
    let folder = folder("sets-refused", &[("embedding.pipe", EMBEDDING)]);
    for arguments in ["build embedding.pipe", "build embedding.pipe --emit json", "run embedding.pipe"] {
        let Ended { out, error, .. } = pipec(&folder, arguments, "").with(1);
        assert!(error.contains("error[undivided-stage]: s0 lives on d0 to d2 at once"), "{arguments}: {error}");
        assert!(error.contains("embedding.pipe:3:5") && error.contains("help: place every stage on one"), "{error}");
        assert!(!out.contains("device d0"), "{out}");
    }
    let limited = EMBEDDING.replace("devices 3", "devices 3 memory 1GiB");
    fs::write(folder.join("limited.pipe"), limited).expect("a file");
    for arguments in ["check limited.pipe", "search limited.pipe --time 1"] {
        let error = pipec(&folder, arguments, "").with(1).error;
        assert!(error.contains("1GiB cannot be compared with what it takes"), "{arguments}: {error}");
    }
    let model = "import std.models.gpt\n".to_owned()
        + &EMBEDDING.replace("devices 3", "model gpt(blocks = 4, hidden = 16, sequence = 8)\n    devices 3");
    fs::write(folder.join("model.pipe"), model).expect("a file");
    pipec(&folder, "check model.pipe", "").with(0);
    let error = pipec(&folder, "run model.pipe", "").with(1).error;
    assert!(error.contains("error[undivided-stage]"), "{error}");
}

#[test]
fn a_task_is_drawn_on_every_device_that_it_occupies() {
    let folder = folder("sets-plot", &[("embedding.pipe", EMBEDDING)]);
    let out = pipec(&folder, "plot embedding.pipe --golden", "").with(0).out;
    for line in out.lines().filter(|line| line.starts_with('d')) {
        assert_eq!(
            line.split_whitespace().filter(|cell| cell.ends_with('a') && cell.starts_with('F')).count(),
            4,
            "{out}"
        );
    }
    pipec(&folder, "plot embedding.pipe -o embedding.svg", "").with(0);
    let svg = fs::read_to_string(folder.join("embedding.svg")).expect("a picture");
    // Two tasks of each microbatch on three devices, and two of each device's own stage.
    assert_eq!(svg.matches(r##"rx="2.5" fill="#"##).count(), 4 * (2 * 3 + 2 * 3) + legend(&svg), "{svg}");
}

/// Rectangles of the legend.
fn legend(svg: &str) -> usize {
    svg.matches(r##"width="16" height="14" rx="2.5" fill="#"##).count()
}

#[test]
fn search_keeps_the_placement_and_writes_it_readably() {
    let folder = folder("sets-search", &[("embedding.pipe", EMBEDDING)]);
    let out = pipec(&folder, "search embedding.pipe --time 2 --rounds 1 -o found.pipe", "").with(0).out;
    assert!(out.contains("accepted"), "{out}");
    let found = fs::read_to_string(folder.join("found.pipe")).expect("a file");
    let (_, declared) = found.split_once("schedule found {").expect("what was found");
    assert!(declared.contains("    stages 4\n    place s on if s == 0 then 0..D else s - 1\n"), "{found}");
    let makespan = |file: &str| {
        let report: Value = pipec(&folder, &format!("check {file} --format json"), "").with(0).into();
        report["makespan"].as_f64().expect("a number")
    };
    assert!(makespan("found.pipe") < makespan("embedding.pipe"));
    for (place, written) in [
        ("s..s + 2", "if s == 0 then 0..2 else 1..D"),
        ("0..D", "0..D"),
        ("[0, 2]", "[0, 2]"),
        ("if s == 1 then [0, 2] else 1", "if s == 0 then 1 else [0, 2]"),
        ("if s == 0 then 0..3 else s", "if s == 0 then 0..D else s"),
    ] {
        let text = format!(
            "schedule x {{ require D == 3 stages 2 place s on {place}
                block every 40 {{ F[s] at s BW[s] at 20 - 10 * s }} }}"
        );
        fs::write(folder.join("x.pipe"), text).expect("a file");
        let source = pipec(&folder, "search x.pipe --set devices=3 --time 0.1 --quiet", "").with(0).out;
        assert!(source.contains(&format!("    place s on {written}\n")), "{source}");
    }
}
