//! `pipec profile TARGET`: measures tasks and links on this machine, writes them as a profile, and compares what the profile predicts with the steps.

use super::check::{json, show_findings};
use crate::Outcome;
use crate::input::{Format, TargetArguments};
use crate::measuring::comparison::{Comparison, Measurement};
use crate::measuring::{self, Measured};
use crate::output::{Failure, can_write, complain, print, write};
use crate::training::progress::Progress;
use crate::training::{self, Plan};
use pipe_compiler::judge::Judged;
use pipe_compiler::profile::{Profile, SCHEMA, TaskTime};
use pipe_compiler::source::Source;
use pipe_compiler::timeline::Timeline;
use pipe_ir::task::TaskKind;
use pipe_ir::verify::Verified;
use pipe_runtime::{Backend, Options, Run, StepReport};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  pipec profile examples/shakespeare.pipe -o here.profile.json
  pipec check examples/shakespeare.pipe --profile here.profile.json
  pipec search examples/shakespeare.pipe --profile here.profile.json -o better.pipe

Every second step is measured for the profile; the others are what its prediction is compared with.
Without -o, the profile goes to standard output and the comparison to standard error.";

/// Arguments of `pipec profile`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Steps to measure (windows, where steps run on), after two that warm up; without it 20, and up to 1000 where steps are short
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=100_000))]
    steps: Option<u64>,
    /// Writes the profile to this file
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
}

/// Steps before those that count: caches and page tables fill.
const WARM_UP: u64 = 2;
/// Steps that are measured, unless it is said, and the time that they may take beyond the fewest.
const FEWEST: u64 = 20;
const MOST: u64 = 1000;
const ENOUGH_NANOS: u64 = 3_000_000_000;

/// The file: schema `pipec.profile/1`. All times are in nanoseconds.
#[derive(Serialize)]
struct File {
    schema: &'static str,
    /// Name of the pipeline.
    target: String,
    devices: usize,
    stages: usize,
    /// On what: always `cpu`.
    backend: &'static str,
    /// Threads that the machine runs at once.
    cores: usize,
    /// Steps that were measured for the profile.
    steps: usize,
    /// What those took, in the median: with the times below the timeline is as long.
    makespan_ns: u64,
    /// How long the timeline would be if tasks and transfers took what they took on average.
    plain_makespan_ns: u64,
    /// What a task waits for its input from another device.
    transfer_ns: u64,
    tasks: Vec<TaskTime>,
    #[serde(flatten)]
    machine: measuring::Machine,
    /// What the profile predicts against other steps than those that it is from.
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
}

impl File {
    /// When the tasks that were measured run, in the order in which they did, as `--profile` times them.
    fn predict(&self, judged: &Judged) -> Result<Timeline, String> {
        let text = json(self).map_err(|failure| failure.to_string())?;
        let profile = Profile::read(Source { name: "the profile".to_owned(), text });
        profile.map(|profile| judged.under(&profile.costs())).map_err(|wrong| wrong.0.message)
    }

    /// Stretches all times alike, so that the timeline is as long as the steps that were measured. Where devices share cores, a task
    /// takes less while few devices are busy than it takes on average, which no single time of a task can say.
    fn fit(&mut self, plain_makespan_ns: u64) {
        self.plain_makespan_ns = plain_makespan_ns;
        let (whole, part) = (u128::from(plain_makespan_ns.max(1)), u128::from(self.makespan_ns));
        let fitted = |ns: u64| u64::try_from((u128::from(ns) * part + whole / 2) / whole).unwrap_or(u64::MAX);
        let tasks = self.tasks.iter_mut().filter(|task| task.kind != TaskKind::Update);
        tasks.map(|task| &mut task.ns).chain([&mut self.transfer_ns]).for_each(|ns| *ns = fitted(*ns));
    }
}

