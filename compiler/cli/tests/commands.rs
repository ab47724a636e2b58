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

/// What a field of the report may hold.
#[derive(Clone, Copy, Debug)]
enum Holds {
    Text,
    Truth,
    Count,
    Number,
    List,
    NumberOrNull,
    CountOrNull,
    TextOrNull,
}

impl Holds {
    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Truth => value.is_boolean(),
            Self::Count => value.is_u64(),
            Self::Number => value.is_f64(),
            Self::List => value.is_array(),
            Self::NumberOrNull => value.is_null() || value.is_f64(),
            Self::CountOrNull => value.is_null() || value.is_u64(),
            Self::TextOrNull => value.is_null() || value.is_string(),
        }
    }
}

fn fits(object: &Value, fields: &[(&str, Holds)]) {
    for (name, holds) in fields {
        let value = object.get(name).unwrap_or_else(|| panic!("no `{name}` in {object:#}"));
        assert!(holds.fits(value), "`{name}` is {value}, which is not {holds:?}");
    }
}

const REPORT: [(&str, Holds); 20] = [
    ("schema", Holds::Text),
    ("ok", Holds::Truth),
    ("target", Holds::Text),
    ("devices", Holds::Count),
    ("stages", Holds::Count),
    ("microbatches", Holds::Count),
    ("tasks", Holds::Count),
    ("instructions", Holds::Count),
    ("makespan", Holds::Number),
    ("longest_stage", Holds::Number),
    ("bubble_mean", Holds::Number),
    ("bubble_makespan", Holds::Number),
    ("bubble_longest_stage", Holds::Number),
    ("lower_bound", Holds::NumberOrNull),
    ("gap", Holds::NumberOrNull),
    ("peak_activation", Holds::Number),
    ("bound_activation", Holds::NumberOrNull),
    ("deadlock_free", Holds::Truth),
    ("per_device", Holds::List),
    ("diagnostics", Holds::List),
];

const DEVICE: [(&str, Holds); 8] = [
    ("device", Holds::Count),
    ("first_start", Holds::Number),
    ("last_end", Holds::Number),
    ("busy", Holds::Number),
    ("peak_activation", Holds::Number),
    ("bound_activation", Holds::NumberOrNull),
    ("peak_bytes", Holds::CountOrNull),
    ("limit_bytes", Holds::CountOrNull),
];

const DIAGNOSTIC: [(&str, Holds); 9] = [
    ("code", Holds::Text),
    ("severity", Holds::Text),
    ("message", Holds::Text),
    ("file", Holds::Text),
    ("line", Holds::Count),
    ("column", Holds::Count),
    ("end_line", Holds::Count),
    ("end_column", Holds::Count),
    ("help", Holds::TextOrNull),
];

#[test]
fn check_reports_every_field_that_others_read() {
    let folder = Folder::new("check");
    for target in ["std:v_half --set devices=4 --set microbatches=12", "std:1f1b", "tiny.pipe"] {
        let report = folder.json(&format!("check {target} --format json"), 0);
        fits(&report, &REPORT);
        assert_eq!((&report["schema"], &report["ok"]), (&"pipec.check/1".into(), &true.into()));
        assert_eq!(report["per_device"].as_array().map(Vec::len), report["devices"].as_u64().map(|n| n as usize));
        assert!(report.get("valid_for_all_microbatches").is_some_and(|value| value.is_boolean() || value.is_null()));
        for device in report["per_device"].as_array().expect("a list") {
            fits(device, &DEVICE);
        }
    }
    let report = folder.json("check std:v_half --set devices=8 --set microbatches=24 --format json", 0);
    assert_eq!(
        (&report["stages"], &report["tasks"], &report["peak_activation"]),
        (&16.into(), &1152.into(), &5.0.into())
    );
}

