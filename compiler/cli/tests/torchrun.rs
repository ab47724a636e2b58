//! Processes that torchrun's store connects: they learn what one process does, bit for bit, and
//! none of them hangs where one is lost.
//!
//! On every machine: processes with the variables that torchrun sets, and a strict store in this
//! process, which does what its agent does. Where torchrun is found (`PIPEC_TORCHRUN`, or on the
//! path), also under the real one. `PIPEC_KILLS` says how many ranks are killed and stopped.

mod agent;
mod fakes;
mod job;
mod nodes;
mod process;
mod slurm;
#[expect(dead_code, unreachable_pub, reason = "it is for the tests of the whole house, too")]
#[path = "../../../tests/src/store.rs"]
mod store;

use agent::Agent;
use fakes::fakes;
use job::{TINY, ended, launcher, pipeline, ranks, signal, texts};
use process::{folder, pipec};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// How long a job may take that ends by itself.
const LONG: Duration = Duration::from_secs(120);

fn json(output: &Output) -> Value {
    let (out, error) = texts(output);
    assert!(output.status.success(), "{out}\n{error}");
    serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}\n{out}\n{error}"))
}

fn report(folder: &Path, arguments: &str) -> Value {
    pipec(folder, &format!("run {arguments} --format json"), "").with(0).into()
}

/// A checkpoint, whatever the order of its tensors.
fn state(folder: &Path, report: &Value) -> impl PartialEq {
    let path = folder.join(report["checkpoint"].as_str().expect("a path"));
    let mut state = pipe_runtime::checkpoint::load(&path).expect("a checkpoint");
    state.tensors.sort_by(|a, b| a.name.cmp(&b.name));
    state
}

#[test]
fn processes_learn_the_same_bits_as_one() {
    for (schedule, line) in [("1f1b", ""), ("data_parallel", "zero 3"), ("data_parallel", "zero 1\n offload optimizer")]
    {
        let folder = folder("store-bits", &[("x.pipe", &pipeline(schedule, line))]);
        let alone = report(&folder, "x.pipe --checkpoint alone");
        let mut agent = Agent::new(&folder);
        for n_ranks in [2, 4] {
            let arguments = "run x.pipe --backend cpu --checkpoint together --format json";
            let outputs = agent.run(n_ranks, |_| arguments.to_owned()).ended(LONG);
            let together = json(&outputs[0]);
            assert_eq!(together["losses"], alone["losses"], "{schedule} {line} over {n_ranks} ranks");
            assert_eq!(together["ranks"], n_ranks);
            assert!(state(&folder, &together) == state(&folder, &alone), "{schedule} {line} over {n_ranks} ranks");
            let error: String = outputs.iter().map(|output| texts(output).1).collect();
            assert_eq!(error.matches("warning: torchrun's store carries the bytes").count(), 1, "{error}");
        }
    }
}

#[test]
fn ranks_with_another_program_are_named() {
    let other = pipeline("1f1b", "").replace("hidden = 16", "hidden = 32");
    let folder = folder("store-differ", &[("x.pipe", &pipeline("1f1b", "")), ("y.pipe", &other)]);
    let target = |rank| if rank == 2 { "run y.pipe".to_owned() } else { "run x.pipe".to_owned() };
    let outputs = Agent::new(&folder).run(4, target).ended(LONG);
    let error: String = outputs.iter().map(|output| texts(output).1).collect();
    let told = "error: the ranks do not have the same program: ranks 0, 1 and 3 have ";
    assert!(error.matches(told).count() == 1 && error.contains(", rank 2 has "), "{error}");
    assert!(outputs.iter().all(|output| !output.status.success()));
    // An option, by its name.
    let target = |rank| format!("run x.pipe --no-checkpoint --steps {}", if rank == 1 { 2 } else { 3 });
    let outputs = Agent::new(&folder).run(2, target).ended(LONG);
    let error: String = outputs.iter().map(|output| texts(output).1).collect();
    let told = "error: the ranks do not have the same number of steps (`--steps`): rank ";
    assert!(error.matches(told).count() == 1 && error.matches("error: ").count() == 1, "{error}");
}

