//! Owners: one run at a time has a folder of checkpoints, whoever is killed or stopped.
//!
//! `PIPEC_OWNERS=100` before the command has so many rounds of runs that are killed and stopped at
//! random, instead of 2.
#![cfg(unix)]

mod process;

use pipe_runtime::checkpoint::{latest, load};
use process::{folder, pipec};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A pipeline that trains until it is ended, and saves every fifth step.
fn endless() -> String {
    let text = include_str!("data/sgd.pipe").replace("steps 2", "steps 1000000");
    text.replace(" }\n", " checkpoint \"saved\" every 5 }\n")
}

/// Starts a run that may be silent for a second before others take its folder.
fn start(folder: &Path, arguments: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pipec"));
    command.args(format!("run tiny.pipe --format json {arguments}").split_whitespace()).current_dir(folder);
    command.env("NO_COLOR", "1").env("PIPEC_LEASE_SECONDS", "1");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.expect("`kill` is there").success(), "{name}");
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        sleep(Duration::from_millis(5));
    }
}

/// Waits until a folder has a checkpoint.
fn saved(folder: &Path) -> PathBuf {
    wait_until("nothing is saved", || latest(folder).is_ok_and(|path| path.is_some()));
    latest(folder).expect("readable").expect("a checkpoint")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What is between `step-<n>.` and the dot after it.
fn run_of(path: &Path) -> String {
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    name.split('.').nth(1).expect("a run").to_owned()
}

/// All complete checkpoints of a folder, and of those in it.
fn checkpoints(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("it exists") {
        let path = entry.expect("listed").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(checkpoints(&path));
        } else if name.starts_with("step-") {
            found.push(path);
        }
    }
    found
}

#[test]
fn a_second_run_ends_at_once_and_names_the_owner() {
    let folder = folder("owners-second", &[("tiny.pipe", &endless())]);
    let mut owner = start(&folder, "");
    let run = run_of(&saved(&folder.join("saved")));
    for arguments in ["run tiny.pipe --steps 3", "run tiny.pipe --steps 3 --resume"] {
        let began = Instant::now();
        let error = pipec(&folder, arguments, "").with(1).error;
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let told = format!("error: saved belongs to run {run} (process {} on {}, since ", owner.id(), host.trim());
        assert!(error.contains(&told), "{told}\n{error}");
        assert!(error.contains("which still runs: stop it, wait for its end, or save elsewhere with"), "{error}");
    }
    pipec(&folder, "run tiny.pipe --steps 3 --checkpoint elsewhere --quiet", "").with(0);
    pipec(&folder, "run tiny.pipe --steps 3 --no-checkpoint --quiet", "").with(0);
    // The owner goes on; nothing was set aside.
    let newest = load(&saved(&folder.join("saved"))).map_or(0, |state| state.step);
    wait_until("the owner saves no more", || {
        let path = latest(&folder.join("saved")).ok().flatten();
        path.and_then(|path| load(&path).ok()).is_some_and(|state| state.step > newest)
    });
    assert!(owner.try_wait().expect("known").is_none());
    assert!(!folder.join("saved/before-1").exists());
    // One that was killed is followed at once, by a run that goes on and by one that begins anew.
    signal(&owner, "KILL");
    owner.wait().expect("it ends");
    let newest = load(&saved(&folder.join("saved"))).expect("sound").step;
    let began = Instant::now();
    let error = pipec(&folder, &format!("run tiny.pipe --resume --steps {} --quiet", newest + 1), "").with(0).error;
    let error = format!("{error}{}", pipec(&folder, "run tiny.pipe --steps 3 --quiet", "").with(0).error);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(error.contains("are in saved/before-1 now"), "{error}");
    assert_eq!(checkpoints(&folder.join("saved")).len(), 3, "two of the older run, one of its own");
}

#[test]
fn an_owner_that_stood_still_and_lost_its_folder_writes_no_more() {
    let folder = folder("owners-stopped", &[("tiny.pipe", &endless())]);
    let owner = start(&folder, "");
    let run = run_of(&saved(&folder.join("saved")));
    signal(&owner, "STOP");
    let next = pipec(&folder, "run tiny.pipe --steps 7 --format json", "").with(0);
    assert!(next.error.contains(&format!("saved belongs to run {run}")), "{}", next.error);
    assert!(next.error.contains("whether that still runs is known in 1s at most"), "{}", next.error);
    let before = checkpoints(&folder.join("saved"));
    signal(&owner, "CONT");
    let output = owner.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("is no longer this run's: it stood still, and run "), "{}", said(&output));
    assert_eq!(checkpoints(&folder.join("saved")), before, "nothing was written or removed");
    let summary: Value = serde_json::from_str(&next.out).expect("JSON");
    let saved = folder.join(summary["checkpoint"].as_str().expect("a path"));
    assert_eq!(load(&saved).expect("sound").step, 7);
}

