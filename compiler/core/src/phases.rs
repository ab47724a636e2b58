//! Phases: pipelines that run one after the other in every step, on the same devices, with a barrier between.
//!
//! Each phase is compiled as a pipeline of its own. Together they take as long as all of them, and a device holds what
//! its fullest phase does, beside the weights and the state that other phases keep there. One model in two phases is
//! one set of weights if it is cut alike and its stages live on the same devices.

use crate::Compilation;
use crate::report::time;
use pipe_ir::ids::{BufferId, DeviceId, StageId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::{DeviceProgram, Space};
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::files::{self, Loader};
use pipe_syntax::source::{Source, Sources};
use serde::Serialize;
use std::collections::BTreeSet;

/// The names of the phases of a pipeline; without a name, of the only pipeline of the root file. Empty if it has none,
/// or if the text is refused.
pub fn names(root: Source, loader: &Loader<'_>, pipeline: Option<&str>) -> Vec<String> {
    let files = files::load(&mut Sources::default(), root, loader);
    files.map_or_else(|_| Vec::new(), |files| files.phases(pipeline))
}

/// What phases come to together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Together {
    /// All makespans. None if one is not known, or if units of time differ.
    pub makespan: Option<f64>,
    /// What the unit of time is called, where it has a name.
    pub time_unit: Option<&'static str>,
    /// By device, if every phase has a model: what it holds at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub per_device: Vec<DeviceTogether>,
}

/// What a device holds in the fullest of all phases.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeviceTogether {
    /// Which.
    pub device: usize,
    /// The most bytes.
    pub peak_bytes: u64,
    /// What other phases keep there meanwhile.
    pub kept_bytes: u64,
    /// The phase, by position.
    pub phase: usize,
    /// What the device has, where the pipeline says so.
    pub limit_bytes: Option<u64>,
}

/// Adds phases up.
pub fn together(phases: &[Compilation]) -> Together {
    let units: Vec<_> = phases.iter().map(|phase| phase.analysis.as_ref().and_then(|own| own.unit)).collect();
    let is_same_unit = units.windows(2).all(|pair| pair[0] == pair[1]);
    let makespans = phases.iter().map(|phase| Some(phase.analysis.as_ref()?.timeline.makespan()));
    let makespan: Option<Vec<Ticks>> = makespans.collect::<Option<_>>().filter(|_| is_same_unit);
    Together {
        makespan: makespan.map(|all| time(all.into_iter().fold(Ticks::ZERO, |sum, own| sum + own))),
        time_unit: units.first().copied().flatten().filter(|_| is_same_unit),
        per_device: devices(phases).unwrap_or_default(),
    }
}

/// None if a phase has no program with bytes.
fn devices(phases: &[Compilation]) -> Option<Vec<DeviceTogether>> {
    let programs: Vec<_> =
        phases.iter().map(|phase| phase.lowered().filter(|_| has_model(phase))).collect::<Option<_>>()?;
    let n_devices = programs.iter().map(|program| program.devices.len()).min()?;
    // The first phase with the same weights stands for all of them.
    let owner = |phase: usize| (0..phase).find(|other| shares(&phases[*other], &phases[phase])).unwrap_or(phase);
    let owners: Vec<usize> = (0..phases.len()).map(owner).collect();
    let of_device = |device: usize| {
        let state = |phase: usize| kept(&programs[phase].devices[device]);
        let most_of = |owner: usize| {
            let members = (0..phases.len()).filter(|phase| owners[*phase] == owner);
            members.map(state).max().unwrap_or(0)
        };
        let all: u64 = (0..phases.len()).filter(|phase| owners[*phase] == *phase).map(most_of).sum();
        let of_phase = |phase: usize| {
            let DeviceProgram { peak, limit, .. } = &programs[phase].devices[device];
            let kept_bytes = all - state(phase);
            let limit_bytes = limit.map(|limit| limit.0);
            DeviceTogether { device, peak_bytes: peak.0 + kept_bytes, kept_bytes, phase, limit_bytes }
        };
        (0..phases.len()).map(of_phase).max_by_key(|one| one.peak_bytes)
    };
    (0..n_devices).map(of_device).collect()
}

fn has_model(phase: &Compilation) -> bool {
    phase.analysis.as_ref().is_some_and(|analysis| analysis.has_model())
}

/// Whether two phases have the same model, cut alike, on the same devices. Models from a `config.json` never do.
fn shares(one: &Compilation, other: &Compilation) -> bool {
    let own = |phase: &Compilation| {
        let analysis = phase.analysis.as_ref()?;
        let model = analysis.pipeline.as_ref()?.model.clone()?;
        let placement = &analysis.schedule.placement;
        let homes: Vec<Vec<DeviceId>> = placement.stages().map(|stage| placement.devices_of(stage).to_vec()).collect();
        let values = phase.lowered()?.values.iter().filter(|value| value.kind == ValueKind::Parameters);
        // Where the compiler cuts the model, phases may be cut differently.
        let of_stage = values.flat_map(|value| value.tensors.iter().map(|tensor| (value.stage, tensor.name.clone())));
        let weights: BTreeSet<(StageId, String)> = of_stage.collect();
        Some((model.model, model.arguments, model.precision, homes, weights))
    };
    own(one).is_some_and(|one| own(other) == Some(one))
}

/// The bytes that a device keeps from step to step.
fn kept(device: &DeviceProgram) -> u64 {
    let size = |buffer: BufferId| {
        let buffer = device.buffers[buffer.index()];
        if buffer.space == Space::Device { buffer.bytes.0 } else { 0 }
    };
    device.setup.iter().fold(0, |kept: u64, instruction| match instruction {
        Instruction::Alloc { buffer } => kept + size(*buffer),
        Instruction::Free { buffer } => kept.saturating_sub(size(*buffer)),
        _ => kept,
    })
}

/// An error for each device that would hold a phase alone, but not what other phases keep there, too. Each is of the
/// phase with the position that comes with it.
pub fn exceeded(together: &Together, phases: &[Compilation]) -> Vec<(usize, Diagnostic)> {
    let is_over = |one: &&DeviceTogether| {
        let alone = one.peak_bytes - one.kept_bytes;
        one.limit_bytes.is_some_and(|limit| alone <= limit && one.peak_bytes > limit)
    };
    let over = together.per_device.iter().filter(is_over);
    let error = |one: &DeviceTogether| {
        let pipeline = phases[one.phase].analysis.as_ref()?.pipeline.as_ref()?;
        let (peak, kept, limit) = (Bytes(one.peak_bytes), Bytes(one.kept_bytes), Bytes(one.limit_bytes?));
        let message = format!("d{} holds {peak} in phase `{}`, but has {limit}", one.device, pipeline.name);
        let error = Diagnostic::error(Code::MemoryExceeded, pipeline.span, "the fullest phase", message);
        let note = format!("{kept} of that are weights and state of other phases");
        Some((one.phase, error.note(note).help("give devices more memory, or fewer weights to keep beside each other")))
    };
    over.filter_map(error).collect()
}
