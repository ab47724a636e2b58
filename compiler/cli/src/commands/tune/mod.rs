//! `pipec tune TARGET --cluster x.toml`: finds the layout, schedule and settings with which a model
//! takes the shortest steps and fits.

mod improve;
mod table;

use crate::Outcome;
use crate::commands::search::progress::{Shown, Team};
use crate::input::{self, Format, TargetArguments};
use crate::output::figures::{bytes, duration};
use crate::output::findings::{check_names, json, show};
use crate::output::{Failure, can_write, colours_out, print, print_error_page, print_page, write};
use improve::improve;
use pipe_compiler::cluster::unmodelled;
use pipe_compiler::report::{Finding, Report};
use pipe_ir::units::Bytes;
use pipe_schedule::policy::offload::Wanted;
use pipe_schedule::units::Ticks;
use pipe_search::Workers;
use pipe_search::tune::report::TuneReport;
use pipe_search::tune::{
    Candidate, FOUND, LEFT_OUT, Problem, TuneProgress, TuneRequest, TuneResult, analysis, problem, space, tune,
};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Sources;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use table::table;

/// Time between two lines of progress where standard error is no terminal.
const PAUSE: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  pipec tune examples/llama3_70b.pipe --cluster examples/cluster.toml
  pipec tune examples/llama3_70b.pipe --cluster examples/cluster.toml -o best.pipe
  pipec tune examples/llama3_70b.pipe --cluster examples/cluster.toml --set tensor=8 --set zero=1
  pipec tune examples/llama3_70b.pipe --cluster examples/cluster.toml --batch 512 --schedules 1f1b,zb_v
  pipec tune examples/llama3_70b.pipe --cluster examples/cluster.toml --may-offload
  pipec tune examples/llama3_70b.pipe --cluster examples/cluster.toml --profile measured.profile.json
  pipec check best.pipe --cluster examples/cluster.toml

The target is a pipeline whose model comes from a `config.json`. Its rows of a step stay; how they and the model are divided is tried.
--set holds a setting fast: devices, tensor, data, expert, rows, recompute (0 none, 1 selective, 2 full), zero, sequence_parallel.
Standard output is the table of the best; -o writes the source of the first one, which `check`, `plot` and `search` take.";

/// Arguments of `pipec tune`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Machines to run on: all of their devices are used
    #[arg(long, value_name = "PATH")]
    cluster: PathBuf,
    /// The cluster's devices compute at the rates of this profile, whatever layout or model it was measured with
    #[arg(long, visible_alias = "rates", value_name = "PATH")]
    profile: Option<PathBuf>,
    /// Rows of a step over all pipelines; those of the target, unless said
    #[arg(long, value_name = "ROWS", value_parser = input::whole_number::<u64>(1..=1 << 32))]
    batch: Option<u64>,
    /// Only these standard schedules, as in `1f1b,zb_v`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    schedules: Vec<String>,
    /// Also tries state that lives with the hosts, where it does not fit otherwise
    #[arg(long)]
    may_offload: bool,
    /// How many of the best are shown
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = input::whole_number::<u16>(1..=1000))]
    best: u16,
    /// Stops after this many seconds, with the best so far
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, value_parser = input::parse_seconds)]
    time: f64,
    /// Then looks for shorter orders for the best of the first three layouts, for so many seconds in all
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0, hide_default_value = true, value_parser = input::parse_seconds)]
    search: f64,
    /// Where random choices of --search come from
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = input::whole_number::<u64>(0..=u64::MAX))]
    seed: u64,
    /// Threads; the result does not depend on their number, as long as there is time
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = input::whole_number::<usize>(0..=u64::MAX))]
    jobs: usize,
    /// Writes the source of the best to this file, and the model's `config.json` beside it where it is not there
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
}

