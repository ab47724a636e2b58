//! An editor in a few lines: starts `pipec lsp`, and speaks its protocol.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A session that has not ended by then never will.
const LONGEST: Duration = Duration::from_secs(120);

/// One session.
pub(crate) struct Client {
    process: Arc<Mutex<Child>>,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last: i32,
    /// What came while something else was waited for.
    waiting: Vec<Value>,
}

impl Client {
    /// A process that was told nothing yet; copies of the standard library go to a folder.
    pub(crate) fn start(cache: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pipec"));
        command.arg("lsp").env("XDG_CACHE_HOME", cache);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = pipes.spawn().expect("the server starts");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("it is a pipe"));
        let process = Arc::new(Mutex::new(process));
        let watched = process.clone();
        std::thread::spawn(move || {
            std::thread::sleep(LONGEST);
            watched.lock().is_ok_and(|mut process| process.kill().is_ok())
        });
        Self { process, input, output, last: 0, waiting: Vec::new() }
    }

    /// A session that has begun.
    pub(crate) fn new(cache: &Path) -> Self {
        let mut client = Self::start(cache);
        let abilities = client.ask("initialize", json!({"capabilities": {}, "processId": null, "rootUri": null}));
        assert_eq!(abilities["capabilities"]["positionEncoding"], "utf-16");
        client.tell("initialized", json!({}));
        client
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("the session goes on");
        input.write_all(bytes).and_then(|()| input.flush()).expect("the server reads");
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        self.write(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
    }

    fn read(&mut self) -> Value {
        let mut size = 0;
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("the server writes") > 0, "the server went away");
            match line.trim().strip_prefix("Content-Length: ") {
                Some(number) => size = number.parse().expect("a number"),
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut bytes = vec![0; size];
        self.output.read_exact(&mut bytes).expect("a whole message");
        serde_json::from_slice(&bytes).expect("the server writes JSON")
    }

    pub(crate) fn tell(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// The whole response to a request.
    pub(crate) fn response(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}));
        loop {
            let message = self.read();
            if message["id"] == self.last && message.get("method").is_none() {
                return message;
            }
            self.waiting.push(message);
        }
    }

    /// The result of a request.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let response = self.response(method, params);
        assert!(response.get("error").is_none(), "{method}: {response}");
        response["result"].clone()
    }

    /// Asks about a place of a document.
    pub(crate) fn at(&mut self, method: &str, uri: &str, place: (u32, u32)) -> Value {
        self.ask(method, at(uri, place))
    }

    /// The next findings of a document, with this version.
    pub(crate) fn findings(&mut self, uri: &str, version: i32) -> Vec<Value> {
        let wanted = |message: &Value| {
            message["method"] == "textDocument/publishDiagnostics"
                && message["params"]["uri"] == uri
                && message["params"]["version"] == version
        };
        loop {
            let message = match self.waiting.iter().position(wanted) {
                Some(index) => self.waiting.remove(index),
                None => self.read(),
            };
            if wanted(&message) {
                return message["params"]["diagnostics"].as_array().cloned().unwrap_or_default();
            }
        }
    }

    pub(crate) fn open(&mut self, uri: &str, text: &str) {
        let document = json!({"uri": uri, "languageId": "pipe", "version": 1, "text": text});
        self.tell("textDocument/didOpen", json!({"textDocument": document}));
    }

    /// Closes standard input, and waits for the end.
    pub(crate) fn end(mut self) -> Option<i32> {
        drop(self.input.take());
        for _ in 0..400 {
            let mut process = self.process.lock().expect("nobody panics with it");
            if let Some(status) = process.try_wait().expect("it is our child") {
                return status.code();
            }
            drop(process);
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the server does not end");
    }
}

/// A place of a document, from 0.
pub(crate) fn at(uri: &str, (line, character): (u32, u32)) -> Value {
    json!({"textDocument": {"uri": uri}, "position": {"line": line, "character": character}})
}

/// A text without its mark `^`, and where that was.
pub(crate) fn marked(text: &str) -> (String, (u32, u32)) {
    let (before, _) = text.split_once('^').expect("a mark");
    let line = before.rsplit('\n').next().unwrap_or_default();
    let character = line.chars().map(char::len_utf16).sum::<usize>();
    let place = (before.matches('\n').count() as u32, character as u32);
    (text.replacen('^', "", 1), place)
}
