//! Runs: a verified program on devices, step by step.
//!
//! CPU devices have one thread each, alive from the set-up to the end of the run; null devices take turns on the caller's
//! thread. A fault or panic of one device ends the run on all of them, with one error. In a job of several processes each runs the devices of
//! its own rank, and the first rank has the reports of all.

use crate::channel::Channels;
use crate::crew::{Crew, Order};
use crate::device::{Device, Loader};
use crate::devices::cpu::{CpuDevice, Jit, Number, Shared, compile, with_numbers};
use crate::devices::null::NullDevice;
use crate::executor::Executor;
use crate::fault::RunError;
use crate::job::desk::Desk;
use crate::job::{Job, Rank};
use crate::memory::{Memories, Region};
use crate::profile::Profile;
use crate::remote::Seat;
use crate::report::StepReport;
use pipe_ir::ids::{BufferId, DeviceId, ValueId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::{Buffer, Program};
use pipe_ir::verify::{List, Verified};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// What executes instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// Counts bytes and instructions; computes nothing.
    Null,
    /// Threads of this machine.
    Cpu,
}

/// How to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// On what.
    pub backend: Backend,
    /// Of the initial weights.
    pub seed: u64,
    /// Delays every transfer and many instructions at random from this seed, looks for overlapping buffers, and makes freed
    /// memory unusable. Results stay the same.
    pub stress: Option<u64>,
    /// Reports hold the start and end of every executable.
    pub trace: bool,
    /// Time is kept for every kind of kernel.
    pub profile: bool,
}

impl Options {
    /// A plain run.
    #[must_use]
    pub const fn new(backend: Backend, seed: u64) -> Self {
        Self { backend, seed, stress: None, trace: false, profile: false }
    }
}

/// A buffer that holds a persistent value between steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Home {
    device: DeviceId,
    buffer: BufferId,
    age: u32,
}

/// A program that was set up and can take steps.
pub struct Run {
    // Threads first: they end before what they use is dropped.
    crew: Crew,
    channels: Arc<Channels>,
    profiled: bool,
    program: Arc<Verified>,
    /// By device; none on the null backend, and of devices of other ranks.
    memories: Vec<Option<Memories>>,
    /// In a job of several ranks.
    seat: Option<Seat>,
    /// Which buffers hold what is persistent, and how many updates older than the newest version that is.
    homes: BTreeMap<ValueId, Vec<Home>>,
    failed: Option<RunError>,
    /// Owns the machine code.
    _jit: Option<Jit>,
}

impl Run {
    /// Allocates arenas, compiles executables, starts threads and runs the set-up lists.
    ///
    /// # Errors
    /// If the machine lacks memory, the backend cannot run the program, or its set-up fails.
    pub fn start(program: Arc<Verified>, options: &Options, loader: Arc<dyn Loader>) -> Result<Self, RunError> {
        Self::seated(program, options, loader, None)
    }

    /// The same for the devices of one rank of a job.
    ///
    /// # Errors
    /// As before, and if there are more ranks than devices.
    pub fn join(
        program: Arc<Verified>,
        options: &Options,
        loader: Arc<dyn Loader>,
        job: &Job,
    ) -> Result<Self, RunError> {
        let seat = Seat::new(program.program(), job)?;
        let run = Self::seated(program, options, loader, Some(seat.clone())).map_err(|error| seat.break_off(error))?;
        seat.desk.synchronise()?;
        Ok(run)
    }

    fn seated(
        program: Arc<Verified>,
        options: &Options,
        loader: Arc<dyn Loader>,
        seat: Option<Seat>,
    ) -> Result<Self, RunError> {
        let n_devices = program.program().devices.len();
        let here = |device: &DeviceId| seat.as_ref().is_none_or(|seat| seat.has(*device));
        let own: Vec<DeviceId> = (0..n_devices).map(DeviceId::from_index).filter(here).collect();
        let (mut memories, mut jit) = (vec![None; n_devices], None);
        let devices: Vec<Box<dyn Device>> = match options.backend {
            Backend::Null => own.iter().map(|_| Box::new(NullDevice) as Box<dyn Device>).collect(),
            Backend::Cpu => {
                allocate(program.program(), &own, &mut memories)?;
                cpu_devices(&program, options, loader, &memories, jit.insert(Jit::new()?))?
            }
        };
        let channels = Arc::new(Channels::new(program.program(), options.stress, seat.as_ref())?);
        let executors = devices.into_iter().zip(own).map(|(device, id)| {
            let mut executor = Executor::new(Arc::clone(&program), id, device, Arc::clone(&channels), options.stress);
            executor.set_trace(options.trace);
            executor
        });
        let takes_turns = options.backend == Backend::Null && options.stress.is_none() && seat.is_none();
        let crew = Crew::new(executors.collect(), Arc::clone(&channels), takes_turns);
        let homes = homes(program.program());
        let profiled = options.profile;
        let mut run = Self { crew, channels, profiled, program, memories, seat, homes, failed: None, _jit: jit };
        run.order(Order { list: List::Setup, step: 0 })?;
        Ok(run)
    }

