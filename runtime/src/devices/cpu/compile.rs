//! From executables to launches: what a device can do without thinking again.

use super::foreign::Loops;
use super::jit::Jit;
use pipe_distributed::RunError;
use pipe_ir::graph::DType;
use pipe_ir::ids::{DeviceId, ExecId, LaneId};
use pipe_ir::instruction::Instruction;
use pipe_ir::kernels::{Kernel, plan};
use pipe_ir::lanes::queues;
use pipe_ir::muon::{self, Matrices, Orthogonalization, Rule};
use pipe_ir::program::{Body, Exec, Program};
use pipe_ir::training::DecayedWeights;
use pipe_ir::units::Bytes;
use pipe_ir::value::{TensorSlot, Value, ValueKind};
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
        /// What it changes.
        part: UpdatedPart,
        /// Which operand is the sum of the squares of all gradients, where these are clipped.
        norm: Option<usize>,
        /// Muon's kernels, by the shape of matrices.
        orthogonal: Orthogonal,
    },
    /// Sums of squares.
    Squares(SquaredPart),
}

/// The kernels that orthogonalize matrices, by shape. `scratch` is the position of the scratch operand.
#[derive(Default)]
pub(crate) struct Orthogonal {
    pub(super) scratch: Option<usize>,
    pub(super) launches: BTreeMap<Matrices, (Orthogonalization, Vec<Launch>)>,
}

impl Orthogonal {
    /// Compiles the kernels for all matrices among these pieces.
    pub(super) fn new(pieces: &[Piece], scratch: Option<usize>, jit: &mut Jit) -> Result<Self, RunError> {
        let shapes: BTreeSet<Matrices> = pieces.iter().filter_map(|piece| piece.matrices).collect();
        let operand = scratch.and_then(|scratch| u32::try_from(scratch).ok()).unwrap_or_default();
        let launches = shapes.into_iter().map(|shape| {
            let mut steps = shape.orthogonalization(operand);
            let kernels = std::mem::take(&mut steps.kernels).into_iter();
            Ok((shape, (steps, kernels.map(|kernel| launch(kernel, jit)).collect::<Result<_, _>>()?)))
        });
        Ok(Self { scratch, launches: launches.collect::<Result<_, RunError>>()? })
    }
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
    used.into_iter().map(|id| Ok((id, executable(program, (device, program.exec(id)), jit)?))).collect()
}

fn executable(program: &Program, (device, exec): (DeviceId, &Exec), jit: &mut Jit) -> Result<Compiled, RunError> {
    let operand_of = |kind| exec.operands.iter().position(|operand| program.value(operand.value).kind == kind);
    match &exec.body {
        Body::Abstract => Err(RunError::Unsupported(format!(
            "@{} has no body: a schedule without a model runs on the null backend only",
            exec.name()
        ))),
        Body::Optimizer => {
            let (part, norm) = (updated(program, exec), operand_of(ValueKind::GradientNorm));
            let orthogonal = Orthogonal::new(&part.pieces, operand_of(ValueKind::Scratch), jit)?;
            Ok(Compiled::Optimizer { part, norm, orthogonal })
        }
        Body::Squares => Ok(Compiled::Squares(squared(program, device, exec))),
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
    /// These bytes in pieces, in their order.
    pub pieces: Vec<Piece>,
}

/// Some of the bytes that an update changes, from the first of these on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Which.
    pub bytes: Range<usize>,
    /// Whether the weights in them decay.
    pub decays: bool,
    /// Offset in the state of the second moment of the first weight, if the optimizer has second moments.
    pub second: usize,
    /// Set if Muon updates the piece as matrices.
    pub matrices: Option<Matrices>,
}

impl UpdatedPart {
    /// Bytes of weights that are updated element by element.
    pub fn by_number(&self) -> u64 {
        self.pieces.iter().filter(|piece| piece.matrices.is_none()).map(|piece| piece.bytes.len() as u64).sum()
    }

    /// The weights that are updated as matrices.
    pub fn matrices(&self) -> impl Iterator<Item = Matrices> + '_ {
        self.pieces.iter().filter_map(|piece| piece.matrices)
    }
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
    let by_matrix = program.training.as_ref().is_some_and(|training| training.optimizer.state_of_matrices().is_some());
    let mut values = exec.operands.iter().map(|operand| program.value(operand.value));
    let state = values.find(|value| value.kind == ValueKind::OptimizerState).filter(|_| by_matrix);
    let pieces = match parameters.zip(state) {
        Some((parameters, state)) => pieces_by_matrix(program, parameters, state),
        None => pieces(program, parameters, &bytes),
    };
    UpdatedPart { bytes, from, dtype, pieces }
}

