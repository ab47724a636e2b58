//! `pipec diff TARGET TRACE`: where each millisecond went between the plan of a target and a measured trace of it.
//!
//! `read` takes the tasks out of a trace, `measured` lines them up with the target's tasks,
//! `refit` finds the costs that the run had, `parts` goes from the plan to the run step by step,
//! `losses` names tasks; `report` and `table` say it. `versions` are the timelines that `perfetto`
//! and the page draw above each other.

mod losses;
mod measured;
mod parts;
mod perfetto;
mod profile;
mod read;
mod refit;
pub(crate) mod report;
mod scale;
mod table;
mod versions;

use crate::Outcome;
use crate::commands::search::find::find;
use crate::commands::search::progress::{Team, improvements};
use crate::drawing::html::{self, Compared, Version};
use crate::input::stream::{self, MOST_TRACE};
use crate::input::{Format, TimedArguments, load, parse_seconds, whole_number};
use crate::output::findings::{check_names, json, reject, show_diagnostics};
use crate::output::{Failure, can_write, colours_out, form_of, print, print_page, write, write_with};
use losses::{critical, largest};
use measured::Measured;
use parts::{length, parts};
use pipe_compiler::analyze::Analysis;
use pipe_compiler::{Compilation, Request};
use pipe_model::pipeline::Pipeline;
use pipe_plot::{Moments, Picture};
use pipe_schedule::dispatch::Objective;
use pipe_search::Options;
use pipe_search::driver::alternatives::{Moves, SearchTarget};
use pipe_syntax::source::{Source, Sources};
use profile::File;
use read::read;
use refit::{Refit, refit};
use report::{BetterReport, DiffReport, SCHEMA};
use scale::{same_order, scaled};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;
use table::table;
use versions::{planned, ran};

const EXAMPLES: &str = "\
Examples:
  pipec run examples/shakespeare.pipe --steps 20 --trace run.trace.json
  pipec diff examples/shakespeare.pipe run.trace.json
  pipec diff examples/shakespeare.pipe run.trace.json --profile here.profile.json
  pipec diff examples/shakespeare.pipe run.trace.json -o both.html         # plan and run above each other, in a page
  pipec diff examples/shakespeare.pipe run.trace.json -o both.trace.json   # the same for Perfetto
  pipec diff examples/shakespeare.pipe run.trace.json --write-profile run.profile.json
  pipec diff examples/shakespeare.pipe run.trace.json --search 20 --write-schedule better.pipe

The first steps, at most two, are left out; --step looks at one alone. The plan is that of the order that ran.
Without a profile or cluster, the unit of its costs is taken for what gives it as much work as was measured.";

/// Arguments of `pipec diff`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    timed: TimedArguments,
    /// A trace of the target, as `pipec run TARGET --trace` writes it
    trace: PathBuf,
    /// Looks at this step alone, by its number in the trace
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(0..=u64::MAX))]
    step: Option<u64>,
    /// Looks for a shorter order under the refitted costs for so many seconds; 0 does not
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = parse_seconds)]
    search: f64,
    /// Writes plan and run of each device above each other: a page to look around in (.html) or a
    /// trace for Perfetto (.json)
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Writes the refitted costs to this file, as a profile
    #[arg(long, value_name = "PATH")]
    write_profile: Option<PathBuf>,
    /// Writes the schedule that the search found to this file
    #[arg(long, value_name = "PATH")]
    write_schedule: Option<PathBuf>,
}

