//! Several hosts of several GPUs each, as Slurm starts ranks there: with the variables that it sets, host names of
//! their own, fake GPUs, and a fake NCCL that waits inside of its calls. A rank is lost while it joins the others, in
//! its first step, and while it saves.

use crate::agent::Agent;
use crate::fakes::fakes;
use crate::job::{pipeline, texts};
use crate::process::folder;
use crate::{LONG, has_saved, json, newest};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A long pipeline, with a block for each of so many devices.
fn long(devices: u32, steps: u32) -> String {
    let text = pipeline("1f1b", "").replace("devices 4", &format!("devices {devices}"));
    text.replace("blocks = 8", &format!("blocks = {devices}")).replace("steps 4", &format!("steps {steps}"))
}

fn errors(outputs: &[Output]) -> String {
    outputs.iter().map(|output| texts(output).1).collect()
}

/// Whether processes may have a host name of their own here, as on several hosts.
fn can_name_hosts() -> bool {
    let named = Command::new("unshare").args(["-u", "hostname", "pipec-node"]).output();
    let can = named.is_ok_and(|output| output.status.success());
    if !can {
        eprintln!("skipped: processes with host names of their own, which `unshare -u` gives to root");
    }
    can
}

#[test]
fn two_hosts_of_eight_gpus_learn_what_one_process_learns() {
    let Some(libraries) = fakes().filter(|_| can_name_hosts()) else { return };
    let folder = folder("nodes-bits", &[("x.pipe", &long(16, 2))]);
    let arguments = "run x.pipe --no-checkpoint --no-cublas --format json";
    let alone: Value = crate::fakes::pipec_with(libraries, &folder, arguments, &[]).with(0).into();
    let log = folder.join("log");
    let mut agent = Agent::of_slurm(&folder).with_gpus(libraries).with("PIPEC_FAKE_DEVICES", 8).on_hosts(8);
    agent = agent.with("PIPEC_FAKE_LOG", log.display());
    let outputs = agent.run(16, |_| arguments.to_owned()).ended(LONG);
    let error = errors(&outputs);
    let together = json(&outputs[0]);
    assert_eq!((&together["losses"], &together["ranks"]), (&alone["losses"], &16.into()), "{error}");
    assert!(error.is_empty(), "{error}");
    let gpus: Vec<_> = together["gpus"].as_array().expect("GPUs").iter().map(|gpu| gpu["name"].clone()).collect();
    let expected: Vec<Value> = (0..16).map(|rank| format!("Fake GPU {}", rank % 8).into()).collect();
    assert_eq!(gpus, expected);
    // Of the 30 communicators none comes after more than three others: ranks do not join in one long chain.
    let log = fs::read_to_string(log).expect("a log");
    let rounds: BTreeSet<&str> = log.lines().filter_map(|line| line.strip_prefix("joined in round ")).collect();
    assert_eq!(rounds.into_iter().collect::<Vec<_>>(), ["1", "2", "3", "4"]);
}

/// What is said where a rank comes to its end at a call, and how long that takes; nobody takes down a driver that is
/// in use.
fn told(libraries: &Path, folder: &Path, ends: &str) -> (String, Duration) {
    let mut agent = Agent::of_slurm(folder).with_gpus(libraries).with("PIPEC_FAKE_ENDS", ends);
    let began = Instant::now();
    let arguments = "run x.pipe --backend cuda --no-cublas --checkpoint saved --stall-timeout 3";
    let outputs = agent.run(4, |_| arguments.to_owned()).ended(LONG);
    let error = errors(&outputs);
    assert!(outputs.iter().all(|output| !output.status.success()), "{ends}\n{error}");
    assert!(error.matches("error: ").count() == 1 && !error.contains("fake cuda:"), "{ends}\n{error}");
    (error, began.elapsed())
}

