//! All memory of a run, allocated at its start: the arenas of the devices, and staging memory,
//! through which the host and the GPUs talk.
//!
//! Every GPU has records, of which staging memory has an image: the numbers of the step, which are
//! copied there when a step begins, and what is wrong with the data of each run, which is copied
//! back when it ends. Data and losses are copied one by one.

use super::super::commands::{Queue, Recorded, Staged};
use super::super::driver::{Area, DeviceMemory, Gpu, PinnedMemory};
use super::super::kernels::StepNumbers;
use super::super::launch::WORKING_BYTES;
use crate::machine::cross_process::scratch;
use crate::machine::gpu_assignment::GpuAssignment;
use pipe_ir::gpu::room::SPARE;
use pipe_ir::ids::{DeviceId, GroupId, MicrobatchId, ValueId};
use pipe_ir::program::{Buffer, Program, Space};
use pipe_ir::units::Bytes;
use pipe_runtime::{GpuNeed, RunError};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a record of an error.
const ERROR_BYTES: usize = size_of::<u64>();

/// Bytes of the numbers of a step.
const NUMBERS_BYTES: usize = StepNumbers::BYTES.0 as usize;

/// Bytes between two losses in staging memory.
const LOSS_BYTES: usize = size_of::<f64>();

/// All memory.
#[derive(Debug)]
pub(super) struct Arenas {
    own: Range<usize>,
    /// By device of this process.
    devices: Vec<(DeviceMemory, Option<PinnedMemory>)>,
    /// By GPU: numbers of the step, then records of errors.
    records: Vec<DeviceMemory>,
    /// By device, for its compute and then for each lane: what kernels need beside its arena.
    working: Vec<Vec<DeviceMemory>>,
    /// Likewise: what the library of matrix products needs beside its arena, if any.
    workspaces: Vec<Vec<Option<DeviceMemory>>>,
    /// By group with members in other processes: for what these send.
    scratch: BTreeMap<GroupId, DeviceMemory>,
    staging: PinnedMemory,
    layout: ArenaLayout,
    /// What is loaded in a step.
    pub(super) loads: BTreeMap<(ValueId, MicrobatchId), Staged>,
}

/// Where things are in staging memory, one after the other: an image of the records of each GPU, data, losses.
#[derive(Clone, Debug)]
struct ArenaLayout {
    n_gpus: usize,
    n_steps: usize,
    /// Runs that look at data.
    n_checks: usize,
    data: usize,
    /// Losses by device.
    losses: Vec<usize>,
}

impl ArenaLayout {
    const fn numbers(&self) -> usize {
        self.n_steps * NUMBERS_BYTES
    }

    fn image(&self) -> usize {
        Bytes((self.numbers() + self.n_checks * ERROR_BYTES) as u64).aligned().to_usize()
    }

    fn data(&self) -> usize {
        self.n_gpus * self.image()
    }

    fn loss(&self, device: usize, number: usize) -> usize {
        let before: usize = self.losses[..device].iter().sum();
        self.data() + self.data + (before + number) * LOSS_BYTES
    }

    fn all(&self) -> usize {
        self.loss(self.losses.len(), 0)
    }
}

