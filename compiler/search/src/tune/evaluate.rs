//! Evaluation: a candidate's schedule written out, timed and lowered, as `check` does it.

use super::candidate::Candidate;
use super::problem::Problem;
use crate::tune::bound::narrow;
use crate::tune::instantiate::{Instance, Sound, first};
use pipe_compiler::Request;
use pipe_compiler::timing::Setting;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::{Task, TaskKind};
use pipe_ir::units::Bytes;
use pipe_lower::lower;
use pipe_model::transformer::{StageAccount, Until};
use pipe_schedule::check::memory::{self, peaks};
use pipe_schedule::policy::offload::Offload;
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_schedule::units::Ticks;

/// What a candidate takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepTime {
    /// From the first start to the last exchange of gradients.
    pub time: Ticks,
    /// The device that holds most.
    pub device: DeviceId,
    /// What it holds.
    pub bytes: Bytes,
    /// What the fullest one holds in the memory of its host.
    pub host: Bytes,
    /// Whether that is all, or only a part that is too much already.
    pub is_exact: bool,
}

impl StepTime {
    /// Whether devices and their hosts have room for it.
    pub fn fits(&self, problem: &Problem) -> bool {
        let has_room = problem.cluster.host_of_device().is_none_or(|host| self.host <= host);
        self.bytes <= problem.limit && has_room
    }
}

/// Times a candidate on the cluster of a request, and counts its bytes. What clearly does not fit is counted in part,
/// unless all is asked for. An error says why its schedule does not go with its sizes.
pub(super) fn evaluate(
    problem: &Problem,
    (written, request): (&Instance, &Request),
    candidate: &Candidate,
    is_exact: bool,
) -> Result<StepTime, String> {
    if let Some(trained) = &problem.trained {
        return super::trained::evaluate((problem, trained), request, candidate);
    }
    let layout = &candidate.layout;
    let Sound { mut schedule, order } =
        written.write(problem, &candidate.variant, layout.devices, layout.microbatches)?;
    let pipeline = candidate.pipeline(problem);
    let stages = written.stages(&pipeline, &schedule)?;
    stages.tell(&mut schedule);
    if let Some(limit) = &request.memory {
        let peaks = peaks(&schedule, &order.dependencies);
        memory::check(&schedule, &order.dependencies, &peaks, limit).map_err(first)?;
    }
    let setting = Setting { stages: &stages, pipeline: Some(&pipeline), request };
    let timed = setting.timed(schedule, order);
    let (time, schedule, offload) = (timed.timeline.makespan(), &timed.schedule, pipeline.offload);
    let (device, bytes) = least(schedule, &stages.accounts, offload);
    if bytes > problem.limit && !is_exact {
        return Ok(StepTime { time, device, bytes, host: Bytes::ZERO, is_exact });
    }
    let (latency, budget) = (timed.costs.latency.clone(), Some(problem.limit.into()));
    let apart = timed.costs.are_slower_at_once();
    let options = pipe_lower::Options { latency, offload, budget, apart, ..pipe_lower::Options::default() };
    let program = lower(schedule, &timed.timeline, &stages, &options);
    let time = match offload.any() {
        true => setting.copied((schedule, &timed.order, &timed.costs), &program).0.makespan(),
        false => time,
    };
    let host = program.devices.iter().map(|device| device.host.peak).max().unwrap_or_default();
    let peaks = (0..).map(DeviceId).zip(program.devices.iter().map(|device| device.peak));
    let (device, bytes) =
        peaks.max_by_key(|(device, peak)| (*peak, std::cmp::Reverse(*device))).unwrap_or((DeviceId(0), Bytes::ZERO));
    Ok(StepTime { time, device, bytes, host, is_exact: true })
}

/// The device that holds most, without what is under way between devices: a part of what lowering counts.
fn least(schedule: &Schedule, accounts: &[StageAccount], offload: Offload) -> (DeviceId, Bytes) {
    let of_device = |(device, order): (u32, &Vec<ScheduledTask>)| {
        let device = DeviceId(device);
        let is_home = |stage: usize| schedule.placement.is_home(pipe_ir::ids::StageId::from_index(stage), device);
        let own = accounts.iter().enumerate().filter(|(stage, _)| is_home(*stage));
        let state: u128 = own.map(|(_, account)| account.staying(offload)).sum();
        let (mut live, mut peak) = (0_u128, 0_u128);
        let mut position = 0;
        while let Some(task) = order.get(position).map(|one| one.task) {
            // Halves side by side may be run at once, without what `B` keeps for `W`.
            let both = Task { kind: TaskKind::Backward, ..task };
            let is_both = ScheduledTask::run_by(&order[position..], both) == Some(2);
            position += if is_both { 2 } else { 1 };
            let Some(account) = accounts.get(task.stage.index()) else { continue };
            let for_weights = account.saved_until(Until::Weight);
            let for_input = account.activations() - for_weights;
            match if is_both { both.kind } else { task.kind } {
                TaskKind::Forward => {
                    live += for_input + for_weights;
                    peak = peak.max(live + account.scratch_forward);
                }
                TaskKind::BackwardInput => {
                    peak = peak.max(live + account.deferred + account.scratch_backward);
                    live = (live + account.deferred).saturating_sub(for_input);
                }
                TaskKind::BackwardWeight => live = live.saturating_sub(for_weights + account.deferred),
                TaskKind::Backward => {
                    peak = peak.max(live + account.scratch_backward);
                    live = live.saturating_sub(for_input + for_weights);
                }
                TaskKind::Recompute | TaskKind::Update => {}
            }
        }
        (device, Bytes(narrow(state + peak)))
    };
    let all = (0..).zip(&schedule.orders).map(of_device);
    all.max_by_key(|(device, bytes)| (*bytes, std::cmp::Reverse(*device))).unwrap_or((DeviceId(0), Bytes::ZERO))
}