/// Compares a target with its trace.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let target = &arguments.timed.target;
    let forms = [("html", Form::Page), ("json", Form::Trace)];
    let form = |path: &Path| form_of(path, &forms, "diff writes .html pages, and .json traces for Perfetto");
    let form = arguments.output.as_deref().map(form).transpose()?;
    for path in [&arguments.output, &arguments.write_profile, &arguments.write_schedule].into_iter().flatten() {
        can_write(path)?;
    }
    if let Some(message) = arguments.is_schedule() {
        return Err(Failure::Usage(message));
    }
    let file = stream::open(&arguments.trace.to_string_lossy(), MOST_TRACE).map_err(|error| arguments.failed(error))?;
    let (root, folder) = target.read()?;
    let request = match arguments.timed.request()? {
        Ok(request) => request,
        Err(rejected) => return arguments.refuse(&rejected.0, &rejected.1),
    };
    let mut compared = Comparison { arguments, root, folder, request, form, sources: Sources::default() };
    let (given, sources) = compared.compile(&compared.request);
    if given.analysis.is_none() {
        return arguments.refuse(&given, &sources);
    }
    compared.sources = sources;
    if let Some(schedule) = given.analysis.as_ref().map(|own| &own.schedule).filter(|own| !own.parts.is_empty()) {
        let message =
            format!("`{}` runs parts of stages, and `diff` compares whole ones: leave `parts` out", schedule.name);
        return reject(target.format(), SCHEMA, &message);
    }
    // Costs may reorder a schedule: a run knows none but those that it was given.
    let others = [target.request(), Request { costs: None, ..target.request() }];
    let others = others.iter().filter(|request| **request != compared.request);
    let all: Vec<Compilation> =
        std::iter::once(given).chain(others.map(|request| compared.compile(request).0)).collect();
    let candidates: Vec<(&Compilation, &Analysis)> =
        all.iter().filter_map(|one| Some((one, one.analysis.as_ref()?))).collect();
    let orders: Vec<&Analysis> = candidates.iter().map(|(_, analysis)| *analysis).collect();
    let name = arguments.trace.display();
    let trace = read(BufReader::with_capacity(1 << 16, file)).map_err(|wrong| format!("{name}: {wrong}"));
    let members = candidates[0].1.pipeline.as_ref().map_or(1, Pipeline::members);
    let lined_up = trace
        .map(|trace| trace.in_groups(orders[0].schedule.n_devices(), members))
        .and_then(|trace| Measured::new(&trace, arguments.step, &orders).map_err(|wrong| format!("{name}: {wrong}")));
    match lined_up {
        Ok((measured, place)) => {
            let (ordered, analysis) = candidates[place];
            compared.conclude(ordered, analysis, candidates[0].1, &measured)
        }
        Err(message) => reject(target.format(), SCHEMA, &message),
    }
}

impl Arguments {
    /// What to say where the trace is named like a schedule.
    fn is_schedule(&self) -> Option<String> {
        let (target, trace) = (&self.timed.target.target, self.trace.display().to_string());
        let is_schedule = trace.ends_with(".pipe") || trace.ends_with(".csv") || trace.starts_with("std:");
        is_schedule.then(|| {
            format!(
                "`diff` compares a plan with a measured trace; to compare two schedules, use \
                 `pipec check {target} {trace}` or `pipec plot {target} {trace} -o both.svg`"
            )
        })
    }

    fn failed(&self, error: std::io::Error) -> Failure {
        Failure::Io(self.trace.display().to_string(), error)
    }

    fn refuse(&self, compilation: &Compilation, sources: &Sources) -> Result<Outcome, Failure> {
        check_names(&compilation.diagnostics)?;
        show_diagnostics(compilation, sources);
        if self.timed.target.format() != Format::Human {
            print(&json(&compilation.report)?)?;
        }
        Ok(Outcome::Rejected)
    }
}

/// A target that is compared with a trace.
struct Comparison<'a> {
    arguments: &'a Arguments,
    root: Source,
    folder: PathBuf,
    request: Request,
    form: Option<Form>,
    /// The texts of the target.
    sources: Sources,
}