#[test]
fn stages_recompute_on_the_command_line() {
    let folder = Folder::new("recompute");
    let report = folder.json("check tiny.pipe --recompute 0 --format json", 0);
    assert_eq!((&report["tasks"], &report["recompute"]["stages"]), (&20.into(), &serde_json::json!([0])));
    assert!(folder.json("check tiny.pipe --format json", 0).get("recompute").is_none());
    let losses =
        |more: &str| folder.json(&format!("run tiny.pipe --no-checkpoint --format json {more}"), 0)["losses"].clone();
    assert_eq!(losses("--recompute all"), losses(""));
    assert!(
        folder
            .run("check std:1f1b --recompute all", 0)
            .out
            .contains("  recompute      s0 to s3    8 of the 32 that d0 works, 25.0%")
    );
    assert!(folder.run("plot std:1f1b --recompute 0..3", 0).out.contains("R recompute the forward"));
    folder.run("plot tiny.pipe --recompute all -o again.svg", 0);
    assert!(folder.read("again.svg").contains("R recompute"));
}

#[test]
fn replicas_divide_state_on_the_command_line() {
    let folder = Folder::new("zero");
    fs::write(folder.0.join("tiny.pipe"), TINY.replace("schedule 1f1b", "schedule chimera")).expect("a file");
    let run = |more: &str| folder.json(&format!("run tiny.pipe --no-checkpoint --format json {more}"), 0);
    let (plain, divided) = (run(""), run("--zero 2"));
    assert_eq!(plain["losses"], divided["losses"]);
    let report = folder.json("check tiny.pipe --zero 1 --format json", 0);
    let (own, first) = (&report["zero"], &report["zero"]["per_device"][0]);
    assert_eq!((own["stage"].as_u64(), own["what"].as_str()), (Some(1), Some("optimizer")));
    assert!(
        first["optimizer_bytes"].as_u64() <= first["undivided_optimizer_bytes"].as_u64().map(|bytes| bytes / 2 + 256)
    );
    let table = folder.run("check tiny.pipe --zero 2", 0).out;
    assert!(table.contains("  zero           2 ") && table.contains(" of gradients come and go on d"), "{table}");
    let report = folder.json("check tiny.pipe --zero 3 --format json", 0);
    let number = |name: &str| report["zero"]["per_device"][0][name].as_u64().unwrap_or_default();
    assert_eq!(report["zero"]["what"], "optimizer, gradients, parameters");
    assert!(number("parameter_bytes") <= number("undivided_parameter_bytes") / 2 + 256);
    assert!(number("gatherings") > 0 && number("gathered_bytes") >= number("undivided_parameter_bytes"));
    let table = folder.run("check tiny.pipe --zero 3", 0).out;
    assert!(table.contains(" of weights, and gathers "), "{table}");
    assert_eq!(plain["losses"], run("--zero 3 --stress 3")["losses"]);
    // Resuming goes from one to the other.
    folder.run("run tiny.pipe --steps 2 --zero 3", 0);
    let resumed = run("--resume saved");
    let last = |report: &Value| report["losses"].as_array().and_then(|losses| losses.last().cloned());
    assert_eq!(last(&resumed), last(&plain));
    assert!(folder.run("check std:dp_1f1b --zero 1", 1).error.contains("cannot-shard"));
    assert!(folder.run("check tiny.pipe --zero 4", 2).error.contains("0, 1, 2 or 3"));
}

#[test]
fn what_is_rejected_exits_with_1_and_says_where() {
    let folder = Folder::new("rejected");
    let report = folder.json("check std:1f1b --set devices=4 --memory 2 --format json", 1);
    assert_eq!(report["ok"], false);
    let found = report["diagnostics"].as_array().expect("a list");
    assert!(found.iter().any(|finding| finding["code"] == "memory-exceeded"), "{found:?}");
    found.iter().for_each(|finding| fits(finding, &DIAGNOSTIC));
    fs::write(folder.0.join("broken.pipe"), "schedule broken {").expect("a file");
    let report = folder.json("check broken.pipe --format json", 1);
    assert!(report["makespan"].is_null() && report["devices"].is_null());
    assert_eq!((&report["diagnostics"][0]["code"], &report["diagnostics"][0]["line"]), (&"syntax".into(), &1.into()));
    for command in ["check", "build", "run", "plot"] {
        let output = folder.run(&format!("{command} broken.pipe"), 1);
        assert!(output.error.contains("broken.pipe:1"), "{}", output.error);
    }
}

