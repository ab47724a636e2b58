//! Files that users name: what may be a pipe, and what an earlier version wrote.
#![cfg(unix)]

mod process;

use process::{folder, pipec};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// It reads nothing.
const TINY: &str = include_str!("data/sgd.pipe");

fn named_pipe(folder: &Path, name: &str) {
    let made = Command::new("mkfifo").arg(folder.join(name)).status().expect("mkfifo starts");
    assert!(made.success());
}

#[test]
fn data_imports_and_checkpoints_are_regular_files() {
    let reads = TINY.replace("data synthetic", "data \"pipe\"");
    let folder = folder("files-regular", &[("x.pipe", "import \"pipe\""), ("y.pipe", TINY), ("z.pipe", &reads)]);
    named_pipe(&folder, "pipe");
    for command in ["check x.pipe", "check z.pipe", "run z.pipe"] {
        let error = pipec(&folder, command, "").with(1).error;
        assert!(error.contains("it is a named pipe, and a regular file is needed"), "{command}: {error}");
    }
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
    std::fs::write(folder.join("target"), TINY).expect("the command reads it");
    let ended = child.wait_with_output().expect("the command ends");
    let error = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{error}");
    assert!(error.contains("nothing has come from target for 3 seconds"), "{error}");
}

/// A program that an earlier version wrote as JSON is the one that it wrote as text.
#[test]
fn programs_of_earlier_versions_still_load() {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/formats");
    let [json, ir] =
        ["tiny.program.json", "tiny.ir"].map(|name| std::fs::read_to_string(formats.join(name)).expect("it is there"));
    assert_eq!(pipe_ir::text::print(&pipe_ir::forms::json::parse(&json).expect("a program")), ir);
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
