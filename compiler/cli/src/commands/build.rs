//! `pipec build TARGET --emit KIND`: writes what a target was compiled to, or its schedule in the form of others.

use crate::drawing::figure::Figure;
use crate::drawing::html::{self, Shown};
use crate::drawing::svg;
use crate::input::TimedArguments;
use crate::output::findings::{outcome, show_diagnostics, show_findings, show_notes};
use crate::output::{Failure, print_error, print_with, write_with};
use crate::{Outcome, trace};
use clap::ValueEnum;
use pipe_compiler::analyze::Analysis;
use pipe_compiler::megatron;
use pipe_compiler::megatron::layout::Layout;
use pipe_compiler::megatron::table::Table;
use pipe_compiler::torch::export::{Form, export};
use pipe_compiler::torch::titan::Configuration;
use pipe_compiler::{Certificates, Compilation};
use pipe_cuda::commands;
use pipe_ir::forms::json;
use pipe_ir::text;
use pipe_ir::verify::{List, Verified};
use pipe_plot::Picture;
use pipe_runtime::{RunError, kernel_list};
use pipe_syntax::diagnostic::Diagnostics;
use pipe_syntax::torch::Runtime;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc;

/// Arguments of `pipec build`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    timed: TimedArguments,
    /// What to write
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Emit::Ir)]
    emit: Emit,
    /// Writes to this file instead of standard output; it appears as a whole or not at all
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
}

/// A form of a program, or of its schedule.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Emit {
    /// The instruction IR as text, which `pipec check x.ir` verifies and `pipec run x.ir` runs
    Ir,
    /// The same program as JSON
    Json,
    /// The calls that CUDA devices are given for it: queues, events and what each queue does, in the order of the host
    #[value(alias = "tape")]
    Commands,
    /// The kernels of every task: sizes, operations, and the bytes that each must read and write
    Kernels,
    /// The timeline as JSON (`pipec.picture/1`), with all that `pipec plot -o x.html` shows of it
    Picture,
    /// The timeline as trace-event JSON for Perfetto and chrome://tracing, with the tracks and
    /// names of `pipec run --trace`
    Perfetto,
    /// The timeline as an SVG picture, as `pipec plot -o x.svg` draws it
    Svg,
    /// The timeline as a page to look around in, as `pipec plot -o x.html` writes it
    Html,
    /// The schedule in the form of PyTorch's pipelining, which puts transfers in itself: a row per
    /// rank, a cell per task
    TorchCsv,
    /// The same with the transfers of this program, and what else the version of PyTorch needs
    TorchCsvComms,
    /// What torchtitan is configured with beside `torch-csv`: placement, microbatches, modules of each stage, as a
    /// Python file
    Torchtitan,
    /// The layers of each stage of a model from a `config.json`, for Megatron-LM's `--pipeline-model-parallel-layout`
    MegatronLayout,
    /// The microbatches and chunks that Megatron-LM's interleaved 1F1B takes in turn, if it is what the schedule says
    MegatronTable,
    /// The options that make Megatron-LM run the schedule: pipeline, parallelism and batch
    MegatronArgs,
}

/// Compiles a target and writes its program. A target that is rejected has none.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    match arguments.emit {
        Emit::Ir => program(arguments, emit_text),
        Emit::Json => program(arguments, emit_json),
        Emit::Commands => program(arguments, emit_commands),
        Emit::Kernels => program(arguments, emit_kernels),
        Emit::Picture => picture(arguments, |_, picture, out| emit_picture(picture, out)),
        Emit::Perfetto => picture(arguments, |_, picture, out| trace::plan::write(picture, out)),
        Emit::Svg => svg_of(arguments),
        Emit::Html => picture(arguments, |compilation, picture, out| {
            let figure = Figure::new(compilation, picture);
            html::write(&picture.title, &Shown::Picture(picture, &figure), out)
        }),
        Emit::TorchCsv => text_of(arguments, |analysis, runtime| export(analysis, Form::Tasks, runtime), |_| None),
        Emit::TorchCsvComms => {
            text_of(arguments, |analysis, runtime| export(analysis, Form::Transfers, runtime), |_| None)
        }
        Emit::Torchtitan => text_of(arguments, |analysis, _| Ok((Configuration::of(analysis)?, Vec::new())), |_| None),
        Emit::MegatronLayout => {
            text_of(arguments, |analysis, _| Ok((format!("{}\n", Layout::of(analysis)?), Vec::new())), |_| None)
        }
        Emit::MegatronArgs => {
            text_of(arguments, |analysis, _| Ok((megatron::arguments::Arguments::of(analysis)?, Vec::new())), |_| None)
        }
        Emit::MegatronTable => text_of(
            arguments,
            |analysis, _| Ok((Table::of(analysis)?, Vec::new())),
            |table| Some(format!("Megatron runs it with {}", table.options())),
        ),
    }
}

