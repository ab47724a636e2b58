//! `pipec profile TARGET`: measures tasks and links on this machine, writes them as a profile, and
//! compares what the profile predicts with the steps.

mod comparison;
mod machine;
pub(crate) mod steps;
mod tasks;

use crate::Outcome;
use crate::input::{Format, TargetArguments, whole_number};
use crate::output::figures::count;
use crate::output::findings::json;
use crate::output::{Failure, can_write, print, print_error_page, print_page, warn, write};
use crate::ranks::agreement::of_option;
use crate::ranks::lost::{Origins, ProgramSource};
use crate::ranks::session::Session;
use crate::ranks::{self, RankArguments};
use crate::training::backend::{self, BackendChoice, Products};
use crate::training::files;
use crate::training::{self, Beside, Plan};
use comparison::{Comparison, Measurement};
use machine::MachineReport;
use pipe_compiler::Request;
use pipe_compiler::analyze::Analysis;
use pipe_compiler::profile::{Profile, SCHEMA, TaskTime};
use pipe_ir::digest::Digest;
use pipe_ir::task::TaskKind;
use pipe_ir::text;
use pipe_ir::verify::Verified;
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run, RunError, StepReport, UsedGpu};
use pipe_schedule::timing::timeline::Timeline;
use pipe_schedule::units::Ticks;
use pipe_syntax::source::{Source, Sources};
use serde::Serialize;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use tasks::{TaskTimes, tasks};

const EXAMPLES: &str = "\
Examples:
  pipec profile examples/shakespeare.pipe -o here.profile.json
  pipec check examples/shakespeare.pipe --profile here.profile.json
  pipec search examples/shakespeare.pipe --profile here.profile.json -o better.pipe

Every second step is measured for the profile; the others are what its prediction is compared with. Where devices
share a GPU, every third step runs their tasks one by one, so that it is known what each takes by itself.
Without -o, the profile goes to standard output and the comparison to standard error.";

/// Arguments of `pipec profile`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// What executes: `auto` is the GPUs of the machine, or else the CPU
    #[arg(long, value_name = "BACKEND", value_parser = BackendChoice::computing(), default_value = "auto")]
    backend: BackendChoice,
    /// How GPUs multiply matrices of single precision
    #[arg(long, value_enum, default_value_t = Products::Fp32)]
    products: Products,
    /// Steps to measure (windows, where steps run on), after two that warm up; without it 20, and
    /// up to 1000 where steps are short
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(2..=100_000))]
    steps: Option<u64>,
    /// Writes the profile to this file
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
    #[command(flatten)]
    ranks: RankArguments,
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
    /// How many devices each tensor-parallel group has, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor: Option<u32>,
    stages: usize,
    /// On what: `cpu` or `cuda`.
    backend: &'static str,
    /// The GPUs that ran it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gpus: Vec<UsedGpu>,
    /// How these multiplied matrices of single precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    products: Option<Products>,
    /// Threads that the machine runs at once.
    cores: usize,
    /// Processes that ran it together.
    ranks: usize,
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
    machine: MachineReport,
    /// What the profile predicts against other steps than those that it is from.
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
}

impl File {
    /// When the tasks that were measured run, in the order in which they did, as `--profile` times
    /// them, and when each device has done its updates.
    fn predict(&self, analysis: &Analysis) -> Result<(Timeline, Vec<Ticks>), String> {
        let text = json(self).map_err(|failure| failure.to_string())?;
        let profile = Profile::read(Source { name: "the profile".to_owned(), text });
        profile.map(|profile| analysis.under(&profile.costs())).map_err(|wrong| wrong.0.message)
    }

    /// What computed, for people.
    fn on(&self) -> String {
        let mut names: Vec<&str> = self.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
        names.dedup();
        match self.gpus.len() {
            0 => count(self.cores, "core"),
            1 => names.concat(),
            n_gpus => format!("{n_gpus} GPUs ({})", names.join(", ")),
        }
    }

    /// Stretches all times alike, so that the timeline is as long as the steps that were measured.
    /// Where devices share cores, a task takes less while few devices are busy than it takes on
    /// average, which no single time of a task can say. Where they share a GPU, kernels that do not
    /// fill it run at once.
    fn fit(&mut self) {
        let (whole, part) = (u128::from(self.plain_makespan_ns.max(1)), u128::from(self.makespan_ns));
        let fitted = |ns: u64| u64::try_from((u128::from(ns) * part + whole / 2) / whole).unwrap_or(u64::MAX);
        let tasks = self.tasks.iter_mut().filter(|task| task.kind != TaskKind::Update);
        tasks.map(|task| &mut task.ns).chain([&mut self.transfer_ns]).for_each(|ns| *ns = fitted(*ns));
    }
}

