//! Ranks with a GPU each under `mpirun`, on machines that have none: the drivers are fakes, and so
//! is the library between them, over sockets.
//!
//! Needs an MPI library, a build with the feature `mpi`, and g++.

mod fakes;
mod job;
mod process;

use fakes::fakes;
use job::{ended, launcher, pipeline, ranks, signal, texts, until};
use process::{folder, pipec};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Output};
use std::time::Duration;

/// The command on so many ranks, each on a machine with fake GPUs.
fn start(libraries: &Path, folder: &Path, n_ranks: u32, arguments: &str, variables: &[(&str, &str)]) -> Child {
    let mut command = launcher("mpirun");
    command.env("LD_LIBRARY_PATH", libraries).env("PIPEC_EMULATOR_CACHE", libraries.join("kernels"));
    command.env("XDG_CACHE_HOME", folder.join("cache")).env("PIPEC_FAKE_DEVICES", "4").envs(variables.iter().copied());
    command.current_dir(folder).arg("-n").arg(n_ranks.to_string()).arg(env!("CARGO_BIN_EXE_pipec"));
    command.args(arguments.split_whitespace()).spawn().expect("mpirun starts: apt-get install libopenmpi-dev")
}

/// How the process ends, within a time limit.
fn run(libraries: &Path, folder: &Path, n_ranks: u32, arguments: &str, variables: &[(&str, &str)]) -> Output {
    ended(start(libraries, folder, n_ranks, arguments, variables), Duration::from_secs(120))
}

/// The report of a run on so many ranks, or in this process alone.
fn report(libraries: &Path, folder: &Path, n_ranks: u32, arguments: &str, seed: &str) -> Value {
    let arguments = format!("run {arguments} --backend cuda --format json");
    let (out, error) = if n_ranks == 1 {
        let ended = fakes::pipec_with(libraries, folder, &arguments, &[("PIPEC_FAKE_SEED", seed)]).with(0);
        (ended.out, ended.error)
    } else {
        let output = run(libraries, folder, n_ranks, &arguments, &[("PIPEC_FAKE_SEED", seed)]);
        let (out, error) = texts(&output);
        assert!(output.status.success(), "{n_ranks} ranks, {arguments}\n{out}\n{error}");
        (out, error)
    };
    assert!(!error.contains("fake cuda:"), "{n_ranks} ranks, {arguments}\n{error}");
    serde_json::from_str(&out).unwrap_or_else(|why| panic!("{arguments}: {why}\n{out}\n{error}"))
}

fn losses(report: &Value) -> Vec<f64> {
    report["losses"].as_array().expect("losses").iter().filter_map(Value::as_f64).collect()
}

#[test]
fn ranks_with_a_gpu_each_learn_the_same_bits_as_one_process() {
    let Some(libraries) = fakes() else { return };
    // Of two ranks each has two members of a group, of three the first one has; with torchrun there
    // are four (see torchrun.rs).
    let pipelines = [
        ("1f1b", "", [2, 3]),
        ("chimera", "", [4, 2]),
        ("data_parallel", "zero 2", [3, 2]),
        ("data_parallel", "zero 1\n offload optimizer", [2, 3]),
        ("zb_v", "", [3, 2]),
        ("data_parallel", "", [2, 4]),
        ("data_parallel", "zero 3", [4, 3]),
    ];
    let takes_all = std::env::var("PIPEC_ALL").is_ok_and(|all| all != "0");
    let (n_pipelines, n_sizes) = if takes_all { (7, 2) } else { (4, 1) };
    for &(schedule, line, ranks) in &pipelines[..n_pipelines] {
        let folder = folder("nccl-bits", &[("x.pipe", &pipeline(schedule, line))]);
        let alone = report(libraries, &folder, 1, "x.pipe --steps 3 --checkpoint alone", "1");
        let processor: Value =
            pipec(&folder, "run x.pipe --backend cpu --steps 3 --no-checkpoint --format json", "").with(0).into();
        for (gpu, processor) in losses(&alone).iter().zip(losses(&processor)) {
            assert!(
                (gpu - processor).abs() < 1e-5 * processor,
                "{schedule} {line}: {gpu}, {processor} on the processor"
            );
        }
        for &n_ranks in &ranks[..n_sizes] {
            let seed = &n_ranks.to_string();
            let together = report(libraries, &folder, n_ranks, "x.pipe --steps 3 --checkpoint together", seed);
            assert_eq!(together["losses"], alone["losses"], "{schedule} {line} over {n_ranks} ranks");
            assert_eq!((&together["ranks"], &together["backend"]), (&n_ranks.into(), &"cuda".into()));
            let load = |path: &Value| {
                let path = folder.join(path.as_str().expect("a path"));
                let mut state = pipe_runtime::checkpoint::load(&path).expect("a checkpoint");
                state.tensors.sort_by(|a, b| a.name.cmp(&b.name));
                state
            };
            let (found, expected) = (load(&together["checkpoint"]), load(&alone["checkpoint"]));
            assert!(found == expected, "{schedule} {line} over {n_ranks} ranks");
        }
    }
}

