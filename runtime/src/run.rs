//! Runs: a verified program on devices, step by step.
//!
//! An engine executes the lists (`engine`); the run knows where persistent values are between
//! steps, and what a job of several processes needs: each runs the devices of its own rank, and the
//! first rank has the reports of all. After an error a run takes no more steps.

use crate::devices::Loader;
use crate::engine::{BufferPlace, Engine, StartEngine};
use crate::executor::threads::Threads;
use crate::values::numbers::{decode, encode};
use pipe_distributed::{Job, Mailbox, Profile, Rank, RankView, RunError, StepReport, UsedGpu};
use pipe_ir::ids::{BufferId, DeviceId, ValueId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::{Buffer, Program};
use pipe_ir::value::TensorSlot;
use pipe_ir::verify::Verified;
use std::collections::BTreeMap;
use std::iter::repeat;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// What executes instructions.
#[derive(Clone, Copy, Debug)]
pub enum Backend {
    /// Counts bytes and instructions; computes nothing.
    Null,
    /// Threads of this machine.
    Cpu,
    /// GPUs of this machine, by a crate above this one.
    Gpu(StartEngine),
}

impl Backend {
    /// Whether it computes, so that losses mean something.
    pub const fn computes(self) -> bool {
        !matches!(self, Self::Null)
    }

    /// Whether it is GPUs.
    pub const fn is_gpu(self) -> bool {
        matches!(self, Self::Gpu(_))
    }
}

/// How matrices in single precision are multiplied. Sums are in single precision.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Precision {
    /// As they are.
    #[default]
    Fp32,
    /// Factors rounded to 10 bits of fraction.
    Tf32,
    /// Factors rounded to 7 bits of fraction.
    Bf16,
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// On what.
    pub backend: Backend,
    /// Of the initial weights.
    pub seed: u64,
    /// Delays every transfer and many instructions at random from this seed, looks for overlapping
    /// buffers, and makes freed memory unusable. Results stay the same.
    pub stress: Option<u64>,
    /// Reports hold the start and end of every executable.
    pub trace: bool,
    /// Time is kept for every kind of kernel.
    pub profile: bool,
    /// GPUs are given a step as one graph, where the driver captures it.
    pub capture: bool,
    /// How GPUs multiply matrices of single precision.
    pub products: Precision,
    /// GPUs multiply by cuBLASLt, where it is there, and not by our own kernels alone.
    pub cublas: bool,
    /// Steps can also be taken at the pace [`Pace::OneByOne`].
    pub one_by_one: bool,
}

/// How tasks of devices on one GPU run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pace {
    /// Beside each other.
    #[default]
    Usual,
    /// One after the other, so that reports say what each takes by itself. Everywhere else, as usual.
    OneByOne,
}

impl Options {
    /// A plain run.
    pub const fn new(backend: Backend, seed: u64) -> Self {
        let (products, cublas, one_by_one) = (Precision::Fp32, true, false);
        Self { backend, seed, stress: None, trace: false, profile: false, capture: true, products, cublas, one_by_one }
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
    engine: Box<dyn Engine>,
    program: Arc<Verified>,
    /// In a job of several ranks.
    rank_view: Option<RankView>,
    computes: bool,
    /// Which buffers hold what is persistent, and how many updates older than the newest version that is.
    homes: BTreeMap<ValueId, Vec<Home>>,
    loader: Arc<dyn Loader>,
    /// What the loader says of its data, which takes as long as reading all of them.
    data: OnceLock<Option<String>>,
    failed: Option<RunError>,
}

impl Run {
    /// Allocates arenas, compiles executables, starts threads and runs the set-up lists.
    ///
    /// # Errors
    /// If the machine lacks memory, the backend cannot run the program, or its set-up fails.
    pub fn start(program: Arc<Verified>, options: &Options, loader: Arc<dyn Loader>) -> Result<Self, RunError> {
        Self::with_view(program, options, loader, None)
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
        let program = if program.is_as_it_runs() { program } else { Arc::new(program.of_members()) };
        let rank_view = RankView::new(program.program(), job)?;
        let run = Self::with_view(program, options, loader, Some(rank_view.clone()))
            .map_err(|error| rank_view.break_off(error))?;
        rank_view.mailbox.synchronise()?;
        Ok(run)
    }