#[test]
fn why_one_rank_cannot_begin_is_told() {
    let text = pipeline("1f1b", "");
    let data = text.replace("data synthetic", "data \"nowhere.txt\"");
    let wrong = text.replace("devices 4", "devices 4 4");
    let folder = folder("store-reason", &[("x.pipe", &text), ("data.pipe", &data), ("wrong.pipe", &wrong)]);
    for (name, told) in [("data", "error: rank 2: "), ("wrong", "error: rank 2: wrong.pipe:")] {
        let target = |rank| if rank == 2 { format!("run {name}.pipe") } else { "run x.pipe".to_owned() };
        let outputs = Agent::new(&folder).run(4, target).ended(LONG);
        let error: String = outputs.iter().map(|output| texts(output).1).collect();
        assert!(error.matches("error: ").count() == 1 && error.contains(told), "{error}");
        assert!(name != "data" || error.contains("nowhere.txt: No such file"), "{error}");
        assert!(outputs.iter().all(|output| !output.status.success()));
    }
}

#[test]
fn profiles_are_of_all_ranks() {
    let folder = folder("store-profiles", &[("x.pipe", &pipeline("1f1b", ""))]);
    let outputs =
        Agent::new(&folder).run(2, |_| "profile x.pipe --steps 4 --quiet -o x.profile.json".to_owned()).ended(LONG);
    assert!(outputs.iter().all(|output| output.status.success()), "{}", texts(&outputs[0]).1);
    let text = fs::read_to_string(folder.join("x.profile.json")).expect("written");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    let length = |name: &str| profile[name].as_array().map_or(0, Vec::len);
    assert_eq!((profile["ranks"].as_u64(), length("tasks"), length("rank_links")), (Some(2), 12, 1), "{text}");
}

/// A number below another, another one each time.
fn below(seed: &mut u64, end: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % end
}

/// A run that does not end by itself.
fn endless() -> String {
    let text = pipeline("1f1b", "").replace("steps 4", "steps 1000000").replace("hidden = 16", "hidden = 64");
    text.replace("every 2", "every 20")
}

fn has_saved(folder: &Path) -> bool {
    pipe_runtime::checkpoint::latest(folder).is_ok_and(|latest| latest.is_some())
}

/// The step of the newest checkpoint.
fn newest(saved: &Path) -> u64 {
    let latest = pipe_runtime::checkpoint::latest(saved).ok().flatten();
    latest.and_then(|path| pipe_runtime::checkpoint::load(&path).ok()).map_or(0, |state| state.step)
}

/// Waits until something is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Looks whether a lost rank was told once, with its place, and the newest checkpoint is whole.
fn assert_told(error: &str, name: &str, (victim, process): (u32, u32), saved: &Path) {
    let how = if name == "KILL" { "has ended" } else { "was stopped, and has said nothing for " };
    let told = format!("error: rank {victim} (process {process} on ");
    let said = error.lines().filter(|line| line.starts_with(&told) && line.contains(how)).count();
    assert_eq!(said, 1, "{name} of rank {victim}\n{error}");
    assert_eq!(error.matches("error: ").count(), 1, "{name} of rank {victim}\n{error}");
    let place = format!("  d{victim} was at instruction ");
    let line = error.lines().find(|line| line.starts_with(&place)).unwrap_or_default();
    assert!(line.contains(" of its step, `") && line.contains("(std:1f1b:"), "{name} of rank {victim}\n{error}");
    let latest = pipe_runtime::checkpoint::latest(saved).expect("a folder").expect("a checkpoint");
    pipe_runtime::checkpoint::load(&latest).unwrap_or_else(|error| panic!("{name} of rank {victim}: {error}"));
}

