//! `pipec check TARGET`: proves, and prints the report.

use crate::diagnostics::{Look, draw};
use crate::input::{Format, TargetArguments, TimedArguments, load, parse_seconds};
use crate::output::{Failure, colours_error, colours_out, print, print_error};
use crate::table::table;
use crate::{Outcome, opened, sarif, terminal_width};
use clap::value_parser;
use pipe_compiler::mapping::{Options, steps};
use pipe_compiler::report::Finding;
use pipe_compiler::report::cluster::MappingReport;
use pipe_compiler::{Certificates, Compilation};
use pipe_syntax::diagnostic::{Diagnostic, Severity};
use pipe_syntax::source::Sources;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  pipec check std:v_half --set devices=8 --set microbatches=24
  pipec check examples/shakespeare.pipe --profile here.profile.json
  pipec check examples/llama3_70b.pipe --cluster examples/cluster.toml --set data=1
  pipec check schedules/ours.pipe --format sarif > ours.sarif   # for code review
  pipec check examples/llama3_70b.pipe --cluster measured.toml --set data=1 --map 10";

/// Arguments of `pipec check`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, mut_arg("format", |format| format.value_parser(value_parser!(Format))))]
pub(crate) struct Arguments {
    #[command(flatten)]
    timed: TimedArguments,
    /// Only proves what holds for every number of microbatches, if the schedule is a block: the step is not written out
    #[arg(long)]
    certificate: bool,
    /// Looks for the order in which nodes of the cluster are filled best, for at most so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, requires = "cluster", conflicts_with = "certificate")]
    map: Option<f64>,
}

/// Checks a target.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let target = &arguments.timed.target;
    if target.target.ends_with(".ir") {
        return super::check_ir::run(target);
    }
    let wanted = if arguments.certificate { Certificates::Alone } else { Certificates::Instead };
    let (mut compilation, sources) = match arguments.map {
        Some(seconds) => mapped(&arguments.timed, Duration::from_secs_f64(seconds))?,
        None => arguments.timed.compile(wanted)?,
    };
    opened::check(&mut compilation, &sources, &target.folder(), true);
    match target.format {
        Format::Json => print(&json(&compilation.report)?)?,
        Format::Sarif => print(&json(&sarif::of_target(&target.target, &compilation, &sources))?)?,
        Format::Human => {
            show_diagnostics(&compilation, &sources);
            show_notes(&compilation, &sources, target);
            if !target.quiet {
                print(&table(&compilation.report, colours_out()))?;
            }
        }
    }
    Ok(outcome(&compilation))
}

/// Compiles a target with the nodes of its cluster in the best order that is found in time.
fn mapped(timed: &TimedArguments, time: Duration) -> Result<(Compilation, Sources), Failure> {
    let mut request = match timed.request()? {
        Ok(request) => request,
        Err(rejected) => return Ok(*rejected),
    };
    let (root, folder) = timed.target.read()?;
    let loader = |path: &str| load(&folder, path);
    let start = Instant::now();
    let found = steps::map(root.clone(), &loader, &request, Options::default(), &mut || start.elapsed() < time);
    if let Some(found) = &found {
        request.cluster = request.cluster.map(|cluster| cluster.filled(found.nodes.clone()));
    }
    let mut sources = Sources::default();
    let mut compilation = pipe_compiler::compile(&mut sources, root, &loader, &request);
    if let (Some(found), Some(report)) = (&found, &mut compilation.report.cluster) {
        let filled = report.devices_used.div_ceil(report.devices_per_node.into());
        report.mapping = Some(MappingReport::new(found, filled));
    }
    Ok((compilation, sources))
}

/// Draws what speaks against a target on standard error, without notes.
pub(crate) fn show_diagnostics(compilation: &Compilation, sources: &Sources) {
    let is_note = |found: &&Diagnostic| found.severity == Severity::Note;
    let found: Vec<Diagnostic> = compilation.diagnostics.iter().filter(|found| !is_note(found)).cloned().collect();
    show(&found, sources);
    compilation.mistakes().for_each(|mistake| print_error(&format!("{mistake}\n")));
}

/// Draws notes on standard error, unless a user wants nothing but errors and warnings.
pub(crate) fn show_notes(compilation: &Compilation, sources: &Sources, target: &TargetArguments) {
    let is_note = |found: &&Diagnostic| found.severity == Severity::Note;
    if !target.quiet && target.format == Format::Human {
        let notes: Vec<Diagnostic> = compilation.diagnostics.iter().filter(is_note).cloned().collect();
        show(&notes, sources);
    }
}

/// Draws diagnostics on standard error.
pub(crate) fn show(diagnostics: &[Diagnostic], sources: &Sources) {
    let look = Look { width: terminal_width(), colours: colours_error() };
    print_error(&draw(diagnostics, sources, look));
}

/// Says what speaks against a target: to programs, for which a rejected target has no other output, as the report of
/// `check`.
pub(crate) fn show_findings(compilation: &Compilation, sources: &Sources, format: Format) -> Result<(), Failure> {
    if format == Format::Json && !compilation.report.ok {
        return print(&json(&compilation.report)?);
    }
    show_diagnostics(compilation, sources);
    Ok(())
}

/// Why a target is rejected, in a line, for others to say.
pub(crate) fn reason(compilation: &Compilation) -> Failure {
    let first = compilation.report.diagnostics.iter().find(|found| found.severity == Severity::Error);
    let of = |found: &Finding| format!("{}:{}:{}: {}", found.file, found.line, found.column, found.message);
    Failure::Usage(first.map_or_else(|| "the target is rejected".to_owned(), of))
}

/// Whether a compilation may go on.
pub(crate) fn outcome(compilation: &Compilation) -> Outcome {
    if compilation.report.ok { Outcome::Accepted } else { Outcome::Rejected }
}

/// A report for programs.
pub(crate) fn json(report: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(report);
    text.map(|text| text + "\n").map_err(|error| Failure::Usage(error.to_string()))
}