/// Writes a schedule, or what there is to say of it, in the form of others, if they can run it.
fn text_of<T: Display>(
    arguments: &Arguments,
    form: impl FnOnce(&Analysis, Runtime) -> Result<(T, Diagnostics), Diagnostics>,
    note: impl FnOnce(&T) -> Option<String>,
) -> Result<Outcome, Failure> {
    let runtime = arguments.timed.target.runtime();
    let (mut compilation, sources) = arguments.timed.compile(Certificates::Beside)?;
    let analysis = compilation.analysis.as_ref().filter(|_| compilation.report.ok);
    let text = match analysis.map(|analysis| form(analysis, runtime)).transpose() {
        Ok(written) => written.map(|(text, warnings)| {
            compilation.diagnostics.extend(warnings);
            text
        }),
        Err(found) => {
            compilation.diagnostics.extend(found);
            compilation.conclude(&sources);
            None
        }
    };
    show_findings(&compilation, &sources, arguments.timed.target.format())?;
    show_notes(&compilation, &sources, &arguments.timed.target);
    if let Some(text) = text {
        if let Some(note) = note(&text).filter(|_| !arguments.timed.target.quiet) {
            print_error(&format!("note: {note}\n"));
        }
        write(arguments, |out| write!(out, "{text}"))?;
    }
    Ok(outcome(&compilation))
}

/// Writes the picture of a target, also of one that breaks a limit or is stuck.
fn picture(
    arguments: &Arguments,
    emit: fn(&Compilation, &Picture, &mut dyn Write) -> io::Result<()>,
) -> Result<Outcome, Failure> {
    let (compilation, sources) = arguments.timed.compile(Certificates::Beside)?;
    show_diagnostics(&compilation, &sources);
    // A trace is of a whole step.
    let picture = Picture::with_sources(&compilation, &sources)
        .filter(|picture| picture.stop.is_none() || !matches!(arguments.emit, Emit::Perfetto));
    let Some(picture) = picture else { return Ok(Outcome::Rejected) };
    write(arguments, |out| emit(&compilation, &picture, out))?;
    Ok(outcome(&compilation))
}

/// Draws a target, also one that breaks a limit or is stuck.
fn svg_of(arguments: &Arguments) -> Result<Outcome, Failure> {
    let (compilation, sources) = arguments.timed.compile(Certificates::Beside)?;
    show_diagnostics(&compilation, &sources);
    if compilation.analysis.is_none() && compilation.stuck.is_none() {
        return Ok(Outcome::Rejected);
    }
    let drawn = svg::draw(&compilation).map_err(Failure::Usage)?;
    write(arguments, |out| out.write_all(drawn.as_bytes()))?;
    Ok(outcome(&compilation))
}

fn emit_picture(picture: &Picture, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, picture)?;
    out.write_all(b"\n")
}

fn program(arguments: &Arguments, emit: fn(&Verified, &mut dyn Write) -> io::Result<()>) -> Result<Outcome, Failure> {
    let (compilation, sources) = arguments.timed.compile_program()?;
    show_findings(&compilation, &sources, arguments.timed.target.format())?;
    if let Some(verified) = compilation.program.as_ref().filter(|_| compilation.report.ok) {
        write(arguments, |out| emit(verified, out))?;
    }
    Ok(outcome(&compilation))
}

fn write(arguments: &Arguments, contents: impl Fn(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    match &arguments.output {
        Some(path) => write_with(path, contents),
        None => print_with(contents),
    }
}

fn emit_json(verified: &Verified, out: &mut dyn Write) -> io::Result<()> {
    json::write(verified.program(), &mut *out)?;
    out.write_all(b"\n")
}

/// A command list with a race would be a mistake of ours, as one that gets stuck.
fn emit_commands(verified: &Verified, out: &mut dyn Write) -> io::Result<()> {
    let (program, recorded) = (verified.program(), commands::record(verified, false).map_err(io::Error::other)?);
    for (list, commands) in [(List::Setup, &recorded.setup), (List::Step, &recorded.step)] {
        commands::races(program, commands).map_err(|race| io::Error::other(RunError::from(race)))?;
        writeln!(
            out,
            "; {list}: {} queues, {} events, {} calls",
            commands.queues.len(),
            commands.n_events,
            commands.calls.len()
        )?;
        commands::lines(program, commands).try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(())
}

fn emit_kernels(verified: &Verified, out: &mut dyn Write) -> io::Result<()> {
    kernel_list::lines(verified.program()).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Writes a piece of the text while the next one is formatted: large programs have gigabytes of it.
fn emit_text(verified: &Verified, out: &mut dyn Write) -> io::Result<()> {
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(1);
        // A writer that gives up no longer receives, which ends the formatting.
        scope.spawn(move || text::pieces(verified.program()).try_for_each(|piece| sender.send(piece)));
        receiver.into_iter().try_for_each(|piece| out.write_all(piece.as_bytes()))
    })
}
