//! Mistakes of users: the exit code, where output goes, and what is said about texts, options and
//! files that do not work.

mod process;

use process::{folder, pipec};
use std::path::Path;
use std::process::{Command, Stdio};

/// One microbatch after the other through a model that trains in a moment.
const TINY: &str = include_str!("data/sgd.pipe");

/// Arguments, the exit code, and a part of standard output and error.
#[test]
fn commands_end_with_the_code_and_the_words_for_what_happened() {
    let folder = folder("mistakes-codes", &[]);
    for (arguments, code, out, error) in [
        ("check std:1f1b", 0, "accepted", ""),
        ("check -", 0, "accepted", ""),
        ("check std:1f1b --memory 1", 1, "rejected", "error[memory-exceeded]"),
        ("check std:1f1b --memory 4,3,2,1", 0, "       2 of 2 ", ""),
        (
            "check std:1f1b --memory 4,3,2,0.5",
            1,
            "rejected",
            "d3 holds 1 unit of activations at `F s3 m0`, but may hold 0.5",
        ),
        ("check std:1f1b --memory 4,3,2,0.5 --certificate", 1, "rejected", "d3 holds 1 unit of activations from 1"),
        ("check std:1f1b --recompute 2,4..6", 1, "rejected", "s5 is to recompute, but the last stage of `1f1b` is s3"),
        ("check std:1f1b --recompute s1", 2, "", "expected `all`, `none` or stages, as in `0..2,5`"),
        ("check std:1f1b --memory 4,3,2", 1, "rejected", "there are 3 memory limits, and `1f1b` runs on 4 devices"),
        (
            "search std:1f1b --set microbatches=8 --cost comm=0.1,comm[1-2]=0.5,F[3]=1.5 --memory 2,3,2,1 --rounds 2 --time 60",
            0,
            "makespan 48.2, proved optimal, for devices that hold 2, 3, 2, 1 units",
            "lower bound 48.2",
        ),
        ("search std:1f1b --memory 4,3,2", 1, "", "there are 3 memory limits, and `1f1b` runs on 4 devices"),
        ("search std:1f1b --memory 4,3,0.5,1", 1, "", "d2 needs 1 unit for a single microbatch, and 0.5 are allowed"),
        ("check std:1f1b --memory -1", 2, "", "expected a number from 0 to 10^9"),
        ("check std:1f1b --cost F=1,F=2", 2, "", "`F` was given before"),
        ("check std:1f1b --cost F=1,F[3]=1.5", 0, "accepted", ""),
        ("check std:1f1b --cost F[4]=1.5", 1, "rejected", "`F[4]` includes s4, but the last stage of `1f1b` is s3"),
        ("check std:1f1b --cost F[4]=1.5 --certificate", 1, "rejected", "`F[4]` includes s4"),
        ("check std:1f1b --cost comm=0.1,comm[1-2]=0.5", 0, "accepted", ""),
        (
            "check std:1f1b --cost comm[4-3]=0.5",
            1,
            "rejected",
            "`comm[3-4]` includes d4, but the last device of `1f1b` is d3",
        ),
        ("check std:1f1b --cost comm[2-2]=0.5", 2, "", "no link joins d2 and d2"),
        ("check std:1f1b --cost F[4..2]=1.5", 2, "", "there are no stages from 4 to below 2"),
        ("check std:1f1b --schedule 1f1b --pipeline x", 2, "", "cannot be used with"),
        ("check std:1f1b --set devices=100000", 1, "", "error[too-large]"),
        ("check std:1f1b --set devices=1 --set microbatches=9999 --cost F=1000000000,B=1000000000", 1, "", "too long"),
        ("check std:2f2b", 2, "", "has no schedule `2f2b`"),
        ("check missing.pipe", 2, "", "missing.pipe: No such file"),
        ("check missing.pipe --format json", 2, "", "missing.pipe: No such file"),
        ("build x.ir", 2, "", "`check` and `run` take it"),
        ("build std:1f1b --memory 1 --format json", 1, "pipec.check/1", ""),
        (
            "tune - --cluster c.toml --offload optimizer",
            2,
            "",
            "`--offload` has no part in tuning: what lives with the hosts is found, given `--may-offload`",
        ),
        ("explain deadlok", 2, "", "did you mean `deadlock`?"),
        ("explain error[deadlock]:", 0, "# ", ""),
        ("run - --no-checkpoint --format json", 0, "pipec.run/1", ""),
        ("run - --memory 0 --format json", 1, "pipec.check/1", ""),
        ("run - --steps 0", 2, "", "0 is not in 1.."),
        ("run - --no-checkpoint --resume", 2, "", "`--resume PATH` names one"),
        ("run - --resume nothing --format json", 1, "\"error\"", "no checkpoint at nothing"),
        ("run - --trace missing/x.json", 2, "", "missing/x.json"),
        ("run - --backend null", 0, "to the byte", ""),
    ] {
        let found = pipec(&folder, arguments, TINY).with(code);
        assert!(found.out.contains(out), "{arguments}: standard output\n{}", found.out);
        assert!(found.error.contains(error), "{arguments}: standard error\n{}", found.error);
        if arguments.contains("json") && code < 2 {
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(&found.out);
            assert!(parsed.is_ok(), "{arguments}: not one JSON value\n{}", found.out);
        }
    }
}

