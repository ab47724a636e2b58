//! `pipec build TARGET --emit KIND`: writes what a target was compiled to.

use super::check::{outcome, show_findings};
use crate::Outcome;
use crate::input::TargetArguments;
use crate::output::{Failure, print_with, write_with};
use clap::ValueEnum;
use pipe_ir::program::Program;
use pipe_ir::{json, text};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc;

/// Arguments of `pipec build`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// What to write
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Emit::Ir)]
    emit: Emit,
    /// Writes to this file instead of standard output; it appears as a whole or not at all
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
}

/// A form of a program.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Emit {
    /// The instruction IR as text, which `pipec check x.ir` verifies and `pipec run x.ir` runs
    Ir,
    /// The same program as JSON
    Json,
}

/// Compiles a target and writes its program. A target that is rejected has none.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let (compilation, sources) = arguments.target.compile_program()?;
    show_findings(&compilation, &sources, arguments.target.format)?;
    if let Some(verified) = compilation.program.as_ref().filter(|_| compilation.report.ok) {
        let contents = |out: &mut dyn Write| emit(verified.program(), arguments.emit, out);
        match &arguments.output {
            Some(path) => write_with(path, contents)?,
            None => print_with(contents)?,
        }
    }
    Ok(outcome(&compilation))
}

fn emit(program: &Program, form: Emit, out: &mut dyn Write) -> io::Result<()> {
    match form {
        Emit::Ir => emit_text(program, out),
        Emit::Json => {
            json::write(program, &mut *out)?;
            out.write_all(b"\n")
        }
    }
}

/// Writes a piece of the text while the next one is formatted: large programs have gigabytes of it.
fn emit_text(program: &Program, out: &mut dyn Write) -> io::Result<()> {
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(1);
        // A writer that gives up no longer receives, which ends the formatting.
        scope.spawn(move || text::pieces(program).try_for_each(|piece| sender.send(piece)));
        receiver.into_iter().try_for_each(|piece| out.write_all(piece.as_bytes()))
    })
}
