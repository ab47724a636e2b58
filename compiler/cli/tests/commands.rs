//! The real binary: what it prints, writes and exits with.

mod process;

use process::{Ended, pipec};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const TINY: &str = include_str!("data/adam.pipe");

/// A folder of a test, which holds `tiny.pipe`.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        Self(process::folder(&format!("commands-{test}"), &[("tiny.pipe", TINY)]))
    }

    /// Runs the command; it must exit with this code.
    fn run(&self, arguments: &str, code: i32) -> Ended {
        pipec(&self.0, arguments, "").with(code)
    }

    /// The JSON on standard output.
    fn json(&self, arguments: &str, code: i32) -> Value {
        self.run(arguments, code).into()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

#[test]
fn a_run_saves_resumes_and_traces() {
    let folder = Folder::new("run");
    let whole = folder.json("run tiny.pipe --steps 6 --checkpoint whole --format json --trace trace.json", 0);
    let first = folder.json("run tiny.pipe --steps 3 --format json", 0);
    let path = |run: &Value| run["checkpoint"].as_str().expect("a path").to_owned();
    let name = path(&first);
    let run = name.strip_prefix("saved/step-00000003.").and_then(|rest| rest.strip_suffix(".safetensors"));
    assert!(run.is_some_and(|run| run.len() == 12), "{name}");
    let second = folder.json("run tiny.pipe --steps 6 --resume --format json", 0);
    assert_eq!((&second["resumed_from"], &second["steps"], &second["ok"]), (&3.into(), &3.into(), &true.into()));
    let parts = [&first, &second].map(|run| run["losses"].as_array().expect("a list").clone()).concat();
    assert_eq!(whole["losses"], Value::Array(parts));
    let saved = |path: &str| pipe_runtime::checkpoint::load(&folder.0.join(path)).expect("a checkpoint");
    assert!(saved(&path(&whole)) == saved(&path(&second)));
    let trace: Value = serde_json::from_str(&folder.read("trace.json")).expect("JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 6 * 16), "{trace}");
    let output = folder.run("run tiny.pipe --resume nowhere", 1);
    assert!(output.error.contains("no checkpoint at nowhere"), "{}", output.error);
}

#[test]
fn what_a_checkpoint_is_refused_for_is_said_with_the_option_that_accepts_it() {
    let folder = Folder::new("refused");
    let twice = folder.json("run tiny.pipe --steps 3 --format json", 0);
    let newest = folder.0.join(twice["checkpoint"].as_str().expect("a path"));
    // Data: another source. They are taken where that is asked for, with a line.
    fs::write(folder.0.join("data.bytes"), [1, 2, 3, 4, 5, 6, 7, 8, 9].repeat(5)).expect("a file");
    let other = TINY.replace("data synthetic", "data \"data.bytes\"");
    fs::write(folder.0.join("other.pipe"), other).expect("a file");
    let told = folder.run("run other.pipe --steps 4 --resume --quiet", 1).error;
    assert!(told.contains("was saved with other data (synthetic, and this run has 45 bytes of checksum "), "{told}");
    assert!(told.contains(": `--resume-despite data` goes on all the same, and `--resume-weights-only`"), "{told}");
    let told =
        folder.run("run other.pipe --steps 4 --resume saved --resume-despite data --no-checkpoint --quiet", 0).error;
    assert!(told.starts_with("warning: ") && told.contains("was saved with other data"), "{told}");
    // Damage: the older one is named, and taken where that is asked for. A new run has set both aside.
    folder.run("run tiny.pipe --steps 1 --quiet", 0);
    let aside = folder.0.join("saved/before-1").join(newest.file_name().expect("a name"));
    let mut bytes = fs::read(&aside).expect("a file");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(&aside, bytes).expect("written");
    let told = folder.run("run tiny.pipe --steps 4 --resume saved/before-1 --quiet", 1).error;
    assert!(
        told.contains(" is damaged: the numbers of `") && told.contains("that is sound is saved/before-1"),
        "{told}"
    );
    assert!(told.contains(": `--resume-skip-damaged` resumes that one"), "{told}");
    let skip = "run tiny.pipe --steps 4 --resume saved/before-1 --resume-skip-damaged --no-checkpoint --format json";
    assert_eq!(folder.json(skip, 0)["resumed_from"], 2);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_run_with_a_checkpoint() {
    use std::time::{Duration, Instant};
    let folder = Folder::new("signal");
    let mut run = Command::new(env!("CARGO_BIN_EXE_pipec"));
    run.args("run tiny.pipe --steps 100000000 --format json".split(' ')).current_dir(&folder.0);
    let run = run.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().expect("starts");
    // The first checkpoint, after two steps, says that the run is on its way.
    let began = Instant::now();
    let saved = folder.0.join("saved");
    let is_saved = |file: std::io::Result<fs::DirEntry>| {
        file.is_ok_and(|file| file.path().extension().is_some_and(|own| own == "safetensors"))
    };
    while !fs::read_dir(&saved).is_ok_and(|mut files| files.any(is_saved)) && began.elapsed().as_secs() < 60 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = Command::new("kill").args(["-INT", &run.id().to_string()]).status().expect("`kill` is there");
    assert!(sent.success());
    let output = run.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(summary["interrupted"], true);
    let checkpoint = summary["checkpoint"].as_str().expect("a path");
    assert!(checkpoint.contains(&format!("{:08}", summary["steps"].as_u64().expect("a number"))), "{checkpoint}");
    assert!(folder.0.join(checkpoint).exists());
    let more = format!("run tiny.pipe --resume --steps {} --format json", summary["steps"].as_u64().unwrap_or(0) + 1);
    assert_eq!(folder.json(&more, 0)["steps"], 1);
}

#[test]
#[cfg(not(feature = "mpi"))]
fn one_of_several_processes_says_how_to_build_for_them() {
    let folder = Folder::new("ranks");
    for (rank, said) in [("0", 1), ("1", 0)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pipec"));
        command.env("OMPI_COMM_WORLD_RANK", rank).env("OMPI_COMM_WORLD_SIZE", "2");
        let ended = process::run(command, &folder.0, "run tiny.pipe", "").with(2);
        let told = "mpirun started 2 processes, but this pipec was built without MPI";
        assert_eq!(ended.error.matches(told).count(), said);
        assert!(ended.out.is_empty() && !folder.0.join("saved").exists());
    }
}