    fn with_view(
        program: Arc<Verified>,
        options: &Options,
        loader: Arc<dyn Loader>,
        rank_view: Option<RankView>,
    ) -> Result<Self, RunError> {
        let program = if program.is_as_it_runs() { program } else { Arc::new(program.of_members()) };
        let homes = homes(program.program());
        let (data, view) = (Arc::clone(&loader), rank_view.as_ref());
        let engine = match options.backend {
            Backend::Null | Backend::Cpu => Box::new(Threads::start(&program, options, data, view)?),
            Backend::Gpu(start) => start(&program, options, data, view)?,
        };
        let computes = options.backend.computes();
        Ok(Self { engine, program, rank_view, computes, homes, loader, data: OnceLock::new(), failed: None })
    }

    /// Executes the step lists once: one optimizer step, or all steps of a window. Steps are
    /// counted from 0, `step` is the first of them, and a resumed run goes on counting.
    ///
    /// # Errors
    /// If any device fails; every later step fails the same way.
    pub fn step(&mut self, step: u64) -> Result<StepReport, RunError> {
        self.step_at(step, Pace::Usual)
    }

    /// The same at a pace, which changes nothing that is computed.
    ///
    /// # Errors
    /// The same.
    pub fn step_at(&mut self, step: u64, pace: Pace) -> Result<StepReport, RunError> {
        let began = Instant::now();
        let own = self.execute(step, pace)?;
        let report = match &self.rank_view {
            Some(rank_view) => rank_view.report(own, began),
            None => Ok(own),
        };
        self.failed = report.as_ref().err().cloned();
        report
    }

    /// Whether it is that of the first rank, or of the only process.
    pub fn is_first(&self) -> bool {
        self.mailbox().is_none_or(|mailbox| mailbox.rank == Rank::FIRST)
    }

    /// The program that runs.
    pub fn program(&self) -> &Program {
        self.program.program()
    }

    /// Whether it has numbers, and not only their sizes.
    pub const fn computes(&self) -> bool {
        self.computes
    }

    /// The GPUs that it runs on, by name, with the devices on each: in a job those of all ranks, on
    /// its first rank. All do it at once.
    ///
    /// # Errors
    /// If a rank cannot go on.
    pub fn gpus(&self) -> Result<Vec<UsedGpu>, RunError> {
        let own = self.engine.gpus();
        self.mailbox().map_or(Ok(own.clone()), |mailbox| mailbox.collect(&own))
    }

    /// What should be said of the machine, each thing once: in a job that of all ranks, on its first one. All do it at
    /// once.
    ///
    /// # Errors
    /// If a rank cannot go on.
    pub fn notes(&mut self) -> Result<Vec<String>, RunError> {
        let own = self.engine.notes();
        let Some(mailbox) = self.mailbox() else { return Ok(own) };
        let mut ranks = BTreeMap::<String, Vec<Rank>>::new();
        for (rank, notes) in mailbox.collect(&[own])?.into_iter().enumerate() {
            notes.into_iter().for_each(|note| ranks.entry(note).or_default().push(Rank::from_index(rank)));
        }
        let told = ranks.into_iter().map(|(note, ranks)| match ranks.first() {
            Some(first) if ranks.len() < mailbox.n_ranks => format!("{first}: {note}"),
            _ => note,
        });
        Ok(told.collect())
    }

    /// Where the time of all kernels went so far; empty unless it was asked for.
    pub fn profile(&mut self) -> Profile {
        self.engine.profile()
    }

    /// The same of the devices of all ranks of a job, on its first rank; nothing on the others. All do it at once.
    ///
    /// # Errors
    /// If a rank cannot go on.
    pub fn whole_profile(&mut self) -> Result<Profile, RunError> {
        let own = self.profile();
        let Some(mailbox) = self.mailbox() else { return Ok(own) };
        let mut all = mailbox.collect(&[own])?.into_iter();
        let mut whole: Profile = all.next().unwrap_or_default();
        all.for_each(|other| whole.merge(&other));
        Ok(whole)
    }

    /// The numbers of a tensor of a persistent value (parameters, gradients, optimizer state),
    /// between steps; `tensor` counts [`pipe_ir::value::Value::tensors`]. `None` on the null
    /// backend or where no device holds the value.
    pub fn read(&self, value: ValueId, tensor: usize) -> Option<Vec<f64>> {
        self.read_version(value, tensor, 0)
    }

