//! `pipec run TARGET`: compiles, then executes on this machine, and compares what it measures with what was predicted.

mod curve;
mod ownership;
mod resident;
mod stop;
pub(crate) mod summary;
mod validation;

use crate::Outcome;
use crate::commands::check;
use crate::input::stream::{MOST_INSTRUCTIONS, whole_text};
use crate::input::{Format, TargetArguments, TimedArguments, whole_number};
use crate::output::{Failure, can_write, print, print_page, warn, write_with};
use crate::ranks::agreement::of_option;
use crate::ranks::lost::{Origins, ProgramSource};
use crate::ranks::session::Session;
use crate::ranks::{self, RankArguments};
use crate::trace::{self, run::TracedRun};
use crate::training::backend::{self, BackendChoice, Products};
use crate::training::evaluation::Validator;
use crate::training::resumption::ResumeArguments;
use crate::training::{self, Beside, Bubble, Finished, Plan, Sizes, Stop, tokens_per_step};
use crate::training::{files, log};
use pipe_compiler::analyze::Analysis;
use pipe_compiler::report::lanes::{LaneReport, carriage};
use pipe_compiler::report::{bubble_of, mean_bubble_of};
use pipe_ir::digest::Digest;
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use pipe_ir::text;
use pipe_ir::verify::Verified;
use pipe_runtime::checkpoint::Home;
use pipe_runtime::data::Data;
use pipe_runtime::weights;
use pipe_runtime::{Backend, Options, Run, RunError, UsedGpu};
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::sharing::Sharing;
use pipe_schedule::timing::timeline::{Timeline, simulate};
use resident::{Resident, Watch};
use std::path::PathBuf;
use std::sync::Arc;
use stop::stop_on_signal;
use summary::{Circumstances, SCHEMA, Summary};

const EXAMPLES: &str = "\
Examples:
  pipec run examples/shakespeare.pipe
  pipec run examples/shakespeare.pipe --steps 20 --trace run.trace.json
  pipec run examples/shakespeare.pipe --resume
  pipec run examples/shakespeare.pipe --log run.csv   # a row for each step; also run.jsonl
  torchrun --no-python --nproc-per-node 4 pipec run x.pipe   # a process and a GPU per device
  srun -n 16 --gpus-per-task 1 pipec run x.pipe              # the same on hosts that Slurm gives
  pipec run best.pipe --cluster machines.toml   # what `pipec tune --cluster machines.toml -o best.pipe` wrote
  mpirun -n 4 pipec run examples/shakespeare.pipe   # a process per device, on one host or several
  pipec run std:zb_v --devices 8 --microbatches 64 --steps 100   # no model: counts on the null device
  pipec build x.pipe -o x.ir && pipec run x.ir   # a program that was built before

Ctrl-C ends the run after the step at hand, with a checkpoint.";

/// Arguments of `pipec run`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// What executes: `auto` is the GPUs of the machine (under `torchrun`, `srun` or `mpirun`, if
    /// each process has one), or else the CPU, for a pipeline with a model, and the null device
    /// without one
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto)]
    backend: BackendChoice,
    /// Optimizer steps in all, instead of the pipeline's (1, or one window, where it names none)
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(1..=u64::MAX))]
    steps: Option<u64>,
    /// Compiles for these machines, as `pipec check --cluster` does: of what `pipec tune` wrote, the program that it
    /// chose
    #[arg(long, value_name = "PATH")]
    cluster: Option<PathBuf>,
    /// Writes what ran when as trace-event JSON, for Perfetto
    #[arg(long, value_name = "PATH")]
    trace: Option<PathBuf>,
    /// Writes a row for each step as it is done: loss, learning rate, tokens and seconds so far, tokens per second.
    /// The ending says how: `run.csv`, or `run.jsonl` for lines of JSON. With `--resume`, rows of the steps that are
    /// done again are replaced
    #[arg(long, value_name = "PATH")]
    log: Option<PathBuf>,
    #[command(flatten)]
    resume: ResumeArguments,
    /// Folder of checkpoints, instead of the pipeline's (`checkpoints/<name>` where it names none)
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_checkpoint")]
    checkpoint: Option<PathBuf>,
    /// Disable checkpoints
    #[arg(long)]
    no_checkpoint: bool,
    /// How GPUs multiply matrices of single precision
    #[arg(long, value_enum, default_value_t = Products::Fp32)]
    products: Products,
    /// GPUs are asked for every call of every step, instead of once for a captured graph of the step
    #[arg(long)]
    no_capture: bool,
    /// GPUs multiply by kernels of pipec alone, also where cuBLASLt is found
    #[arg(long)]
    no_cublas: bool,
    /// Prints where the time of the kernels went
    #[arg(long)]
    profile: bool,
    #[command(flatten)]
    ranks: RankArguments,
    /// Delays every queue and instruction at random from this seed: results must not change
    #[arg(long, value_name = "SEED", value_parser = whole_number::<u64>(0..=u64::MAX))]
    stress: Option<u64>,
}

