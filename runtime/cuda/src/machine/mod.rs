//! The machine: a program on the GPUs of this process, whose command lists the host gives to the driver.
//!
//! | file | what |
//! |---|---|
//! | `gpu_assignment` | which GPU each device has, and who reaches whom |
//! | `arenas` | all memory of a run, allocated at its start |
//! | `modules` | kernels of all executables, compiled and loaded |
//! | `libraries` | matrix products by the vendor's library, where it is there |
//! | `together` | what a group does together, each GPU its share |
//! | `cross_process` | what a process does of a collective with members in others |
//! | `launch_plan` | a command list with streams, events and addresses: nothing is left to look up |
//! | `kernel_args` | what the arguments of launches stand for |
//! | `submit` | submits a launch plan to the driver, call by call or as a captured graph |
//! | `timings` | what the events say of a step |
//! | `microbench` | what GPUs do while they do nothing else, to compare a step with |
//!
//! A step is: numbers and data into staging memory, one launch, one wait, then losses, errors and times out of it.

mod arenas;
mod cross_process;
mod gpu_assignment;
mod kernel_args;
mod launch_plan;
mod libraries;
mod microbench;
mod modules;
mod submit;
mod timings;
mod together;

use super::commands::{self, Facts};
use super::driver::{Area, DriverError, Graph, is_blocking};
use super::kernels::{StepNumbers, fault};
use super::nccl::Links;
use arenas::Arenas;
use gpu_assignment::GpuAssignment;
pub(crate) use gpu_assignment::has_gpu;
use launch_plan::{LaunchPlan, Looks, Means};
use libraries::Libraries;
pub use microbench::{Gpus, ProductTime};
use modules::Modules;
use pipe_distributed::RankView;
use pipe_ir::ids::MicrobatchId;
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_ir::verify::{List, Verified};
use pipe_runtime::engine::{BufferPlace, Engine};
use pipe_runtime::numbers::decode;
use pipe_runtime::random::Counter;
use pipe_runtime::{DeviceStep, Fault, Loader, Nanos, Options, Pace, Profile, RunError, StepReport, UsedGpu};
use std::sync::Arc;
use std::time::Instant;
use submit::{Submitter, text_of};

/// A program on GPUs.
pub(crate) struct Machine {
    // What uses others comes before them: it is dropped first.
    usual: Launchable,
    one_by_one: Option<Launchable>,
    code: Modules,
    arenas: Arenas,
    assignment: GpuAssignment,
    /// In a job of several ranks.
    links: Option<Links>,
    is_broken: bool,
    /// Whether some step was a graph.
    has_launched: bool,
    program: Arc<Verified>,
    loader: Arc<dyn Loader>,
    facts: Vec<Facts>,
    profile: Profile,
    pauses: Option<Counter>,
    trace: bool,
    /// Steps that were taken.
    taken: u64,
    notes: Vec<String>,
}

/// What is said beside an error of the first step that is a graph.
const FIRST_GRAPH: &str =
    ", in the first step that was launched as a graph: `--no-capture` asks for every call instead";

/// A step in one of its forms.
struct Launchable {
    graph: Option<Graph>,
    launch_plan: LaunchPlan,
}

/// What is said beside an error of a kernel that ran some time before.
const WHICH: &str = ", because of a kernel that ran before: with CUDA_LAUNCH_BLOCKING=1 each is waited for, and the run \
                     ends at its instruction";

impl From<DriverError> for RunError {
    fn from(error: DriverError) -> Self {
        let hint = if error.is_of_a_kernel() && !is_blocking() { WHICH } else { "" };
        Self::Driver(format!("{error}{hint}"))
    }
}