impl Arenas {
    /// Allocates everything; so many runs look at data, and the products of each device have so many bytes of
    /// workspace. So many bytes are NCCL's on a GPU. Fails if a GPU or the host has too little memory.
    pub(super) fn new(
        program: &Program,
        assignment: &GpuAssignment,
        recorded: &Recorded,
        (n_checks, workspace): (usize, usize),
        nccl: Bytes,
    ) -> Result<Self, RunError> {
        let Some(first) = assignment.gpus.first() else {
            return Err(RunError::Unsupported("the program has no devices".to_owned()));
        };
        let own = assignment.own();
        let ids = own.clone().map(DeviceId::from_index);
        let layout = ArenaLayout {
            n_gpus: assignment.gpus.len(),
            n_steps: program.n_steps.max(1) as usize,
            n_checks,
            data: recorded.staging.to_usize(),
            losses: recorded.devices.iter().map(|facts| facts.losses.len()).collect(),
        };
        let scratch = scratch(program, assignment, &recorded.step);
        let n_queues = 1 + program.lanes.len();
        let beside = Beside {
            // What runs side by side needs its own.
            device: n_queues * (WORKING_BYTES.to_usize() + workspace),
            gpu: layout.image() + scratch.values().sum::<usize>() + SPARE.to_usize(),
        };
        analyze(program, assignment, (&beside, nccl))?;
        let devices =
            ids.clone().map(|device| arenas(program, device, assignment.gpu_of(device))).collect::<Result<_, _>>()?;
        let of_gpu = |gpu: &Arc<Gpu>| Ok(DeviceMemory::new(gpu, layout.image())?);
        let records = assignment.gpus.iter().map(of_gpu).collect::<Result<_, RunError>>()?;
        let each = |device| std::iter::repeat_n(assignment.gpu_of(device), n_queues);
        let working = ids.clone().map(|device| each(device).map(working).collect()).collect::<Result<_, _>>()?;
        let scratch = scratch.into_iter().map(|(group, bytes)| Ok((group, DeviceMemory::new(first, bytes)?)));
        let scratch = scratch.collect::<Result<_, RunError>>()?;
        let staging = PinnedMemory::new(first, layout.all())?;
        let of_device = |device| each(device).map(|gpu| room(gpu, workspace)).collect();
        let workspaces = ids.map(of_device).collect::<Result<_, _>>()?;
        let loads = recorded.loads.clone();
        Ok(Self { own, devices, records, working, workspaces, scratch, staging, layout, loads })
    }

    /// Whether a device is one of this process.
    pub(super) fn has(&self, device: DeviceId) -> bool {
        self.own.contains(&device.index())
    }

    /// Where a place of a device of this process is.
    pub(super) fn area(&self, device: DeviceId, place: Buffer) -> Area {
        let (own, host) = &self.devices[device.index() - self.own.start];
        let all = match (place.space, host) {
            (Space::Host, Some(host)) => host.all,
            (Space::Host, None) | (Space::Device, _) => own.all,
        };
        all.part(place.offset.to_usize(), place.bytes.to_usize())
    }

    fn image(&self, gpu: usize) -> Area {
        self.staging.all.part(gpu * self.layout.image(), self.layout.image())
    }

    /// Where the host writes the numbers of the steps of a window: by GPU, and then by step.
    pub(super) fn step_numbers(&self) -> impl Iterator<Item = (usize, Area)> {
        let steps = move |gpu| (0..self.layout.n_steps).map(move |step| (gpu, step));
        (0..self.layout.n_gpus)
            .flat_map(steps)
            .map(|(gpu, step)| (step, self.image(gpu).part(step * NUMBERS_BYTES, NUMBERS_BYTES)))
    }

    /// The numbers of one of the steps, on a GPU.
    pub(super) fn numbers_of(&self, gpu: usize, step: usize) -> Area {
        self.records[gpu].all.part(step * NUMBERS_BYTES, NUMBERS_BYTES)
    }

    /// The numbers of all steps: on a GPU, and where the host writes them.
    pub(super) fn numbers(&self, gpu: usize) -> (Area, Area) {
        let bytes = self.layout.numbers();
        (self.records[gpu].all.part(0, bytes), self.image(gpu).part(0, bytes))
    }

    /// The record of an error of one of the runs that look at data: on its GPU, and where the host reads it.
    pub(super) fn error(&self, gpu: usize, check: usize) -> (Area, Area) {
        let from = self.layout.numbers() + check * ERROR_BYTES;
        (self.records[gpu].all.part(from, ERROR_BYTES), self.image(gpu).part(from, ERROR_BYTES))
    }

    /// All records of errors, likewise; nothing where no run looks at data.
    pub(super) fn errors(&self, gpu: usize) -> Option<(Area, Area)> {
        let (from, bytes) = (self.layout.numbers(), self.layout.n_checks * ERROR_BYTES);
        (bytes > 0).then(|| (self.records[gpu].all.part(from, bytes), self.image(gpu).part(from, bytes)))
    }