    /// The same of an older version of weights, made so many updates before the newest.
    pub fn read_version(&self, value: ValueId, tensor: usize, age: u32) -> Option<Vec<f64>> {
        let slot = self.program().value(value).tensors.get(tensor)?;
        if slot.split.is_none() || slot.part.is_some() {
            let bytes = self.read_bytes(value, tensor, age).ok()??;
            return Some(decode(slot.ty.dtype, &bytes));
        }
        let mut all = vec![0.0; slot.undivided().elements() as usize];
        for (member, place) in self.first_of_members(value, tensor, age) {
            let own = decode(slot.ty.dtype, &self.engine.read(place).ok()??);
            let to = slot.numbers(member.into()).into_iter().flatten();
            to.zip(own).for_each(|(at, number)| all[at as usize] = number);
        }
        Some(all)
    }

    /// The norm of all gradients of the last step, before they were clipped. `None` where they are not clipped, nothing
    /// is computed, or no device of this process runs.
    pub fn gradient_norm(&self) -> Option<f64> {
        let squares = self.read(self.program().gradient_norm()?, 0)?;
        squares.first().map(|squares| squares.sqrt())
    }

    /// The same as it lies in memory.
    ///
    /// # Errors
    /// If the GPU that holds it does not answer.
    pub fn read_bytes(&self, value: ValueId, tensor: usize, age: u32) -> Result<Option<Vec<u8>>, RunError> {
        let place = self.places(value, tensor, Some(age)).next();
        place.map_or(Ok(None), |place| self.engine.read(place))
    }

    /// The same as it lies in memory, of every device that holds the value, in their order.
    /// Replicas of weights, state and reduced gradients are equal, bit for bit.
    pub fn read_all(&self, value: ValueId, tensor: usize) -> Vec<Vec<u8>> {
        self.places(value, tensor, Some(0)).filter_map(|place| self.engine.read(place).ok()?).collect()
    }

    /// How many versions of a persistent value there are between steps.
    pub fn versions(&self, value: ValueId) -> u32 {
        self.homes.get(&value).into_iter().flatten().map(|home| home.age + 1).max().unwrap_or(0)
    }

    /// Replaces a tensor of a persistent value by the nearest numbers of its type, in all versions
    /// and on every device that holds it. Whether any does, and the size fits.
    pub fn write(&mut self, value: ValueId, tensor: usize, data: &[f64]) -> bool {
        let Some(slot) = self.program().value(value).tensors.get(tensor) else { return false };
        let bytes = encode(slot.ty.dtype, data.iter().copied());
        self.write_bytes(value, tensor, None, &bytes).unwrap_or(false)
    }

    /// The same, given what shall lie in memory, perhaps for the version alone that is so many
    /// updates older than the newest.
    ///
    /// # Errors
    /// If a GPU that holds it does not answer.
    pub fn write_bytes(
        &mut self,
        value: ValueId,
        tensor: usize,
        age: Option<u32>,
        data: &[u8],
    ) -> Result<bool, RunError> {
        let mut written = false;
        for place in self.places(value, tensor, age).filter(|place| place.buffer.bytes.to_usize() == data.len()) {
            written |= self.engine.write(place, data)?;
        }
        Ok(written)
    }

    /// Whether a member of a device that holds a value is one of this process.
    pub(crate) fn has_member(&self, value: ValueId, member: u32) -> bool {
        let mut homes = self.homes.get(&value).into_iter().flatten();
        homes.any(|home| self.program().member(home.device) == member && self.is_here(home.device))
    }

    /// Writes what a device has of a tensor to all of them, or to those that are a member, as it lies in memory.
    ///
    /// # Errors
    /// If a GPU that holds it does not answer.
    pub(crate) fn write_own(
        &mut self,
        (value, tensor): (ValueId, usize),
        (age, member): (Option<u32>, Option<u32>),
        data: &[u8],
    ) -> Result<(), RunError> {
        let places: Vec<BufferPlace> = self.places(value, tensor, age).collect();
        let is_meant =
            |place: &&BufferPlace| member.is_none_or(|own| own == self.program.program().member(place.device));
        places.iter().filter(is_meant).try_for_each(|place| self.engine.write(*place, data).map(drop))
    }

