//! Pipelines whose replicas divide the state of their weights, and all that they learn.

use crate::training::{assert_peaks, losses, places, start, steps};
use pipe_ir::instruction::{Collective, Instruction};
use pipe_ir::program::Program;
use pipe_ir::shares::share;
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::Run;
use pipe_runtime::checkpoint::{NamedTensor, state};
use std::sync::Arc;

/// Of a small GPT.
pub const SIZES: &str = "vocab = 17, hidden = 16, heads = 2, blocks = 4, sequence = 5, rows = 2";
/// The optimizer of [`crate::pipelines::gpt`].
pub const ADAMW: &str = "adamw(learning_rate = 0.001, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1)";

/// The whole model on every device, a microbatch each, and many stages: gradients of a stage are
/// only there until it is updated.
pub const STAGED: &str = "
    schedule staged(parts = 6) {
        stages parts
        place s, m on m % D
        order d {
            for s in 0..S { F[s, d] }
            for s in 0..S { BW[S - 1 - s, d] }
        }
    }";

/// What was learned: bits of losses by step, then weights and optimizer state by name.
#[derive(PartialEq, Debug)]
pub struct Learned {
    /// By step and microbatch.
    pub losses: Vec<Vec<u64>>,
    /// By name.
    pub tensors: Vec<NamedTensor>,
    /// The gradients of the last step by name, where they stay on the devices.
    pub gradients: Vec<(String, Vec<u8>)>,
}

/// Takes some steps. Measured peaks must be the compiled ones, and the weights of all replicas the same.
///
/// # Panics
/// If they are not.
#[must_use]
pub fn learn(program: &Arc<Verified>, stress: Option<u64>, n_steps: u64) -> Learned {
    let mut run = start(program, stress);
    let reports = steps(&mut run, 0..n_steps);
    assert_peaks(program.program(), &reports);
    for (value, tensor) in places(run.program(), ValueKind::Parameters) {
        let all = run.read_all(value, tensor);
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "replicas of {}", run.program().value(value).name);
    }
    let bits = losses(&reports).into_iter().map(|step| step.into_iter().map(|(_, loss)| loss).collect());
    Learned { losses: bits.collect(), tensors: saved(&run), gradients: gradients(&run) }
}

/// What a checkpoint has, by name.
#[must_use]
pub fn saved(run: &Run) -> Vec<NamedTensor> {
    let mut tensors = state(run, 0).expect("read").tensors;
    tensors.sort_by(|one, other| one.name.cmp(&other.name));
    tensors
}

/// The gradients of the last step. Where they were scattered, each device has its share of the sum.
fn gradients(run: &Run) -> Vec<(String, Vec<u8>)> {
    let program = run.program();
    let is_scattered = collectives(program, Collective::ReduceScatter) > 0;
    let mut found = Vec::new();
    for (value, tensor) in places(program, ValueKind::ParameterGradients) {
        let (row, all) = (program.value(value), run.read_all(value, tensor));
        let slot = &row.tensors[tensor];
        let owner =
            |byte: u64| (0..all.len()).find(|member| share(row.bytes, all.len(), *member).contains(&Bytes(byte)));
        let of = |index: usize| if is_scattered { owner(slot.offset.0 + index as u64).unwrap_or(0) } else { 0 };
        let length = all.first().map_or(0, Vec::len);
        found.push((slot.name.clone(), (0..length).map(|index| all[of(index)][index]).collect()));
    }
    found.sort();
    found
}

/// How often devices join a collective.
#[must_use]
pub fn collectives(program: &Program, meant: Collective) -> usize {
    let is_meant =
        |one: &&Instruction| matches!(one, Instruction::CollStart { collective, .. } if *collective == meant);
    program.devices.iter().map(|code| code.step.iter().filter(is_meant).count()).sum()
}

/// Bytes of one kind that are on a device between steps.
#[must_use]
pub fn held(program: &Program, device: usize, kind: ValueKind) -> u64 {
    let fills = program.devices[device].setup.iter().filter_map(|instruction| match instruction {
        Instruction::Fill { value, .. } => Some(program.value(*value)),
        _ => None,
    });
    fills.filter(|value| value.kind == kind).map(|value| value.bytes.0).sum()
}

/// How often devices gather weights that they keep in shares.
#[must_use]
pub fn gatherings(program: &Program) -> usize {
    let gathers = |one: &&Instruction| matches!(one, Instruction::GatherStart { .. });
    program.devices.iter().map(|code| code.step.iter().filter(gathers).count()).sum()
}
