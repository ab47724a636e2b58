//! `pipec run TARGET`: compiles, then executes on this machine, and compares what it measures with what was predicted.

use crate::Outcome;
use crate::commands::check::show_findings;
use crate::commands::check_ir;
use crate::input::{Format, TargetArguments};
use crate::output::{Failure, can_write, complain, print, print_error, write};
use crate::training::progress::Progress;
use crate::training::resident::Watch;
use crate::training::summary::{Circumstances, SCHEMA, Summary};
use crate::training::{self, Finished, Plan, is_computable, tokens_per_step, trace_file};
use clap::ValueEnum;
use pipe_ir::program::Program;
use pipe_ir::verify::Verified;
use pipe_runtime::checkpoint;
use pipe_runtime::{Backend, Options, Run};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const EXAMPLES: &str = "\
Examples:
  pipec run examples/shakespeare.pipe
  pipec run examples/shakespeare.pipe --steps 20 --trace run.trace.json
  pipec run examples/shakespeare.pipe --resume
  pipec run std:zb_v --set devices=8 --set microbatches=64 --steps 100   # no model: counts on the null device

Ctrl-C ends the run after the step at hand, with a checkpoint.";

/// Arguments of `pipec run`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// What executes: `auto` is the CPU for a pipeline with a model, else the null device
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto)]
    backend: BackendChoice,
    /// Optimizer steps in all, instead of the pipeline's (1, or one window, where it names none)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Writes what ran when as trace-event JSON, for Perfetto
    #[arg(long, value_name = "PATH")]
    trace: Option<PathBuf>,
    /// Goes on from a checkpoint: the newest one of the pipeline, or a file or folder
    #[arg(long, value_name = "PATH", num_args = 0..=1)]
    resume: Option<Option<PathBuf>>,
    /// Folder of checkpoints, instead of the pipeline's (`checkpoints/<name>` where it names none)
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_checkpoint")]
    checkpoint: Option<PathBuf>,
    /// Saves nothing
    #[arg(long)]
    no_checkpoint: bool,
    /// Prints where the time of the CPU kernels went
    #[arg(long)]
    profile: bool,
    /// Delays every queue and instruction at random from this seed: results must not change
    #[arg(long, value_name = "SEED")]
    stress: Option<u64>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum BackendChoice {
    /// The best one that can run the program
    Auto,
    /// CPU threads, one per device
    Cpu,
    /// Counts bytes and instructions, computes nothing
    Null,
}

impl BackendChoice {
    fn resolve(self, program: &Program) -> Backend {
        match self {
            Self::Cpu => Backend::Cpu,
            Self::Null => Backend::Null,
            Self::Auto if is_computable(program) => Backend::Cpu,
            Self::Auto => Backend::Null,
        }
    }
}

/// Runs a target.
///
/// # Errors
/// If the target, its data or a checkpoint cannot be read, or a result cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let Some((program, predicted_bubble)) = arguments.compile()? else { return Ok(Outcome::Rejected) };
    if let Some(path) = &arguments.trace {
        // Better now than after the run.
        can_write(path)?;
    }
    let backend = arguments.backend.resolve(program.program());
    let plan = arguments.plan(program.program(), backend);
    if arguments.resume == Some(None) && plan.checkpoints.is_none() {
        let message = "this run has no folder of checkpoints: `--resume PATH` names one";
        return Err(Failure::Usage(message.to_owned()));
    }
    let window = u64::from(program.program().n_steps);
    if !plan.steps.is_multiple_of(window) {
        let steps = plan.steps;
        let message =
            format!("{steps} steps are not whole windows of {window} steps: `--set steps=K` says how long one is");
        return Err(Failure::Usage(message));
    }
    let memory = Watch::start();
    let mut run = match arguments.start(program, backend) {
        Ok(run) => run,
        Err(message) => return arguments.reject(&message),
    };
    let finished = match arguments.train(&mut run, &plan, backend) {
        Ok(finished) => finished,
        Err(failure) => return arguments.reject(&failure.to_string()),
    };
    if let Some(path) = &arguments.trace {
        let trace = trace_file::to_json(run.program(), &finished.trace);
        write(path, &trace.to_string())?;
    }
    let circumstances = Circumstances {
        program: run.program(),
        backend: backend_name(backend),
        predicted_bubble,
        tokens_per_step: tokens_per_step(run.program()),
        planned: plan.steps,
        resident: memory.and_then(|memory| memory.most()),
    };
    let summary = Summary::new(&circumstances, &finished);
    if arguments.target.format == Format::Json {
        let text = serde_json::to_string_pretty(&summary).map_err(|error| Failure::Usage(error.to_string()))?;
        print(&(text + "\n"))?;
    } else if !arguments.target.quiet {
        print(&summary.table())?;
        if arguments.profile {
            print(&format!("\n{}", run.profile()))?;
        }
    }
    Ok(if summary.ok { Outcome::Accepted } else { Outcome::Rejected })
}

fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::Null => "null",
        Backend::Cpu => "cpu",
    }
}

impl Arguments {
    /// Says why a run failed; programs get an object without figures.
    fn reject(&self, message: &str) -> Result<Outcome, Failure> {
        complain(message);
        if self.target.format == Format::Json {
            print(&format!("{:#}\n", serde_json::json!({"schema": SCHEMA, "ok": false, "error": message})))?;
        }
        Ok(Outcome::Rejected)
    }

    /// The program with the bubble that its timeline predicts; nothing if the target is rejected, which was then said.
    fn compile(&self) -> Result<Option<(Verified, Option<f64>)>, Failure> {
        let name = &self.target.target;
        if !name.ends_with(".ir") {
            let (compilation, sources) = self.target.compile_program()?;
            show_findings(&compilation, &sources, self.target.format)?;
            let bubble = compilation.report.figures.bubble_makespan;
            return Ok(compilation.program.map(|program| (program, bubble)));
        }
        let text = std::fs::read_to_string(name).map_err(|error| Failure::Io(name.clone(), error))?;
        if let Ok(program) = pipe_ir::text::check(&text) {
            return Ok(Some((program, None)));
        }
        check_ir::run(&self.target)?;
        Ok(None)
    }

    fn plan(&self, program: &Program, backend: Backend) -> Plan {
        let training = program.training.as_ref();
        let settings = training.and_then(|training| training.checkpoint.as_ref());
        let folder = || {
            let named = settings.map(|checkpoint| PathBuf::from(&checkpoint.path));
            named.unwrap_or_else(|| PathBuf::from("checkpoints").join(&program.name))
        };
        let saves = !self.no_checkpoint && backend == Backend::Cpu && training.is_some();
        Plan {
            steps: self
                .steps
                .unwrap_or_else(|| training.map_or(u64::from(program.n_steps), |training| u64::from(training.steps))),
            checkpoints: saves.then(|| self.checkpoint.clone().unwrap_or_else(folder)),
            every: settings.map_or(0, |checkpoint| u64::from(checkpoint.every)),
            keep_trace: self.trace.is_some(),
            computes: backend == Backend::Cpu,
        }
    }

    fn start(&self, program: Verified, backend: Backend) -> Result<Run, String> {
        let options = Options {
            stress: self.stress,
            trace: self.trace.is_some(),
            profile: self.profile,
            ..Options::new(backend, 0)
        };
        training::start(program, &options, &self.target.folder())
    }

    fn train(&self, run: &mut Run, plan: &Plan, backend: Backend) -> Result<Finished, training::Failure> {
        let first_step = match &self.resume {
            None => 0,
            Some(from) => {
                let from = from.clone().or_else(|| plan.checkpoints.clone()).unwrap_or_default();
                checkpoint::resume(run, &from)?
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        stop_on_signal(&stop);
        let tokens = if backend == Backend::Cpu { tokens_per_step(run.program()) } else { 0 };
        let quiet = self.target.quiet || self.target.format == Format::Json;
        let stride = u64::from(run.program().n_steps);
        let progress = Progress::new((first_step, plan.steps, stride), tokens, quiet);
        let finished = training::train(run, first_step, plan, &stop, |done, loss, elapsed| {
            progress.step(done, loss, elapsed);
        });
        progress.finish();
        finished
    }
}

/// The first Ctrl-C (or a request to terminate) asks the run to stop after its step; the second one ends the process.
fn stop_on_signal(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    let handler = move || {
        if stop.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        print_error("\nstopping after this step; once more to stop at once\n");
    };
    // Without a handler Ctrl-C still ends the run, only without its checkpoint.
    if let Err(error) = ctrlc::set_handler(handler) {
        complain(&format!("Ctrl-C will not save a checkpoint: {error}"));
    }
}