/// What steps are for, which take turns.
#[derive(Clone, Copy)]
struct Roles {
    /// Whether devices share a GPU: then tasks are timed in steps that run them one by one.
    are_shared: bool,
}

impl Roles {
    const fn every(self) -> usize {
        if self.are_shared { 3 } else { 2 }
    }

    /// The steps in which tasks are timed, those that the prediction is compared with, and those
    /// whose length it is fitted to.
    fn of(self, trace: &[StepReport]) -> [Vec<&StepReport>; 3] {
        let of = |role: usize| trace.iter().skip(role).step_by(self.every()).collect::<Vec<_>>();
        [of(0), of(1), of(if self.are_shared { 2 } else { 0 })]
    }
}

/// What is to be measured.
struct Prepared {
    backend: Backend,
    /// With a list for each device of the schedule.
    listed: Verified,
    /// With a list for each device that runs.
    program: Arc<Verified>,
    analysis: Analysis,
    sources: Sources,
    data: Data,
}

/// Profiles a target. Fails if the target or its data cannot be read, or the profile cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let Arguments { ranks, target, backend, .. } = arguments;
    ranks::enter(ranks, target, *backend, SCHEMA, |session| arguments.execute(session))
}

impl Arguments {
    fn execute(&self, session: &Session<'_>) -> Result<Outcome, Failure> {
        let prepared = session.agree(self.prepare(session), |prepared| self.digests(prepared))?;
        let Some(prepared) = prepared else { return Ok(Outcome::Rejected) };
        match self.measure(session, prepared) {
            Ok(file) if session.speaks() => self.conclude(&file),
            Ok(_) => Ok(Outcome::Accepted),
            Err(message) => session.fail(&message),
        }
    }

    /// Everything that is needed; nothing if the target is rejected and this process speaks, which has said it then.
    /// Fails if something cannot be read or written, or another process has to say why the target is rejected.
    fn prepare(&self, session: &Session<'_>) -> Result<Option<Prepared>, Failure> {
        if let Some(path) = self.output.as_ref().filter(|_| session.speaks()) {
            can_write(path)?;
        }
        // Halves of a backward are measured one by one, also where a run takes both at once.
        let request = Request { program: true, apart: true, ..self.target.request() };
        let (mut compilation, sources) = self.target.compile_for(&request)?;
        files::check(&mut compilation, &sources, &self.target.folder(), false);
        let Some((program, analysis)) = session.accepted(compilation, &sources)? else { return Ok(None) };
        let (listed, program) = (program.clone(), program.of_members());
        let backend = match session.backend(program.program()) {
            Backend::Null => Backend::Cpu,
            computes => computes,
        };
        if !backend.is_gpu() && self.products != Products::Fp32 {
            session.warn("`--products` is for GPUs, and none runs this: products are computed as they are");
        }
        let data = session.open(program.program(), backend)?;
        Ok(data.map(|data| Prepared { backend, listed, program: Arc::new(program), analysis, data, sources }))
    }

    /// What must be the same on all ranks.
    fn digests(&self, prepared: &Prepared) -> Vec<(&'static str, Digest)> {
        vec![
            ("version of pipec", of_option(&env!("CARGO_PKG_VERSION"))),
            ("program", text::digest(prepared.program.program())),
            ("data", prepared.data.digest()),
            ("backend", of_option(&backend::name(prepared.backend))),
            ("number of steps (`--steps`)", of_option(&self.steps)),
            ("precision of products (`--products`)", of_option(&self.products)),
        ]
    }