/// What is to run, and how.
struct Prepared {
    program: Arc<Verified>,
    /// What its instructions come from.
    written: ProgramSource,
    /// When its tasks run, unless it was given as instructions.
    analysis: Option<Analysis>,
    backend: Backend,
    plan: Plan,
    data: Data,
    validator: Option<Validator>,
}

/// Runs a target. Fails if the target, its data or a checkpoint cannot be read, or a result cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let Arguments { ranks, target, backend, .. } = arguments;
    ranks::enter(ranks, target, *backend, SCHEMA, |session| arguments.execute(session))
}

/// The bubbles that are predicted, where devices share these GPUs.
fn bubble(analysis: &Analysis, gpus: &[UsedGpu]) -> Bubble {
    let n_devices = analysis.schedule.n_devices();
    let of = |timeline: &Timeline| Bubble {
        mean: mean_bubble_of(timeline, n_devices),
        busiest: bubble_of(timeline, n_devices),
    };
    let processors: Vec<_> = gpus.iter().map(|gpu| (gpu.devices.clone(), 1)).collect();
    let sharing = Sharing::new(&processors).unwrap_or_default();
    if !sharing.binds(analysis.schedule.n_devices()) {
        return of(&analysis.timeline);
    }
    let costs = Costs { sharing, ..analysis.costs.clone() };
    of(&simulate(&analysis.schedule, &analysis.order, &costs))
}

/// By lane: the predicted share of its time, over all devices, in which these also compute.
fn hidden(analysis: &Analysis) -> Vec<Option<f64>> {
    let schedule = &analysis.schedule;
    let (devices, carriage) = ((0..schedule.n_devices()).map(DeviceId::from_index), carriage(&analysis.timeline));
    let reports: Vec<LaneReport> =
        devices.flat_map(|device| LaneReport::all(schedule, &analysis.timeline, &carriage, device)).collect();
    let of = |lane: &Arc<str>| {
        let own = || reports.iter().filter(|report| *report.lane == **lane);
        summary::share(own().map(|report| report.hidden).sum(), own().map(|report| report.busy).sum())
    };
    schedule.parts.lanes().iter().map(of).collect()
}

impl Arguments {
    fn execute(&self, session: &Session<'_>) -> Result<Outcome, Failure> {
        let prepared = session.agree(self.prepare(session), |prepared| self.digests(prepared))?;
        let Some(Prepared { program, written, analysis, mut backend, plan, data, mut validator }) = prepared else {
            return Ok(Outcome::Rejected);
        };
        session.begin(Origins { program: Arc::clone(&program), written }, backend);
        let memory = Watch::start();
        // Launchers ask all ranks to end as soon as one has ended: those that are left stay to say which one that is,
        // also while they join each other.
        let stop = session.job().map(|job| stop_on_signal(Some(job)));
        let execute = || {
            let home = ownership::take(plan.checkpoints.as_deref(), session)?;
            let mut run = self.start(&program, &mut backend, data, session)?;
            run.notes()?.iter().for_each(|note| warn(note));
            let mut stop = stop.unwrap_or_else(|| stop_on_signal(None));
            let finished = self.train(&mut run, &plan, (home, validator.as_mut(), &mut stop), session)?;
            // Whether a graph can be launched is found out in the first step.
            run.notes()?.iter().for_each(|note| warn(note));
            let kernels = if self.profile { Some(run.whole_profile()?) } else { None };
            Ok::<_, training::Failure>((finished, kernels, run.gpus()?))
        };
        let finished = execute();
        let (finished, kernels, gpus) = match finished {
            Ok(finished) => finished,
            Err(failure) => return session.fail(&session.told(&failure)),
        };
        let resident = memory.and_then(|memory| memory.most());
        let resident = Resident::most(resident, program.program(), backend, session.job());
        let resident = resident.map_err(|error| Failure::Usage(error.to_string()))?;
        if !session.speaks() {
            return Ok(Outcome::Accepted);
        }
        let circumstances = Circumstances {
            program: program.program(),
            backend: backend::name(backend),
            sizes: Sizes::of(program.program(), analysis.as_ref()),
            predicted_hidden: analysis.as_ref().map(hidden).unwrap_or_default(),
            predicted_bubble: analysis.map(|analysis| bubble(&analysis, &gpus)),
            gpus,
            kernels,
            tokens_per_step: tokens_per_step(program.program()),
            planned: plan.steps,
            n_ranks: session.n_ranks(),
            resident,
        };
        self.conclude(&circumstances, finished)
    }

