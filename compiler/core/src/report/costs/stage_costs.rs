//! What `check` reports of a model whose sizes are those of a `config.json`: where its bytes are, stage by stage.

use crate::analyze::Analysis;
use crate::memory::peak_breakdown::Fullest;
use crate::report::Report;
use crate::suggest_fix::Alternative;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_model::stage_set::StageSet;
use pipe_model::transformer::{KeptTensor, StageAccount, Transformer, parameters};
use pipe_schedule::schedule::ScheduledTask;
use serde::Serialize;

/// The parts of a report that are there for such a model only.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct AccountReport {
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelReport>,
    /// Figures of every stage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub per_stage: Vec<StageReport>,
    /// Other settings that were tried because it does not fit, the cheapest that fits first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ChangeReport>,
}

/// The model, and how it is divided.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ModelReport {
    /// The `config.json`.
    pub config: String,
    /// Its `model_type`.
    pub family: &'static str,
    /// Parameters of the whole model.
    pub parameters: u64,
    /// Tokens of a row.
    pub sequence: u64,
    /// Rows of a microbatch.
    pub rows: u64,
    /// Tokens of a step, over all pipelines.
    pub tokens: u64,
    /// Devices that divide each layer.
    pub tensor: u64,
    /// Whether they divide the sequence between the matrices.
    pub sequence_parallel: bool,
    /// Pipelines side by side.
    pub data: u64,
    /// Of these, how many divide the experts.
    pub expert: u64,
    /// What they divide of the state.
    pub zero: u64,
    /// What is computed once more inside the backward pass.
    pub recompute: &'static str,
    /// Whether attention is computed in tiles.
    pub flash: bool,
    /// Devices of all pipelines, of which each device of the schedule stands for `tensor * data`.
    pub total_devices: u64,
}

/// What a stage takes on one of its devices; where there are several, on the one where its sum is largest.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StageReport {
    /// Which.
    pub stage: u32,
    /// On which device.
    pub device: u32,
    /// Its first layer, and one past its last.
    pub layers: [u64; 2],
    /// Whether it has the embedding.
    pub embedding: bool,
    /// Whether it has the head and the loss.
    pub head: bool,
    /// Its parameters, over all devices that divide its layers.
    pub parameters: u64,
    /// Those of one device.
    pub device_parameters: u64,
    /// Bytes of the weights.
    pub weight_bytes: u64,
    /// Bytes of the gradients.
    pub gradient_bytes: u64,
    /// Bytes of the optimizer's state.
    pub optimizer_bytes: u64,
    /// All three.
    pub state_bytes: u64,
    /// What is kept of one microbatch from the forward pass on.
    pub activation_bytes: u64,
    /// Microbatches of which something is kept when most bytes are alive on the device.
    pub live_microbatches: usize,
    /// What is kept of them.
    pub live_bytes: u64,
    /// State and what is kept.
    pub sum_bytes: u64,
    /// What the device has.
    pub limit_bytes: Option<u64>,
    /// Floating-point operations of one microbatch: forward, backward for the input, backward for the weights.
    pub flops: [u64; 3],
    /// What is kept of one microbatch, tensor by tensor.
    pub activations: Vec<TensorReport>,
}

/// Tensors that a stage keeps of one microbatch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TensorReport {
    /// Which.
    pub what: &'static str,
    /// Of `layers`, `embedding` or `head`.
    pub part: &'static str,
    /// Bytes of one microbatch.
    pub bytes: u64,
}

/// Bytes, and of what.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HoldReport {
    /// Of what.
    pub what: String,
    /// How many.
    pub bytes: u64,
}

/// Another setting that was tried.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ChangeReport {
    /// As the pipeline would say it.
    pub change: String,
    /// Whether every device has room for it.
    pub fits: bool,
    /// The device that then needs most, compared with what it has.
    pub device: u32,
    /// What it needs.
    pub peak_bytes: u64,
    /// What it has.
    pub limit_bytes: u64,
    /// How much longer a step then takes all devices together, as a share: more operations, or more waiting.
    pub extra: f64,
    /// How many times as many devices it takes.
    pub times_devices: u64,
}

impl ChangeReport {
    /// What was tried.
    pub fn new(tried: &Alternative) -> Self {
        Self {
            change: tried.words().replace('`', ""),
            fits: tried.fits(),
            device: tried.device.0,
            peak_bytes: tried.peak.0,
            limit_bytes: tried.limit.0,
            extra: tried.extra as f64 / 1_000.0,
            times_devices: tried.times_devices,
        }
    }
}