impl Comparison<'_> {
    fn compile(&self, request: &Request) -> (Compilation, Sources) {
        let mut sources = Sources::default();
        let loader = |path: &str| load(&self.folder, path);
        let compilation = pipe_compiler::compile(&mut sources, self.root.clone(), &loader, request);
        (compilation, sources)
    }

    /// Takes the difference apart and says it. The plan has the costs of what was given, and the order that ran.
    fn conclude(
        &self,
        ordered: &Compilation,
        analysis: &Analysis,
        given: &Analysis,
        measured: &Measured,
    ) -> Result<Outcome, Failure> {
        let arguments = self.arguments;
        let has_unit = self.request.profile.is_some() || self.request.cluster.is_some();
        let (scaled, unit) = scaled(&analysis.schedule, &given.costs, measured);
        let (plan, unit) = if has_unit { (given.costs.clone(), None) } else { (scaled, Some(unit)) };
        let refit = refit(analysis, measured, &plan);
        let parts = parts(analysis, &plan, &refit, measured);
        let mut report = DiffReport::new(analysis, &plan, &refit, measured, &parts);
        report.trace = arguments.trace.display().to_string();
        report.costs_from = self.costs_from();
        report.unit_ms = unit.map(|nanos| nanos / 1e6);
        let path = critical(analysis, &refit, measured, &parts.lateness);
        let run = ran(analysis, &refit, measured, &path);
        report.lose(analysis, &largest(path, 5));
        report.better = self.better(analysis, &refit, parts.refitted);
        match (&arguments.output, self.form) {
            (Some(file), Some(Form::Page)) => {
                page(file, ordered, ([&planned(analysis, &plan), &run], &self.sources), &report)?
            }
            (Some(file), _) => {
                let versions = [&planned(analysis, &plan), &planned(analysis, &refit.costs), &run];
                write_with(file, |out| perfetto::write(versions, out))?;
            }
            (None, _) => {}
        }
        if let Some(path) = &arguments.write_profile {
            // The program that ran may do both halves of a backward at once, and the profile is about each.
            let apart = self.compile(&Request { apart: true, ..self.request.clone() }).0;
            write(path, &json(&File::new(&report.target, apart.lowered(), &refit, measured))?)?;
        }
        let source = report.better.iter().find_map(|better| better.source.as_ref());
        self.write_schedule(source)?;
        if arguments.timed.target.format() != Format::Human {
            print(&json(&report)?)?;
        } else if !arguments.timed.target.quiet {
            let wrote = arguments.output.as_ref().map(|path| format!("\nwrote {}\n", path.display()));
            print_page(&(table(&report, colours_out()) + &wrote.unwrap_or_default()))?;
        }
        Ok(Outcome::Accepted)
    }

    /// What the times of the plan come from, in words.
    fn costs_from(&self) -> String {
        let Comparison { arguments: Arguments { timed, .. }, request, .. } = self;
        let named = [&timed.profile, &timed.cluster].into_iter().flatten().map(|path| path.display().to_string());
        let given = request.costs.as_ref().map(|_| "--cost".to_owned());
        let all: Vec<String> = given.into_iter().chain(named).collect();
        if all.is_empty() { "the target".to_owned() } else { all.join(", ") }
    }

    /// What other orders would take under the refitted costs.
    fn better(&self, analysis: &Analysis, refit: &Refit, refitted: u64) -> Vec<BetterReport> {
        let arguments = self.arguments;
        let request =
            Request { costs: Some(refit.stage_costs()), profile: None, cluster: None, ..self.request.clone() };
        let reordered = self.compile(&request).0.analysis.filter(|other| !same_order(analysis, other));
        let reordered = reordered.map(|other| BetterReport::new("reorder", length(&other.timeline), refitted));
        let found = if arguments.search > 0.0 { self.search(&request, refitted) } else { None };
        reordered.into_iter().chain(found).collect()
    }

    /// The shortest order that a search finds, if the target can be searched and one fits.
    fn search(&self, request: &Request, refitted: u64) -> Option<BetterReport> {
        let arguments = self.arguments;
        let loader = |path: &str| load(&self.folder, path);
        let team = Team::new(0, Duration::from_secs_f64(arguments.search));
        let may = Moves::default();
        let searched = SearchTarget { root: &self.root, loader: &loader, request, objective: Objective::Makespan, may };
        let mut prepared = searched.prepare(&mut Sources::default()).ok()?;
        let options = Options { objective: Objective::Makespan, seed: 1, rounds: 8 };
        let found = find(&searched, &mut prepared, options, &team, &improvements(true))?;
        let analysis = found.compilation.analysis.as_ref().filter(|_| found.compilation.report.ok)?;
        let better = BetterReport::new("search", length(&analysis.timeline), refitted);
        let proved_optimal = prepared.is_proved(&found.found, &found.compilation);
        Some(BetterReport { proved_optimal, source: Some(found.source), ..better })
    }

    fn write_schedule(&self, source: Option<&String>) -> Result<(), Failure> {
        let Some(path) = &self.arguments.write_schedule else { return Ok(()) };
        let missing =
            || Failure::Usage("no schedule was found to be written; allow more time with `--search`".to_owned());
        write(Path::new(path), source.ok_or_else(missing)?)
    }
}

/// What is written to a file.
#[derive(Clone, Copy)]
enum Form {
    Page,
    Trace,
}

/// The page of plan and run.
fn page(
    path: &Path,
    ordered: &Compilation,
    ([plan, run], sources): ([&Analysis; 2], &Sources),
    report: &DiffReport,
) -> Result<(), Failure> {
    let versions = [(plan, Moments::Placed), (run, Moments::Measured)];
    let mut pictures = Picture::versions(ordered, &versions, "ms");
    // The tasks of both are the same.
    if let Some(last) = pictures.last_mut() {
        last.tell_sources(&run.schedule, sources);
    }
    let names = ["plan", "run"].into_iter();
    let versions = names.zip(&pictures).map(|(name, picture)| Version { name, picture }).collect();
    let shown = html::Shown::Compared(&Compared { versions, diff: report });
    write_with(path, |out| html::write(&format!("{}: plan and run", report.target), &shown, out))
}
