//! The CPU device: kernels on the bytes of an arena, by one thread.

mod attention;
mod bf16;
mod compile;
mod copy;
mod exp;
mod foreign;
mod jit;
mod lanes;
mod launch;
mod number;
mod optimizer;
mod routed;
mod rows;

use crate::devices::{Device, Loader};
use crate::values::init;
use compile::Compiled;
pub(crate) use compile::{Executables, Launch, compile, launch};
pub use compile::{Piece, SquaredPart, UpdatedPart, makes_new_version, squared, updated};
pub(crate) use foreign::gemm as library_gemm;
pub(crate) use jit::Jit;
pub use lanes::instruction_set;
pub(crate) use launch::Launcher;
pub use launch::{run_plan, run_squares, run_update};
pub(crate) use number::{Number, with_numbers};
pub use optimizer::rate as learning_rate;
use pipe_distributed::memory::{Memories, Region};
use pipe_distributed::{Fault, Profile};
use pipe_ir::graph::DType;
use pipe_ir::ids::{BufferId, DeviceId, ExecId, MicrobatchId, ValueId};
use pipe_ir::instruction::Fill;
use pipe_ir::program::Buffer;
use pipe_ir::verify::Verified;
use std::sync::Arc;

/// Bits that are no number in any type, once or repeated.
pub const NO_NUMBER: u32 = 0x7fff_7fff;

/// What all devices of a run share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) program: Arc<Verified>,
    pub(crate) loader: Arc<dyn Loader>,
    pub(crate) seed: u64,
    /// Freed bytes become NaN.
    pub(crate) strict: bool,
    pub(crate) profile: bool,
}

/// One thread's share of the machine.
pub(crate) struct CpuDevice {
    shared: Shared,
    device: DeviceId,
    memory: Memories,
    places: Vec<Buffer>,
    executables: Executables,
    launcher: Launcher,
    /// Type of what is emitted.
    loss: DType,
}

impl CpuDevice {
    /// A device of a program, with its arena and its compiled executables.
    pub(crate) fn new(shared: Shared, device: DeviceId, memory: Memories, executables: Executables) -> Self {
        let places = shared.program.program().devices[device.index()].buffers.clone();
        let launcher = Launcher::new(shared.profile);
        let loss = shared.program.program().loss_type();
        Self { shared, device, memory, places, executables, launcher, loss }
    }
}

impl Device for CpuDevice {
    fn region(&self, buffer: BufferId) -> Region {
        self.memory.region(self.places[buffer.index()])
    }

    fn freed(&mut self, buffer: BufferId) {
        if self.shared.strict {
            self.region(buffer).numbers_mut().fill(NO_NUMBER);
        }
    }

    fn fill(&mut self, buffer: BufferId, value: ValueId, with: Fill) -> Result<(), Fault> {
        let region = self.region(buffer);
        region.bytes_mut().fill(0);
        match with {
            Fill::Zero => {}
            Fill::Init => {
                let program = self.shared.program.program();
                init::fill(program.value(value), self.shared.seed, (region, program.member(self.device)));
            }
        }
        Ok(())
    }

    fn load(&mut self, step: u64, buffer: BufferId, value: ValueId, microbatch: MicrobatchId) -> Result<(), Fault> {
        let bytes = self.shared.program.program().value(value).bytes.to_usize();
        self.shared.loader.load(step, value, microbatch, self.region(buffer).part(0, bytes).bytes_mut())
    }

    fn run(&mut self, step: u64, exec: ExecId, operands: &[BufferId]) -> Result<(), Fault> {
        let (memory, places) = (&self.memory, &self.places);
        let regions = operands.iter().map(|buffer| memory.region(places[buffer.index()]));
        match self.executables.get_mut(&exec) {
            Some(Compiled::Graph { launches, scratch }) => self.launcher.graph(launches, *scratch, regions),
            Some(Compiled::Optimizer { part, norm, orthogonal }) => match &self.shared.program.program().training {
                Some(training) => {
                    let mut regions: Vec<Region> = regions.collect();
                    let norm = norm.map(|norm| regions[norm].numbers::<f64>()[0]);
                    if makes_new_version(self.shared.program.program().exec(exec)) {
                        let all = |region: Region| region.part(0, part.bytes.end);
                        all(regions[1]).bytes_mut().copy_from_slice(all(regions[0]).bytes());
                        // The new version takes the place of the old one; all others keep theirs.
                        regions[0] = regions[1];
                        regions.copy_within(2.., 1);
                    }
                    let (training, own) = ((training, norm), (&*part, orthogonal));
                    with_numbers!(part.dtype, N => self.launcher.optimizer::<N>(training, step, own, &regions))
                }
                None => Err(Fault::new("an update needs training settings, but the program has none")),
            },
            Some(Compiled::Squares(part)) => {
                let [gradients, sum] = operands else {
                    return Err(Fault::new("squares are added up of gradients, to a sum"));
                };
                let [gradients, sum] = [gradients, sum].map(|buffer| memory.region(places[buffer.index()]));
                self.launcher.squares(part, gradients, sum);
                Ok(())
            }
            None => Err(Fault::new(format!("{exec} was not compiled for this device"))),
        }
    }

    fn emit(&mut self, buffer: BufferId) -> Result<f64, Fault> {
        let region = self.region(buffer);
        Ok(with_numbers!(self.loss, N => region.numbers::<N>()[0].to_f64()))
    }

    fn is_timed(&self) -> bool {
        true
    }

    fn profile(&self) -> Profile {
        self.launcher.profile()
    }
}