    /// Measures; on other ranks than the first, what the figures say is without meaning.
    fn measure(&self, session: &Session<'_>, prepared: Prepared) -> Result<File, String> {
        let Prepared { mut backend, listed, program, analysis, sources, data } = prepared;
        if !analysis.schedule.parts.is_empty() {
            let name = &analysis.schedule.name;
            return Err(format!("`{name}` runs parts of stages, and a profile is of whole ones: leave `parts` out"));
        }
        let members = program.program().members();
        let written = ProgramSource::Schedule(Box::new(analysis.schedule.clone()), sources);
        session.begin(Origins { program: Arc::clone(&program), written }, backend);
        let told = |error: RunError| error.to_string();
        let (data, products) = (Arc::new(data), self.products.into());
        let started = session.attempt(&mut backend, |backend| {
            let options = Options { trace: true, products, one_by_one: true, ..Options::new(backend, 0) };
            let machine = MachineReport::measure(program.program(), backend, products, session.job())?;
            Ok((machine, training::start(&program, Arc::clone(&data), &options, session.job())?))
        });
        let (machine, mut run) = started.map_err(told)?;
        run.notes().map_err(told)?.iter().for_each(|note| warn(note));
        let window = u64::from(run.program().n_steps);
        let first = WARM_UP * window;
        let gpus = run.gpus().map_err(told)?;
        // The first rank knows the GPUs of all.
        let are_shared = gpus.iter().any(|gpu| gpu.devices.len() > 1);
        let are_shared = session.any(are_shared).map_err(told)?;
        if are_shared && members > 1 {
            let n_devices = run.program().devices.len();
            return Err(format!(
                "cannot profile `tensor {members}` on shared GPUs: tasks are timed one by one there, but the devices \
                 of a group wait for each other; use {n_devices} GPUs, or `--backend cpu`"
            ));
        }
        let roles = Roles { are_shared };
        let warm = train(&mut run, 0..first, roles, session)?;
        run.notes().map_err(told)?.iter().for_each(|note| warn(note));
        let wall = warm.last().map_or(0, |step| step.wall.0).max(1);
        let steps = self.steps.unwrap_or_else(|| (ENOUGH_NANOS / wall).clamp(FEWEST, MOST));
        let steps = session.job().map_or(Ok(steps), |job| job.number(steps)).map_err(told)?;
        let trace = train(&mut run, first..first + steps * window, roles, session)?;
        let [timed, others, fitted] = roles.of(&trace);
        let TaskTimes { tasks, transfer_ns } =
            tasks([run.program(), listed.program()], &analysis, [&timed, &fitted], &machine);
        let mut file = File {
            schema: SCHEMA,
            target: run.program().name.clone(),
            devices: run.program().devices.len(),
            tensor: (members > 1).then_some(members),
            stages: run.program().n_stages as usize,
            backend: backend::name(backend),
            gpus,
            products: backend.is_gpu().then_some(self.products),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            ranks: session.n_ranks(),
            steps: timed.len(),
            makespan_ns: 0,
            plain_makespan_ns: 0,
            transfer_ns,
            tasks,
            machine,
            comparison: None,
        };
        if !run.is_first() {
            return Ok(file);
        }
        file.plain_makespan_ns = file.predict(&analysis)?.0.makespan().0;
        file.makespan_ns = file.plain_makespan_ns;
        if !fitted.is_empty() {
            file.makespan_ns = Measurement::of(run.program(), &fitted).makespan;
            file.fit();
        }
        let measurement = Measurement::of(run.program(), &others);
        let predicted = file.predict(&analysis)?;
        file.comparison = Some(Comparison::new(&predicted, file.plain_makespan_ns, &measurement));
        Ok(file)
    }

    /// Writes what was measured.
    fn conclude(&self, file: &File) -> Result<Outcome, Failure> {
        let text = json(file)?;
        if let Some(path) = &self.output {
            write(path, &text)?;
        }
        let table = file
            .comparison
            .as_ref()
            .map(|comparison| comparison.table(file.ranks, file.tensor, &file.on()))
            .unwrap_or_default();
        let is_quiet = self.target.quiet || self.target.format() != Format::Human;
        match &self.output {
            Some(path) if !is_quiet => print_page(&format!("{table}\nwrote {}\n", path.display()))?,
            Some(_) if self.target.format() == Format::Human => {}
            Some(_) | None => {
                print(&text)?;
                if !is_quiet {
                    print_error_page(&table);
                }
            }
        }
        Ok(Outcome::Accepted)
    }
}

/// Takes some steps.
fn train(run: &mut Run, steps: Range<u64>, roles: Roles, session: &Session<'_>) -> Result<Vec<StepReport>, String> {
    let plan = Plan {
        steps: steps.end,
        checkpoints: None,
        every: 0,
        keep_trace: true,
        computes: true,
        one_by_one: if roles.are_shared { roles.every() as u64 } else { 0 },
        quiet: session.is_quiet(),
        log: None,
    };
    let finished =
        training::train(run, steps.start, &plan, Beside { home: None, validator: None, stop: &mut || Ok(false) });
    finished.map(|finished| finished.trace).map_err(|failure| failure.to_string())
}