#[test]
fn a_rank_that_is_lost_is_told_wherever_it_was() {
    let Some(libraries) = fakes() else { return };
    let folder = folder("nodes-lost", &[("x.pipe", &long(4, 6))]);
    let cases = [
        // While it joins its second communicator, for which others wait inside of NCCL.
        ("2:ncclCommInitRankConfig:2:KILL", "error: rank 2 (process ", "has ended", 0),
        ("1:ncclCommInitRankConfig:1:STOP", "error: rank 1 (process ", "was stopped", 0),
        // It lives, and cannot go on.
        (
            "2:ncclCommInitRankConfig:2:REFUSED",
            "ncclCommInitRankConfig: unhandled system error",
            "NCCL cannot go on",
            0,
        ),
        // Of the first step: two sends have tried the communicators. It had not yet told where it was.
        ("1:ncclSend:3:KILL", "error: rank 1 (process ", "has ended", 0),
        // What it has learned is fetched when it saves, after two steps and after four.
        ("3:cuMemcpyDtoH_v2:2:KILL", "error: rank 3 (process ", "has ended", 0),
        ("0:cuMemcpyDtoH_v2:60:KILL", "error: rank 0 (process ", "has ended", 2),
    ];
    for (ends, told_of, how, saved) in cases {
        drop(fs::remove_dir_all(folder.join("saved")));
        let (error, took) = told(libraries, &folder, ends);
        assert!(error.contains(told_of) && error.contains(how), "{ends}\n{error}");
        assert!(took < Duration::from_secs(30), "{ends}: {took:?}");
        // What was saved before is whole, and what was not, does not exist.
        let whole = if has_saved(&folder.join("saved")) { newest(&folder.join("saved")) } else { 0 };
        assert!(whole >= saved, "{ends}: step {whole}\n{error}");
    }
}

#[test]
fn what_ranks_see_of_the_gpus_of_their_host_is_looked_at() {
    let Some(libraries) = fakes() else { return };
    let folder = folder("nodes-see", &[("x.pipe", &long(2, 1))]);
    let run = |visible: &str| {
        let mut agent = Agent::of_slurm(&folder).with_gpus(libraries).with("CUDA_VISIBLE_DEVICES", visible);
        let outputs =
            agent.run(2, |_| "run x.pipe --backend cuda --no-cublas --no-checkpoint --quiet".to_owned()).ended(LONG);
        (errors(&outputs), outputs.iter().all(|output| output.status.success()))
    };
    // As with `--gpus-per-task 1`.
    let (error, is_well) = run("RANK");
    assert!(is_well && error.matches("warning: ").count() == 1, "{error}");
    assert!(
        error.contains("every rank sees one GPU of its host alone") && error.contains("--gpu-bind=none"),
        "{error}"
    );
    let (error, is_well) = run("0");
    assert!(!is_well && error.contains("rank 0 and rank 1 have the same GPU"), "{error}");
    assert!(error.matches("error: ").count() == 1 && !error.contains("fake cuda:"), "{error}");
    assert_eq!(run("0,1"), (String::new(), true));
}

/// What NCCL takes of a GPU is known before the arenas are there, and counts.
#[test]
fn an_arena_that_does_not_fit_beside_nccl_is_said() {
    let Some(libraries) = fakes() else { return };
    let folder = folder("nodes-memory", &[("x.pipe", &long(2, 1))]);
    let run = |memory: u64| {
        let agent = Agent::of_slurm(&folder).with_gpus(libraries).with("PIPEC_FAKE_MEMORY", memory);
        // Two communicators, and two connections.
        let mut agent = agent.with("PIPEC_FAKE_NCCL_MEMORY", 8 << 20);
        let arguments = "run x.pipe --backend cuda --no-cublas --no-checkpoint --quiet";
        let outputs = agent.run(2, |_| arguments.to_owned()).ended(LONG);
        (errors(&outputs), outputs.iter().all(|output| output.status.success()))
    };
    assert_eq!(run(128 << 20), (String::new(), true));
    let (error, is_well) = run(90 << 20);
    // On either of the two: whichever rank comes first says it.
    let told = "beside NCCL, which holds 32MiB there: its arena and what is beside it need ";
    assert!(!is_well && error.contains(told) && error.matches("error: ").count() == 1, "{error}");
    // Not even NCCL.
    let (error, is_well) = run(20 << 20);
    assert!(!is_well && error.contains("NCCL cannot go on: ") && error.matches("error: ").count() == 1, "{error}");
}
