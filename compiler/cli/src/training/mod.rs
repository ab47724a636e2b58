//! Training: drives a session step by step, saves and resumes it, and can be stopped.

pub mod progress;
pub mod summary;
pub mod trace_file;

use pipe_ir::program::{Body, Program};
use pipe_ir::value::ValueKind;
use pipe_runtime::checkpoint::{self, CheckpointError, State};
use pipe_runtime::session::{RunError, Session};
use pipe_runtime::trace::Step;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What to do beside running the steps.
pub struct Plan {
    /// Steps of the whole run, those before a resumption included.
    pub steps: u64,
    /// Folder of checkpoints; `None` saves nothing.
    pub checkpoints: Option<PathBuf>,
    /// Steps between two checkpoints; 0 saves at the end only.
    pub every: u64,
    /// Whether to keep what ran when.
    pub keep_trace: bool,
}

/// What came of a run.
pub struct Finished {
    /// First step that this run did; above 0 after a resumption.
    pub first_step: u64,
    /// Loss of each step done, where anything was computed.
    pub losses: Vec<f64>,
    /// Bubble of each step done, by makespan.
    pub bubbles: Vec<f64>,
    /// Busy share of each device over the steps done.
    pub busy: Vec<f64>,
    /// Instructions executed on all devices.
    pub instructions: u64,
    /// Time in steps.
    pub elapsed: Duration,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// The checkpoint written last.
    pub saved: Option<PathBuf>,
    /// The steps themselves, if they were to be kept.
    pub trace: Vec<Step>,
}

/// Why a run ended before its time.
#[derive(Debug)]
pub enum Failure {
    /// A device failed.
    Run(RunError),
    /// A checkpoint could not be written or read.
    Checkpoint(CheckpointError),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run(error) => error.fmt(f),
            Self::Checkpoint(error) => error.fmt(f),
        }
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
#[must_use]
pub fn is_computable(program: &Program) -> bool {
    !program.execs.iter().any(|exec| matches!(exec.body, Body::Abstract))
}

/// Elements of the data of one step: tokens, where the data are tokens.
#[must_use]
pub fn tokens_per_step(program: &Program) -> u64 {
    let data = program.values.iter().filter(|value| value.kind == ValueKind::Data);
    let largest = data.flat_map(|value| &value.tensors).map(|slot| slot.ty.elements()).max();
    largest.unwrap_or(0) * u64::from(program.n_microbatches)
}

/// Loads the newest checkpoint of a folder, or the one at a path, into a session. Returns the number of steps done.
///
/// # Errors
/// If there is none, it cannot be read, or it does not fit the program.
pub fn resume(session: &mut Session, from: &Path) -> Result<u64, Failure> {
    let path = if from.is_dir() { checkpoint::latest(from)? } else { Some(from.to_owned()) };
    let path = path.filter(|path| path.exists()).ok_or_else(|| {
        Failure::Run(RunError::State(format!("there is no checkpoint at {} to resume from", from.display())))
    })?;
    let state = checkpoint::load(&path)?;
    session.write(ValueKind::Parameters, &state.tensors)?;
    session.write(ValueKind::OptimizerState, &state.tensors)?;
    Ok(state.step)
}

/// Runs the remaining steps. `observe` sees each step with the loss and the time since the start of this run.
///
/// # Errors
/// If a device fails or a checkpoint cannot be written.
pub fn run(
    session: &mut Session,
    first_step: u64,
    plan: &Plan,
    stop: &AtomicBool,
    mut observe: impl FnMut(u64, Option<f64>, Duration),
) -> Result<Finished, Failure> {
    let mut tally = Tally::new(session.program());
    let mut saved = None;
    let start = Instant::now();
    let mut done = first_step;
    while done < plan.steps && !stop.load(Ordering::Relaxed) {
        let step = session.step(done)?;
        done += 1;
        tally.count(&step, session.program());
        observe(done, step.loss(), start.elapsed());
        if plan.keep_trace {
            tally.trace.push(step);
        }
        if plan.every > 0 && done.is_multiple_of(plan.every) && done < plan.steps {
            saved = save(session, done, plan.checkpoints.as_deref())?.or(saved);
        }
    }
    if done > first_step {
        saved = save(session, done, plan.checkpoints.as_deref())?.or(saved);
    }
    let interrupted = done < plan.steps;
    Ok(tally.finish(first_step, start.elapsed(), interrupted, saved))
}

fn save(session: &Session, step: u64, folder: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let Some(folder) = folder else { return Ok(None) };
    let mut tensors = session.read(ValueKind::Parameters);
    tensors.extend(session.read(ValueKind::OptimizerState));
    let seed = session.program().training.as_ref().map_or(0, |training| training.seed);
    Ok(Some(checkpoint::save(folder, &State { step, seed, tensors })?))
}

/// Sums over the steps of a run.
struct Tally {
    losses: Vec<f64>,
    bubbles: Vec<f64>,
    busy: Vec<f64>,
    extent: f64,
    instructions: u64,
    trace: Vec<Step>,
}

impl Tally {
    fn new(program: &Program) -> Self {
        Self {
            losses: Vec::new(),
            bubbles: Vec::new(),
            busy: vec![0.0; program.devices.len()],
            extent: 0.0,
            instructions: 0,
            trace: Vec::new(),
        }
    }

    fn count(&mut self, step: &Step, program: &Program) {
        self.losses.extend(step.loss());
        self.bubbles.push(step.bubble(program));
        self.extent += step.makespan(program).seconds();
        self.instructions += step.devices.iter().map(|device| device.instructions).sum::<u64>();
        for (busy, device) in self.busy.iter_mut().zip(&step.devices) {
            *busy += device.extent(program).busy.seconds();
        }
    }

    fn finish(self, first_step: u64, elapsed: Duration, interrupted: bool, saved: Option<PathBuf>) -> Finished {
        let extent = self.extent.max(f64::MIN_POSITIVE);
        Finished {
            first_step,
            losses: self.losses,
            bubbles: self.bubbles,
            busy: self.busy.into_iter().map(|busy| busy / extent).collect(),
            instructions: self.instructions,
            elapsed,
            interrupted,
            saved,
            trace: self.trace,
        }
    }
}
