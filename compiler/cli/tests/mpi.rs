//! The real binary under `mpirun`: processes learn what one process does, bit for bit, and none of
//! them hangs where one is lost.
//!
//! Needs an MPI library, and a build with the feature `mpi`. `PIPEC_KILLS` says how many ranks are
//! killed and stopped, instead of a few.

mod job;
mod process;

use job::{TINY, ended, launcher, pipeline, ranks, signal, texts, until};
use process::folder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{fs, thread};

fn mpirun(folder: &Path, n_ranks: u32, arguments: &str) -> Child {
    let mut command = launcher("mpirun");
    command.current_dir(folder).arg("-n").arg(n_ranks.to_string()).arg(env!("CARGO_BIN_EXE_pipec"));
    command.args(arguments.split_whitespace()).spawn().expect("mpirun starts: apt-get install libopenmpi-dev")
}

/// The report of a run over some ranks, or in this process alone.
fn report(folder: &Path, n_ranks: u32, arguments: &str) -> Value {
    let arguments = format!("run {arguments} --format json");
    let (out, error) = if n_ranks == 1 {
        let ended = process::pipec(folder, &arguments, "").with(0);
        (ended.out, ended.error)
    } else {
        let output = mpirun(folder, n_ranks, &arguments).wait_with_output().expect("it ends");
        let (out, error) = texts(&output);
        assert!(output.status.success(), "{n_ranks} ranks, {arguments}\n{out}\n{error}");
        (out, error)
    };
    serde_json::from_str(&out).unwrap_or_else(|why| panic!("{arguments}: {why}\n{out}\n{error}"))
}

#[test]
fn processes_learn_the_same_bits_as_one() {
    let pipelines = [
        ("1f1b", ""),
        ("zb_v", ""),
        ("data_parallel", ""),
        ("data_parallel", "zero 3"),
        ("data_parallel", "zero 1\n offload optimizer"),
        ("1f1b", "tensor 2"),
    ];
    for (schedule, line) in pipelines {
        // A table that two divide evenly.
        let text = pipeline(schedule, line).replace("vocab = 17", "vocab = 18");
        let folder = folder("bits", &[("x.pipe", &text)]);
        let alone = report(&folder, 1, "x.pipe --checkpoint alone");
        for n_ranks in [2, 4] {
            let together = report(&folder, n_ranks, "x.pipe --checkpoint together");
            assert_eq!(together["losses"], alone["losses"], "{schedule} {line} over {n_ranks} ranks");
            assert_eq!(together["ranks"], n_ranks);
            let load = |path: &Value| {
                let path = folder.join(path.as_str().expect("a path"));
                let mut state = pipe_runtime::checkpoint::load(&path).expect("a checkpoint");
                state.tensors.sort_by(|a, b| a.name.cmp(&b.name));
                state
            };
            assert!(
                load(&together["checkpoint"]) == load(&alone["checkpoint"]),
                "{schedule} {line} over {n_ranks} ranks"
            );
        }
    }
}

#[test]
fn runs_resume_on_other_ranks_and_another_schedule() {
    let files =
        [("x.pipe", pipeline("v_half", "")), ("y.pipe", pipeline("1f1b", "").replace("devices 4", "devices 2"))];
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let folder = folder("resumes", &files);
    let whole = report(&folder, 1, "x.pipe --no-checkpoint");
    report(&folder, 4, "x.pipe --steps 2 --checkpoint saved");
    let rest = report(&folder, 2, "y.pipe --resume --checkpoint saved");
    assert_eq!(rest["resumed_from"], 2);
    let losses = |report: &Value| -> Vec<f64> {
        report["losses"].as_array().expect("losses").iter().map(|loss| loss.as_f64().expect("a number")).collect()
    };
    for (whole, rest) in losses(&whole)[2..].iter().zip(losses(&rest)) {
        assert!((whole - rest).abs() < 1e-6 * whole, "{whole} {rest}");
    }
}

