//! Files that users name: `check` opens what `run` opens, streams have limits and data are regular files.
#![cfg(unix)]

mod process;

use process::{folder, pipec};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A model that reads tokens, with some lines of settings.
fn text(vocabulary: u32, lines: &str) -> String {
    format!(
        "import std.models.gpt
pipeline tiny {{
    model gpt(vocab = {vocabulary}, hidden = 8, heads = 2, blocks = 2, sequence = 4, rows = 1)
    devices 2
    microbatches 2
    schedule 1f1b
    train {{
        {lines}
        steps 1
        optimizer sgd(learning_rate = 0.1)
    }}
}}"
    )
}

fn named_pipe(folder: &Path, name: &str) {
    let made = Command::new("mkfifo").arg(folder.join(name)).status().expect("mkfifo starts");
    assert!(made.success());
}

#[test]
fn check_opens_what_run_opens() {
    let folder = folder("files-opened", &[("long.txt", "a text that is long enough"), ("short.txt", "abc")]);
    named_pipe(&folder, "pipe");
    std::fs::create_dir(folder.join("folder")).expect("a folder");
    for (vocabulary, lines, why) in [
        (256, "data \"nope.txt\"", "No such file"),
        (256, "data \"folder\"", "it is a folder, and a regular file is needed"),
        (256, "data \"pipe\"", "it is a named pipe, and a regular file is needed"),
        (256, "data \"/dev/zero\"", "it is a device, and a regular file is needed"),
        (256, "data \"short.txt\"", "has 3 bytes, but one row of a microbatch takes 5"),
        (64, "data \"long.txt\"", "holds the byte 120, but the model indexes a table of 64 rows"),
        (256, "checkpoint \"long.txt/x\"  data synthetic", "long.txt is not a folder"),
    ] {
        std::fs::write(folder.join("x.pipe"), text(vocabulary, lines)).expect("the folder can be written");
        for command in ["check", "run"] {
            let found = pipec(&folder, &format!("{command} x.pipe"), "").with(1);
            assert!(found.error.contains("error[unusable-data]"), "{command} {lines}\n{}", found.error);
            assert!(found.error.contains(why), "{command} {lines}\n{}", found.error);
        }
        let report: Value = pipec(&folder, "check x.pipe --format json", "").with(1).into();
        let first = &report["diagnostics"][0];
        assert_eq!((&report["ok"], &first["line"], &first["file"]), (&false.into(), &8.into(), &"x.pipe".into()));
    }
    std::fs::write(folder.join("x.pipe"), text(256, "data \"long.txt\"")).expect("the folder can be written");
    for command in ["check x.pipe", "run x.pipe --no-checkpoint", "run x.pipe --checkpoint c"] {
        pipec(&folder, command, "").with(0);
    }
    // The null device opens nothing.
    std::fs::write(folder.join("x.pipe"), text(256, "data \"nope.txt\"")).expect("the folder can be written");
    pipec(&folder, "run x.pipe --backend null", "").with(0);
}

#[test]
fn imports_and_checkpoints_are_regular_files() {
    let folder = folder("files-regular", &[("x.pipe", "import \"pipe\""), ("y.pipe", &text(256, "data synthetic"))]);
    named_pipe(&folder, "pipe");
    let error = pipec(&folder, "check x.pipe", "").with(1).error;
    assert!(error.contains("it is a named pipe"), "{error}");
    for path in ["pipe", "/dev/zero"] {
        let error = pipec(&folder, &format!("run y.pipe --resume {path}"), "").with(1).error;
        assert!(error.contains("a regular file is needed"), "{error}");
    }
}

/// A named pipe that somebody writes late, as a process substitution may be.
#[test]
fn targets_and_profiles_may_be_pipes_that_are_waited_for_with_a_word() {
    let folder = folder("files-pipes", &[]);
    named_pipe(&folder, "target");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pipec"));
    command.args(["check", "target", "--quiet"]).current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command starts");
    std::thread::sleep(Duration::from_millis(3500));
    std::fs::write(folder.join("target"), text(256, "data synthetic")).expect("the command reads it");
    let ended = child.wait_with_output().expect("the command ends");
    let error = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{error}");
    assert!(error.contains("nothing has come from target for 3 seconds"), "{error}");
    let error = pipec(&folder, "check /dev/zero", "").with(1).error;
    assert!(error.contains("error[too-large]"), "{error}");
    let error = pipec(&folder, "check std:1f1b --profile /dev/zero", "").with(1).error;
    assert!(error.contains("bytes; at most"), "{error:.500}");
}

/// A file that an earlier version wrote, and this one still reads.
fn kept(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/formats").join(name)
}

/// Files that earlier versions wrote still load: one of each format that is read again.
#[test]
fn files_of_earlier_versions_still_load() {
    let source = std::fs::read_to_string(kept("tiny.pipe")).expect("it is there");
    let folder = folder("files-kept", &[("tiny.pipe", &source)]);
    for (name, keeps) in [("checkpoint-1.safetensors", "could not be verified"), ("checkpoint-2.safetensors", "")] {
        let file = kept(name);
        let resumed = pipec(&folder, &format!("run tiny.pipe --no-checkpoint --resume {}", file.display()), "").with(0);
        assert!(resumed.out.contains("2 steps") && resumed.error.contains(keeps), "{}{}", resumed.out, resumed.error);
        assert!(!keeps.is_empty() || !resumed.error.contains("verified"), "{}", resumed.error);
    }
    let sharded = kept("sharded");
    let resumed = pipec(&folder, &format!("run tiny.pipe --no-checkpoint --resume {}", sharded.display()), "").with(0);
    assert!(resumed.out.contains("2 steps"), "{}", resumed.out);

    let profile = kept("tiny.profile.json");
    let line = format!("check tiny.pipe --profile {} --format json", profile.display());
    let report: Value = pipec(&folder, &line, "").with(0).into();
    assert_eq!(report["makespan"], 0.014062, "{report:#}");

    let trace = kept("tiny.perfetto.json");
    let compared = pipec(&folder, &format!("diff tiny.pipe {}", trace.display()), "").with(0);
    assert!(compared.out.contains("medians over 3 steps of 4"), "{}", compared.out);

    let ir = kept("tiny.ir");
    assert!(pipec(&folder, &format!("check {}", ir.display()), "").with(0).out.contains("accepted, deadlock free"));
    let json = std::fs::read_to_string(kept("tiny.program.json")).expect("it is there");
    let program = pipe_ir::json::parse(&json).expect("a program");
    assert_eq!(pipe_ir::text::print(&program), std::fs::read_to_string(ir).expect("it is there"));
}

/// Every format that `--version` names has its line among the documents.
#[test]
fn every_format_is_documented() {
    let version = pipec(&folder("files-formats", &[]), "--version", "").with(0).out;
    let page = include_str!("../../../docs/formats.md");
    let line = version.lines().find_map(|line| line.strip_prefix("schemas: ")).expect("a line of schemas");
    let formats: Vec<&str> = line.split(", ").collect();
    assert!(formats.len() >= 10, "{line}");
    for format in formats {
        assert!(page.contains(&format!("| `{format}` |")), "docs/formats.md has no row for `{format}`");
    }
}