/// A tensor-parallel group of four devices, two on each of two ranks. It uses every collective.
#[test]
fn a_group_on_two_ranks_learns_the_same_bits_as_on_one() {
    let Some(libraries) = fakes() else { return };
    let text = include_str!("../../../examples/expert_parallel.pipe")
        .replace("data \"data/shakespeare.txt\"", "data synthetic");
    let sizes = "mixture(hidden = 16, heads = 4, experts = 4, blocks = 1, sequence = 16, rows = 1)";
    let text = text.replace("model mixture()", &format!("model {sizes}")).replace("microbatches 8", "microbatches 2");
    let text = text.replace("devices 2", "devices 1").replace("tensor 2", "tensor 4");
    let folder = folder("nccl-group", &[("x.pipe", &text)]);
    let line = "x.pipe --steps 3 --no-checkpoint";
    let [alone, together] = [1, 2].map(|n_ranks| report(libraries, &folder, n_ranks, line, "1"));
    assert!(losses(&alone).len() == 3 && losses(&alone) == losses(&together), "{:?}", losses(&together));
}

#[test]
fn profiles_are_of_all_ranks_and_of_the_links_between_their_gpus() {
    let Some(libraries) = fakes() else { return };
    let folder = folder("nccl-profile", &[("x.pipe", &pipeline("1f1b", ""))]);
    let line = "profile x.pipe --backend cuda --steps 3 --quiet -o x.profile.json";
    let (out, error) = texts(&run(libraries, &folder, 2, line, &[]));
    assert!(
        out.is_empty() && error.matches("warning: ").count() == 1 && error.contains("no cuBLASLt here"),
        "{out}{error}"
    );
    let text = fs::read_to_string(folder.join("x.profile.json")).expect("it was written");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    let gpus = serde_json::json!([
        {"name": "Fake GPU 0", "devices": [0, 1], "products": "pipec"},
        {"name": "Fake GPU 1", "devices": [2, 3], "products": "pipec"},
    ]);
    assert_eq!((&profile["gpus"], &profile["ranks"]), (&gpus, &2.into()), "{text}");
    // d0 and d1 share a GPU, d1 and d2 do not.
    for (links, ends) in [("links", Value::Null), ("rank_links", serde_json::json!([0, 1]))] {
        let link = &profile[links][0];
        assert!(link["ranks"] == ends && link["ns"].as_u64() > Some(0), "{text}");
        assert_eq!(profile[links].as_array().map(Vec::len), Some(1), "{text}");
    }
    // Tasks were timed one by one on both ranks, and the two devices of each share its GPU.
    let report = pipec(&folder, "check x.pipe --profile x.profile.json", "").with(0).out;
    assert!(profile["steps"] == 1 && report.contains("work of all devices on one processor"), "{report}");
}

