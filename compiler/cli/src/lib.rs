//! The command line: arguments, files, colours, exit codes.

mod commands;
pub mod drawing;
mod early;
mod hints;
mod input;
pub mod output;
mod ranks;
mod trace;
mod training;
mod version;

use clap::error::{ContextKind, ErrorKind};
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser};
use commands::Command;
use early::Early;
use std::error::Error;
use std::ffi::OsString;
use std::num::ParseIntError;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  pipec std
  pipec check std:v_half --devices 8 --microbatches 24
  pipec check examples/shakespeare.pipe --memory 4.5
  pipec check examples/llama3_70b.pipe --cluster examples/cluster.toml --set data=1
  pipec run examples/shakespeare.pipe
  pipec profile examples/shakespeare.pipe -o here.profile.json
  pipec plot std:1f1b --devices 4 --microbatches 8
  pipec plot std:zb_v -o zb_v.svg
  pipec plot std:zb_v -o zb_v.html
  pipec watch examples/first_schedule.pipe --devices 8
  pipec search std:v_half --memory 2 --cost F=1,B=2,W=1
  pipec tune examples/llama3_70b.pipe --cluster examples/cluster.toml
  pipec fmt --check .
  pipec diff examples/shakespeare.pipe run.trace.json
  pipec explain deadlock

Exit codes:
  0   accepted, and done; also a run that Ctrl-C ended
  1   rejected, or a run failed: lost ranks,
      data or checkpoints that cannot be used
  2   a mistake on the command line, ranks that do not meet,
      a file that cannot be read or written (a full disk)
  101 a bug in pipec";

/// Proves pipeline-parallel training schedules, compiles them and runs them.
#[derive(Parser, Debug)]
#[command(name = "pipec", version, long_version = version::LONG.as_str(), after_help = EXAMPLES)]
struct Arguments {
    /// When to colour: `auto` on terminals, unless `NO_COLOR` is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    color: ColorChoice,
    #[command(subcommand)]
    command: Command,
}

impl Arguments {
    /// Parses words. Where that fails, the error is coloured as they ask for.
    fn parse_words(words: Vec<OsString>, colours: ColorChoice) -> Result<Self, clap::Error> {
        let mut command = command().color(colours);
        let matches = command.try_get_matches_from_mut(words.clone());
        let matches = matches
            .map_err(|error| whole_number(&error).unwrap_or_else(|| hints::with_tip(error, &command, &words)))?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// The error of a word that is no whole number, in the words of the other options; nothing for other errors.
fn whole_number(error: &clap::Error) -> Option<clap::Error> {
    error.source()?.downcast_ref::<ParseIntError>()?;
    let (option, word) = (error.get(ContextKind::InvalidArg)?, error.get(ContextKind::InvalidValue)?);
    let message = format!("invalid value '{word}' for '{option}': expected a whole number, as in `8`");
    Some(clap::Error::raw(error.kind(), message))
}

/// Everything that the command line can say: for completions and the manual.
fn command() -> clap::Command {
    Arguments::command()
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The target was accepted, and the command did its work.
    Accepted,
    /// The target was rejected, or its run failed.
    Rejected,
    /// The command cannot be carried out as it was written.
    Usage,
}

impl Outcome {
    /// Its exit code.
    const fn code(self) -> u8 {
        match self {
            Self::Accepted => 0,
            Self::Rejected => 1,
            Self::Usage => 2,
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome.code())
    }
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(report_panic));
    let words: Vec<OsString> = std::env::args_os().collect();
    let early = Early::of(&words);
    let arguments = match Arguments::parse_words(words, early.colours) {
        Ok(arguments) => arguments,
        Err(error) => {
            let shown = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            output::choose_colours(early.colours);
            output::usage::refuse_words(&error, early.json && !shown);
            return if shown { Outcome::Accepted.into() } else { Outcome::Usage.into() };
        }
    };
    output::choose_colours(arguments.color);
    let outcome = arguments.command.run().unwrap_or_else(|failure| {
        output::usage::refuse(&failure.to_string(), early.json);
        Outcome::Usage
    });
    // What cannot be written was told where that was found.
    drop(std::io::Write::flush(&mut std::io::stdout()));
    pipe_cuda::leave(outcome.code().into());
    outcome.into()
}

/// A panic is always our mistake: asks for a report with what is needed to repeat it.
fn report_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let command: Vec<String> = std::env::args().collect();
    let text = format!(
        "this is a bug in pipec, please report it with the files it read and the lines below\n\
         pipec {} on {} {}\n{}\n{panic}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        command.join(" "),
    );
    // Not `eprintln`: it panics where standard error is closed.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}
