//! `pipec check TARGET..`: proves, and prints the report.

mod certificate;
pub(crate) mod cluster;
mod phases;
pub(crate) mod program;
mod several;
mod stages;
pub(crate) mod table;

use crate::Outcome;
use crate::input::near::refuse_settings;
use crate::input::{Format, TimedArguments, load, parse_seconds};
use crate::output::findings::{check_names, json, outcome, show_diagnostics, show_notes};
use crate::output::{Failure, colours_out, print, print_page, sarif};
use crate::training::files;
use clap::{Args, FromArgMatches, value_parser};
use pipe_compiler::mapping::{Options, steps};
use pipe_compiler::report::cluster::MappingReport;
use pipe_compiler::{Certificates, Compilation};
use pipe_syntax::source::Sources;
use serde_json::Value;
use std::time::{Duration, Instant};
use table::table;

const EXAMPLES: &str = "\
Examples:
  pipec check std:v_half --devices 8 --microbatches 24
  pipec check schedules/*.pipe   # several targets; exits with the highest code
  pipec check examples/shakespeare.pipe --profile here.profile.json
  pipec check examples/llama3_70b.pipe --cluster examples/cluster.toml --set data=1
  pipec check schedules/ours.pipe --format sarif > ours.sarif   # for code review
  pipec check examples/llama3_70b.pipe --cluster measured.toml --set data=1 --map 10";

/// Arguments of `pipec check`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES, mut_arg("format", |format| format.value_parser(value_parser!(Format))))]
pub(crate) struct Arguments {
    #[command(flatten)]
    timed: TimedArguments,
    /// More targets, each checked by itself with the same options
    #[arg(value_name = "TARGET")]
    more: Vec<String>,
    /// Only proves what holds for every number of microbatches, if the schedule is a block: the step is not written out
    #[arg(long)]
    certificate: bool,
    /// Looks for the order in which nodes of the cluster are filled best, for at most so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, requires = "cluster", conflicts_with = "certificate")]
    map: Option<f64>,
}

/// A report of one target.
enum Checked {
    /// It was printed, for people.
    Printed,
    /// As JSON.
    Json(String),
    /// As a log of SARIF.
    Sarif(Value),
}

impl Checked {
    fn print(&self) -> Result<(), Failure> {
        match self {
            Self::Printed => Ok(()),
            Self::Json(text) => print(text),
            Self::Sarif(log) => print(&json(log)?),
        }
    }
}

impl Arguments {
    /// The same options with another target, and with no more of them.
    fn with_target(&self, target: &str) -> Self {
        let timed = TimedArguments { target: self.timed.target.with_target(target), ..self.timed.clone() };
        Self { timed, more: Vec::new(), ..self.clone() }
    }

    /// Refuses options that say how to compile: a program is compiled.
    fn takes_program(&self) -> Result<(), Failure> {
        let target = &self.timed.target;
        let parsed =
            Self::augment_args(clap::Command::new("check")).try_get_matches_from(["check", "--", &target.target]);
        let plain = parsed.and_then(|matches| Self::from_arg_matches(&matches));
        let mut plain = plain.map_err(|error| Failure::Bug(error.to_string()))?;
        plain.timed.target.report_as(target);
        if format!("{plain:?}") == format!("{self:?}") {
            return Ok(());
        }
        let message = format!("`{}` is a program: `check` takes only `--format` and `--quiet` with it", target.target);
        Err(Failure::Usage(message))
    }
}

/// Checks targets.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    refuse_settings(&arguments.more)?;
    if !arguments.more.is_empty() {
        return several::run(arguments);
    }
    let phases = arguments.timed.target.phases()?;
    if !phases.is_empty() {
        return phases::run(arguments, &phases);
    }
    let (outcome, checked) = check(arguments)?;
    checked.print()?;
    Ok(outcome)
}

/// Checks one target.
fn check(arguments: &Arguments) -> Result<(Outcome, Checked), Failure> {
    let target = &arguments.timed.target;
    if target.target.ends_with(".ir") {
        arguments.takes_program()?;
        return program::check(target);
    }
    let wanted = if arguments.certificate { Certificates::Alone } else { Certificates::Instead };
    let (mut compilation, sources) = match arguments.map {
        Some(seconds) => mapped(&arguments.timed, Duration::from_secs_f64(seconds))?,
        None => arguments.timed.compile(wanted)?,
    };
    files::check(&mut compilation, &sources, &target.folder(), true);
    let checked = match target.format() {
        Format::Json => Checked::Json(json(&compilation.report)?),
        Format::Sarif => Checked::Sarif(sarif::of_target(&target.target, &compilation, &sources)),
        Format::Human => {
            show_diagnostics(&compilation, &sources);
            show_notes(&compilation, &sources, target);
            if !target.quiet {
                print_page(&table(&compilation.report, colours_out()))?;
            }
            Checked::Printed
        }
    };
    Ok((outcome(&compilation), checked))
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
    check_names(&compilation.diagnostics)?;
    if let (Some(found), Some(report)) = (&found, &mut compilation.report.cluster) {
        let filled = report.devices_used.div_ceil(report.devices_per_node.into());
        report.mapping = Some(MappingReport::new(found, filled));
    }
    Ok((compilation, sources))
}
