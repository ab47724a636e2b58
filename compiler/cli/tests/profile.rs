//! Profiles: what `pipec profile` measures and writes, what `check`, `search` and `plot` make of
//! it, and what is wrong with some files.

mod process;

use process::{folder, pipec};
use serde_json::Value;
use std::path::Path;

const TINY: &str = include_str!("data/tiny_profile.pipe");
/// Two stages: `F` takes 1 and 1.5 ms, `BW` 2 and 3 ms, a transfer 0.05 ms.
const TWO_STAGES: &str = include_str!("../../../tests/ui/unusable-profile/two_stages.json");

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

#[test]
fn profiles_go_to_programs_as_json_alone() {
    let folder = folder("profile-json", &[("tiny.pipe", TINY)]);
    for arguments in ["profile tiny.pipe --steps 2 --format json", "profile - --steps 2 --quiet"] {
        let ended = pipec(&folder, arguments, TINY).with(0);
        let profile: Value = serde_json::from_str(&ended.out).expect("JSON");
        assert_eq!(profile["comparison"]["steps"], 1, "{arguments}");
        assert_eq!(ended.error, "", "{arguments}");
    }
}

#[test]
fn times_are_those_of_the_profile_unless_costs_are_given() {
    let folder = folder("profile-times", &[("two.json", TWO_STAGES)]);
    let target = "check std:1f1b --set devices=2 --set microbatches=2 --format json --profile two.json";
    for (options, makespan) in [("", 12.1), ("--cost comm=0", 12.0), ("--cost BW=2", 10.1), ("--cost F[0]=2", 13.1)] {
        let report = json(&folder, &format!("{target} {options}"), 0);
        assert_eq!(report["makespan"].as_f64(), Some(makespan), "{options}");
    }
    // On one GPU: all work of both, but for the transfer that nothing hides, from the last backward
    // of d1 to that of d0.
    let shared = TWO_STAGES.replacen('{', r#"{"gpus": [{"name": "one", "devices": [1, 0]}],"#, 1);
    std::fs::write(folder.join("shared.json"), shared).expect("a file of ours");
    let target = "std:1f1b --set devices=2 --set microbatches=2 --profile shared.json";
    let report = json(&folder, &format!("check {target} --format json"), 0);
    assert_eq!((report["makespan"].as_f64(), report["lower_bound"].as_f64()), (Some(15.05), Some(15.0)));
    let words = "devices shared a GPU when this profile was measured; the search counts as if each had one of its own";
    let error = pipec(&folder, &format!("search {target} --rounds 2"), "").with(0).error;
    assert!(error.contains(words), "{error}");
    let target = "std:1f1b --set devices=2 --set microbatches=2 --profile two.json";
    let plot = pipec(&folder, &format!("plot {target}"), "").with(0).out;
    assert!(plot.contains("12.1"), "{plot}");
    // Halves of a backward that was measured at once count as half each: d1 can send its gradients earlier.
    let found = json(&folder, &format!("search {target} --rounds 2 --format json"), 0);
    let (makespan, is_proved) = (found["makespan"].as_f64(), found["proved_optimal"].as_bool());
    assert!(is_proved == Some(true) && makespan < Some(12.1), "{makespan:?} {is_proved:?}");
}

/// A profile, the exit code and a part of what is said about it.
#[test]
fn times_that_were_not_measured_follow_from_those_that_were() {
    let halves = |stage: u32, ns: [u64; 2]| {
        let task = |(kind, ns)| format!(r#"{{"stage": {stage}, "kind": "{kind}", "ns": {ns}, "flops": 1000}}"#);
        ["B", "W"].into_iter().zip(ns).map(task).collect::<Vec<_>>().join(", ")
    };
    let fused = |stage: u32, ns: u64| format!(r#"{{"stage": {stage}, "kind": "BW", "ns": {ns}, "flops": 2000}}"#);
    let split = TWO_STAGES.replace(&fused(0, 2_000_000), &halves(0, [500_000, 1_500_000]));
    let split = split.replace(&fused(1, 3_000_000), &halves(1, [1_000_000, 2_000_000]));
    assert!(!split.contains("BW"), "{split}");
    let folder = folder("profile-follows", &[("fused.json", TWO_STAGES), ("split.json", &split)]);
    let check = |name: &str, profile: &str| {
        let target = format!("std:{name} --set devices=2 --set microbatches=2 --format json {profile}");
        json(&folder, &format!("check {target}"), 0)
    };
    assert_eq!(check("1f1b", "--profile fused.json")["makespan"].as_f64(), Some(12.1));
    let sum = check("1f1b", "--profile split.json");
    assert_eq!((sum["makespan"].as_f64(), sum["derived_costs"].as_array()), (Some(12.1), None));
    let given = pipec(&folder, "check std:zb_h1 --set devices=2 --cost F[0]=1,BW[0]=2,F[1]=1.5,BW[1]=3,comm=0.05", "");
    let assumed = check("zb_h1", "--profile fused.json");
    let derived = assumed["derived_costs"].as_array().map(Vec::len);
    assert_eq!(derived, Some(4), "{assumed}");
    assert!(given.with(0).out.contains("halves of BW"), "as with other costs");
    assert_eq!(check("zb_h1", "--profile split.json")["derived_costs"].as_array(), None);
    // What was measured of the halves counts, and not the cost of both, which a warning says.
    let both = check("zb_h1", "--profile split.json --cost BW=9");
    assert_eq!(both["makespan"], check("zb_h1", "--profile split.json")["makespan"]);
    assert_eq!(both["diagnostics"][0]["message"], "`BW` takes 9, but `zb_h1` has no such task");
    // A half serves a backward at once only where that was not measured.
    let half = check("1f1b", "--profile fused.json --cost W=9");
    assert_eq!(half["diagnostics"][0]["message"], "`W` takes 9, but `1f1b` has no such task");
    let halves = check("1f1b", "--profile split.json --cost W=1");
    assert_eq!(halves["diagnostics"], Value::Array(Vec::new()));
    // Halves that were not measured follow from what is given for both.
    let follows = check("zb_h1", "--profile fused.json --cost BW=9");
    assert_eq!(
        follows["diagnostics"][0]["message"],
        "`BW` takes 9, but `zb_h1` has no such task: `B` and `W` follow from it"
    );
    // What is said of one half leaves the other one the rest.
    let rest = check("zb_h1", "--profile fused.json --cost B[0]=0.5,B[1]=1");
    let rest = rest["derived_costs"].as_array().map(|costs| costs.iter().map(|cost| cost["time"].as_f64()).collect());
    assert_eq!(rest, Some(vec![Some(1.5), Some(2.0)]));
}

#[test]
fn profiles_that_cannot_be_used_are_told_with_their_place() {
    let replaced = |from: &str, to: &str| TWO_STAGES.replacen(from, to, 1);
    for (number, (text, words)) in [
        (String::new(), "is not a valid profile: EOF"),
        ("{\"schema\": 3}".to_owned(), "malformed type: integer `3`, expected a string"),
        (
            replaced("profile/1", "profile/9"),
            "has the schema `pipec.profile/9`, but this version reads `pipec.profile/1`",
        ),
        (replaced("\"stages\": 2", "\"stages\": \"two\""), "`\"two\"` is not a number of stages"),
        (replaced("\"transfer_ns\": 50000,", ""), "missing field `transfer_ns`"),
        (replaced("\"kind\": \"F\"", "\"kind\": \"G\""), "`G` is not a kind of task"),
        (replaced("\"kind\": \"BW\"", "\"kind\": \"F\""), "`F` of s0 is in the profile twice"),
        (replaced("\"stage\": 1", "\"stage\": 2"), "`F` of s2 is in a profile of 2 stages"),
        (replaced("1000000,", "2000000000000000,"), "`F` of s0 takes 2000000000000000 ns, more than 1000000000000000"),
        (replaced("50000", "2000000000000000"), "is 2000000000000000, more than 1000000000000000"),
        (replaced("1000000,", "-1,"), "a task of the profile: malformed value"),
        (replaced("{", r#"{"gpus": [{"devices": [1]}],"#), "of the devices of all GPUs, one is missing or there twice"),
        (replaced("{", r#"{"gpus": [{"names": 1}],"#), "the GPUs of the profile: missing field `devices`"),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = folder(&format!("profile-wrong-{number}"), &[("two.json", &text)]);
        for command in ["check", "plot", "search"] {
            let ended = pipec(&folder, &format!("{command} std:1f1b --set devices=2 --profile two.json"), "").with(1);
            let is_told = ended.error.contains("error[unusable-profile]") && ended.error.contains(words);
            assert!(is_told, "{command} {words}\n{}", ended.error);
        }
        let report = json(&folder, "check std:1f1b --set devices=2 --profile two.json --format json", 1);
        assert_eq!(report["diagnostics"][0]["file"], "two.json");
    }
    let half = TWO_STAGES.replace("\"BW\"", "\"B\"");
    let folder = folder("profile-mistakes", &[("two.json", TWO_STAGES), ("half.json", &half), ("tiny.pipe", TINY)]);
    for (arguments, code, words) in [
        ("check std:1f1b --profile two.json", 1, "this profile has 2 stages, but `1f1b` has 4"),
        ("search std:1f1b --profile two.json", 1, "this profile has 2 stages, but `1f1b` has 4"),
        ("check tiny.pipe --profile two.json", 1, "was measured with 1000 operations"),
        (
            "check std:1f1b --set devices=2 --profile half.json",
            1,
            "runs `BW` of s0, which this profile has no time for",
        ),
        (
            "search std:1f1b --set devices=2 --profile half.json",
            1,
            "runs `BW` of s0, which this profile has no time for",
        ),
        ("check std:1f1b --set devices=2 --profile half.json --cost BW=1", 0, ""),
        ("check std:1f1b --profile missing.json", 2, "missing.json: No such file"),
        ("profile std:1f1b", 1, "compiled without a model"),
        ("profile tiny.pipe --steps 1", 2, "1 is not in 2.."),
        ("profile tiny.pipe -o missing/x.json", 2, "missing/x.json"),
        ("profile tiny.pipe --memory 0", 1, "error[memory-exceeded]"),
    ] {
        let ended = pipec(&folder, arguments, "").with(code);
        assert!(ended.error.contains(words), "{arguments}\n{}", ended.error);
    }
    let refused = json(&folder, "profile std:1f1b --format json", 1);
    assert_eq!(refused["ok"], false);
    let help = pipec(&folder, "profile --help", "").with(0).out;
    assert!(help.contains("pipec profile examples/shakespeare.pipe -o here.profile.json"), "{help}");
}