    /// Writes and says what came of a run.
    fn conclude(&self, circumstances: &Circumstances<'_>, finished: Finished) -> Result<Outcome, Failure> {
        let summary = Summary::new(circumstances, &finished);
        if self.target.format() == Format::Json {
            let text = serde_json::to_string_pretty(&summary).map_err(|error| Failure::Usage(error.to_string()))?;
            print(&(text + "\n"))?;
        } else if !self.target.quiet {
            print_page(&summary.table())?;
            if let Some(kernels) = &circumstances.kernels {
                print_page(&format!("\n{kernels}"))?;
            }
        }
        // Last: the summary must appear even if the trace or the log could not be written.
        if let Some(path) = &self.trace {
            let Circumstances { program, n_ranks, .. } = *circumstances;
            let ran = TracedRun { program, n_ranks, first_step: finished.first_step, steps: &finished.trace };
            write_with(path, |out| trace::run::write(&ran, out))?;
        }
        if let Some(failure) = finished.log_failed {
            return Err(failure);
        }
        Ok(if summary.ok { Outcome::Accepted } else { Outcome::Rejected })
    }

    /// Everything that a run needs; nothing if the target is rejected and this process speaks, which has said it then.
    /// Fails if something cannot be read or written, or another process has to say why the target is rejected.
    fn prepare(&self, session: &Session<'_>) -> Result<Option<Prepared>, Failure> {
        let Some((program, analysis, written)) = self.compile(session)? else { return Ok(None) };
        let program = program.of_members();
        if let Some(path) = self.trace.as_ref().filter(|_| session.speaks()) {
            // Better now than after the run.
            can_write(path)?;
        }
        if let Some(path) = self.log.as_ref().filter(|_| session.speaks()) {
            log::check(path)?;
        }
        let backend = session.backend(program.program());
        let is_for_gpus = self.products != Products::Fp32 || self.no_capture || self.no_cublas;
        if !backend.is_gpu() && is_for_gpus {
            session.warn(
                "`--products`, `--no-capture` and `--no-cublas` are for GPUs, and none runs this: products are computed as they are",
            );
        }
        let plan = self.plan(program.program(), backend, session);
        if self.resume.from == Some(None) && plan.checkpoints.is_none() {
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
        let Some(data) = session.open(program.program(), backend)? else { return Ok(None) };
        let Ok(validator) = self.validator(program.program(), backend, session)? else { return Ok(None) };
        Ok(Some(Prepared { program: Arc::new(program), written, analysis, backend, plan, data, validator }))
    }

    /// What must be the same on all ranks.
    fn digests(&self, prepared: &Prepared) -> Vec<(&'static str, Digest)> {
        let Prepared { program, backend, plan, data, .. } = prepared;
        vec![
            ("version of pipec", of_option(&env!("CARGO_PKG_VERSION"))),
            ("program", text::digest(program.program())),
            ("data", data.digest()),
            ("backend", of_option(&backend::name(*backend))),
            ("way of products (`--products`, `--no-cublas`)", of_option(&(self.products, self.no_cublas))),
            ("number of steps (`--steps`)", of_option(&plan.steps)),
            (
                "checkpoints (`--checkpoint`, `--resume` and its options)",
                of_option(&(plan.every, &plan.checkpoints, &self.resume)),
            ),
            ("`--trace` option", of_option(&self.trace.is_some())),
            ("`--profile` option", of_option(&self.profile)),
            ("`--stress`", of_option(&self.stress)),
        ]
    }

    /// The program with its times; nothing if the target is rejected.
    fn compile(&self, session: &Session<'_>) -> Result<Option<(Verified, Option<Analysis>, ProgramSource)>, Failure> {
        let name = &self.target.target;
        if !name.ends_with(".ir") {
            let (target, cluster) = (self.target.clone(), self.cluster.clone());
            let timed = TimedArguments { target, profile: None, cluster, rates: None };
            let (mut compilation, sources) = timed.compile_program()?;
            let computes = |program: &Verified| session.backend(program.program()).computes();
            if compilation.program.as_ref().is_some_and(computes) {
                let saves = self.checkpoint.is_none() && !self.no_checkpoint;
                files::check(&mut compilation, &sources, &self.target.folder(), saves);
            }
            let found = session.accepted(compilation, &sources)?;
            return Ok(found.map(|(program, analysis)| {
                let written = ProgramSource::Schedule(Box::new(analysis.schedule.clone()), sources);
                (program, Some(analysis), written)
            }));
        }
        self.target.beside_program()?;
        if self.cluster.is_some() {
            let message = format!("`{name}` is compiled already: give `--cluster` to `pipec build`");
            return Err(Failure::Usage(message));
        }
        let written = whole_text(name, MOST_INSTRUCTIONS).map_err(|error| Failure::Io(name.clone(), error))?;
        match text::check(&written) {
            Ok(program) => Ok(Some((program, None, ProgramSource::Instructions(name.clone(), written)))),
            Err(_) if session.speaks() => check::program::run(&self.target).map(|_| None),
            Err(_) => Err(Failure::Usage(format!("{name} is not accepted, as `pipec check` says there"))),
        }
    }

    fn plan(&self, program: &Program, backend: Backend, session: &Session<'_>) -> Plan {
        let training = program.training.as_ref();
        let settings = training.and_then(|training| training.checkpoint.as_ref());
        let folder = || training::folder(&program.name, training);
        let saves = !self.no_checkpoint && backend.computes() && training.is_some();
        Plan {
            steps: self
                .steps
                .unwrap_or_else(|| training.map_or(u64::from(program.n_steps), |training| u64::from(training.steps))),
            checkpoints: saves.then(|| self.checkpoint.clone().unwrap_or_else(folder)),
            every: settings.map_or(0, |checkpoint| u64::from(checkpoint.every)),
            keep_trace: self.trace.is_some(),
            computes: backend.computes(),
            one_by_one: 0,
            quiet: session.is_quiet(),
            log: self.log.clone().filter(|_| session.speaks()),
        }
    }

    fn start(
        &self,
        program: &Arc<Verified>,
        backend: &mut Backend,
        data: Data,
        session: &Session<'_>,
    ) -> Result<Run, RunError> {
        let options = Options {
            stress: self.stress,
            trace: self.trace.is_some(),
            profile: self.profile,
            capture: !self.no_capture,
            products: self.products.into(),
            cublas: !self.no_cublas,
            ..Options::new(*backend, 0)
        };
        let data = Arc::new(data);
        session.attempt(backend, |backend| {
            let options = Options { backend, ..options.clone() };
            training::start(program, Arc::clone(&data), &options, session.job())
        })
    }

    fn train(
        &self,
        run: &mut Run,
        plan: &Plan,
        (mut home, validator, stop): (Option<Home>, Option<&mut Validator>, &mut Stop<'_>),
        session: &Session<'_>,
    ) -> Result<Finished, training::Failure> {
        let first_step = self.resume.resume(run, plan.checkpoints.as_deref(), session)?;
        if first_step == 0 && !self.resume.weights_only {
            self.fill(run, session)?;
        }
        if let Some(home) = &mut home {
            self.set_older_aside(home, session)?;
        }
        training::train(run, first_step, plan, Beside { home: home.as_ref(), validator, stop })
    }

    /// Fills the weights from the file that the program names, if it does.
    fn fill(&self, run: &mut Run, session: &Session<'_>) -> Result<(), training::Failure> {
        let init = run.program().training.as_ref().and_then(|training| training.init.clone());
        let Some(path) = init.filter(|_| run.computes()) else { return Ok(()) };
        let notes = weights::fill(run, &self.target.folder().join(path))?;
        notes.iter().for_each(|note| session.warn(note));
        Ok(())
    }

    /// Sets checkpoints aside that a run has not begun with, so that its own do not replace them.
    /// All ranks do it at once.
    fn set_older_aside(&self, home: &mut Home, session: &Session<'_>) -> Result<(), training::Failure> {
        let folder = home.folder().to_owned();
        let goes_on = match &self.resume.from {
            _ if self.resume.weights_only => false,
            Some(Some(from)) => {
                let home = if from.is_file() { from.parent().unwrap_or(from) } else { from };
                // The same folder has many names.
                home.canonicalize().is_ok_and(|home| folder.canonicalize().is_ok_and(|folder| folder == home))
            }
            from => from.is_some(),
        };
        if goes_on {
            return Ok(());
        }
        if session.speaks()
            && let Some(aside) = home.set_aside()?
        {
            let (folder, aside) = (folder.display(), aside.display());
            warn(&format!(
                "the checkpoints of an earlier run, which were in {folder}, are in {aside} now: `--resume {aside}` goes on from them"
            ));
        }
        // The others use the folder after that.
        session.any(false)?;
        Ok(())
    }
}