#[test]
fn what_cannot_be_carried_out_exits_with_2_and_helps() {
    let folder = Folder::new("usage");
    assert!(folder.run("check std:zb_w", 2).error.contains("`zb_v`"));
    for arguments in
        ["", "chek std:1f1b", "check", "check nowhere.pipe", "check std:1f1b --set devices", "explain nothing"]
    {
        assert!(folder.run(arguments, 2).error.len() > 20, "{arguments}");
    }
    assert!(folder.run("--help", 0).out.contains("Exit codes"));
    assert!(folder.run("explain deadlock", 0).out.starts_with("# "));
    assert!(folder.run("explain", 0).out.contains("memory-exceeded"));
}

#[test]
fn plots_go_to_the_terminal_or_to_a_picture() {
    let folder = Folder::new("plot");
    let drawn = folder.run("plot std:1f1b --set devices=3 --set microbatches=6", 0).out;
    assert!(["d0", "d1", "d2"].iter().all(|device| drawn.contains(device)), "{drawn}");
    assert!(!drawn.contains('\x1b'), "no colours in files");
    folder.run("plot tiny.pipe -o tiny.svg", 0);
    let picture = folder.read("tiny.svg");
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    folder.run("plot tiny.pipe -o tiny.png", 2);
}

#[test]
fn a_built_program_checks_and_runs_like_its_source() {
    let folder = Folder::new("build");
    let losses =
        |arguments: &str| folder.json(&format!("run {arguments} --no-checkpoint --format json"), 0)["losses"].clone();
    folder.run("build tiny.pipe --emit ir -o tiny.ir", 0);
    let report = folder.json("check tiny.ir --format json", 0);
    assert_eq!((&report["ok"], &report["devices"]), (&true.into(), &2.into()));
    let from_source = losses("tiny.pipe");
    assert_eq!(from_source.as_array().map(Vec::len), Some(4));
    assert_eq!(losses("tiny.ir"), from_source);
    assert_eq!(losses("tiny.pipe --stress 5"), from_source);
    assert_eq!(losses("tiny.pipe --set devices=1"), from_source);
    assert!(folder.json("build tiny.pipe --emit json", 0).is_object());
    for form in ["svg", "html"] {
        folder.run(&format!("plot tiny.pipe -o plotted.{form}"), 0);
        let plotted = folder.read(&format!("plotted.{form}"));
        assert_eq!(folder.run(&format!("build tiny.pipe --emit {form}"), 0).out, plotted);
    }
    let commands = folder.run("build tiny.pipe --emit commands", 0).out;
    assert!(
        commands.starts_with("; setup: 2 queues, 0 events, ") && commands.contains("\n; step: 4 queues, "),
        "{commands}"
    );
    assert!(commands.contains("\nd0>d1 activation  copy d0 %"), "{commands}");
    let kernels = folder.run("build tiny.pipe --emit kernels", 0).out;
    assert!(kernels.starts_with("@F.s0: ") && kernels.contains("\nall devices: a step\n"), "{kernels}");
    assert!(kernels.lines().any(|line| line.starts_with("  optimizer ") && line.contains(" MB  ")), "{kernels}");
    let none = folder.run("build std:1f1b --emit kernels", 0).out;
    assert_eq!(none, "; tasks of a schedule without a model have no kernels\n");
    assert_eq!(folder.run("build tiny.pipe", 0).out, folder.read("tiny.ir"));
    let damaged = folder.read("tiny.ir").replacen("  wait ", "  wait t9", 1);
    fs::write(folder.0.join("damaged.ir"), damaged).expect("a file");
    folder.run("check damaged.ir", 1);
    folder.run("run damaged.ir", 1);
}

