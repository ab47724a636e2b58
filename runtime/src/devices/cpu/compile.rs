//! From executables to launches: what a device can do without thinking again.

use super::foreign::Loops;
use super::jit::Jit;
use pipe_distributed::RunError;
use pipe_ir::graph::DType;
use pipe_ir::ids::{DeviceId, ExecId, LaneId};
use pipe_ir::instruction::Instruction;
use pipe_ir::kernels::{Kernel, plan};
use pipe_ir::lanes::queues;
use pipe_ir::program::{Body, Exec, Program};
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The executables of one device.
pub(crate) type Executables = BTreeMap<ExecId, Compiled>;

/// An executable that is ready to run.
pub(crate) enum Compiled {
    /// Kernels.
    Graph {
        /// In order.
        launches: Vec<Launch>,
        /// Which operand is scratch.
        scratch: Option<usize>,
    },
    /// The optimizer.
    Optimizer {
        /// Bytes of the parameters that it changes.
        part: Range<usize>,
        /// Where these begin in the buffer of the parameters, which may hold nothing else.
        from: usize,
        /// Their type.
        dtype: DType,
    },
}

/// A kernel and, where it has any, its machine code.
pub(crate) struct Launch {
    pub(super) kernel: Kernel,
    pub(super) loops: Option<Loops>,
}

/// Compiles all executables that the list of a device, or a lane of it, runs.
pub(crate) fn compile(
    program: &Program,
    device: DeviceId,
    lane: Option<LaneId>,
    jit: &mut Jit,
) -> Result<Executables, RunError> {
    let step = &program.devices[device.index()].step;
    let own = step.iter().zip(queues(step)).filter(|(_, queue)| *queue == lane);
    let runs = own.filter_map(|(instruction, _)| match instruction {
        Instruction::Run { exec, .. } => Some(*exec),
        _ => None,
    });
    let used: BTreeSet<ExecId> = runs.collect();
    used.into_iter().map(|id| Ok((id, executable(program, program.exec(id), jit)?))).collect()
}

fn executable(program: &Program, exec: &Exec, jit: &mut Jit) -> Result<Compiled, RunError> {
    let operand_of = |kind| exec.operands.iter().position(|operand| program.value(operand.value).kind == kind);
    match &exec.body {
        Body::Abstract => Err(RunError::Unsupported(format!(
            "@{} has no body: a schedule without a model runs on the null backend only",
            exec.name()
        ))),
        Body::Optimizer => {
            let UpdatedPart { bytes: part, from, dtype } = updated(program, exec);
            Ok(Compiled::Optimizer { part, from, dtype })
        }
        Body::Graph(graph) => {
            let launches = plan(graph).kernels.into_iter().map(|kernel| launch(kernel, jit));
            Ok(Compiled::Graph {
                launches: launches.collect::<Result<_, _>>()?,
                scratch: operand_of(ValueKind::Scratch),
            })
        }
    }
}

/// What an update changes.
pub struct UpdatedPart {
    /// Bytes of the parameters.
    pub bytes: Range<usize>,
    /// Where these begin in the buffer of the parameters, which may hold nothing else.
    pub from: usize,
    /// Their type.
    pub dtype: DType,
}

/// What an update changes.
pub fn updated(program: &Program, exec: &Exec) -> UpdatedPart {
    let parameters = exec.operands.first().map(|operand| program.value(operand.value));
    let share = parameters.and_then(|value| value.share);
    let parameters = share.map_or(parameters, |share| Some(program.value(share.whole)));
    let all = 0..parameters.map_or(Bytes::ZERO, |value| value.bytes).to_usize();
    let bytes = exec.chunk.map_or(all, |chunk| chunk.from.to_usize()..chunk.to.to_usize());
    let dtype = parameters.map_or(DType::F32, Value::dtype);
    let from = share.map_or(bytes.start, |_| 0);
    UpdatedPart { bytes, from, dtype }
}

/// Whether an update leaves the old version of the weights as it is, and makes the new one in another buffer.
pub fn makes_new_version(exec: &Exec) -> bool {
    matches!(exec.operands.as_slice(), [old, new, ..] if old.value == new.value)
}

/// Prepares one kernel.
pub(super) fn launch(kernel: Kernel, jit: &mut Jit) -> Result<Launch, RunError> {
    let loops = match &kernel {
        Kernel::Elementwise(elementwise) => Some(Loops::new(elementwise.clone(), jit.code(&elementwise.expression)?)),
        Kernel::Gemm(_) | Kernel::Copy { .. } | Kernel::Sum(_) | Kernel::Rows(_) => None,
        Kernel::Attention(_) | Kernel::Routed(_) => None,
    };
    Ok(Launch { kernel, loops })
}