/// Of which gradients squares are added up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SquaredPart {
    /// Their type.
    pub dtype: DType,
    /// Their bytes in the buffer of the gradients, ascending.
    pub bytes: Vec<Range<usize>>,
}

/// Of which gradients a device adds up the squares. What all members have whole is the first one's; what lies between
/// tensors is zero.
pub fn squared(program: &Program, device: DeviceId, exec: &Exec) -> SquaredPart {
    let gradients = exec.operands.first().map(|operand| program.value(operand.value));
    let all = 0..gradients.map_or(Bytes::ZERO, |value| value.bytes).to_usize();
    let own = exec.chunk.map_or(all, |chunk| chunk.from.to_usize()..chunk.to.to_usize());
    let dtype = gradients.map_or(DType::F32, Value::dtype);
    if program.member(device) == 0 {
        return SquaredPart { dtype, bytes: vec![own] };
    }
    let divided = gradients.into_iter().flat_map(|value| &value.tensors).filter(|slot| slot.split.is_some());
    let part = divided.map(|slot| {
        let start = slot.offset.to_usize();
        start.max(own.start)..(start + slot.ty.bytes().to_usize()).min(own.end)
    });
    let mut bytes: Vec<Range<usize>> = part.filter(|part| !part.is_empty()).collect();
    bytes.sort_by_key(|part| part.start);
    SquaredPart { dtype, bytes }
}

/// Divides parameters into one piece for each weight, with its rule of Muon.
fn pieces_by_matrix(program: &Program, parameters: &Value, state: &Value) -> Vec<Piece> {
    let decayed = program.training.as_ref().map_or(DecayedWeights::All, |training| training.decayed);
    let piece = |(slot, rule): (&TensorSlot, Option<Rule>)| {
        let start = slot.offset.to_usize();
        let (second, matrices) = match rule? {
            Rule::Numbers(second) => (second.to_usize(), None),
            Rule::Matrices(matrices) => (0, Some(matrices)),
        };
        let bytes = start..start + slot.ty.bytes().to_usize();
        Some(Piece { bytes, decays: decayed.contains(&slot.ty), second, matrices })
    };
    muon::rules(parameters, state).into_iter().filter_map(piece).collect()
}

/// Takes some bytes of parameters apart where weights that decay and weights that do not are neighbours. What lies
/// between two tensors goes with the second one, and what lies behind all of them with the last.
fn pieces(program: &Program, parameters: Option<&Value>, part: &Range<usize>) -> Vec<Piece> {
    let decayed = program.training.as_ref().map_or(DecayedWeights::All, |training| training.decayed);
    let mut slots: Vec<_> = parameters.into_iter().flat_map(|value| &value.tensors).collect();
    slots.sort_by_key(|slot| slot.offset);
    let ends = slots.into_iter().map(|slot| {
        let end = slot.offset.to_usize().saturating_add(slot.ty.bytes().to_usize());
        (end.min(part.end), decayed.contains(slot.whole()))
    });
    let (mut pieces, mut done) = (Vec::<Piece>::new(), part.start);
    for (end, decays) in ends {
        match pieces.last_mut() {
            _ if end <= done => continue,
            Some(last) if last.decays == decays => last.bytes.end = end - part.start,
            _ => {
                let bytes = done - part.start..end - part.start;
                pieces.push(Piece { second: part.len() + bytes.start, bytes, decays, matrices: None });
            }
        }
        done = end;
    }
    match pieces.last_mut() {
        Some(last) => last.bytes.end = part.len(),
        None => pieces.push(Piece { bytes: 0..part.len(), decays: true, second: part.len(), matrices: None }),
    }
    pieces
}

/// Whether an update leaves the old version of the weights as it is, and makes the new one in another buffer.
pub fn makes_new_version(exec: &Exec) -> bool {
    matches!(exec.operands.as_slice(), [old, new, ..] if old.value == new.value)
}

/// Prepares one kernel.
pub(crate) fn launch(kernel: Kernel, jit: &mut Jit) -> Result<Launch, RunError> {
    let loops = match &kernel {
        Kernel::Elementwise(elementwise) => Some(Loops::new(elementwise.clone(), jit.code(&elementwise.expression)?)),
        Kernel::Gemm(_) | Kernel::Copy { .. } | Kernel::Sum(_) | Kernel::Rows(_) => None,
        Kernel::Attention(_) | Kernel::Routed(_) => None,
    };
    Ok(Launch { kernel, loops })
}
