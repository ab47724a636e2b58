//! Training: what `run` and `profile` share. It chooses what executes, opens data, and drives a run step by step.

pub(crate) mod backend;
mod bubble;
pub(crate) mod evaluation;
pub(crate) mod files;
pub(crate) mod log;
mod progress;
pub(crate) mod resumption;
pub(crate) mod trained;

use crate::output::{self, warn};
pub(crate) use bubble::{Bubble, BubbleParts};
use evaluation::Validator;
use log::{Figures, Log};
use pipe_compiler::analyze::Analysis;
use pipe_distributed::Job;
use pipe_ir::program::{Body, Program};
use pipe_ir::training::{Training, clip_scale};
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_model::symbolic::{FLOWING, SAVED};
use pipe_runtime::checkpoint::{self, CheckpointError, Home};
use pipe_runtime::data::Data;
use pipe_runtime::weights::WeightsError;
use pipe_runtime::{Backend, Options, Pace, Run, RunError, StepReport, Used};
use progress::Progress;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What to do beside running the steps.
pub(crate) struct Plan {
    /// Steps of the whole run, those before a resumption included.
    pub(crate) steps: u64,
    /// Folder of checkpoints; `None` saves nothing.
    pub(crate) checkpoints: Option<PathBuf>,
    /// Steps between two checkpoints; 0 saves at the end only.
    pub(crate) every: u64,
    /// Whether to keep what ran when.
    pub(crate) keep_trace: bool,
    /// Whether the devices compute, so that losses mean something.
    pub(crate) computes: bool,
    /// Of so many steps, the first one has tasks that share a GPU run one by one; 0 lets none.
    pub(crate) one_by_one: u64,
    /// Whether no progress is shown.
    pub(crate) quiet: bool,
    /// Where this process writes a row for each step; `None` nowhere.
    pub(crate) log: Option<PathBuf>,
}

/// What came of a run.
#[derive(Default)]
pub(crate) struct Finished {
    /// First step that this run did; above 0 after a resumption.
    pub(crate) first_step: u64,
    /// Steps that this run did.
    pub(crate) steps: u64,
    /// Loss of each step done, where anything was computed.
    pub(crate) losses: Vec<f64>,
    /// What the weights lost on data that they do not learn from, after some of the steps.
    pub(crate) validations: Vec<ValidationLoss>,
    /// Bubbles of each step done, by makespan; of each window, where steps run on.
    pub(crate) bubbles: Vec<Bubble>,
    /// Where they lie.
    pub(crate) parts: Vec<BubbleParts>,
    /// Busy share of each device over the steps done.
    pub(crate) busy: Vec<f64>,
    /// By device: the part of a step in which its GPU ran no task of any device, in the median.
    pub(crate) gpu_idle: Vec<f64>,
    /// By lane: seconds in tasks, and seconds of these in which the device also computes. Both are sums over all
    /// devices and steps.
    pub(crate) lanes: Vec<[f64; 2]>,
    /// Memory of each device.
    pub(crate) measured: Vec<MeasuredMemory>,
    /// Instructions executed on all devices.
    pub(crate) instructions: u64,
    /// How often gradients were clipped, where they are.
    pub(crate) clipped: Option<Clipped>,
    /// Time in steps.
    pub(crate) elapsed: Duration,
    /// Whether Ctrl-C ended it.
    pub(crate) interrupted: bool,
    /// The checkpoint written last.
    pub(crate) saved: Option<PathBuf>,
    /// The steps themselves, if they were to be kept.
    pub(crate) trace: Vec<StepReport>,
    /// Why the log ends early, if it does.
    pub(crate) log_failed: Option<output::Failure>,
}

/// How often gradients were clipped.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Clipped {
    /// The most that their norm may be.
    pub(crate) most: f64,
    /// In how many steps it was more.
    pub(crate) steps: u64,
    /// The largest norm.
    pub(crate) largest: f64,
}

/// What weights lost on data that they do not learn from.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct ValidationLoss {
    /// Steps done before.
    pub(crate) step: u64,
    /// Mean over these data.
    pub(crate) loss: f64,
}

/// Measured memory of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MeasuredMemory {
    /// Its own.
    pub(crate) device: Used,
    /// That of its host.
    pub(crate) host: Used,
}

/// Why a run ended before its time.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A device failed.
    Run(RunError),
    /// A checkpoint could not be written or read, or does not fit the program.
    Checkpoint(CheckpointError),
    /// Initial weights could not be read, or do not fit the program.
    Weights(WeightsError),
    /// The log cannot be written.
    Log(output::Failure),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run(error) => error.fmt(f),
            Self::Weights(error) => error.fmt(f),
            Self::Log(failure) => failure.fmt(f),
            Self::Checkpoint(error) => match resumption::accepted_by(error) {
                None => error.fmt(f),
                Some(options) => write!(f, "{error}: {options}"),
            },
        }
    }
}

