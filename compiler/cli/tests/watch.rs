//! `pipec watch`: a page on this machine that hears of every change, errors included.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const BLOCK: &str = "schedule s {\n    stages D\n    place s on s\n    block every 3 {\n        F[s] at s\n        BW[s] at D + 2 * (D - 1 - s)\n    }\n}\n";

/// A process that is ended with its test, in a folder that goes away.
struct Watch {
    folder: PathBuf,
    child: Child,
    host: String,
}

impl Watch {
    fn new(test: &str, files: &[(&str, &str)], arguments: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("pipec-watch-{}-{test}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).expect("a file"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_pipec"));
        command.arg("watch").args(arguments).args(["--port", "0"]).current_dir(&folder);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let host = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address").to_owned();
        assert!(line.starts_with(arguments[0]) && host.starts_with("127.0.0.1:"), "{line}");
        Self { folder, child, host }
    }

    /// Status and body of an answer.
    fn get(&self, path: &str, host: &str) -> (u32, String) {
        let mut stream = TcpStream::connect(&self.host).expect("it listens");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), body.to_owned())
    }

    fn changes(&self, after: u64) -> (u64, Value) {
        let (status, body) = self.get(&format!("/changes?after={after}"), &self.host);
        let state: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{status} {body}: {error}"));
        (state["number"].as_u64().expect("a number"), state)
    }

    fn save(&self, name: &str, text: &str) {
        // As editors do it: the file is another one afterwards.
        fs::write(self.folder.join("new"), text).expect("a file");
        fs::rename(self.folder.join("new"), self.folder.join(name)).expect("its place");
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended; nothing is lost if the folder stays.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn changes_are_told_and_the_last_picture_stays_while_there_are_errors() {
    let watch = Watch::new("changes", &[("x.pipe", BLOCK)], &["x.pipe", "--set", "devices=3"]);
    let (status, page) = watch.get("/", &watch.host);
    assert!(status == 200 && page.contains("<title>x.pipe</title>") && page.contains("changes?after="), "{status}");
    let (first, state) = watch.changes(0);
    assert_eq!((&state["ok"], &state["findings"]), (&true.into(), &"".into()));
    let devices = |state: &Value| state["picture"]["devices"].as_array().map(Vec::len);
    assert_eq!((devices(&state), &state["picture"]["title"]), (Some(3), &"s".into()));
    watch.save("x.pipe", &BLOCK.replace("schedule s", "schedule other"));
    let (second, state) = watch.changes(first);
    assert!(second > first && state["picture"]["title"] == "other", "{second} {state}");
    watch.save("x.pipe", "schedule x {");
    let (third, state) = watch.changes(second);
    assert_eq!((&state["ok"], &state["picture"]), (&false.into(), &Value::Null));
    assert!(
        state["findings"].as_str().is_some_and(|text| text.contains("error[syntax]") && text.contains("x.pipe:1")),
        "{state}"
    );
    // Whoever comes now sees both.
    assert_eq!(watch.changes(0).1["picture"]["title"], "other");
    fs::remove_file(watch.folder.join("x.pipe")).expect("removed");
    let (fourth, state) = watch.changes(third);
    assert!(state["findings"].as_str().is_some_and(|text| text.starts_with("x.pipe: ")), "{state}");
    watch.save("x.pipe", BLOCK);
    let (_, state) = watch.changes(fourth);
    assert_eq!((&state["ok"], &state["picture"]["title"]), (&true.into(), &"s".into()));
}

#[test]
fn imported_files_are_watched_and_others_are_not_served() {
    let files = [
        ("x.pipe", "import \"y.pipe\"\n\npipeline p {\n    devices 2\n    microbatches 4\n    schedule s\n}\n"),
        ("y.pipe", BLOCK),
    ];
    let watch = Watch::new("imports", &files, &["x.pipe"]);
    let (first, state) = watch.changes(0);
    assert_eq!(state["picture"]["makespan"], 15, "{}", state["findings"]);
    watch.save("y.pipe", &BLOCK.replace("BW[s] at", "BW[s] at 1 +"));
    assert!(watch.changes(first).0 > first);
    assert_eq!(watch.get("/x.pipe", &watch.host).0, 404);
    assert_eq!(watch.get("/", "elsewhere.example").0, 403);
}

#[cfg(unix)]
#[test]
fn it_ends_on_ctrl_c_with_0() {
    let mut watch = Watch::new("end", &[("x.pipe", BLOCK)], &["x.pipe"]);
    let ended = Command::new("kill").args(["-INT", &watch.child.id().to_string()]).status().expect("kill");
    assert!(ended.success());
    assert_eq!(watch.child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn what_cannot_be_watched_is_told() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pipec"));
        let output = command.arg("watch").args(arguments).stdin(Stdio::null()).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, error) = run(&["-"]);
    assert_eq!(
        (code, error.as_str()),
        (Some(2), "error: `watch` waits for changes of a file; standard input has none\n")
    );
    let (code, error) = run(&["missing.pipe"]);
    assert!(code == Some(2) && error.starts_with("error: missing.pipe: "), "{error}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let (code, error) = run(&["std:1f1b", "--port", &port.to_string()]);
    assert!(code == Some(2) && error.contains(&format!("127.0.0.1:{port} cannot be served")), "{error}");
}