/// A number below another, from a seed (Steele, Lea and Flood, "Fast splittable pseudorandom number generators").
fn below(seed: &mut u64, end: u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % end
}

#[test]
fn many_runs_killed_and_stopped_at_random_leave_sound_checkpoints() {
    let rounds: u64 = std::env::var("PIPEC_OWNERS").ok().map_or(2, |rounds| rounds.parse().expect("a number"));
    let folder = folder("owners-many", &[("tiny.pipe", &endless())]);
    let home = folder.join("saved");
    let (mut seed, mut counts) = (23, [0_u32; 5]);
    let owners = || {
        let all = fs::read_dir(&home).expect("it exists").flatten();
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with(".owner-")).count()
    };
    for round in 0..rounds {
        let killed = counts[0];
        let n_runs = [2, 3, 6][below(&mut seed, 3) as usize];
        let mut runs: Vec<(Child, &str)> = Vec::new();
        let resumes = below(&mut seed, 2) == 0;
        for _ in 0..n_runs {
            let how = if resumes && below(&mut seed, 2) == 0 && home.exists() { "--resume" } else { "" };
            let steps = 50 + below(&mut seed, 3_000);
            runs.push((start(&folder, &format!("{how} --steps {steps}")), "left alone"));
            sleep(Duration::from_millis(below(&mut seed, 300)));
            let victim = below(&mut seed, runs.len() as u64) as usize;
            let (child, fate) = &mut runs[victim];
            if child.try_wait().expect("known").is_none() {
                let name = ["KILL", "STOP", "CONT", "CONT"][below(&mut seed, 4) as usize];
                signal(child, name);
                *fate = if name == "KILL" { "killed" } else { *fate };
            }
        }
        // Long enough for those that wait for one that is stopped.
        sleep(Duration::from_millis(1_500));
        for (child, _) in &mut runs {
            if child.try_wait().expect("known").is_none() {
                signal(child, "CONT");
                signal(child, "INT");
            }
        }
        let mut finished = BTreeSet::new();
        for (child, fate) in runs {
            let output = child.wait_with_output().expect("it ends");
            let error = said(&output);
            match output.status.code() {
                _ if fate == "killed" => counts[0] += 1,
                Some(0) => {
                    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
                    finished.extend(summary["checkpoint"].as_str().map(|path| folder.join(path)));
                    counts[1] += 1;
                }
                _ if error.contains("which still runs: ") => counts[2] += 1,
                _ if error.contains("is no longer this run's") => counts[3] += 1,
                _ if error.contains("there is no checkpoint at saved") => counts[4] += 1,
                // Asked to end before it listened.
                None => counts[0] += 1,
                code => panic!("round {round}: {code:?}\n{error}"),
            }
        }
        for path in checkpoints(&home) {
            let state = load(&path).unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert!(state.is_verified, "{}", path.display());
        }
        // A run that was killed when it had just taken the folder leaves the file of the owner before it, too.
        let left = owners();
        assert!(left == 1 || left > 1 && counts[0] > killed, "round {round}: {left} files of owners");
        // What a finished run has saved is where it was, or was set aside; one that goes on from it
        // may have removed it.
        let names: BTreeSet<_> =
            checkpoints(&home).iter().filter_map(|path| path.file_name()).map(ToOwned::to_owned).collect();
        let lost = finished.iter().find(|path: &&PathBuf| !path.file_name().is_some_and(|name| names.contains(name)));
        assert!(resumes || lost.is_none(), "round {round}: {lost:?} is gone");
    }
    pipec(&folder, "run tiny.pipe --steps 3 --quiet", "").with(0);
    assert_eq!(owners(), 1, "who takes the folder removes the files of all before");
    let [killed, finished, refused, lost, absent] = counts;
    println!(
        "{rounds} rounds: {killed} killed, {finished} finished, {refused} refused, {lost} lost the folder, {absent} found nothing to resume"
    );
}
