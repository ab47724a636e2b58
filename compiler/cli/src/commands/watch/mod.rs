//! `pipec watch TARGET`: the page of `plot`, served on this machine and drawn anew whenever a file is saved.

mod board;
mod compile;
mod files;
mod server;

use crate::Outcome;
use crate::input::{Format, TimedArguments, whole_number};
use crate::output::figures::{percent, time, unit_of_times};
use crate::output::findings::show_diagnostics;
use crate::output::{Failure, complain, print, warn};
use board::Board;
use compile::{Compiled, compile};
use files::Files;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Where the page is, unless that is taken or another port is asked for.
const PORT: u16 = 4747;
/// How often files are looked at.
const PAUSE: Duration = Duration::from_millis(150);

const EXAMPLES: &str = "\
Examples:
  pipec watch examples/first_schedule.pipe --devices 8 --microbatches 24
  pipec watch examples/shakespeare.pipe --memory 2.5 --port 8000

Ctrl-C ends it.";

/// Arguments of `pipec watch`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, mut_arg("format", |format| format.hide(true)), mut_arg("json", |json| json.hide(true)))]
pub(crate) struct Arguments {
    #[command(flatten)]
    timed: TimedArguments,
    /// Serves on this port of 127.0.0.1; 0 is any that is free
    #[arg(long, value_name = "PORT", value_parser = whole_number::<u16>(0..=u64::from(u16::MAX)))]
    port: Option<u16>,
}

/// Serves until it is ended.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let target = &arguments.timed.target;
    if target.target == "-" {
        return Err(Failure::Usage("`watch` waits for changes of a file; standard input has none".to_owned()));
    }
    if target.format() == Format::Json {
        return Err(Failure::Usage("`watch` serves a page; `check --format json` prints figures".to_owned()));
    }
    // What cannot be read at first is a mistake of the command; later, it may be a file that is just being written.
    let first = compile(&arguments.timed)?;
    let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let server = match arguments.port {
        Some(port) => server::bind(here(port))?,
        None => server::bind(here(PORT)).or_else(|_| server::bind(here(0)))?,
    };
    // Without a handler Ctrl-C still ends it, only with another exit code.
    if let Err(error) = ctrlc::set_handler(|| std::process::exit(0)) {
        warn(&format!("Ctrl-C will not end with 0: {error}"));
    }
    print(&format!(
        "{} is at http://{}/, and drawn anew when it is saved; Ctrl-C ends\n",
        target.target,
        server.address()
    ))?;
    let board = Arc::new(Board::default());
    let mut files = Files::default();
    say(&first, target.quiet)?;
    files.look_at(&first.files);
    board.post(first);
    server.serve(&target.target, &board);
    loop {
        std::thread::sleep(PAUSE);
        if !files.changed() {
            continue;
        }
        let next = match compile(&arguments.timed) {
            Ok(next) => next,
            Err(failure) => {
                complain(&failure.to_string());
                board.complain(&failure.to_string());
                continue;
            }
        };
        say(&next, target.quiet)?;
        files.look_at(&next.files);
        board.post(next);
    }
}

/// One line of what came of it, and what speaks against it.
fn say(compiled: &Compiled, quiet: bool) -> Result<(), Failure> {
    show_diagnostics(&compiled.compilation, &compiled.sources);
    let report = &compiled.compilation.report;
    let figures = report.figures.makespan.zip(report.figures.bubble_mean);
    match figures.filter(|_| !quiet) {
        Some((makespan, bubble)) => {
            let name = report.schedule.as_deref().unwrap_or(&report.target);
            let verdict = if report.ok { "accepted" } else { "rejected" };
            let makespan = time(makespan, unit_of_times(report));
            print(&format!("{name}: {verdict}, makespan {makespan}, mean bubble {}\n", percent(bubble)))
        }
        None => Ok(()),
    }
}