/// Profiles a target.
///
/// # Errors
/// If the target or its data cannot be read, or the profile cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let target = &arguments.target;
    if let Some(path) = &arguments.output {
        can_write(path)?;
    }
    let (compilation, sources) = target.compile_program()?;
    show_findings(&compilation, &sources, target.format)?;
    let (Some(program), Some(judged)) = (compilation.program, compilation.judged) else {
        return Ok(Outcome::Rejected);
    };
    match arguments.measure(program, &judged) {
        Ok(file) => arguments.conclude(&file),
        Err(message) => {
            complain(&message);
            if target.format == Format::Json {
                print(&format!("{:#}\n", serde_json::json!({"schema": SCHEMA, "ok": false, "error": message})))?;
            }
            Ok(Outcome::Rejected)
        }
    }
}

impl Arguments {
    fn measure(&self, program: Verified, judged: &Judged) -> Result<File, String> {
        let options = Options { trace: true, ..Options::new(Backend::Cpu, 0) };
        let program = Arc::new(program);
        let data = training::open(program.program(), options.backend, &self.target.folder())?;
        let mut run = training::start(&program, data, &options, None).map_err(|error| error.to_string())?;
        let machine = measuring::machine(run.program()).map_err(|error| error.to_string())?;
        let window = u64::from(run.program().n_steps);
        let first = WARM_UP * window;
        let warm = self.train(&mut run, (0, first))?;
        let wall = warm.last().map_or(0, |step| step.wall.0).max(1);
        let steps = self.steps.unwrap_or_else(|| (ENOUGH_NANOS / wall).clamp(FEWEST, MOST));
        let trace = self.train(&mut run, (first, first + steps * window))?;
        let steps = || trace.iter();
        let profiled: Vec<&StepReport> = steps().step_by(2).collect();
        let Measured { tasks, transfer_ns } = measuring::tasks(run.program(), judged, &profiled, &machine);
        let mut file = File {
            schema: SCHEMA,
            target: run.program().name.clone(),
            devices: run.program().devices.len(),
            stages: run.program().n_stages as usize,
            backend: "cpu",
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            steps: profiled.len(),
            makespan_ns: Measurement::of(run.program(), &profiled).makespan,
            plain_makespan_ns: 0,
            transfer_ns,
            tasks,
            machine,
            comparison: None,
        };
        file.fit(file.predict(judged)?.makespan().0);
        let others: Vec<&StepReport> = steps().skip(1).step_by(2).collect();
        let measurement = Measurement::of(run.program(), &others);
        file.comparison = Some(Comparison::new((judged, &file.predict(judged)?), &file.tasks, &measurement));
        Ok(file)
    }

    /// Takes the steps from one number to below another.
    fn train(&self, run: &mut Run, (first, end): (u64, u64)) -> Result<Vec<StepReport>, String> {
        let plan = Plan { steps: end, checkpoints: None, every: 0, keep_trace: true, computes: true };
        let quiet = self.target.quiet || self.target.format == Format::Json;
        let window = u64::from(run.program().n_steps);
        let progress = Progress::new((first, end, window), training::tokens_per_step(run.program()), quiet);
        let finished = training::train(run, first, &plan, &mut || Ok(false), |done, loss, elapsed| {
            progress.step(done, loss, elapsed);
        });
        progress.finish();
        finished.map(|finished| finished.trace).map_err(|failure| failure.to_string())
    }

    /// Writes what was measured.
    fn conclude(&self, file: &File) -> Result<Outcome, Failure> {
        let text = json(file)?;
        if let Some(path) = &self.output {
            write(path, &text)?;
        }
        let table = file.comparison.as_ref().map(|comparison| comparison.table(file.cores)).unwrap_or_default();
        match (&self.output, self.target.format) {
            (_, Format::Json) => print(&text)?,
            (None, Format::Human) => {
                print(&text)?;
                if !self.target.quiet {
                    crate::output::print_error(&table);
                }
            }
            (Some(_), Format::Human) if self.target.quiet => {}
            (Some(path), Format::Human) => print(&format!("{table}\nwrote {}\n", path.display()))?,
        }
        Ok(Outcome::Accepted)
    }
}