#[test]
fn a_rank_that_dies_or_stops_ends_the_job_everywhere() {
    let folder = folder("store-dies", &[("x.pipe", &endless())]);
    let mut agent = Agent::new(&folder);
    let mut seed = 7;
    let mut longest: BTreeMap<&str, Duration> = BTreeMap::new();
    let kills: u64 = std::env::var("PIPEC_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(1);
    for (number, name) in (0..kills).flat_map(|number| [(number, "KILL"), (number, "STOP")]) {
        let saved = format!("saved-{name}-{number}");
        let processes =
            agent.run(4, |_| format!("run x.pipe --backend cpu --checkpoint {saved} --stall-timeout 3 --quiet"));
        until("nothing is saved", || has_saved(&folder.join(&saved)));
        thread::sleep(Duration::from_millis(below(&mut seed, 1_000)));
        let victim = u32::try_from(below(&mut seed, 4)).expect("small");
        let process = processes.id(victim);
        let began = Instant::now();
        signal(process, name);
        let outputs = processes.ended(Duration::from_secs(30));
        let took = began.elapsed();
        longest.entry(name).and_modify(|most| *most = took.max(*most)).or_insert(took);
        assert!(outputs.iter().all(|output| !output.status.success()));
        let error: String = outputs.iter().map(|output| texts(output).1).collect();
        let error: Vec<&str> = error.lines().filter(|line| !line.starts_with("warning: ")).collect();
        assert_told(&error.join("\n"), name, (victim, process), &folder.join(&saved));
    }
    println!("{kills} ranks killed and {kills} stopped (timeout 3s): all processes ended within {longest:?}");
}

/// Whether a process of ours has ended, whoever waits for it.
fn has_ended(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

#[test]
fn a_rank_that_stood_still_goes_on_with_the_others_or_blames_nobody() {
    let folder = folder("store-still", &[("x.pipe", &endless())]);
    let cases = [("torchrun", Agent::new(&folder), 3), ("srun", Agent::of_slurm(&folder), 0)];
    for (name, mut agent, victim) in cases.into_iter().chain([("srun", Agent::of_slurm(&folder), 2)]) {
        let saved = folder.join(format!("saved-{name}-{victim}"));
        let arguments = format!("run x.pipe --backend cpu --checkpoint {} --stall-timeout 2 --quiet", saved.display());
        let processes = agent.run(4, |_| arguments.clone());
        until("nothing is saved", || has_saved(&saved));
        // One of them for less than the timeout, and all of them alike for longer.
        for (ranks, seconds) in [(victim..victim + 1, 1), (0..4, 3)] {
            ranks.clone().for_each(|rank| signal(processes.id(rank), "STOP"));
            thread::sleep(Duration::from_secs(seconds));
            let before = newest(&saved);
            ranks.for_each(|rank| signal(processes.id(rank), "CONT"));
            until("it does not go on", || newest(&saved) > before);
        }
        let process = processes.id(victim);
        signal(process, "STOP");
        let others = (0..4).filter(|rank| *rank != victim);
        until("the others do not end", || others.clone().all(|rank| has_ended(processes.id(rank))));
        signal(process, "CONT");
        until("who stood still does not end", || has_ended(process));
        let outputs = processes.ended(LONG);
        let errors = outputs.iter().map(|output| texts(output).1).collect::<String>();
        let told: Vec<&str> = errors.lines().filter(|line| !line.starts_with("warning: ")).collect();
        assert_told(&told.join("\n"), "STOP", (victim, process), &saved);
        let own = texts(&outputs[victim as usize]).1;
        let said: Vec<&str> = own.lines().filter(|line| !line.contains(" carries the bytes ")).collect();
        let start = format!("warning: rank {victim}: this process was suspended for ");
        let is_own = |line: &str| line.starts_with(&start) && line.ends_with("s; the other ranks have exited");
        assert!(said.len() == 1 && is_own(said[0]), "{name}, rank {victim}\n{errors}");
        assert_eq!(errors.matches("was suspended").count(), 1, "{name}, rank {victim}\n{errors}");
        assert!(outputs.iter().all(|output| output.status.code() == Some(1)), "{name}, rank {victim}\n{errors}");
    }
}

#[test]
fn a_job_that_was_killed_starts_again_with_the_same_store() {
    let folder = folder("store-again", &[("x.pipe", &endless())]);
    let mut agent = Agent::new(&folder);
    let newest = || newest(&folder.join("saved"));
    let mut before = 0;
    for round in 0..3 {
        let processes = agent.run(3, |_| "run x.pipe --backend cpu --resume --quiet".to_owned());
        until("it does not go on", || newest() > before);
        // All at once, so that what they sent lies in the store.
        processes.kill();
        assert!(newest() > before, "round {round}");
        before = newest();
    }
}

#[test]
fn a_store_that_ends_ends_all_ranks() {
    let folder = folder("store-ends", &[("x.pipe", &endless())]);
    let mut agent = Agent::new(&folder);
    let processes = agent.run(3, |_| "run x.pipe --backend cpu --quiet".to_owned());
    until("nothing is saved", || has_saved(&folder.join("saved")));
    agent.end_store();
    for (rank, output) in processes.ended(Duration::from_secs(30)).iter().enumerate() {
        let error = texts(output).1;
        let rank = if rank == 0 { String::new() } else { format!("rank {rank}: ") };
        let told = format!("error: {rank}torchrun's store at localhost:");
        assert!(error.contains(&told) && error.contains("which connects the ranks: it has ended"), "{error}");
        assert!(error.matches("error: ").count() == 1 && !output.status.success(), "{error}");
    }
}

#[test]
fn what_the_environment_lacks_is_said() {
    let folder = folder("store-lacks", &[("x.pipe", TINY)]);
    let told = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pipec"));
        command.args(["run", "x.pipe", "--no-checkpoint"]).current_dir(&folder).env("NO_COLOR", "1");
        let output = command.envs(variables.iter().copied()).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2));
        texts(&output).1
    };
    let by_hand = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "1")];
    let error = told(&by_hand);
    assert!(error.contains("start them with `torchrun --no-python --nproc-per-node 2 pipec ..`"), "{error}");
    let torchrun =
        [&by_hand[..], &[("TORCHELASTIC_RUN_ID", "none"), ("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
    let error = told(&torchrun);
    let refused = "torchrun's store at localhost:1 (MASTER_ADDR and MASTER_PORT) cannot be used: ";
    assert!(error.contains(refused) && error.contains("Connection refused"), "{error}");
    let error = told(&[&torchrun[..], &[("TORCHELASTIC_USE_AGENT_STORE", "False")]].concat());
    assert!(error.contains("torchrun started 2 processes, but no store for them"), "{error}");
    let error = told(&[&torchrun[..], &[("MASTER_PORT", "x")]].concat());
    assert!(error.contains("torchrun's store is at the port MASTER_PORT, but that is `x`"), "{error}");
}

#[test]
fn ranks_with_a_gpu_each_learn_the_same_bits_as_one_process() {
    let Some(libraries) = fakes() else { return };
    for (schedule, line) in [("zb_v", ""), ("data_parallel", "zero 2")] {
        // Emulated kernels take long: two steps, of which the second has the weights that the first has made.
        let text = pipeline(schedule, line).replace("steps 4", "steps 2");
        let folder = folder("store-nccl", &[("x.pipe", &text)]);
        // Nobody asks for GPUs: every rank finds one.
        let arguments = "run x.pipe --no-checkpoint --no-cublas --format json";
        let alone: Value = fakes::pipec_with(libraries, &folder, arguments, &[]).with(0).into();
        let mut agent = Agent::new(&folder).with_gpus(libraries);
        let outputs = agent.run(4, |_| arguments.to_owned()).ended(LONG);
        let together = json(&outputs[0]);
        assert_eq!(together["losses"], alone["losses"], "{schedule} {line}");
        assert_eq!((&together["ranks"], &together["backend"]), (&4.into(), &"cuda".into()));
        assert!(outputs.iter().all(|output| texts(output).1.is_empty()), "{}", texts(&outputs[0]).1);
    }
}

#[test]
fn why_ranks_do_not_use_their_gpus_is_said() {
    let (Some(libraries), folder) = (fakes(), folder("store-without", &[("x.pipe", &pipeline("1f1b", ""))])) else {
        return;
    };
    for library in ["libcuda.so.1", "libnvrtc.so"] {
        std::fs::copy(libraries.join(library), folder.join(library)).expect("a library is copied");
    }
    let mut agent = Agent::new(&folder).with_gpus(&folder);
    let outputs = agent.run(2, |_| "run x.pipe --no-checkpoint --quiet".to_owned()).ended(LONG);
    let error: String = outputs.iter().map(|output| texts(output).1).collect();
    let told = "warning: not on the GPUs: no NCCL here (libnccl.so.2 was not found)";
    assert!(error.matches(told).count() == 1 && outputs.iter().all(|output| output.status.success()), "{error}");
}

#[test]
fn a_rank_with_a_gpu_that_dies_is_named_with_its_place() {
    let Some(libraries) = fakes() else { return };
    let text = endless().replace("hidden = 64", "hidden = 16").replace("every 20", "every 2");
    let folder = folder("store-nccl-dies", &[("x.pipe", &text)]);
    let mut agent = Agent::new(&folder).with_gpus(libraries);
    let processes = agent.run(4, |_| "run x.pipe --backend cuda --stall-timeout 3 --quiet".to_owned());
    until("nothing is saved", || has_saved(&folder.join("saved")));
    let process = processes.id(2);
    signal(process, "KILL");
    let error: String = processes.ended(Duration::from_secs(30)).iter().map(|output| texts(output).1).collect();
    assert_told(&error, "KILL", (2, process), &folder.join("saved"));
}

#[test]
fn exchanges_that_fail_end_all_ranks_which_leave_all_of_them_at_once() {
    let Some(libraries) = fakes() else { return };
    let folder = folder("store-nccl-fails", &[("x.pipe", &pipeline("1f1b", ""))]);
    // One of those that try what was opened, and one of a step.
    for group in [2, 9] {
        let mut agent = Agent::new(&folder).with_gpus(libraries).with("PIPEC_FAKE_NCCL_LOSE", group);
        let outputs = agent.run(2, |_| "run x.pipe --backend cuda --no-checkpoint".to_owned()).ended(LONG);
        let error: String = outputs.iter().map(|output| texts(output).1).collect();
        let told = "NCCL cannot go on: rank 0 and rank 1 do not reach each other: an exchange: remote process exited";
        assert!(error.contains(told) && !error.contains("fake cuda:"), "group {group}\n{error}");
        assert!(outputs.iter().all(|output| !output.status.success()), "group {group}\n{error}");
    }
}

/// The command under the real torchrun, if there is one.
fn torchrun(folder: &Path, options: &str, arguments: &str) -> Option<Child> {
    let mut command = launcher(agent::torchrun()?);
    command.args(options.split_whitespace()).arg("--no-python").arg(env!("CARGO_BIN_EXE_pipec"));
    command.args(arguments.split_whitespace()).current_dir(folder);
    Some(command.spawn().expect("torchrun starts"))
}

#[test]
fn the_real_torchrun_starts_it() {
    let folder = folder("torchrun-bits", &[("x.pipe", &pipeline("zb_v", ""))]);
    let arguments = "run x.pipe --backend cpu --checkpoint together --format json";
    let Some(child) = torchrun(&folder, "--nproc-per-node 4", arguments) else { return };
    let together = json(&ended(child, LONG));
    let alone = report(&folder, "x.pipe --checkpoint alone");
    assert_eq!((&together["losses"], &together["ranks"]), (&alone["losses"], &4.into()));
    assert!(state(&folder, &together) == state(&folder, &alone));
}

#[test]
fn the_real_torchrun_starts_it_again_after_a_loss() {
    let text = endless().replace("steps 1000000", "steps 400").replace("every 20", "every 50");
    let folder = folder("torchrun-again", &[("x.pipe", &text)]);
    let options = "--nproc-per-node 3 --max-restarts 1";
    let arguments = "run x.pipe --backend cpu --resume --stall-timeout 5";
    let Some(child) = torchrun(&folder, options, arguments) else { return };
    job::until("nothing is saved", &child, || has_saved(&folder.join("saved")));
    let process = ranks(&child)[&1];
    signal(process, "KILL");
    let output = ended(child, LONG);
    let (out, error) = texts(&output);
    assert!(output.status.success(), "{out}\n{error}");
    assert_eq!(error.matches(&format!("error: rank 1 (process {process} on ")).count(), 1, "{error}");
    assert!(out.contains("400 steps") || error.contains("step 400/400"), "{out}\n{error}");
}

#[test]
fn ctrl_c_of_the_real_torchrun_saves_and_ends_all_ranks() {
    let folder = folder("torchrun-stops", &[("x.pipe", &endless())]);
    let Some(child) = torchrun(&folder, "--nproc-per-node 3", "run x.pipe --backend cpu") else { return };
    job::until("nothing is saved", &child, || has_saved(&folder.join("saved")));
    signal(child.id(), "INT");
    let (out, error) = texts(&ended(child, Duration::from_secs(60)));
    assert!(out.contains("tiny stopped after") && out.contains("saved/step-"), "{out}\n{error}");
}
