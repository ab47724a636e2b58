//! Threads: devices without a GPU.
//!
//! CPU devices have one thread each, alive from the set-up to the end of the run; null devices take
//! turns on the caller's thread. A fault or panic of one device ends the run on all of them, with
//! one error.

use crate::channels::Channels;
use crate::devices::cpu::{CpuDevice, Jit, Shared, compile};
use crate::devices::null::NullDevice;
use crate::devices::{Device, Loader};
use crate::engine::{BufferPlace, Engine};
use crate::executor::Executor;
use crate::executor::lanes::Lanes;
use crate::executor::pool::{Command, ExecutorPool};
use crate::run::{Options, Pace};
use pipe_distributed::memory::{Memories, Region};
use pipe_distributed::{Profile, RankView, RunError, StepReport};
use pipe_ir::ids::{DeviceId, LaneId};
use pipe_ir::program::Program;
use pipe_ir::verify::{List, Verified};
use std::sync::Arc;

/// All devices of this process.
pub(crate) struct Threads {
    // Threads first: they end before what they use is dropped.
    pool: ExecutorPool,
    channels: Arc<Channels>,
    profiled: bool,
    /// By device; none on the null backend, and of devices of other ranks.
    memories: Vec<Option<Memories>>,
    /// Owns the machine code.
    _jit: Option<Jit>,
}

impl Threads {
    /// Allocates arenas, compiles executables, starts threads and runs the set-up lists.
    pub(crate) fn start(
        program: &Arc<Verified>,
        options: &Options,
        loader: Arc<dyn Loader>,
        rank_view: Option<&RankView>,
    ) -> Result<Self, RunError> {
        let n_devices = program.program().devices.len();
        let here = |device: &DeviceId| rank_view.is_none_or(|rank_view| rank_view.has(*device));
        let own: Vec<DeviceId> = (0..n_devices).map(DeviceId::from_index).filter(here).collect();
        let (mut memories, mut jit) = (vec![None; n_devices], None);
        let lanes: Vec<Option<LaneId>> =
            [None].into_iter().chain((0..program.program().lanes.len()).map(LaneId::from_index).map(Some)).collect();
        let devices: Vec<Vec<Box<dyn Device>>> = if !options.backend.computes() {
            let null = |_: &Option<LaneId>| Box::new(NullDevice) as Box<dyn Device>;
            own.iter().map(|_| lanes.iter().map(null).collect()).collect()
        } else {
            allocate(program.program(), &own, &mut memories)?;
            cpu_devices(program, options, (loader, &lanes), &memories, jit.insert(Jit::new()?))?
        };
        let channels = Arc::new(Channels::new(program.program(), options.stress, rank_view)?);
        let executors = devices.into_iter().zip(own).map(|(mut devices, id)| {
            let beside = devices.split_off(1);
            let device = devices.remove(0);
            let lanes = Lanes::start(program, id, beside, (&channels, options.stress));
            let mut executor =
                Executor::new(Arc::clone(program), id, (device, lanes), Arc::clone(&channels), options.stress);
            executor.set_trace(options.trace);
            executor
        });
        // Lanes have threads of their own.
        let is_alone = rank_view.is_none() && lanes.len() == 1;
        let takes_turns = !options.backend.computes() && options.stress.is_none() && is_alone;
        let pool = ExecutorPool::new(executors.collect(), Arc::clone(&channels), takes_turns);
        let mut threads = Self { pool, channels, profiled: options.profile, memories, _jit: jit };
        let set_up = threads.pool.execute(Command { list: List::Setup, step: 0 });
        if set_up.is_err() && rank_view.is_some() {
            // Messages of other ranks may still arrive.
            threads.forget();
        }
        set_up?;
        Ok(threads)
    }

    fn region(&self, place: BufferPlace) -> Option<Region> {
        Some(self.memories.get(place.device.index())?.as_ref()?.region(place.buffer))
    }
}

impl Engine for Threads {
    fn step(&mut self, step: u64, _: Pace) -> Result<StepReport, RunError> {
        self.pool.execute(Command { list: List::Step, step })
    }

    fn profile(&mut self) -> Profile {
        let mut profile = self.pool.profile();
        if self.profiled {
            profile.merge(&self.channels.profile());
        }
        profile
    }

    fn read(&self, place: BufferPlace) -> Result<Option<Vec<u8>>, RunError> {
        Ok(self.region(place).map(|region| region.bytes().to_vec()))
    }

    fn write(&self, place: BufferPlace, data: &[u8]) -> Result<bool, RunError> {
        Ok(self.region(place).map(|region| region.bytes_mut().copy_from_slice(data)).is_some())
    }

    fn forget(&mut self) {
        self.memories.drain(..).for_each(std::mem::forget);
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

/// By device: what executes its list, and what executes each lane, on the same memory.
fn cpu_devices(
    program: &Arc<Verified>,
    options: &Options,
    (loader, lanes): (Arc<dyn Loader>, &[Option<LaneId>]),
    memories: &[Option<Memories>],
    jit: &mut Jit,
) -> Result<Vec<Vec<Box<dyn Device>>>, RunError> {
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
        let mut device = |lane: &Option<LaneId>| {
            let executables = compile(program.program(), id, *lane, jit)?;
            Ok(Box::new(CpuDevice::new(shared.clone(), id, memory.clone(), executables)) as Box<dyn Device>)
        };
        lanes.iter().map(&mut device).collect()
    });
    devices.collect()
}