    /// What kernels of a device need beside its arena, in a queue.
    pub(super) fn working(&self, device: DeviceId, queue: Queue) -> Area {
        self.working[device.index() - self.own.start][place(queue)].all
    }

    /// What a group has for what other processes send.
    pub(super) fn scratch(&self, group: GroupId) -> Area {
        self.scratch[&group].all
    }

    /// The address of what the library of matrix products needs for a device, in a queue.
    pub(super) fn workspace(&self, device: DeviceId, queue: Queue) -> u64 {
        self.workspaces[device.index() - self.own.start][place(queue)].as_ref().map_or(0, |memory| memory.all.address)
    }

    /// Where a microbatch's data is staged.
    pub(super) fn staged(&self, place: Staged) -> Area {
        self.staging.all.part(self.layout.data() + place.offset.to_usize(), place.bytes.to_usize())
    }

    /// The same, of what a step loads.
    pub(super) fn loaded(&self, value: ValueId, microbatch: MicrobatchId) -> Area {
        self.staged(self.loads[&(value, microbatch)])
    }

    /// Where a loss of a device comes to.
    pub(super) fn loss(&self, device: usize, number: usize, bytes: usize) -> Area {
        self.staging.all.part(self.layout.loss(device, number), bytes)
    }
}

/// Bytes that are allocated beside the arenas: for each device, and for each GPU.
struct Beside {
    device: usize,
    gpu: usize,
}

/// Whether everything fits on each GPU, before anything is allocated there.
fn analyze(program: &Program, assignment: &GpuAssignment, (own, nccl): (&Beside, Bytes)) -> Result<(), RunError> {
    for (gpu, used) in assignment.gpus.iter().zip(assignment.used("")) {
        let arenas =
            used.devices.iter().map(|device| program.devices[device.index()].arena.0.next_multiple_of(ROUNDED));
        let arenas = Bytes(arenas.sum());
        let beside = Bytes((own.gpu + used.devices.len() * own.device) as u64);
        let free = gpu.free_memory()?;
        if arenas + beside > free {
            let name = format!("GPU {} ({})", gpu.ordinal, gpu.name);
            let need = GpuNeed { gpu: name, devices: used.devices, arenas, beside, free, nccl };
            return Err(RunError::GpuMemory(Box::new(need)));
        }
    }
    Ok(())
}

/// To such multiples the driver rounds what is allocated.
const ROUNDED: u64 = 512;

/// Of the queues of a device that run kernels: which one.
fn place(queue: Queue) -> usize {
    queue.lane().map_or(0, |lane| 1 + lane.index())
}

fn room(gpu: &Arc<Gpu>, bytes: usize) -> Result<Option<DeviceMemory>, RunError> {
    Ok((bytes > 0).then(|| DeviceMemory::new(gpu, bytes)).transpose()?)
}

/// Zeros, that kernels leave as zeros.
fn working(gpu: &Arc<Gpu>) -> Result<DeviceMemory, RunError> {
    let memory = DeviceMemory::new(gpu, WORKING_BYTES.to_usize())?;
    memory.all.write(&vec![0; memory.all.bytes])?;
    Ok(memory)
}

fn arenas(
    program: &Program,
    device: DeviceId,
    gpu: &Arc<Gpu>,
) -> Result<(DeviceMemory, Option<PinnedMemory>), RunError> {
    let code = &program.devices[device.index()];
    let own = DeviceMemory::new(gpu, code.arena.to_usize())?;
    let bytes = code.host.arena;
    let host = (bytes > Bytes::ZERO).then(|| PinnedMemory::new(gpu, bytes.to_usize())).transpose();
    let host =
        host.map_err(
            |error| if error.is_out_of_memory() { RunError::OutOfMemory { device, bytes } } else { error.into() },
        )?;
    Ok((own, host))
}