    /// Executes the step lists once: one optimizer step, or all steps of a window. Steps are counted from 0, `step` is the
    /// first of them, and a resumed run goes on counting.
    ///
    /// # Errors
    /// If any device fails; every later step fails the same way.
    pub fn step(&mut self, step: u64) -> Result<StepReport, RunError> {
        let began = Instant::now();
        let own = self.order(Order { list: List::Step, step })?;
        let report = match &self.seat {
            Some(seat) => seat.report(own, began),
            None => Ok(own),
        };
        self.failed = report.as_ref().err().cloned();
        report
    }

    /// Whether it is that of the first rank, or of the only process.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.desk().is_none_or(|desk| desk.rank == Rank::FIRST)
    }

    /// The program that runs.
    #[must_use]
    pub fn program(&self) -> &Program {
        self.program.program()
    }

    /// Where the time of all kernels went so far; empty unless it was asked for.
    #[must_use]
    pub fn profile(&mut self) -> Profile {
        let mut profile = self.crew.profile();
        if self.profiled {
            profile.merge(&self.channels.profile());
        }
        profile
    }

    /// The same of the devices of all ranks of a job, on its first rank; the others have their own. All do it at once.
    ///
    /// # Errors
    /// If a rank cannot go on.
    pub fn whole_profile(&mut self) -> Result<Profile, RunError> {
        let mut whole = self.profile();
        let Some(desk) = self.desk() else { return Ok(whole) };
        let all = desk.gather(serde_json::to_vec(&whole).unwrap_or_default())?;
        for (rank, own) in all.iter().enumerate().skip(1) {
            let failed = |error: serde_json::Error| RunError::Remote {
                rank: Rank::from_index(rank),
                message: error.to_string(),
            };
            whole.merge(&serde_json::from_slice(own).map_err(failed)?);
        }
        Ok(whole)
    }

    /// The numbers of a tensor of a persistent value (parameters, gradients, optimizer state), between steps; `tensor` counts
    /// [`pipe_ir::value::Value::tensors`]. `None` on the null backend or where no device holds the value.
    #[must_use]
    pub fn read(&self, value: ValueId, tensor: usize) -> Option<Vec<f64>> {
        self.read_version(value, tensor, 0)
    }

    /// The same of an older version of weights, made so many updates before the newest.
    #[must_use]
    pub fn read_version(&self, value: ValueId, tensor: usize, age: u32) -> Option<Vec<f64>> {
        let slot = self.program().value(value).tensors.get(tensor)?;
        let region = self.regions(value, tensor, Some(age)).next()?;
        Some(with_numbers!(slot.ty.dtype, N => region.numbers::<N>().iter().map(|number| number.to_f64()).collect()))
    }

    /// The same as it lies in memory.
    #[must_use]
    pub fn read_bytes(&self, value: ValueId, tensor: usize, age: u32) -> Option<Vec<u8>> {
        Some(self.regions(value, tensor, Some(age)).next()?.bytes().to_vec())
    }

    /// The same as it lies in memory, of every device that holds the value, in their order. Replicas of weights, state and reduced gradients
    /// are equal, bit for bit.
    #[must_use]
    pub fn read_all(&self, value: ValueId, tensor: usize) -> Vec<Vec<u8>> {
        self.regions(value, tensor, Some(0)).map(|region| region.bytes().to_vec()).collect()
    }

    /// How many versions of a persistent value there are between steps.
    #[must_use]
    pub fn versions(&self, value: ValueId) -> u32 {
        self.homes.get(&value).into_iter().flatten().map(|home| home.age + 1).max().unwrap_or(0)
    }

    /// Replaces a tensor of a persistent value by the nearest numbers of its type, in all versions and on every device that
    /// holds it. Whether any does, and the size fits.
    pub fn write(&mut self, value: ValueId, tensor: usize, data: &[f64]) -> bool {
        let Some(slot) = self.program().value(value).tensors.get(tensor) else { return false };
        with_numbers!(slot.ty.dtype, N => {
            let numbers: Vec<N> = data.iter().map(|number| N::of(*number)).collect();
            self.write_bytes(value, tensor, None, bytemuck::cast_slice(&numbers))
        })
    }

    /// The same, given what shall lie in memory, perhaps for the version alone that is so many updates older than the newest.
    pub fn write_bytes(&mut self, value: ValueId, tensor: usize, age: Option<u32>, data: &[u8]) -> bool {
        let mut written = false;
        for region in self.regions(value, tensor, age).filter(|region| region.len() == data.len()) {
            region.bytes_mut().copy_from_slice(data);
            written = true;
        }
        written
    }

    /// What connects it to other ranks.
    pub(crate) fn desk(&self) -> Option<&Desk> {
        self.seat.as_ref().map(|seat| &*seat.desk)
    }

    /// Whether a persistent value has a place on devices of this process.
    pub(crate) fn holds(&self, value: ValueId) -> bool {
        self.homes.get(&value).into_iter().flatten().any(|home| self.is_here(home.device))
    }

    /// Whether the first device that has a version of it is one of this process.
    pub(crate) fn holds_first(&self, value: ValueId, age: u32) -> bool {
        let mut homes = self.homes.get(&value).into_iter().flatten();
        homes.find(|home| home.age == age).is_some_and(|home| self.is_here(home.device))
    }

    fn is_here(&self, device: DeviceId) -> bool {
        self.seat.as_ref().is_none_or(|seat| seat.has(device))
    }

    fn regions(&self, value: ValueId, tensor: usize, age: Option<u32>) -> impl Iterator<Item = Region> {
        let slot = self.program().value(value).tensors.get(tensor);
        let homes = self.homes.get(&value).into_iter().flatten();
        homes.filter(move |home| age.is_none_or(|age| age == home.age)).filter_map(
            move |Home { device, buffer, .. }| {
                let place = self.program().devices[device.index()].buffers[buffer.index()];
                let slot = slot?;
                let place = Buffer { offset: place.offset + slot.offset, bytes: slot.ty.bytes(), space: place.space };
                Some(self.memories.get(device.index())?.as_ref()?.region(place))
            },
        )
    }

    fn order(&mut self, order: Order) -> Result<StepReport, RunError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let report = self.crew.obey(order).map_err(|error| match &self.seat {
            Some(seat) => seat.break_off(error),
            None => error,
        });
        self.failed = report.as_ref().err().cloned();
        report
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.seat.is_some() && self.failed.is_some() {
            // Messages of other ranks may still arrive.
            self.memories.drain(..).for_each(std::mem::forget);
        }
    }
}