impl From<WeightsError> for Failure {
    fn from(error: WeightsError) -> Self {
        Self::Weights(error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(error)
    }
}

/// Whether a program says how to compute, so that it can run on a device that does.
pub(crate) fn is_computable(program: &Program) -> bool {
    !program.execs.iter().any(|exec| matches!(exec.body, Body::Abstract))
}

/// Where the sizes of what a program holds come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sizes {
    /// A model.
    Model,
    /// Nothing: the target is a schedule alone, whose stages all hold the same placeholders.
    Placeholders,
    /// A program without tensor graphs, which states them.
    Program,
}

impl Sizes {
    /// Those of a program, and of the target that it was compiled from, if any.
    pub(crate) fn of(program: &Program, analysis: Option<&Analysis>) -> Self {
        match analysis {
            Some(analysis) if analysis.has_model() => Self::Model,
            Some(_) => Self::Placeholders,
            None if is_computable(program) => Self::Model,
            None => Self::Program,
        }
    }

    /// What is said of peaks that were counted as compiled.
    pub(crate) fn verdict(self, computes: bool) -> String {
        match self {
            Self::Model if computes => "measured peaks equal the predicted ones, to the byte".to_owned(),
            Self::Model => {
                "counted peaks equal the predicted ones, to the byte; the null device computes nothing".to_owned()
            }
            Self::Placeholders => format!(
                "no model: sizes are placeholders, {SAVED} saved by each forward and {FLOWING} sent; they say nothing of a real model"
            ),
            Self::Program => {
                "no tensor graphs: sizes are those that the program states; counted peaks equal the predicted ones"
                    .to_owned()
            }
        }
    }
}

/// The data of a program; its path is relative to the folder. An error says why it cannot run.
pub(crate) fn open(program: &Program, backend: Backend, folder: &Path) -> Result<Data, String> {
    if backend.computes() && !is_computable(program) {
        return Err("this program was compiled without a model: it runs on the null device only; a pipeline with a model runs on others".to_owned());
    }
    match backend {
        Backend::Null => Ok(Data::synthetic(program)),
        Backend::Cpu | Backend::Gpu(_) => Data::open(program, folder).map_err(|error| error.to_string()),
    }
}

/// The folder of the checkpoints of a pipeline, where no option names one.
pub(crate) fn folder(name: &str, training: Option<&Training>) -> PathBuf {
    let named = training.and_then(|training| training.checkpoint.as_ref());
    named.map_or_else(|| PathBuf::from("checkpoints").join(name), |checkpoint| PathBuf::from(&checkpoint.path))
}

/// Starts a run of a program, perhaps of one rank of a job. An error says why it cannot run.
pub(crate) fn start(
    program: &Arc<Verified>,
    data: Arc<Data>,
    options: &Options,
    job: Option<&Job>,
) -> Result<Run, RunError> {
    let seed = program.program().training.as_ref().map_or(0, |training| training.seed);
    let options = Options { seed, ..options.clone() };
    let program = Arc::clone(program);
    match job {
        None => Run::start(program, &options, data),
        Some(job) => Run::join(program, &options, data, job),
    }
}

/// Elements of the data of one step: tokens, where the data are tokens.
pub(crate) fn tokens_per_step(program: &Program) -> u64 {
    let data = program.values.iter().filter(|value| value.kind == ValueKind::Data);
    let largest = data.flat_map(|value| &value.tensors).map(|slot| slot.ty.elements()).max();
    largest.unwrap_or(0) * u64::from(program.microbatches_of_step())
}

/// Whether a run is to stop.
pub(crate) type Stop<'a> = dyn FnMut() -> Result<bool, RunError> + 'a;

/// What goes on beside the steps of a run.
pub(crate) struct Beside<'a> {
    /// Where it saves itself.
    pub(crate) home: Option<&'a Home>,
    /// What it is evaluated with.
    pub(crate) validator: Option<&'a mut Validator>,
    /// Whether it is to stop.
    pub(crate) stop: &'a mut Stop<'a>,
}

