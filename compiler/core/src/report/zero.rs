//! What replicas divide: the state that each device keeps, beside what it would keep alone.

use crate::analyze::Analysis;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::{DeviceProgram, Program};
use pipe_ir::value::{Value, ValueKind};
use pipe_model::stage_set::{StageSet, WeightGroup};
use serde::Serialize;

/// What is divided.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ZeroReport {
    /// The stage of ZeRO.
    pub stage: u32,
    /// What that divides: `optimizer, gradients`.
    pub what: &'static str,
    /// Of every device.
    pub per_device: Vec<ShareReport>,
}

/// The state of one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ShareReport {
    /// Which.
    pub device: u32,
    /// Bytes of the optimizer's state that it keeps.
    pub optimizer_bytes: u64,
    /// The same if nothing were divided.
    pub undivided_optimizer_bytes: u64,
    /// Bytes of gradients that are on it between steps.
    pub gradient_bytes: u64,
    /// The same if nothing were divided, which is also what comes and goes during a step.
    pub undivided_gradient_bytes: u64,
    /// Bytes of weights that are on it between steps.
    pub parameter_bytes: u64,
    /// The same if nothing were divided.
    pub undivided_parameter_bytes: u64,
    /// How often it takes part in a gathering of weights in a step.
    pub gatherings: usize,
    /// Bytes of weights that these bring, its own shares among them.
    pub gathered_bytes: u64,
}

impl ZeroReport {
    /// None where nothing is divided.
    pub fn new(analysis: &Analysis, program: &Program, stages: &StageSet) -> Option<Self> {
        let zero = analysis.pipeline.as_ref().map(|pipeline| pipeline.zero).filter(|zero| zero.any())?;
        let per_device = (0..program.devices.len()).map(|index| {
            let device = DeviceId::from_index(index);
            let kept = |kind| kept(program, device, kind);
            let whole = |kind| whole(analysis, stages, device, kind);
            let (gatherings, gathered_bytes) = gathered(&program.devices[index]);
            ShareReport {
                device: device.0,
                optimizer_bytes: kept(ValueKind::OptimizerState),
                undivided_optimizer_bytes: whole(ValueKind::OptimizerState),
                gradient_bytes: kept(ValueKind::ParameterGradients),
                undivided_gradient_bytes: whole(ValueKind::ParameterGradients),
                parameter_bytes: kept(ValueKind::Parameters),
                undivided_parameter_bytes: whole(ValueKind::Parameters),
                gatherings,
                gathered_bytes,
            }
        });
        Some(Self { stage: zero.number(), what: zero.words(), per_device: per_device.collect() })
    }
}

/// Bytes of a kind that the set-up of a device fills.
fn kept(program: &Program, device: DeviceId, kind: ValueKind) -> u64 {
    let filled = program.devices[device.index()].setup.iter().filter_map(|instruction| match instruction {
        Instruction::Fill { value, .. } => Some(program.value(*value)),
        _ => None,
    });
    bytes(filled, kind)
}

/// How often a device gathers weights, and the bytes of all of these.
fn gathered(code: &DeviceProgram) -> (usize, u64) {
    let bytes = code.step.iter().filter_map(|instruction| match instruction {
        Instruction::GatherStart { buffer, .. } => Some(code.buffers[buffer.index()].bytes.0),
        _ => None,
    });
    (bytes.clone().count(), bytes.sum())
}

/// Bytes of a kind that the updates of all weights on a device work on, and of its frozen weights, which none does.
fn whole(analysis: &Analysis, stages: &StageSet, device: DeviceId, kind: ValueKind) -> u64 {
    let lives = |stage: &StageId| analysis.schedule.placement.is_home(*stage, device);
    let own = stages.weights.iter().filter(|group: &&WeightGroup| group.stages.iter().any(lives));
    let of = |group: &WeightGroup| match group.update {
        Some(update) => {
            let operands = stages.execs[update.index()].operands.iter();
            bytes(operands.map(|one| &stages.values[one.value.index()]), kind)
        }
        None => bytes(std::iter::once(&stages.values[group.parameters.index()]), kind),
    };
    own.map(of).sum()
}

fn bytes<'a>(values: impl Iterator<Item = &'a Value>, kind: ValueKind) -> u64 {
    values.filter(|value| value.kind == kind).map(|value| value.bytes.0).sum()
}