impl Machine {
    /// Allocates, compiles, and runs the set-up lists; in a job of several ranks, of the devices of this one. Fails if
    /// there is no GPU, no compiler, too little memory, the program cannot run on GPUs, or the ranks cannot exchange
    /// bytes.
    pub(crate) fn start(
        program: &Arc<Verified>,
        options: &Options,
        loader: Arc<dyn Loader>,
        rank_view: Option<&RankView>,
    ) -> Result<Self, RunError> {
        let (code, strict) = (program.program(), options.stress.is_some());
        let assignment = GpuAssignment::new(code, rank_view)?;
        let recorded = commands::record_part(program, assignment.own(), strict)?;
        let libraries =
            if options.cublas { Libraries::open(&assignment, options.products)? } else { Libraries::default() };
        let mut kernels = Modules::new(code, &recorded, &assignment, (options.products, libraries))?;
        // Before the arenas: what the library takes of a GPU is known only then.
        let free = assignment.free_memory()?;
        let links = rank_view.map(|rank_view| Links::open(code, rank_view, &assignment.gpus[0])).transpose();
        let links = match links {
            Ok(links) => links,
            Err(error) => {
                // The library may still be at work on the GPU: nothing of it is given back.
                std::mem::forget((kernels, assignment));
                return Err(error);
            }
        };
        let nccl =
            if links.is_some() { Bytes(free.0.saturating_sub(assignment.free_memory()?.0)) } else { Bytes::ZERO };
        let sizes = (kernels.n_checks(&recorded.step), kernels.workspace());
        let arenas = Arenas::new(code, &assignment, &recorded, sizes, nccl)?;
        let means = Means { assignment: &assignment, arenas: &arenas, code: &kernels, links: links.as_ref() };
        let step = |one_by_one| {
            let looks = Looks { list: List::Step, profile: options.profile, trace: options.trace, one_by_one };
            Ok::<_, RunError>(Launchable { graph: None, launch_plan: LaunchPlan::new(code, &recorded, means, looks)? })
        };
        let usual = step(false)?;
        let one_by_one = (options.one_by_one && assignment.are_shared()).then(|| step(true)).transpose()?;
        let notes = kernels.note().into_iter().chain(assignment.note().map(str::to_owned)).collect();
        let pauses = options.stress.map(|seed| Counter::new(seed, "cuda"));
        let mut machine = Self {
            usual,
            one_by_one,
            code: kernels,
            arenas,
            assignment,
            links,
            is_broken: false,
            has_launched: false,
            loader,
            facts: recorded.devices.clone(),
            profile: Profile::default(),
            pauses,
            trace: options.trace,
            taken: 0,
            notes,
            program: Arc::clone(program),
        };
        // With ranks every call is asked for: docs/cuda.md says why.
        let captures = options.capture && !strict && !options.profile && rank_view.is_none() && !is_blocking();
        // To load a kernel may mean to wait for the GPU: not while a graph is captured, and not
        // while exchanges wait there for other ranks.
        if captures || machine.links.is_some() {
            // Whatever the products leave in the arenas, the lists write before they read it.
            Submitter::warm_up(&machine.usual.launch_plan, &machine.code)?;
            machine.assignment.synchronise()?;
        }
        machine.set_up(&recorded, options.seed)?;
        if captures {
            machine.capture();
        }
        Ok(machine)
    }

    fn set_up(&mut self, recorded: &commands::Recorded, seed: u64) -> Result<(), RunError> {
        let looks = Looks { list: List::Setup, profile: false, trace: false, one_by_one: false };
        let (assignment, links) = (&self.assignment, self.links.as_ref());
        let means = Means { assignment, arenas: &self.arenas, code: &self.code, links };
        let launch_plan = LaunchPlan::new(self.program.program(), recorded, means, looks)?;
        let mut submitter = Submitter {
            launch_plan: &launch_plan,
            code: &self.code,
            pauses: None,
            is_captured: false,
            blocks: None,
            links,
        };
        submitter.submit(Some((self.program.program(), seed)))?;
        self.assignment.synchronise()?;
        Ok(())
    }

    /// Tries to make one graph of the step, of all GPUs together. Where the driver refuses, it is
    /// asked for each call, step by step.
    fn capture(&mut self) {
        let code = &self.code;
        let captured = std::iter::once(&mut self.usual).chain(&mut self.one_by_one).try_for_each(|step| {
            step.graph = Some(Submitter::capture(&step.launch_plan, code)?);
            Ok(())
        });
        if let Err(error) = captured {
            self.give_up_graphs(error);
        }
    }

    fn give_up_graphs(&mut self, why: RunError) {
        let why = if let RunError::Driver(why) = why { why } else { why.to_string() };
        std::iter::once(&mut self.usual).chain(&mut self.one_by_one).for_each(|step| step.graph = None);
        self.notes.push(format!(
            "steps are not captured as a graph ({why}): the driver is asked for every call of every step"
        ));
    }

    /// Where a place is, if its device is one of this process.
    fn area(&self, BufferPlace { device, buffer }: BufferPlace) -> Option<Area> {
        self.arenas.has(device).then(|| self.arenas.area(device, buffer))
    }