    /// Writes what each device has of a tensor, given all of that, as it lies in memory.
    ///
    /// # Errors
    /// If a GPU that holds it does not answer.
    pub(crate) fn write_parts(
        &mut self,
        value: ValueId,
        tensor: usize,
        age: Option<u32>,
        whole: &[u8],
    ) -> Result<(), RunError> {
        let Some(slot) = self.program().value(value).tensors.get(tensor).cloned() else { return Ok(()) };
        let places: Vec<BufferPlace> = self.places(value, tensor, age).collect();
        let mut parts: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for place in places {
            let member = self.program().member(place.device);
            let part = parts.entry(member).or_insert_with(|| part_of(&slot, member, whole));
            self.engine.write(place, part)?;
        }
        Ok(())
    }

    /// The members that hold a version of a value, each with the first place of it, as far as these are here.
    pub(crate) fn first_of_members(&self, value: ValueId, tensor: usize, age: u32) -> Vec<(u32, BufferPlace)> {
        let mut first: BTreeMap<u32, DeviceId> = BTreeMap::new();
        for home in self.homes.get(&value).into_iter().flatten().filter(|home| home.age == age) {
            first.entry(self.program().member(home.device)).or_insert(home.device);
        }
        let is_divided = self.program().value(value).tensors.get(tensor).is_some_and(|slot| slot.split.is_some());
        let places: Vec<BufferPlace> = self.places(value, tensor, Some(age)).collect();
        let own = first.into_iter().take(if is_divided { usize::MAX } else { 1 });
        own.filter_map(|(member, device)| Some((member, *places.iter().find(|place| place.device == device)?)))
            .collect()
    }

    /// What lies at a place between steps.
    pub(crate) fn read_place(&self, place: BufferPlace) -> Result<Option<Vec<u8>>, RunError> {
        self.engine.read(place)
    }

    /// What tells its data from others, where that is known.
    pub(crate) fn data(&self) -> Option<String> {
        self.data.get_or_init(|| self.loader.identity()).clone()
    }

    /// What connects it to other ranks.
    pub(crate) fn mailbox(&self) -> Option<&Mailbox> {
        self.rank_view.as_ref().map(|rank_view| &*rank_view.mailbox)
    }

    /// Whether a persistent value has a place on devices of this process.
    pub(crate) fn holds(&self, value: ValueId) -> bool {
        self.homes.get(&value).into_iter().flatten().any(|home| self.is_here(home.device))
    }

    fn is_here(&self, device: DeviceId) -> bool {
        self.rank_view.as_ref().is_none_or(|rank_view| rank_view.has(device))
    }

    /// Where a tensor lies on the devices of this process.
    fn places(&self, value: ValueId, tensor: usize, age: Option<u32>) -> impl Iterator<Item = BufferPlace> {
        let slot = self.program().value(value).tensors.get(tensor);
        let homes = self.homes.get(&value).into_iter().flatten();
        let here = homes.filter(move |home| age.is_none_or(|age| age == home.age) && self.is_here(home.device));
        here.filter_map(move |Home { device, buffer, .. }| {
            let place = self.program().devices[device.index()].buffers[buffer.index()];
            let slot = slot?;
            let buffer = Buffer { offset: place.offset + slot.offset, bytes: slot.ty.bytes(), space: place.space };
            Some(BufferPlace { device: *device, buffer })
        })
    }

    fn execute(&mut self, step: u64, pace: Pace) -> Result<StepReport, RunError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let report = self.engine.step(step, pace).map_err(|error| match &self.rank_view {
            Some(rank_view) => rank_view.break_off(error),
            None => error,
        });
        self.failed = report.as_ref().err().cloned();
        report
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.rank_view.is_some() && self.failed.is_some() {
            self.engine.forget();
        }
    }
}

/// What a member has of a tensor, with zeros where it has padding.
pub(crate) fn part_of(slot: &TensorSlot, member: u32, whole: &[u8]) -> Vec<u8> {
    let size = slot.ty.dtype.bytes().0;
    let numbers = slot.numbers(member.into()).into_iter();
    let part = numbers.flat_map(|own| &whole[(own.start * size) as usize..(own.end * size) as usize]);
    part.copied().chain(repeat(0)).take(slot.ty.bytes().to_usize()).collect()
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
