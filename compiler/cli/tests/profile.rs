//! Profiles: what `pipec profile` measures and writes, and what `check` makes of it.

mod process;

use process::{folder, pipec};
use serde_json::Value;
use std::path::Path;

const TINY: &str = include_str!("data/tiny_profile.pipe");

fn json(folder: &Path, arguments: &str, code: i32) -> Value {
    pipec(folder, arguments, TINY).with(code).into()
}

#[test]
fn a_pipeline_is_measured_and_its_profile_is_read_again() {
    let folder = folder("profile-measured", &[("tiny.pipe", TINY)]);
    let ended = pipec(&folder, "profile tiny.pipe --steps 6 -o x.profile.json", "").with(0);
    for part in ["predicted", "measured", "d0", "d1", "makespan", "step", "3 other steps", "wrote x.profile.json"] {
        assert!(ended.out.contains(part), "{part}\n{}", ended.out);
    }
    assert!(ended.error.contains("step 8/8"), "{}", ended.error);
    let text = std::fs::read_to_string(folder.join("x.profile.json")).expect("it was written");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    let sizes = ["devices", "stages", "steps"].map(|key| profile[key].as_u64());
    assert_eq!((&profile["schema"], sizes), (&Value::from("pipec.profile/1"), [Some(2), Some(2), Some(3)]));
    let tasks = profile["tasks"].as_array().expect("tasks");
    let known: Vec<(u64, &str)> =
        tasks.iter().filter_map(|task| Some((task["stage"].as_u64()?, task["kind"].as_str()?))).collect();
    assert_eq!(known, [(0, "F"), (0, "BW"), (0, "U"), (1, "F"), (1, "BW"), (1, "U")]);
    assert!(tasks.iter().all(|task| task["ns"].as_u64() > Some(0) && task["flops"].as_u64() > Some(0)), "{tasks:?}");
    for key in ["transfer_ns", "makespan_ns", "plain_makespan_ns", "copy_bytes_per_second"] {
        assert!(profile[key].as_u64() > Some(0), "{key}: {}", profile[key]);
    }
    let links = profile["links"].as_array().expect("links");
    assert!(!links.is_empty() && links.iter().all(|link| link["ns"].as_u64() > Some(0)), "{links:?}");

    let report = json(&folder, "check tiny.pipe --profile x.profile.json --format json", 0);
    let (makespan, predicted) =
        (report["makespan"].as_f64(), profile["comparison"]["makespan"]["predicted_ns"].as_u64());
    assert_eq!(makespan.map(|ms| (ms * 1e6).round() as u64), predicted);
    assert_eq!(report["profile"]["time_unit"], "ms");
    let fitted = predicted.unwrap_or_default().abs_diff(profile["makespan_ns"].as_u64().unwrap_or_default());
    assert!(fitted < 1000, "the timeline is as long as the steps that were measured, but for {fitted} ns");
    let more = pipec(&folder, "check tiny.pipe --profile x.profile.json --set microbatches=6", "").with(0);
    assert!(more.out.contains("times          ms          from x.profile.json"), "{}", more.out);
}

/// Groups are measured as the devices of the schedule: a task with its pieces, and what is exchanged between them.
#[test]
fn groups_are_measured_as_one_device_each() {
    let group = "import std.models.gpt
        pipeline p {
            model gpt(hidden = 32, blocks = 2, sequence = 32, rows = 2)
            devices 2
            tensor 2
            microbatches 4
            schedule zb_h1
            train { data synthetic steps 2 optimizer sgd(learning_rate = 0.1) clip_norm 1 }
        }";
    let folder = folder("profile-groups", &[("group.pipe", group)]);
    let ended = pipec(&folder, "profile group.pipe --steps 6 -o x.profile.json", "").with(0);
    let ends = ["d1", "2 groups of 2 devices"].iter().all(|part| ended.out.contains(part));
    assert!(ends && !ended.out.contains("d2"), "{}", ended.out);
    let text = std::fs::read_to_string(folder.join("x.profile.json")).expect("it was written");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!([&profile["devices"], &profile["tensor"], &profile["stages"]], [4, 2, 2].map(Value::from).each_ref());
    assert_eq!(profile["tasks"].as_array().map(Vec::len), Some(8), "F, B, W and U of two stages: {text}");
    let report = json(&folder, "check group.pipe --profile x.profile.json --format json", 0);
    let (makespan, predicted) =
        (report["makespan"].as_f64(), profile["comparison"]["makespan"]["predicted_ns"].as_u64());
    assert_eq!(makespan.map(|ms| (ms * 1e6).round() as u64), predicted);
}