    fn take(&mut self, step: u64, pace: Pace) -> Result<StepReport, RunError> {
        let started = Instant::now();
        self.launchable(pace).launch_plan.main().gpu.activate()?;
        self.stage(step)?;
        let had_launched = self.has_launched;
        let is_launched = self.launch(pace)?;
        let one_by_one = self.one_by_one.as_ref().filter(|_| pace == Pace::OneByOne);
        let Launchable { launch_plan, .. } = one_by_one.unwrap_or(&self.usual);
        if !is_launched {
            let pauses = self.pauses.as_mut();
            let (code, links) = (&self.code, self.links.as_ref());
            let blocks = is_blocking().then(|| self.program.program());
            Submitter { launch_plan, code, pauses, is_captured: false, blocks, links }.submit(None)?;
        }
        match &self.links {
            Some(links) => links.wait(launch_plan.main(), |tokens| timings::positions(launch_plan, tokens))?,
            None => launch_plan.main().synchronise().map_err(|error| {
                let is_first = self.has_launched != had_launched && !error.is_of_a_kernel();
                if is_first { RunError::Driver(format!("{error}{FIRST_GRAPH}")) } else { error.into() }
            })?,
        }
        let wall = Nanos(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.look_for_errors(launch_plan)?;
        let is_timed = self.trace || pace == Pace::OneByOne || timings::is_looked_at(self.taken);
        let devices = self.reports(launch_plan, is_timed)?;
        timings::kernels(launch_plan, &mut self.profile)?;
        let mut losses: Vec<_> = devices.iter().flat_map(|device| device.losses.iter().copied()).collect();
        losses.sort_by_key(|(microbatch, _)| *microbatch);
        Ok(StepReport { wall, devices, losses })
    }

    /// Launches the graph of a step, if there is one. The first launch may be refused: then nothing
    /// was begun, and there are no graphs from now on.
    fn launch(&mut self, pace: Pace) -> Result<bool, DriverError> {
        let Launchable { graph: Some(graph), launch_plan } = self.launchable(pace) else { return Ok(false) };
        match graph.launch(launch_plan.main()) {
            Ok(()) => self.has_launched = true,
            Err(error) if self.has_launched => return Err(error),
            Err(error) => {
                self.give_up_graphs(error.into());
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn launchable(&self, pace: Pace) -> &Launchable {
        let one_by_one = self.one_by_one.as_ref().filter(|_| pace == Pace::OneByOne);
        one_by_one.unwrap_or(&self.usual)
    }

    /// Brings the numbers and the data of a step to where the GPUs fetch them.
    fn stage(&self, step: u64) -> Result<(), RunError> {
        let program = self.program.program();
        if let Some(training) = &program.training {
            for (number, area) in self.arenas.step_numbers() {
                let numbers = StepNumbers::new(training, step + number as u64).numbers();
                area.write(bytemuck::cast_slice(&numbers))?;
            }
        }
        for ((value, microbatch), place) in &self.arenas.loads {
            let of_step = step + u64::from(program.step_of(*microbatch));
            let own = MicrobatchId(microbatch.0 % program.microbatches_of_step());
            let mut data = vec![0; place.bytes.to_usize()];
            let loaded = self.loader.load(of_step, *value, own, &mut data);
            loaded.map_err(|fault| RunError::Data(fault.to_string()))?;
            self.arenas.staged(*place).write(&data)?;
        }
        Ok(())
    }

    /// The first error that a kernel found, by device and instruction.
    fn look_for_errors(&self, launch_plan: &LaunchPlan) -> Result<(), RunError> {
        for run in &launch_plan.runs {
            let Some(error) = run.error else { continue };
            let mut word = [0; size_of::<u64>()];
            error.read(&mut word)?;
            let Some(message) = fault(u64::from_ne_bytes(word)) else { continue };
            let fault = Fault::new(message);
            let place = run.instruction as usize;
            let instruction = text_of(self.program.program(), run.device, place);
            let (device, list) = (run.device, List::Step);
            return Err(RunError::Instruction { device, list, index: place, instruction, fault });
        }
        Ok(())
    }

    fn reports(&self, launch_plan: &LaunchPlan, is_timed: bool) -> Result<Vec<DeviceStep>, RunError> {
        let program = self.program.program();
        let mut devices = vec![DeviceStep::default(); self.facts.len()];
        for (device, (report, facts)) in devices.iter_mut().zip(&self.facts).enumerate() {
            let [own, host] = facts.used;
            (report.peak, report.high_water, report.host) = (own.peak, own.high_water, host);
            report.instructions = facts.instructions[List::Step as usize];
            for (number, microbatch) in facts.losses.iter().enumerate() {
                report.losses.push((*microbatch, self.loss(program, device, number)?));
            }
        }
        if is_timed {
            timings::runs(launch_plan, &mut devices, (program, self.trace))?;
            timings::collectives(launch_plan, &mut devices)?;
        }
        Ok(devices)
    }

    fn loss(&self, program: &Program, device: usize, number: usize) -> Result<f64, RunError> {
        let dtype = program.loss_type();
        let mut bytes = [0; size_of::<f64>()];
        let own = &mut bytes[..dtype.bytes().to_usize()];
        self.arenas.loss(device, number, own.len()).read(own)?;
        Ok(decode(dtype, own).first().copied().unwrap_or(f64::NAN))
    }
}

impl Engine for Machine {
    fn step(&mut self, step: u64, pace: Pace) -> Result<StepReport, RunError> {
        let report = self.take(step, pace);
        self.taken += 1;
        self.is_broken |= report.is_err();
        report
    }

    fn profile(&mut self) -> Profile {
        self.profile.clone()
    }

    fn read(&self, place: BufferPlace) -> Result<Option<Vec<u8>>, RunError> {
        let Some(area) = self.area(place) else { return Ok(None) };
        let mut bytes = vec![0; place.buffer.bytes.to_usize()];
        area.read(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn write(&self, place: BufferPlace, data: &[u8]) -> Result<bool, RunError> {
        self.area(place).map_or(Ok(false), |area| Ok(area.write(data).map(|()| true)?))
    }

    fn gpus(&self) -> Vec<UsedGpu> {
        self.assignment.used(&self.code.multiplied_by())
    }

    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(links) = self.links.as_mut().filter(|_| self.is_broken) {
            links.close(false);
        }
        // Nothing is given back while a GPU still uses it. One that failed has nothing left to wait for.
        let _ = self.assignment.synchronise();
        if let Some(links) = &mut self.links {
            links.close(true);
        }
    }
}
