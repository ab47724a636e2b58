//! Several hosts of several GPUs each, as Slurm starts ranks there: with the variables that it sets, host names of
//! their own, fake GPUs, and a fake NCCL that waits inside of its calls. A rank is lost while it joins the others, in
//! its first step, and while it saves.

use crate::agent::Agent;
use crate::fakes::fakes;
use crate::job::{pipeline, texts};
use crate::process::folder;
use crate::{LONG, has_saved, json, newest, state};
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

/// Runs `replicas` on hosts with several ranks each, and checks that they learn what one process learns. Returns the
/// bytes of each message to another host.
fn replicas(libraries: &Path, folder: &Path, n_ranks: u32, per_host: u32) -> Vec<u64> {
    let line = |name: &str| format!("run x.pipe --backend cuda --no-cublas --format json --checkpoint {name}");
    let alone: Value = crate::fakes::pipec_with(libraries, folder, &line("alone"), &[]).with(0).into();
    let log = folder.join(format!("log-{per_host}"));
    let mut agent = Agent::of_slurm(folder).with_gpus(libraries).with("PIPEC_FAKE_LOG", log.display());
    agent = agent.on_hosts(per_host);
    let outputs = agent.run(n_ranks, |_| line(&format!("together-{per_host}"))).ended(LONG);
    let together = json(&outputs[0]);
    assert_eq!((&together["losses"], &together["ranks"]), (&alone["losses"], &n_ranks.into()), "{}", errors(&outputs));
    assert!(errors(&outputs).is_empty() && state(folder, &together) == state(folder, &alone), "{}", errors(&outputs));
    let log = fs::read_to_string(log).expect("a log");
    let bytes = log.lines().filter_map(|line| line.strip_prefix("to another host: "));
    bytes.map(|bytes| bytes.parse().expect("a number")).collect()
}

#[test]
fn a_sum_goes_to_another_host_once() {
    let Some(libraries) = fakes().filter(|_| can_name_hosts()) else { return };
    let takes_all = std::env::var("PIPEC_ALL").is_ok_and(|all| all != "0");
    for zero in if takes_all { &["", "zero 3", "zero 1", "zero 2"][..] } else { &["", "zero 3"] } {
        let text = pipeline("dp_1f1b(replicas = 6)", zero)
            .replace("devices 4", "devices 6")
            .replace("microbatches 4", "microbatches 6");
        let text = text.replace("blocks = 8", "blocks = 2").replace("steps 4", "steps 2");
        let folder = folder("nodes-sums", &[("x.pipe", &text)]);
        // Ranks that are alone on their host send everything to others.
        let [far, all] = [3, 1].map(|per_host| replicas(libraries, &folder, 6, per_host).into_iter().sum::<u64>());
        // Of two hosts one sends S bytes, and the other sends the sum back: instead of 5/3 S for every rank.
        assert!(far > 0 && 7 * far < 2 * all, "{zero}: {far} of {all}");
    }
}

/// Of a sum so large that it travels in pieces.
#[test]
fn pieces_of_a_sum_travel_one_behind_the_other() {
    let Some(libraries) = fakes().filter(|_| can_name_hosts()) else { return };
    let text = pipeline("dp_1f1b(replicas = 4)", "").replace("blocks = 8", "blocks = 1").replace("steps 4", "steps 1");
    let text = text.replace("vocab = 17, hidden = 16", "vocab = 12000, hidden = 64").replace("rows = 2", "rows = 1");
    let folder = folder("nodes-pieces", &[("x.pipe", &text.replace("sequence = 5", "sequence = 2"))]);
    // Two columns in two pieces each, there and back; what tried the connections is small.
    let far = replicas(libraries, &folder, 4, 2).into_iter().filter(|bytes| *bytes > 64).collect::<Vec<_>>();
    assert!(far.len() == 8 && far.iter().all(|bytes| *bytes == far[0]), "{far:?}");
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