/// Why a run on so many ranks fails: soon, and once.
fn refused(name: &str, n_ranks: u32, variables: &[(&str, &str)]) -> Option<String> {
    let folder = folder(name, &[("x.pipe", &pipeline("1f1b", ""))]);
    Some(told(fakes()?, &folder, n_ranks, variables))
}

fn told(libraries: &Path, folder: &Path, n_ranks: u32, variables: &[(&str, &str)]) -> String {
    let output = run(libraries, folder, n_ranks, "run x.pipe --backend cuda --no-checkpoint", variables);
    let (out, error) = texts(&output);
    assert!(!output.status.success(), "{out}\n{error}");
    assert_eq!(error.matches("error: ").count(), 1, "{error}");
    error
}

#[test]
fn whatever_is_missing_is_told_once() {
    let Some(error) = refused("nccl-gpus", 4, &[("PIPEC_FAKE_DEVICES", "2")]) else { return };
    assert!(error.contains("4 ranks on this host, but 2 GPUs: every rank needs one of its own"), "{error}");
    let Some(error) = refused("nccl-none", 2, &[("PIPEC_FAKE_DEVICES", "0")]) else { return };
    assert!(error.contains("the CUDA driver finds no GPU here"), "{error}");
    // A machine without NCCL.
    let (Some(libraries), folder) = (fakes(), folder("nccl-without", &[("x.pipe", &pipeline("1f1b", ""))])) else {
        return;
    };
    for library in ["libcuda.so.1", "libnvrtc.so"] {
        fs::copy(libraries.join(library), folder.join(library)).expect("a library is copied");
    }
    std::os::unix::fs::symlink(libraries.join("kernels"), folder.join("kernels")).expect("a link");
    let error = told(&folder, &folder, 2, &[]);
    assert!(
        error.contains("no NCCL here (libnccl.so.2 was not found)") && error.contains("nvidia-nccl-cu12"),
        "{error}"
    );
}

#[test]
fn an_exchange_that_fails_ends_all_ranks() {
    let Some(error) = refused("nccl-lost", 2, &[("PIPEC_FAKE_NCCL_LOSE", "9")]) else { return };
    assert!(
        error.contains(
            "NCCL cannot go on: rank 0 and rank 1 do not reach each other: an exchange: remote process exited"
        ) && !error.contains("fake cuda:"),
        "{error}"
    );
}

#[test]
fn a_rank_that_dies_or_stops_is_named_with_its_place() {
    let Some(libraries) = fakes() else { return };
    let text = pipeline("1f1b", "").replace("steps 4", "steps 1000000").replace("every 2", "every 5");
    let folder = folder("nccl-dies", &[("x.pipe", &text)]);
    for (victim, name, how) in [(2, "KILL", "has ended"), (1, "STOP", "was stopped, and has said nothing for ")] {
        let arguments = format!("run x.pipe --backend cuda --checkpoint {name} --stall-timeout 3 --quiet");
        let child = start(libraries, &folder, 4, &arguments, &[]);
        let has_saved = || pipe_runtime::checkpoint::latest(&folder.join(name)).is_ok_and(|latest| latest.is_some());
        until("nothing is saved", &child, || ranks(&child).len() == 4 && has_saved());
        let process = ranks(&child)[&victim];
        signal(process, name);
        let output = ended(child, Duration::from_secs(30));
        let (out, error) = texts(&output);
        assert!(!output.status.success(), "{out}{error}");
        let told = format!("error: rank {victim} (process {process} on ");
        let said = error.lines().filter(|line| line.starts_with(&told) && line.contains(how)).count();
        assert_eq!(said, 1, "{name} of rank {victim}\n{out}{error}");
        let place = format!("  d{victim} was at instruction ");
        let line = error.lines().find(|line| line.starts_with(&place)).unwrap_or_default();
        assert!(line.contains(" of its step, `run @") && line.contains("(std:1f1b:"), "{name}\n{error}");
    }
}
