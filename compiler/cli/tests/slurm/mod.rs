//! Processes that `srun` started, without MPI: the first one keeps a store for all. With the
//! variables that Slurm sets, and under the real one where it is found and has a node that works.

use crate::agent::Agent;
use crate::job::{ended, launcher, pipeline, signal, texts};
use crate::process::folder;
use crate::{LONG, assert_told, endless, has_saved, json, report, state, until};
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn processes_of_a_step_learn_the_same_bits_as_one() {
    let folder = folder("slurm-bits", &[("x.pipe", &pipeline("data_parallel", "zero 2"))]);
    let alone = report(&folder, "x.pipe --checkpoint alone");
    let arguments = "run x.pipe --backend cpu --checkpoint together --format json";
    let outputs = Agent::of_slurm(&folder).run(4, |_| arguments.to_owned()).ended(LONG);
    let together = json(&outputs[0]);
    assert_eq!((&together["losses"], &together["ranks"]), (&alone["losses"], &4.into()));
    assert!(state(&folder, &together) == state(&folder, &alone));
    let error: String = outputs.iter().map(|output| texts(output).1).collect();
    assert_eq!(error.matches("warning: a store of rank 0 carries the bytes").count(), 1, "{error}");
    assert!(outputs.iter().all(|output| output.status.success()), "{error}");
}

#[test]
fn a_rank_that_dies_or_stops_is_named_also_where_it_keeps_the_store() {
    let folder = folder("slurm-dies", &[("x.pipe", &endless())]);
    for (name, victim) in [("KILL", 0), ("STOP", 0), ("KILL", 2)] {
        let saved = format!("saved-{name}-{victim}");
        let arguments = format!("run x.pipe --backend cpu --checkpoint {saved} --stall-timeout 2 --quiet");
        let processes = Agent::of_slurm(&folder).run(4, |_| arguments.clone());
        until("nothing is saved", || has_saved(&folder.join(&saved)));
        let (process, began) = (processes.id(victim), Instant::now());
        signal(process, name);
        let outputs = processes.ended(Duration::from_secs(30));
        assert!(began.elapsed() < Duration::from_secs(20), "{name} of rank {victim}: {:?}", began.elapsed());
        assert!(outputs.iter().all(|output| !output.status.success()));
        let error: String = outputs.iter().map(|output| texts(output).1).collect();
        let error: Vec<&str> = error.lines().filter(|line| !line.starts_with("warning: ")).collect();
        assert_told(&error.join("\n"), name, (victim, process), &folder.join(&saved));
    }
}

#[test]
fn a_port_that_is_taken_and_a_first_rank_that_never_comes_are_said() {
    let folder = folder("slurm-port", &[("x.pipe", &pipeline("1f1b", ""))]);
    let taken = TcpListener::bind(("::", 0)).or_else(|_| TcpListener::bind(("0.0.0.0", 0))).expect("a port");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    let told = |rank: &str, host: &str, port: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pipec"));
        command.args(["run", "x.pipe", "--no-checkpoint", "--stall-timeout", "1"]).current_dir(&folder);
        command.env("SLURM_PROCID", rank).env("SLURM_STEP_NUM_TASKS", "2").env("SLURM_STEP_NODELIST", host);
        let output = command.env("MASTER_PORT", port).env("NO_COLOR", "1").output().expect("it starts");
        assert_eq!(output.status.code(), Some(2));
        texts(&output).1
    };
    let error = told("0", "localhost", &port);
    let expected = format!("error: rank 0 cannot keep a store for the others at port {port}: ");
    assert!(error.starts_with(&expected) && error.contains("(MASTER_PORT can name another one"), "{error}");
    let error = told("1", "localhost,other", "1");
    assert!(
        error.starts_with("error: rank 0 does not answer at localhost:1 within ")
            && error.contains("Connection refused"),
        "{error}"
    );
}

#[test]
fn the_real_srun_starts_it() {
    let works = Command::new("srun").args(["-n", "1", "--immediate=5", "true"]).output();
    if !works.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: the real srun, which is not here, or has no node that works");
        return;
    }
    let folder = folder("srun-bits", &[("x.pipe", &pipeline("zb_v", ""))]);
    let mut command = launcher("srun");
    command.args(["-n", "4", "--mpi=none", "--overcommit", env!("CARGO_BIN_EXE_pipec")]).current_dir(&folder);
    command.args("run x.pipe --backend cpu --checkpoint together --format json".split_whitespace());
    let together = json(&ended(command.spawn().expect("srun starts"), LONG));
    let alone = report(&folder, "x.pipe --checkpoint alone");
    assert_eq!((&together["losses"], &together["ranks"]), (&alone["losses"], &4.into()));
    assert!(state(&folder, &together) == state(&folder, &alone));
}