fn count(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl ModelReport {
    fn new(transformer: &Transformer, analysis: &Analysis) -> Self {
        let Transformer { config, settings, .. } = transformer;
        let microbatches = u64::from(analysis.schedule.microbatches_of_step());
        Self {
            config: config.path.clone(),
            family: config.family,
            parameters: count(parameters(transformer)),
            sequence: settings.sequence,
            rows: settings.rows,
            tokens: settings.sequence.saturating_mul(settings.rows).saturating_mul(microbatches * settings.data),
            tensor: settings.tensor,
            sequence_parallel: settings.sequence_parallel,
            data: settings.data,
            expert: settings.expert,
            zero: settings.zero,
            recompute: settings.recompute.word(),
            flash: settings.flash,
            total_devices: analysis.schedule.n_devices() as u64 * settings.tensor * settings.data,
        }
    }
}

impl Report {
    /// Fills in where the bytes of a transformer are.
    pub fn account(&mut self, analysis: &Analysis, program: &Program, stages: &StageSet) {
        let Some(pipeline) = &analysis.pipeline else { return };
        let Some(transformer) = &pipeline.transformer else { return };
        self.account.model = Some(ModelReport::new(transformer, analysis));
        let limit = pipeline.byte_limit().map(|(bytes, _)| bytes);
        let limit = |device: DeviceId| limit.as_ref().map(|limit| limit.of(device).0);
        let fullest: Vec<Fullest> = program.devices.iter().map(|device| Fullest::of(program, device)).collect();
        for ((device, report), fullest) in (0..).map(DeviceId).zip(&mut self.per_device).zip(&fullest) {
            report.limit_bytes = limit(device);
            let rows = fullest.contributors(program, &stages.accounts);
            report.holds = rows.into_iter().map(|row| HoldReport { what: row.what, bytes: row.bytes.0 }).collect();
        }
        for (stage, account) in (0..).map(StageId).zip(&stages.accounts) {
            let on = |device: &DeviceId| {
                let fullest = &fullest[device.index()];
                let before = stage.0.checked_sub(1).map(StageId);
                let flowing = before.map_or(Bytes::ZERO, |before| fullest.flowing(program, before));
                (*device, live(analysis, *device, fullest, stage), fullest.kept(program, stage) + flowing)
            };
            let homes = analysis.schedule.placement.devices_of(stage);
            if let Some(found) =
                homes.iter().map(on).max_by_key(|(device, _, kept)| (*kept, std::cmp::Reverse(*device)))
            {
                self.account.per_stage.push(stage_report(stage, account, found, limit(found.0)));
            }
        }
    }
}

/// Microbatches of which a stage's activations are alive at a device's fullest moment: their first
/// task has begun by then, and their last one has not ended.
fn live(analysis: &Analysis, device: DeviceId, fullest: &Fullest, stage: StageId) -> usize {
    let order = &analysis.schedule.orders[device.index()];
    let dependencies = &analysis.order.dependencies;
    let mut live = 0_usize;
    for (position, task) in order.iter().map(|scheduled| scheduled.task).enumerate() {
        let is_running = fullest.task.is_some_and(|run| ScheduledTask::run_by(&order[position..], run).is_some());
        if task.stage == stage && dependencies.is_first(task) {
            live += 1;
        } else if task.stage == stage && dependencies.is_last(task) && !is_running {
            live = live.saturating_sub(1);
        }
        if is_running {
            break;
        }
    }
    live
}

fn stage_report(
    stage: StageId,
    account: &StageAccount,
    (device, live, kept): (DeviceId, usize, Bytes),
    limit: Option<u64>,
) -> StageReport {
    let flops = &account.flops;
    let tensor = |held: &KeptTensor| TensorReport { what: held.what, part: held.part.word(), bytes: count(held.bytes) };
    StageReport {
        stage: stage.0,
        device: device.0,
        layers: [account.layers.start, account.layers.end],
        embedding: account.has_embedding,
        head: account.has_head,
        parameters: count(account.parameters),
        device_parameters: count(account.dense + account.expert),
        weight_bytes: count(account.weights),
        gradient_bytes: count(account.gradients),
        optimizer_bytes: count(account.optimizer),
        state_bytes: count(account.state()),
        activation_bytes: count(account.activations()),
        live_microbatches: live,
        live_bytes: kept.0,
        sum_bytes: count(account.state()).saturating_add(kept.0),
        limit_bytes: limit,
        flops: [flops.forward, flops.backward_input, flops.backward_weight].map(count),
        activations: account.saved.iter().map(tensor).collect(),
    }
}
