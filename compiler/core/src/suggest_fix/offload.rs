//! Which other place for state would make a target fit that holds more than its devices have:
//! dividing it among replicas, or offload, which takes activations, too. Each is tried by writing
//! the program with it.

use super::about_memory;
use crate::Request;
use crate::analyze::Analysis;
use crate::timing::Setting;
use pipe_ir::ids::DeviceId;
use pipe_ir::program::{DeviceProgram, Program};
use pipe_ir::units::Bytes;
use pipe_ir::units::capacity::Capacity;
use pipe_ir::value::ValueKind;
use pipe_lower::Options;
use pipe_model::pipeline::Pipeline;
use pipe_model::stage_set::StageSet;
use pipe_schedule::policy::offload::Offload;
use pipe_schedule::policy::zero::Zero;
use pipe_schedule::step_tasks::StepTaskKind;
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::Diagnostic;

/// Says in the help of what was found which stage of ZeRO and which offload would make it fit, if any.
pub(crate) fn advise(analysis: &Analysis, stages: &StageSet, found: &mut [Diagnostic]) {
    let Some(pipeline) = analysis.pipeline.as_ref() else { return };
    let Some((limit, span)) = pipeline.byte_limit() else { return };
    let found = about_memory(analysis, found, span);
    // Copies to hosts do not wait for lanes.
    if found.is_empty() || !analysis.schedule.parts.lanes().is_empty() {
        return;
    }
    let divided = zeros(analysis, pipeline).map(|zero| Options { zero, ..analysis.lowering() });
    let away = offloads(analysis, stages, pipeline).map(|offload| Options { offload, ..analysis.lowering() });
    let mut help = Vec::new();
    let with = |options: Options| {
        let program = analysis.program(stages, &options);
        Some((options, fullest(pipeline, &program, &limit)?))
    };
    if let Some((options, (device, needed, _))) = divided.filter_map(with).next() {
        help.push(format!("`zero {}` would fit: {device} then needs {needed}", options.zero));
    }
    if let Some((options, (device, needed, host))) = away.filter_map(with).next() {
        let offload = options.offload;
        let is_timed = !offload.activations || options.copy > Ticks::ZERO;
        let given = if is_timed { "" } else { ", if copies take no time" };
        help.push(format!("`offload {offload}` would fit{given}: {device} then needs {needed}, and {host}"));
    }
    if help.is_empty() {
        return;
    }
    let words = help.join("; ");
    for one in found {
        let before = one.help.take().map_or_else(String::new, |help| format!("{help}; "));
        one.help = Some(before + &words);
    }
}

/// The program of a target whose pipeline lets state live with the hosts if that makes it fit:
/// nothing does where `program` fits, else what fits with the shortest step. The target then says
/// what that is.
pub(crate) fn settle(analysis: &mut Analysis, program: Program, stages: &StageSet, request: &Request) -> Program {
    let Some(pipeline) = analysis.pipeline.as_ref().filter(|own| own.may_offload) else { return program };
    let Some((limit, _)) = pipeline.byte_limit() else { return program };
    if fullest(pipeline, &program, &limit).is_some() {
        return program;
    }
    let setting = Setting { stages, pipeline: Some(pipeline), request };
    let with = |offload: Offload| {
        let program = analysis.program(stages, &Options { offload, ..analysis.lowering() });
        fullest(pipeline, &program, &limit)?;
        let (timeline, _) = setting.copied((&analysis.schedule, &analysis.order, &analysis.costs), &program);
        Some((timeline.makespan(), offload, program))
    };
    // Where nobody says how long copies take, nothing shows that those of activations hide.
    let is_vain = |offload: &Offload| offload.activations && analysis.costs.copy == Ticks::ZERO;
    let best = offloads(analysis, stages, pipeline).filter_map(with);
    let best = best.min_by_key(|(time, offload, _)| (is_vain(offload), *time));
    match (best, &mut analysis.pipeline) {
        (Some((_, offload, program)), Some(pipeline)) => {
            pipeline.offload = offload;
            program
        }
        _ => program,
    }
}

/// The stages of ZeRO that divide more than is divided.
fn zeros(analysis: &Analysis, pipeline: &Pipeline) -> impl Iterator<Item = Zero> {
    let schedule = &analysis.schedule;
    let placement = &schedule.placement;
    let has_replicas = placement.stages().any(|stage| placement.has_replicas(stage));
    let is_flushed = schedule.window.is_none();
    let is_trained = pipeline.training.is_some() && pipeline.whole_matrices().is_none();
    let is_possible = has_replicas && is_flushed && pipeline.model.is_some() && is_trained;
    let (has_updates, has_carried) = (has_updates(analysis), !schedule.carried.is_empty());
    let goes = move |zero: &Zero| !(has_updates && zero.gradients() || has_carried && zero.parameters());
    let (own, offload) = (pipeline.zero, pipeline.offload);
    let candidates = Zero::ALL.into_iter().filter(move |zero| is_possible && goes(zero));
    candidates.filter(move |zero| *zero > own && zero.goes_with(offload))
}

/// What more could live with the hosts.
fn offloads(analysis: &Analysis, stages: &StageSet, pipeline: &Pipeline) -> impl Iterator<Item = Offload> {
    let of_kind = |kind: ValueKind| stages.values.iter().any(|value| value.kind == kind);
    let has_state = of_kind(ValueKind::OptimizerState);
    let (own, zero) = (pipeline.offload, pipeline.zero);
    let may_leave = analysis.schedule.window.is_none() && !has_updates(analysis) && pipeline.whole_matrices().is_none();
    let has_carried = !analysis.schedule.carried.is_empty();
    let is_possible = move |offload: &Offload| {
        (has_state || !offload.optimizer) && (may_leave || !offload.state()) && !(has_carried && offload.any())
    };
    let candidates = Offload::ALL.into_iter().filter(is_possible);
    candidates.filter(move |other| own.and(*other) == *other && own != *other && zero.goes_with(*other))
}

/// Whether an order places updates, which then need all of the weights, the gradients and the state.
fn has_updates(analysis: &Analysis) -> bool {
    analysis.schedule.step_tasks.first(StepTaskKind::Update).is_some()
}

/// The device that needs most, what that is, and what of the memory of hosts; none where something does not fit.
pub(super) fn fullest(pipeline: &Pipeline, program: &Program, limit: &Capacity) -> Option<(DeviceId, Bytes, String)> {
    let host = |device| pipeline.host.as_ref().map_or(Bytes(u64::MAX), |(host, _)| host.of(device));
    let needed = |code: &DeviceProgram| pipeline.needed(code);
    let fits = |(device, code): (DeviceId, &DeviceProgram)| {
        needed(code) <= limit.of(device) && code.host.arena <= host(device)
    };
    let devices = || (0..).map(DeviceId).zip(&program.devices);
    let most = devices().max_by_key(|(device, code)| (needed(code), std::cmp::Reverse(*device)));
    let (device, code) = most.filter(|_| devices().all(fits))?;
    let of_hosts = program.devices.iter().map(|code| code.host.peak).max().unwrap_or_default();
    let host = match code.host.peak == of_hosts {
        true => format!("{of_hosts} of its host"),
        false => format!("at most {of_hosts} of a host"),
    };
    Some((device, needed(code), host))
}
