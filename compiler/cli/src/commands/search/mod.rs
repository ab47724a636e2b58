//! `pipec search TARGET`: finds a schedule for a target's placement, costs and memory, and writes it as source.

pub(crate) mod find;
pub(crate) mod progress;

use super::check::table::{halves, table};
use crate::Outcome;
use crate::input::{Format, TimedArguments, load, parse_seconds, whole_number};
use crate::output::figures::unit_of_times;
use crate::output::findings::{check_names, json, outcome, show, show_diagnostics};
use crate::output::{Failure, can_write, colours_out, print, print_error_page, print_page, warn, write};
use clap::ValueEnum;
use find::find;
use pipe_compiler::Compilation;
use pipe_compiler::profile::Profile;
use pipe_compiler::report::Report;
use pipe_schedule::dispatch::Objective;
use pipe_search::Options;
use pipe_search::driver::alternatives::{Moves, SearchTarget};
use pipe_search::driver::find::SearchResult;
use pipe_search::driver::run::Prepared;
use pipe_syntax::source::Sources;
use progress::{Team, improvements, verdict};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  pipec search std:v_half --devices 4 --microbatches 8 --cost F=1,B=2,W=1 --memory 2
  pipec search std:1f1b --devices 8 --microbatches 64 --memory 6 -o found.pipe
  pipec search std:1f1b --cost F=1,B=2,W=1,F[3]=1.5,comm=0.1,comm[1-2]=0.5 --memory 3,3,2,2
  pipec search examples/shakespeare.pipe --time 60 -o better.pipe
  pipec search std:zb_v --objective longest-stage --format json
  pipec search std:1f1b --memory 2 --may-recompute
  pipec search std:zb_h1 --memory 6 --activation W=0.366
  pipec search examples/llama3_70b.pipe --cluster examples/cluster.toml --set data=1 --may-offload

Without --memory, devices may hold what the fullest one holds in the target.
Standard output is the source that was found; -o writes it to a file and prints the report instead.";

/// Arguments of `pipec search`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    timed: TimedArguments,
    /// What is to be short
    #[arg(long, value_enum, default_value_t = Goal::Makespan)]
    objective: Goal,
    /// Stops searching after this many seconds; the best schedule so far is then checked and written
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, value_parser = parse_seconds)]
    time: f64,
    /// Rounds of improvement, each twice as long as the one before; with enough time, equal seeds
    /// and rounds give equal results
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = whole_number::<u32>(0..=u64::from(u32::MAX)))]
    rounds: u32,
    /// Stages may run their forward once more for the backward pass, where that makes the step
    /// shorter; they do anyway where nothing fits without
    #[arg(long)]
    may_recompute: bool,
    /// State of a model may live with the hosts, where that makes the step shorter or nothing fits
    /// without; how long copies take must be known
    #[arg(long)]
    may_offload: bool,
    /// Where random choices come from
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u64>(0..=u64::MAX))]
    seed: u64,
    /// Threads; the result does not depend on their number, as long as there is time
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = whole_number::<usize>(0..=u64::MAX))]
    jobs: usize,
    /// Writes the source to this file
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
}

/// What is to be short.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Goal {
    /// From the first start to the last end
    Makespan,
    /// The longest span of a device, from its first start to its last end
    LongestStage,
}

/// The schema of what programs read.
pub(crate) const SCHEMA: &str = "pipec.search/1";

/// What is known at the end, schema `pipec.search/1`: the report of `check` and more.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// Time that the search took.
    seconds: f64,
    /// Whether no schedule with this placement, these costs and this memory, in which the same
    /// stages recompute, is shorter, as the objective counts it.
    proved_optimal: bool,
    /// The schedule, as a text that `pipec` takes, if there is one.
    source: Option<&'a str>,
}

impl<'a> Answer<'a> {
    fn json(
        report: &Report,
        objective: Objective,
        elapsed: Duration,
        proved_optimal: bool,
        source: Option<&'a str>,
    ) -> Result<String, Failure> {
        let mut report = Report { schema: SCHEMA, ..report.clone() };
        report.figures.objective = Some(objective.name());
        json(&Answer { report: &report, seconds: elapsed.as_secs_f64(), proved_optimal, source })
    }
}

/// Searches.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let target = &arguments.timed.target;
    if let Some(path) = &arguments.output {
        can_write(path)?;
    }
    let objective = match arguments.objective {
        Goal::Makespan => Objective::Makespan,
        Goal::LongestStage => Objective::LongestStage,
    };
    let (root, folder) = target.read()?;
    let loader = |path: &str| load(&folder, path);
    let team = Team::new(arguments.jobs, Duration::from_secs_f64(arguments.time));
    let mut sources = Sources::default();
    let rejected = |compilation: &Compilation, sources: &Sources| {
        check_names(&compilation.diagnostics)?;
        if target.format() == Format::Human {
            show_diagnostics(compilation, sources);
        } else {
            print(&Answer::json(&compilation.report, objective, team.elapsed(), false, None)?)?;
        }
        Ok(Outcome::Rejected)
    };
    let request = match arguments.timed.request()? {
        Ok(request) => request,
        Err(wrong) => return rejected(&wrong.0, &wrong.1),
    };
    if target.format() == Format::Human && request.profile.as_ref().is_some_and(Profile::is_shared) {
        warn("devices shared a GPU when this profile was measured; the search counts as if each had one of its own");
    }
    let may = Moves { recompute: arguments.may_recompute, offload: arguments.may_offload };
    let searched = SearchTarget { root: &root, loader: &loader, request: &request, objective, may };
    let mut prepared = match searched.prepare(&mut sources) {
        Ok(prepared) => prepared,
        Err(compilation) => return rejected(&compilation, &sources),
    };
    if target.format() == Format::Human {
        show(&prepared.warnings, &sources);
    }
    let options = Options { objective, seed: arguments.seed, rounds: arguments.rounds };
    if may != Moves::default() {
        let half = Duration::from_secs_f64(arguments.time / 2.0);
        prepared = searched.shorter(prepared, options, &team.within(half));
    }
    let shown = improvements(target.quiet || target.format() == Format::Json);
    let result = find(&searched, &mut prepared, options, &team, &shown);
    let Some(result) = result else {
        return Err(Failure::Usage("there was no time to find any schedule; allow more with `--time`".to_owned()));
    };
    conclude(arguments, &prepared, &result, team.elapsed())
}

/// Writes what was found.
fn conclude(
    arguments: &Arguments,
    prepared: &Prepared,
    result: &SearchResult,
    elapsed: Duration,
) -> Result<Outcome, Failure> {
    let target = &arguments.timed.target;
    let SearchResult { found, source, compilation, sources } = result;
    let proved_optimal = prepared.is_proved(found, compilation);
    if let Some(path) = &arguments.output {
        write(path, source)?;
    }
    if target.format() != Format::Human {
        let objective = prepared.problem.objective;
        print(&Answer::json(&compilation.report, objective, elapsed, proved_optimal, Some(source))?)?;
        return Ok(outcome(compilation));
    }
    show_diagnostics(compilation, sources);
    match &arguments.output {
        Some(_) if !target.quiet => print_page(&table(&compilation.report, colours_out()))?,
        Some(_) => {}
        None => print(source)?,
    }
    if !target.quiet {
        print_error_page(&verdict(&prepared.problem, found, elapsed));
        if let Some(halves) = halves(&compilation.report.derived_costs, unit_of_times(&compilation.report)) {
            print_error_page(&format!("costs of `B` and `W` that were not given are derived from `BW`: {halves}\n"));
        }
    }
    Ok(outcome(compilation))
}