/// Runs the remaining steps, until it is to stop, and saves them at home. Fails if a device fails or a checkpoint
/// cannot be written.
pub(crate) fn train(
    run: &mut Run,
    first_step: u64,
    plan: &Plan,
    Beside { home, mut validator, stop }: Beside<'_>,
) -> Result<Finished, Failure> {
    let progress = Progress::new(run.program(), plan, first_step);
    let mut tally = Tally::new(run.program(), first_step);
    let tokens = if plan.computes { tokens_per_step(run.program()) } else { 0 };
    let open = |path: &PathBuf| Log::open(path, run.program(), first_step, tokens);
    let mut validated = None;
    let mut log = plan.log.as_ref().map(open).transpose().map_err(Failure::Log)?;
    let start = Instant::now();
    let stride = u64::from(run.program().n_steps);
    let mut done = first_step;
    while done < plan.steps && !stop()? {
        home.map_or(Ok(()), Home::is_own)?;
        let is_apart = plan.one_by_one > 0 && ((done - first_step) / stride).is_multiple_of(plan.one_by_one);
        let began = start.elapsed();
        let step = run.step_at(done, if is_apart { Pace::OneByOne } else { Pace::Usual })?;
        done += stride;
        let elapsed = start.elapsed();
        let losses = if plan.computes { step.step_losses(run.program()) } else { Vec::new() };
        let gradient_norm = if plan.computes { run.gradient_norm() } else { None };
        tally.count(&step, &losses);
        tally.clip(run.program(), gradient_norm);
        progress.step(done, losses.last().copied(), elapsed);
        if let Some(validator) = validator.as_mut().filter(|own| own.is_due(done, done - stride, plan.steps)) {
            let loss = validator.loss(run)?;
            progress.validation(done, loss);
            tally.run.validations.push(ValidationLoss { step: done, loss });
            validated = Some(loss);
        }
        let figures = Figures { elapsed, took: elapsed - began, gradient_norm, validation_loss: validated.take() };
        let written = log.as_mut().map(|log| log.write(done, stride, &losses, figures));
        if let Some(Err(failure)) = written {
            // What the run learns is worth more than its log.
            warn(&format!("the log ends before step {done}, and the run goes on: {failure}"));
            (tally.run.log_failed, log) = (Some(failure), None);
        }
        if plan.keep_trace {
            tally.run.trace.push(step);
        }
        if plan.every > 0 && done / plan.every > (done - stride) / plan.every && done < plan.steps {
            tally.save(run, done, home)?;
        }
    }
    if done > first_step {
        tally.save(run, done, home)?;
    }
    let (elapsed, interrupted) = (start.elapsed(), done < plan.steps);
    Ok(Finished { steps: done - first_step, elapsed, interrupted, ..tally.finish() })
}

/// Sums over the steps of a run.
struct Tally {
    run: Finished,
    /// By device, of each step.
    gpu_idle: Vec<Vec<f64>>,
    extent: f64,
}

impl Tally {
    fn new(program: &Program, first_step: u64) -> Self {
        let n_devices = program.devices.len();
        let (busy, measured) = (vec![0.0; n_devices], vec![MeasuredMemory::default(); n_devices]);
        let lanes = vec![[0.0; 2]; program.lanes.len()];
        let run = Finished { first_step, busy, lanes, measured, ..Finished::default() };
        Self { run, gpu_idle: vec![Vec::new(); n_devices], extent: 0.0 }
    }

    /// Counts a step whose gradients had a norm.
    fn clip(&mut self, program: &Program, norm: Option<f64>) {
        let most = program.training.as_ref().and_then(|training| training.clip_norm);
        let (Some(norm), Some(most)) = (norm, most) else { return };
        let clipped = self.run.clipped.get_or_insert(Clipped { most, steps: 0, largest: 0.0 });
        clipped.steps += u64::from(clip_scale(norm * norm, most) < 1.0);
        clipped.largest = clipped.largest.max(norm);
    }

    fn count(&mut self, step: &StepReport, losses: &[f64]) {
        self.run.losses.extend(losses);
        if step.is_timed() {
            let (bubble, parts) = bubble::measure(step);
            self.run.bubbles.push(bubble);
            self.run.parts.push(parts);
        }
        self.extent += step.makespan().seconds();
        for (at, device) in step.devices.iter().enumerate() {
            self.run.instructions += device.instructions;
            self.run.busy[at] += device.busy.seconds();
            for ([busy, hidden], lane) in self.run.lanes.iter_mut().zip(&device.lanes) {
                *busy += lane.busy.seconds();
                *hidden += lane.hidden.seconds();
            }
            if step.is_timed() {
                let gpu_busy = device.gpu_busy.seconds() / step.wall.seconds().max(f64::MIN_POSITIVE);
                self.gpu_idle[at].push(1.0 - gpu_busy);
            }
            let own = Used { peak: device.peak, high_water: device.high_water };
            self.run.measured[at] = MeasuredMemory { device: own, host: device.host };
        }
    }

    fn save(&mut self, run: &Run, step: u64, home: Option<&Home>) -> Result<(), CheckpointError> {
        if let Some(home) = home {
            self.run.saved = Some(checkpoint::write(run, step, home)?);
        }
        Ok(())
    }

    fn finish(mut self) -> Finished {
        let extent = self.extent.max(f64::MIN_POSITIVE);
        self.run.busy.iter_mut().for_each(|busy| *busy /= extent);
        self.run.gpu_idle = self.gpu_idle.iter().map(|idle| median(idle).unwrap_or_default()).collect();
        self.run
    }
}

/// The one in the middle.
pub(crate) fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}