/// Tunes.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    arguments.check()?;
    let target = &arguments.target;
    let (root, folder) = target.read()?;
    let team = Team::new(arguments.jobs, Duration::from_secs_f64(arguments.time));
    let mut sources = Sources::default();
    let cluster = match input::cluster(&arguments.cluster, arguments.profile.as_deref())? {
        Ok(cluster) => cluster,
        Err(wrong) => return arguments.reject(&wrong.0, &wrong.1),
    };
    let request = pipe_compiler::Request { cluster: Some(cluster), ..target.request() };
    let loader = |path: &str| input::load(&folder, path);
    let asked = arguments.asked();
    let mut problem = match problem(&mut sources, root, &loader, &request, asked) {
        Ok(problem) => problem,
        Err(found) => return arguments.reject(&found, &sources),
    };
    if let Some(path) = &arguments.output {
        arguments.apart(path, &problem, &folder)?;
        beside(path, &problem, &folder)?;
        if let Some(trained) = &mut problem.trained {
            trained.folder = seen_from(path, &folder);
        }
    }
    let warnings: Diagnostics = unmodelled::warning(&problem.transformer, problem.cluster.name()).into_iter().collect();
    let space = space(&problem);
    let mut report = TuneReport::new(&target.target);
    report.describe(&problem, &space);
    let shown = Shown::new("", PAUSE, target.quiet || target.format() == Format::Json);
    let mut show = |progress: &TuneProgress<'_>| shown.show(looked_at(progress), team.elapsed());
    let found = tune(&problem, &space, arguments.best.into(), &team, &mut show);
    shown.finish();
    let reports = reports(&problem, &found, &team)?;
    report.fill(&problem, &found, &reports);
    report.seconds = team.elapsed().as_secs_f64();
    if found.best.is_empty() {
        let error = nothing_fits(&problem, &found, space.layouts.is_empty());
        report.diagnostics = vec![Finding::new(&error, &sources)];
        return arguments.conclude(&report, &[error], &sources).map(|()| Outcome::Rejected);
    }
    report.diagnostics = warnings.iter().map(|one| Finding::new(one, &sources)).collect();
    report.source = found.best.first().map(|(candidate, _)| arguments.source(&problem, candidate, &report));
    arguments.improve(&problem, &found, &mut report, &team);
    if let (Some(path), Some(source)) = (&arguments.output, &report.source) {
        write(path, source)?;
        if let Some(config) = beside(path, &problem, &folder)? {
            write(&config, problem.config())?;
        }
    }
    arguments.conclude(&report, &warnings, &sources).map(|()| Outcome::Accepted)
}

/// Where the model's `config.json` has to lie so that a source in another folder finds it; none where it lies there.
/// Fails if another file is there.
fn beside(path: &Path, problem: &Problem, folder: &Path) -> Result<Option<PathBuf>, Failure> {
    let name = &problem.transformer.config.path;
    let own = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    let wanted = own.join(name);
    if folder.join(name) == wanted {
        return Ok(None);
    }
    match std::fs::read_to_string(&wanted) {
        Ok(text) if text.trim_start_matches('\u{feff}') == problem.config() => Ok(None),
        Ok(_) => {
            let message =
                format!("{} is another file than the target's; write the source to another folder", wanted.display());
            Err(Failure::Usage(message))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            can_write(&wanted)?;
            Ok(Some(wanted))
        }
        Err(error) => Err(Failure::Io(wanted.display().to_string(), error)),
    }
}

/// The path of a folder from the folder of a file, with a `/` behind it: empty if both are the same, absolute if it
/// lies elsewhere.
fn seen_from(file: &Path, folder: &Path) -> String {
    // The empty path is the working directory.
    let absolute = |path: &Path| std::path::absolute(Path::new(".").join(path)).unwrap_or_else(|_| path.to_owned());
    let (own, other) = (absolute(file.parent().unwrap_or(Path::new(""))), absolute(folder));
    let seen = other.strip_prefix(&own).unwrap_or(&other);
    if seen.as_os_str().is_empty() {
        String::new()
    } else {
        format!("{}/", seen.display().to_string().trim_end_matches('/'))
    }
}

fn milliseconds(time: Ticks) -> f64 {
    time.0 as f64 / Ticks::UNIT.0 as f64
}

/// What was looked at so far, and the best of it.
fn looked_at(progress: &TuneProgress<'_>) -> String {
    let best = |(candidate, time): (&Candidate, _)| {
        format!("best {}, {}", duration(milliseconds(time)), candidate.variant.call())
    };
    let best = progress.best.map_or_else(|| "nothing fits yet".to_owned(), best);
    let TuneProgress { counts, found, bound, .. } = progress;
    let (bounded, timed) = (counts.bounded, counts.timed);
    format!(
        "{bounded} bounded, {timed} timed, {found} settled; {best}; nothing is below {}",
        duration(milliseconds(*bound))
    )
}