#[test]
fn only_the_first_rank_speaks() {
    let folder = folder("speaks", &[("x.pipe", &pipeline("1f1b", ""))]);
    let output = mpirun(&folder, 4, "run x.pipe --no-checkpoint --trace x.json").wait_with_output().expect("it ends");
    let (out, error) = texts(&output);
    assert!(output.status.success(), "{out}{error}");
    assert_eq!(out.matches("on 4 cpu devices of 4 processes").count(), 1, "{out}");
    assert_eq!(error.matches("step 4/4").count(), 1, "{error}");
    let trace: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("x.json")).expect("written")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    for device in 0..4 {
        // 4 steps of 4 forwards, 4 backwards and an update.
        let own = events.iter().filter(|event| event["ph"] == "X" && event["args"]["device"] == device);
        assert_eq!(own.count(), 36, "d{device}");
        let name = format!("d{device} (rank {device})");
        assert!(events.iter().any(|event| event["name"] == "process_name" && event["args"]["name"] == name.as_str()));
    }
    // A target that is rejected, or a file that is missing, is told once.
    let rejected =
        mpirun(&folder, 3, "run std:1f1b --set devices=2 --set microbatches=0").wait_with_output().expect("it ends");
    assert!(!rejected.status.success() && texts(&rejected).1.matches("error[").count() == 1, "{}", texts(&rejected).1);
    let missing = mpirun(&folder, 3, "run missing.pipe").wait_with_output().expect("it ends");
    assert!(
        !missing.status.success() && texts(&missing).1.matches("missing.pipe: ").count() == 1,
        "{}",
        texts(&missing).1
    );
    let many = mpirun(&folder, 5, "run x.pipe").wait_with_output().expect("it ends");
    let told = "5 ranks cannot divide 4 devices: every rank needs at least one";
    assert!(!many.status.success() && texts(&many).1.matches(told).count() == 1, "{}", texts(&many).1);
}

#[test]
fn ranks_with_another_program_are_named() {
    let other = pipeline("1f1b", "").replace("hidden = 16", "hidden = 32");
    let folder = folder("differ", &[("x.pipe", &pipeline("1f1b", "")), ("y.pipe", &other)]);
    let pipec = env!("CARGO_BIN_EXE_pipec");
    let mut command = launcher("mpirun");
    command.current_dir(&folder).args(["-n", "2", pipec, "run", "x.pipe", ":"]);
    command.args(["-n", "1", pipec, "run", "y.pipe", ":", "-n", "1", pipec, "run", "x.pipe"]);
    let output = command.output().expect("mpirun starts");
    let (out, error) = texts(&output);
    assert!(!output.status.success(), "{out}{error}");
    let told = "error: the ranks do not have the same program: ranks 0, 1 and 3 have ";
    assert!(error.matches(told).count() == 1 && error.contains(", rank 2 has "), "{error}");
}

/// A number below another, another one each time.
fn below(seed: &mut u64, end: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % end
}