#[test]
fn files_that_the_help_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut named = 0;
    for command in ["", "check", "plot", "search", "tune", "build", "run", "profile", "explain"] {
        let help = pipec(&root, &format!("{command} --help"), "").with(0).out;
        for word in help.split_whitespace().filter(|word| word.starts_with("examples/")) {
            assert!(root.join(word).exists(), "{command}: {word}");
            named += 1;
        }
    }
    assert!(named >= 10, "{named}");
}

#[test]
fn texts_of_every_length_and_kind_are_answered() {
    let folder = folder("mistakes-texts", &[]);
    let long = |length: usize| format!("schedule {} {{ stages 0 place s on s }}", "x".repeat(length));
    let sum = format!("schedule x {{ stages {}1 }}", "1 + ".repeat(30_000));
    let bracket = "(".repeat(100_000);
    let repeated = "schedule x { stages D place s on s }\n".repeat(3_000);
    let digits = format!("param a = {}", "9".repeat(100_000));
    for source in [long(300), long(70_000), sum, bracket, repeated, digits, "\0\u{1b}[2J".to_owned(), String::new()] {
        let error = pipec(&folder, "check -", &source).with(1).error;
        assert!(error.starts_with("error["), "{:.80}\n{error:.2000}", source);
        assert!(!error.lines().next().unwrap_or_default().contains('\u{1b}'), "{error:?}");
    }
    pipec(&folder, "check -", &format!("\u{feff}{}", TINY.replace('\n', "\r\n"))).with(0);
}

#[test]
fn finished_runs_are_resumed_to_nothing_or_to_more_steps() {
    let folder = folder("mistakes-resume", &[]);
    for (arguments, out) in [
        ("run -", "2 steps"),
        ("run - --resume", "tiny has done 2 of 2 steps: nothing is left to do"),
        ("run - --resume --steps 1", "tiny has done 2 of 1 steps: nothing is left to do"),
        ("run - --resume --steps 3", "1 step"),
    ] {
        let found = pipec(&folder, arguments, TINY).with(0).out;
        assert!(found.contains(out), "{arguments}\n{found}");
    }
    let partial = folder.join("checkpoints/tiny/.step-00000009.77.partial");
    std::fs::write(&partial, "half a check").expect("the folder was made by the run");
    std::fs::write(folder.join("file"), "").expect("the folder can be written");
    pipec(&folder, "run - --resume --steps 4", TINY).with(0);
    assert!(!partial.exists(), "what a killed run left behind is removed");
    let blocked = pipec(&folder, "run - --checkpoint file/x", TINY).with(1);
    assert!(!blocked.error.contains("step 1/2"), "a folder that cannot be written is found before the run");
}

#[test]
fn a_reader_that_goes_away_does_not_change_the_verdict() {
    for (arguments, code) in [("check std:1f1b", 0), ("check std:1f1b --memory 1", 1), ("plot std:1f1b", 0)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pipec"));
        command.args(arguments.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the command starts");
        drop(child.stdout.take());
        let status = child.wait().expect("the command ends");
        assert_eq!(status.code(), Some(code), "{arguments}");
    }
}