/// What the compiler says of the sources of the best.
fn reports(problem: &Problem, found: &TuneResult, team: &Team) -> Result<Vec<Report>, Failure> {
    let slots: Vec<Mutex<Option<Report>>> = found.best.iter().map(|_| Mutex::new(None)).collect();
    team.each(slots.len(), &|index| {
        let (candidate, _) = &found.best[index];
        let (compilation, _) = analysis(problem, &candidate.source(problem, ""), "tuned.pipe");
        *slots[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(compilation.report);
    });
    let mut all = Vec::new();
    for (slot, (candidate, taken)) in slots.into_iter().zip(&found.best) {
        let report = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
        let report = report.unwrap_or_else(|| Report::new("tuned.pipe"));
        let peak = report.per_device.iter().filter_map(|row| row.peak_bytes).max();
        if !report.ok || peak != Some(taken.bytes.0) {
            let source = candidate.source(problem, "");
            return Err(Failure::Bug(format!("recompiling the emitted schedule gives a different result\n{source}")));
        }
        all.push(report);
    }
    Ok(all)
}

/// Why there is no result.
fn nothing_fits(problem: &Problem, found: &TuneResult, is_empty: bool) -> Diagnostic {
    let (name, limit, cluster) = (&problem.name, problem.limit, problem.cluster.name());
    let error = |label: &str, message: String| Diagnostic::error(Code::CannotTune, problem.span, label, message);
    if is_empty {
        let device_slots = problem.cluster.n_device_slots();
        let message =
            format!("no layout divides `{name}` among the {device_slots} devices of `{cluster}` as it is asked for");
        return error("to be divided", message).help("hold fewer settings fast, or choose another number of rows");
    }
    if !found.is_complete {
        let message = format!("nothing that fits was found for `{name}`, and not everything was tried");
        return error("to be divided", message)
            .help("allow more by `--time`, or say the order of nodes by `nodes = [..]`");
    }
    let host = problem.cluster.host_of_device().unwrap_or_default();
    if let Some(one) = found.misfits.iter().filter(|one| one.taken.bytes <= limit).min_by_key(|one| one.taken.host) {
        let needed = one.taken.host;
        let message = format!(
            "no layout of `{name}` fits: the least takes {needed} of a host for each device, and there are {host}"
        );
        return Diagnostic::error(Code::MemoryExceeded, problem.span, "to be divided", message)
            .help("use more devices, or hosts with more memory");
    }
    let least = found.misfits.first().map(|one| (one.taken.bytes, format!(" on {}", one.taken.device)));
    let least = least.or(found.least_held.map(|bytes| (bytes, " for its state and a single microbatch".to_owned())));
    let Some((bytes, place)) = least else {
        let message = format!("no schedule that is tried takes any layout of `{name}`");
        return error("to be divided", message).help("allow more schedules, or choose another number of rows");
    };
    let missing = Bytes(bytes.0.saturating_sub(limit.0));
    let message = format!("no layout of `{name}` fits: the least takes {bytes}{place}, and devices have {limit}");
    let hosts = if problem.may_offload { "" } else { "; `--may-offload` lets state live with the hosts" };
    Diagnostic::error(Code::MemoryExceeded, problem.span, "to be divided", message)
        .help(format!("{missing} are missing: use more devices, or devices with more memory{hosts}"))
}

impl Arguments {
    /// Options that cannot be taken.
    fn check(&self) -> Result<(), Failure> {
        if let Some(path) = &self.output {
            can_write(path)?;
        }
        if self.target.recompute.is_some() {
            let message = "`--recompute` names stages, and their number is tuned; `--set recompute=2` keeps the inputs of layers only";
            return Err(Failure::Usage(message.to_owned()));
        }
        if self.target.offload.is_some_and(Wanted::any) {
            let message =
                "`--offload` has no part in tuning: what lives with the hosts is found, given `--may-offload`";
            return Err(Failure::Usage(message.to_owned()));
        }
        for name in &self.schedules {
            input::standard(name)?;
            if let Some((_, reason)) = LEFT_OUT.iter().find(|(other, _)| other == name) {
                return Err(Failure::Usage(format!("`{name}` is not tried: {reason}")));
            }
        }
        Ok(())
    }

    /// Fails if what is to be written would replace what is read, or would not find what it imports.
    fn apart(&self, path: &Path, problem: &Problem, folder: &Path) -> Result<(), Failure> {
        let config = folder.join(&problem.transformer.config.path);
        let own = [Path::new(&self.target.target), &config, &self.cluster];
        let whole = |path: &Path| path.canonicalize().ok();
        let is_read = |other: &Path| whole(path).is_some_and(|path| whole(other) == Some(path));
        if let Some(other) = own.into_iter().chain(self.profile.as_deref()).find(|other| is_read(other)) {
            let message =
                format!("`-o {}` would replace {}, which is read: name another file", path.display(), other.display());
            return Err(Failure::Usage(message));
        }
        let imported = problem.read.keys().find(|name| **name != problem.transformer.config.path);
        if let Some(name) = imported.filter(|_| !seen_from(path, folder).is_empty()) {
            let message = format!(
                "the target imports `{name}`, which is not beside `{}`: write to the target's folder",
                path.display()
            );
            return Err(Failure::Usage(message));
        }
        Ok(())
    }

    /// What is asked for, beside the target.
    fn asked(&self) -> TuneRequest {
        TuneRequest { batch: self.batch, schedules: self.schedules.clone(), may_offload: self.may_offload }
    }

    /// Looks for shorter orders. One that is shorter than the first row takes its place in what is written.
    fn improve(&self, problem: &Problem, found: &TuneResult, report: &mut TuneReport, team: &Team) {
        if self.search == 0.0 {
            return;
        }
        let quiet = self.target.quiet || self.target.format() == Format::Json;
        let time = Duration::from_secs_f64(self.search);
        let mut shortest = report.best.first().map_or(f64::INFINITY, |best| best.step);
        for one in improve(problem, found, self.seed, time, team, quiet) {
            if one.report.step < shortest {
                (shortest, report.source) = (one.report.step, Some(one.source));
            }
            report.searched.push(one.report);
        }
        report.seconds = team.elapsed().as_secs_f64();
    }

    fn reject(&self, found: &Diagnostics, sources: &Sources) -> Result<Outcome, Failure> {
        check_names(found)?;
        let mut report = TuneReport::new(&self.target.target);
        report.diagnostics = found.iter().map(|one| Finding::new(one, sources)).collect();
        if self.target.format() == Format::Human {
            show(found, sources);
        } else {
            print(&json(&report)?)?;
        }
        Ok(Outcome::Rejected)
    }

    /// The best as a source that says where it comes from.
    fn source(&self, problem: &Problem, candidate: &Candidate, report: &TuneReport) -> String {
        let Some(best) = report.best.first() else { return String::new() };
        let cluster = self.cluster.display();
        let file = self.output.as_ref().map_or_else(|| "best.pipe".to_owned(), |path| path.display().to_string());
        let rates = self.profile.as_ref().map_or_else(String::new, |path| format!(" --rates {}", path.display()));
        let comment = format!(
            "{FOUND} for {cluster}: a step of {} rows takes {}, and {} holds {} of {}.\n\n    pipec check {file} --cluster {cluster}{rates}",
            problem.batch,
            duration(best.step),
            format_args!("d{}", best.device),
            bytes(best.peak_bytes),
            bytes(problem.limit.0)
        );
        candidate.source(problem, &comment)
    }

    fn conclude(&self, report: &TuneReport, found: &[Diagnostic], sources: &Sources) -> Result<(), Failure> {
        if self.target.format() == Format::Json {
            return print(&json(report)?);
        }
        show(found, sources);
        if self.target.quiet {
            return Ok(());
        }
        print_page(&table(report, colours_out()))?;
        match &self.output {
            Some(path) if report.ok => print_error_page(&format!("wrote {}\n", path.display())),
            _ => {}
        }
        Ok(())
    }
}