fn allocate(program: &Program, own: &[DeviceId], memories: &mut [Option<Memories>]) -> Result<(), RunError> {
    for device in own {
        let code = &program.devices[device.index()];
        let memory = Memories::new(code);
        let bytes = code.arena + code.host.arena;
        memories[device.index()] = Some(memory.ok_or(RunError::OutOfMemory { device: *device, bytes })?);
    }
    Ok(())
}

fn cpu_devices(
    program: &Arc<Verified>,
    options: &Options,
    loader: Arc<dyn Loader>,
    memories: &[Option<Memories>],
    jit: &mut Jit,
) -> Result<Vec<Box<dyn Device>>, RunError> {
    let shared = Shared {
        program: Arc::clone(program),
        loader,
        seed: options.seed,
        strict: options.stress.is_some(),
        profile: options.profile,
    };
    let here = memories.iter().enumerate().filter_map(|(index, memory)| Some((index, memory.as_ref()?)));
    let devices = here.map(|(index, memory)| {
        let id = DeviceId::from_index(index);
        let executables = compile(program.program(), id, jit)?;
        Ok(Box::new(CpuDevice::new(shared.clone(), id, memory.clone(), executables)) as Box<dyn Device>)
    });
    devices.collect()
}

/// The buffers that the set-up fills; of several with one value, from the newest version to the oldest.
fn homes(program: &Program) -> BTreeMap<ValueId, Vec<Home>> {
    let mut homes: BTreeMap<ValueId, Vec<Home>> = BTreeMap::new();
    for (index, device) in program.devices.iter().enumerate() {
        for instruction in &device.setup {
            if let Instruction::Fill { buffer, value, .. } = instruction {
                let device = DeviceId::from_index(index);
                let known = homes.entry(*value).or_default();
                let age = known.iter().filter(|home| home.device == device).count();
                let age = u32::try_from(age).unwrap_or(u32::MAX);
                known.push(Home { device, buffer: *buffer, age });
            }
        }
    }
    homes
}