#[test]
fn a_stuck_program_is_shown_as_a_cycle_of_its_lines() {
    let folder = Folder::new("stuck");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/ir/deadlock/two_queues.ir");
    fs::copy(source, folder.0.join("stuck.ir")).expect("a file");
    let shown = folder.run("check stuck.ir", 1).error;
    let expected = "\
error[ir-rule]: deadlock: d0 waits for d1 to receive `activation.s0 m1`, and d1 for d0 to receive `activation.s1 m0`
  stuck.ir:29: d0 `wait !1` waits for
  stuck.ir:64: d1 `recv.start %2 = activation.s0 m1 from d0 activation -> !2`, which comes after
  stuck.ir:61: d1 `wait !1`, which waits for
  stuck.ir:32: d0 `recv.start %2 = activation.s1 m0 from d1 gradient -> !2`, which comes after the first
";
    assert!(shown.starts_with(expected), "{shown}");
    let finding = &folder.json("check stuck.ir --format json", 1)["diagnostics"][0];
    assert_eq!((&finding["line"], finding["notes"].as_array().map(Vec::len)), (&29.into(), Some(4)));
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
fn what_a_run_has_learned_is_not_lost() {
    let folder = Folder::new("kept");
    let long = folder.json("run tiny.pipe --steps 4 --format json", 0);
    // A run that begins anew leaves the older one's checkpoints alone, and goes on from its own.
    let anew = folder.run("run tiny.pipe --steps 2 --format json", 0);
    assert!(anew.error.contains("are in saved/before-1 now: `--resume saved/before-1`"), "{}", anew.error);
    let again = folder.json("run tiny.pipe --steps 4 --resume ./saved --format json", 0);
    assert_eq!((&again["resumed_from"], &again["last_loss"]), (&2.into(), &long["last_loss"]));
    assert!(!folder.0.join("saved/before-2").exists());
    // To go on from the older ones is to leave the newer ones alone.
    let older = folder.json("run tiny.pipe --steps 5 --resume saved/before-1 --format json", 0);
    assert_eq!((&older["resumed_from"], folder.0.join("saved/before-2").exists()), (&4.into(), true));
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
    // The optimizer: its state is never taken. Weights alone begin a new run, and the older one is set aside.
    let other = TINY.replace("adamw(learning_rate = 0.001)", "sgd(learning_rate = 0.1, momentum = 0.9)");
    fs::write(folder.0.join("other.pipe"), other).expect("a file");
    for more in ["", "--resume-despite model,data"] {
        let told = folder.run(&format!("run other.pipe --steps 4 --resume {more} --quiet"), 1).error;
        assert!(told.contains("another optimizer (adamw, and this run has sgd with momentum)"), "{told}");
        assert!(told.contains(": `--resume-weights-only` takes the weights alone"), "{told}");
    }
    let weights = folder.json("run other.pipe --steps 1 --resume --resume-weights-only --format json", 0);
    assert_eq!((&weights["resumed_from"], &weights["steps"]), (&0.into(), &1.into()));
    let aside = folder.0.join("saved/before-1").join(newest.file_name().expect("a name"));
    assert!(aside.exists());
    // Damage: the older one is named, and taken where that is asked for.
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
    folder.run("run tiny.pipe --resume-weights-only", 2);
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

#[test]
fn schedules_of_pytorch_are_written_read_drawn_and_searched() {
    let folder = Folder::new("torch");
    folder.run("build std:zb_h1 --set devices=2 --set microbatches=4 --emit torch-csv-comms -o zb.csv", 0);
    assert!(folder.read("zb.csv").starts_with("0UNSHARD,0F0,0SEND_F0,"));
    let checked = folder.json("check zb.csv --format json", 0);
    assert_eq!((&checked["devices"], &checked["microbatches"]), (&2.into(), &4.into()));
    assert!(folder.run("plot zb.csv", 0).out.starts_with("zb: makespan"));
    // What is found is a source of the language, whatever the target was.
    folder.run("search zb.csv --time 1 --quiet -o found.pipe", 0);
    assert!(folder.read("found.pipe").contains("schedule found {"));
    folder.run("check found.pipe --set devices=2 --set microbatches=4 --quiet", 0);
    let wrong = folder.run("check zb.csv --torch 2.9 --quiet", 1);
    assert!(wrong.error.contains("error[torch-version]: PyTorch 2.9 cannot read"), "{}", wrong.error);
    // An option that few use is a note of one message, and none of it where only errors and warnings are wanted.
    let build = "build std:1f1b --emit torch-csv -o tasks.csv";
    for (command, n_notes) in
        [(build.to_owned(), 1), (format!("{build} --quiet"), 0), ("check tasks.csv".to_owned(), 1)]
    {
        let said = folder.run(&command, 0).error;
        assert_eq!(said.matches("`defer_pp_recv=True`").count(), n_notes, "{command}: {said}");
        assert!(!said.contains("warning") && said.lines().count() <= 3, "{command}: {said}");
    }
    let refused = folder.json("build std:chimera --emit torch-csv --format json", 1);
    assert_eq!(refused["diagnostics"][0]["code"], "cannot-export");
}
