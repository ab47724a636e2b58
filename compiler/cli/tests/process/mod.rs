//! The command as a whole process, run in a folder of its own.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A new folder of this name that holds these files.
pub(crate) fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
    for (file, text) in files {
        fs::write(folder.join(file), text).expect("the folder was just made");
    }
    folder
}

/// How the command ended.
pub(crate) struct Ended {
    arguments: String,
    code: Option<i32>,
    /// What it wrote to standard output.
    pub(crate) out: String,
    /// What it wrote to standard error.
    pub(crate) error: String,
}

impl Ended {
    /// The same, if it exited with this code.
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        let Self { arguments, code: found, out, error } = &self;
        assert_eq!(*found, Some(code), "{arguments}\nstandard output\n{out:.2000}\nstandard error\n{error:.2000}");
        self
    }
}

impl From<Ended> for serde_json::Value {
    /// The JSON that it wrote to standard output.
    fn from(ended: Ended) -> Self {
        let Ended { arguments, out, error, .. } = &ended;
        serde_json::from_str(out).unwrap_or_else(|why| panic!("{arguments}: {why}\n{out}\n{error}"))
    }
}

/// Runs the command in a folder, with a text as its standard input.
pub(crate) fn pipec(folder: &Path, arguments: &str, input: &str) -> Ended {
    run(Command::new(env!("CARGO_BIN_EXE_pipec")), folder, arguments, input)
}

/// The same with a command that has variables of its own.
pub(crate) fn run(mut command: Command, folder: &Path, arguments: &str, input: &str) -> Ended {
    let words = shlex::split(arguments).expect("every quote ends");
    command.args(words).current_dir(folder).env("COLUMNS", "100").env("NO_COLOR", "1");
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().expect("the command starts");
    // A command that needs no input may have ended before it is written.
    drop(child.stdin.take().expect("it is a pipe").write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("the command ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended {
        arguments: arguments.to_owned(),
        code: output.status.code(),
        out: text(&output.stdout),
        error: text(&output.stderr),
    }
}
