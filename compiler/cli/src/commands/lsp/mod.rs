//! `pipec lsp`: a language server for editors, over standard input and output.
//!
//! One thread reads messages, one compiles what was changed, and the main thread answers. Requests ask the names of a
//! document, which are there in milliseconds; figures and most diagnostics come from the compiler, whenever it is done.

mod analysis;
mod answers;
mod diagnostics;
mod documents;
mod here;
mod positions;
mod server;
mod transport;
mod uris;

use crate::Outcome;
use crate::output::{Failure, print_error};
use analysis::Analysis;
use server::Server;
use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use transport::Incoming;

const EXAMPLES: &str = "\
Editors start it: VS Code with editors/vscode, others as docs/editor.md says.
Speaks the Language Server Protocol over standard input and output until the client says goodbye or goes away.";

/// Arguments of `pipec lsp`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// As clients say it; there is no other way
    #[arg(long, hide = true)]
    stdio: bool,
}

/// What the main thread waits for.
enum Event {
    Client(Incoming),
    Analysed(Analysis),
}

/// Serves one client until it says goodbye or goes away. Fails if no thread can be started.
pub(crate) fn run(_: &Arguments) -> Result<Outcome, Failure> {
    let failed = |error| Failure::Io("a thread".to_owned(), error);
    let (events, inbox) = mpsc::channel();
    let (jobs, pending) = mpsc::channel();
    let results = events.clone();
    let reader = move || {
        let mut input = io::stdin().lock();
        loop {
            let message = transport::read(&mut input);
            let is_end = matches!(message, Incoming::End);
            if events.send(Event::Client(message)).is_err() || is_end {
                return;
            }
        }
    };
    thread::Builder::new().name("reader".to_owned()).spawn(reader).map_err(failed)?;
    let worker = move || analysis::work(&pending, &|analysis| results.send(Event::Analysed(analysis)).is_ok());
    // Sources may be nested, and the compiler walks down their trees.
    thread::Builder::new().name("compiler".to_owned()).stack_size(16 << 20).spawn(worker).map_err(failed)?;
    let mut server = Server::new(jobs);
    let mut output = io::stdout().lock();
    for event in inbox {
        let replies = match event {
            Event::Client(Incoming::Message(message)) => server.take(message),
            Event::Client(Incoming::Broken(reason)) => {
                print_error(&format!("pipec lsp: a message is left out: {reason}\n"));
                Vec::new()
            }
            Event::Client(Incoming::End) => return Ok(Outcome::Accepted),
            Event::Analysed(analysis) => server.publish(analysis),
        };
        let written = replies.iter().try_for_each(|reply| reply.clone().write(&mut output));
        if written.and_then(|()| output.flush()).is_err() {
            // Nobody listens any more.
            return Ok(Outcome::Accepted);
        }
        if let Some(outcome) = server.ended() {
            return Ok(outcome);
        }
    }
    Ok(Outcome::Accepted)
}
