//! Which offload would make a target fit that holds more than its devices have: each is tried by writing the program with it.

use super::Offload;
use crate::diagnostic::{Code, Diagnostic};
use crate::judge::Judged;
use crate::lower::{Options, lower};
use crate::model::stage_set::StageSet;
use crate::pipeline::Pipeline;
use pipe_ir::ids::DeviceId;
use pipe_ir::program::{DeviceProgram, Program};
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;

/// Tasks of a step up to which it is tried.
const MOST_TASKS: usize = 200_000;

/// Says in the help of what was found which offload would make it fit, if any.
pub(crate) fn advise(judged: &Judged, stages: &StageSet, found: &mut [Diagnostic]) {
    let Some(pipeline) = judged.pipeline.as_ref() else { return };
    let Some((limit, span)) = pipeline.byte_limit() else { return };
    let is_about = |one: &Diagnostic| one.labels.first().is_some_and(|label| label.span == span);
    let is_memory = |one: &Diagnostic| one.code == Code::MemoryExceeded || is_about(one);
    let is_possible = judged.schedule.window.is_none() && judged.schedule.n_tasks() <= MOST_TASKS;
    if !is_possible || !found.iter().any(is_memory) {
        return;
    }
    let of_kind = |kind: ValueKind| stages.values.iter().any(|value| value.kind == kind);
    let has = |offload: &Offload| !offload.optimizer || of_kind(ValueKind::OptimizerState);
    let own = pipeline.offload;
    let candidates = Offload::ALL.into_iter().filter(has).filter(|other| own.and(*other) == *other && own != *other);
    for offload in candidates {
        let options = Options { offload, ..judged.lowering() };
        let program = lower(&judged.schedule, &judged.timeline, stages, &options);
        let Some((device, needed, host)) = fullest(pipeline, &program, limit) else { continue };
        let words = format!("`offload {offload}` would fit: {device} then needs {needed}, and {host} of its host");
        for one in found.iter_mut().filter(|one| is_memory(one)) {
            let before = one.help.take().map_or_else(String::new, |help| format!("{help}; "));
            one.help = Some(before + &words);
        }
        return;
    }
}

/// The device that needs most, and what of either space; none where something does not fit.
fn fullest(pipeline: &Pipeline, program: &Program, limit: Bytes) -> Option<(DeviceId, Bytes, Bytes)> {
    let host = pipeline.host.map_or(Bytes(u64::MAX), |(host, _)| host);
    let needed = |code: &DeviceProgram| pipeline.needed(code);
    let fits = |code: &DeviceProgram| needed(code) <= limit && code.host.arena <= host;
    let devices = (0..).map(DeviceId).zip(&program.devices);
    let most = devices.max_by_key(|(device, code)| (needed(code), std::cmp::Reverse(*device)));
    let (device, code) = most.filter(|_| program.devices.iter().all(fits))?;
    Some((device, needed(code), code.host.peak))
}