#[test]
fn a_rank_that_dies_or_stops_ends_the_job_everywhere() {
    let kills: u64 = std::env::var("PIPEC_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(3);
    let text = pipeline("1f1b", "").replace("steps 4", "steps 1000000").replace("hidden = 16", "hidden = 64");
    let text = text.replace("every 2", "every 50");
    let folder = folder("dies", &[("x.pipe", &text)]);
    let mut seed = 7;
    let mut longest = BTreeMap::new();
    for (number, name) in (0..kills).flat_map(|number| [(number, "KILL"), (number, "STOP")]) {
        let saved = format!("saved-{name}-{number}");
        let child = mpirun(&folder, 4, &format!("run x.pipe --checkpoint {saved} --stall-timeout 3 --quiet"));
        // The first ones are lost while they join each other, the others in a step or while they save.
        let has_saved = || pipe_runtime::checkpoint::latest(&folder.join(&saved)).is_ok_and(|latest| latest.is_some());
        until("mpirun starts no ranks", &child, || ranks(&child).len() == 4 && (number == 0 || has_saved()));
        thread::sleep(Duration::from_millis(if number == 0 { 0 } else { below(&mut seed, 2_000) }));
        let victim = u32::try_from(below(&mut seed, 4)).expect("small");
        let process = ranks(&child)[&victim];
        let began = Instant::now();
        signal(process, name);
        let output = ended(child, Duration::from_secs(30));
        let (took, (out, error)) = (began.elapsed(), texts(&output));
        let most: &mut Duration = longest.entry(name).or_default();
        *most = took.max(*most);
        assert!(!output.status.success(), "{name} of rank {victim}\n{out}{error}");
        if number == 0 {
            continue;
        }
        let how = if name == "KILL" { "has ended" } else { "was stopped, and has said nothing for " };
        let told = format!("error: rank {victim} (process {process} on ");
        let said = error.lines().filter(|line| line.starts_with(&told) && line.contains(how)).count();
        assert_eq!(said, 1, "{name} of rank {victim} in round {number}\n{out}{error}");
        let place = format!("  d{victim} was at instruction ");
        let line = error.lines().find(|line| line.starts_with(&place)).unwrap_or_default();
        assert!(line.contains(" of its step, `") && line.contains("(std:1f1b:"), "{name} of rank {victim}\n{error}");
        let latest = pipe_runtime::checkpoint::latest(&folder.join(&saved)).expect("a folder").expect("a checkpoint");
        pipe_runtime::checkpoint::load(&latest).unwrap_or_else(|error| panic!("{name} of rank {victim}: {error}"));
    }
    println!("{kills} ranks killed and {kills} stopped (timeout 3s): all processes ended within {longest:?}");
}

#[test]
fn a_kill_while_ranks_save_loses_no_checkpoint() {
    let kills: u64 = std::env::var("PIPEC_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(3);
    let text = pipeline("1f1b", "").replace("steps 4", "steps 1000000").replace("every 2", "every 1");
    let folder = folder("saves", &[("x.pipe", &text)]);
    let mut seed = 11;
    let mut newest = 0;
    for round in 0..kills {
        let resume = if round == 0 { "" } else { "--resume" };
        let child = mpirun(&folder, 4, &format!("run x.pipe {resume} --stall-timeout 5 --quiet"));
        // An index can be replaced while it is read.
        let step = || {
            let latest = pipe_runtime::checkpoint::latest(&folder.join("saved")).ok().flatten();
            latest.and_then(|path| pipe_runtime::checkpoint::load(&path).ok()).map_or(0, |state| state.step)
        };
        until("nothing is saved", &child, || step() > newest);
        thread::sleep(Duration::from_millis(200 + below(&mut seed, 500)));
        let victim = u32::try_from(below(&mut seed, 4)).expect("small");
        signal(ranks(&child)[&victim], "KILL");
        ended(child, Duration::from_secs(30));
        let latest = pipe_runtime::checkpoint::latest(&folder.join("saved")).expect("a folder").expect("a checkpoint");
        let state = pipe_runtime::checkpoint::load(&latest).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(state.step > newest, "{} after {newest}", state.step);
        newest = state.step;
    }
}

#[test]
fn a_request_to_terminate_saves_and_ends_all_ranks() {
    let text = pipeline("1f1b", "").replace("steps 4", "steps 1000000");
    let folder = folder("stops", &[("x.pipe", &text)]);
    let child = mpirun(&folder, 3, "run x.pipe");
    let has_saved = || pipe_runtime::checkpoint::latest(&folder.join("saved")).is_ok_and(|latest| latest.is_some());
    until("nothing is saved", &child, has_saved);
    // Whichever rank is asked, all of them stop after the same step.
    signal(ranks(&child)[&1], "TERM");
    let (out, error) = texts(&ended(child, Duration::from_secs(30)));
    assert!(out.contains("tiny stopped after") && out.contains("saved/step-"), "{out}{error}");
}

#[test]
fn processes_that_mpi_does_not_connect_are_told_how_to_be() {
    let folder = folder("launchers", &[("x.pipe", TINY)]);
    for (rank, said) in [("0", 1), ("1", 0)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pipec"));
        command.args(["run", "x.pipe", "--no-checkpoint"]).current_dir(&folder);
        command.env("SLURM_PROCID", rank).env("SLURM_STEP_NUM_TASKS", "2").env("SLURM_MPI_TYPE", "pmi2");
        let output = command.output().expect("it starts");
        let (_, error) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        let told = "srun started 2 processes, but MPI connects 1: `srun --mpi=list` says what this Slurm can start";
        assert_eq!(error.matches(told).count(), said, "{error}");
    }
}

#[test]
fn profiles_are_of_all_ranks_and_of_the_links_between_them() {
    let folder = folder("profiles", &[("x.pipe", &pipeline("1f1b", ""))]);
    let child = mpirun(&folder, 2, "profile x.pipe --steps 4 --quiet -o x.profile.json");
    let output = child.wait_with_output().expect("it ends");
    let (out, error) = texts(&output);
    assert!(output.status.success(), "{out}{error}");
    let text = fs::read_to_string(folder.join("x.profile.json")).expect("written");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    let length = |name: &str| profile[name].as_array().map_or(0, Vec::len);
    // F, BW and U of four stages; d0 and d1 are one rank, d1 and d2 are not.
    assert_eq!((profile["ranks"].as_u64(), length("tasks"), length("links")), (Some(2), 12, 1), "{text}");
    let link = &profile["rank_links"][0];
    assert!(
        length("rank_links") == 1 && link["ranks"] == serde_json::json!([0, 1]) && link["ns"].as_u64() > Some(0),
        "{text}"
    );
    process::pipec(&folder, "check x.pipe --profile x.profile.json", "").with(0);
}
