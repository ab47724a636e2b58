//! What a step makes of the machines that it runs on, where they are known.

use super::time;
use crate::analyze::Analysis;
use crate::cluster::{Cluster, Rates, SlotLayout};
use crate::mapping::MappingResult;
use pipe_ir::gpu::room::Beside;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::TaskKind;
use pipe_model::stage_set::StageSet;
use pipe_schedule::units::Ticks;
use serde::Serialize;
use std::collections::BTreeMap;

/// The cluster behind the times.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClusterReport {
    /// The file.
    pub file: String,
    /// What all times of the report are in.
    pub time_unit: &'static str,
    /// Nodes that there are.
    pub nodes: u32,
    /// Devices of each.
    pub devices_per_node: u32,
    /// Devices that the target takes.
    pub devices_used: u64,
    /// Floating-point operations that a device reaches in a second.
    pub flops: u64,
    /// The same of each kind of task, where they were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<RatesReport>,
    /// The same as its maker states it.
    pub peak_flops: Option<u64>,
    /// The operations of the model in a step, over all devices, without what is computed once more.
    pub model_flops: f64,
    /// These, as a share of what all devices of the target could do in a step at their peak.
    pub mfu: Option<f64>,
    /// Tokens of all pipelines that a step learns from in a second, where the model has tokens.
    pub tokens_per_second: Option<f64>,
    /// Time after the last task until gradients are exchanged.
    pub exchange: f64,
    /// What `pipec run` takes of a GPU's memory beside what is counted, on the device that needs most of it; absent
    /// where the cluster or the pipeline says what there is for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<BesideReport>,
    /// The order in which nodes are filled, where one was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapping: Option<MappingReport>,
}

/// What driver and libraries take of the memory of a GPU, at most, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct BesideReport {
    /// The CUDA context, and what is left to the driver.
    pub driver_bytes: u64,
    /// cuBLASLt's workspace.
    pub products_bytes: u64,
    /// NCCL's connections.
    pub nccl_bytes: u64,
}

impl From<Beside> for BesideReport {
    fn from(Beside { driver, products, nccl }: Beside) -> Self {
        Self { driver_bytes: driver.0, products_bytes: products.0, nccl_bytes: nccl.0 }
    }
}

/// How fast devices compute, as a profile says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RatesReport {
    /// The profile.
    pub profile: String,
    /// Floating-point operations in a second, by the letters of the kind of task.
    pub flops: BTreeMap<&'static str, u64>,
}

impl RatesReport {
    /// That of measured rates; none where a cluster says one for all.
    pub fn new(rates: &Rates) -> Option<Self> {
        let kinds = TaskKind::ALL.into_iter().filter(|kind| *kind != TaskKind::Update);
        let flops = kinds.map(|kind| (kind.letters(), rates.of(kind))).collect();
        Some(Self { profile: rates.profile()?.to_owned(), flops })
    }
}

/// An order of nodes that was found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MappingReport {
    /// Which node is filled first, second, ..: those that are filled.
    pub nodes: Vec<u32>,
    /// Time of the tasks and of the exchange of gradients in this order.
    pub makespan: f64,
    /// The same as nodes are numbered.
    pub makespan_before: f64,
    /// Whether no order is shorter: all were looked at, or could only be longer.
    pub is_best: bool,
    /// Orders that were timed.
    pub timed: u64,
}

impl MappingReport {
    /// What was found for so many nodes that are filled.
    pub fn new(found: &MappingResult, n_filled: u64) -> Self {
        let filled = usize::try_from(n_filled).unwrap_or(usize::MAX);
        Self {
            nodes: found.nodes.iter().copied().take(filled).collect(),
            makespan: time(found.time),
            makespan_before: time(found.before),
            is_best: found.is_best,
            timed: found.timed,
        }
    }
}

impl ClusterReport {
    /// That of a timeline.
    pub fn new(cluster: &Cluster, analysis: &Analysis, stages: &StageSet) -> Self {
        let Analysis { schedule, timeline, pipeline, .. } = analysis;
        let used = SlotLayout::of(cluster, pipeline.as_ref(), schedule.n_devices())
            .map_or(0, |layout| layout.n_device_slots());
        let transformer = pipeline.as_ref().and_then(|pipeline| pipeline.transformer.as_ref());
        let settings = transformer.map(|transformer| &transformer.settings);
        // Of a model that runs, all pipelines are in the schedule.
        let members = pipeline.as_ref().map_or(1.0, |pipeline| f64::from(pipeline.members()));
        let alike = settings.map_or(members, |settings| settings.tensor as f64 * settings.data as f64);
        let model_flops = of_a_microbatch(analysis, stages) * f64::from(schedule.n_microbatches) * alike;
        let seconds = timeline.makespan().0 as f64 / 1e9;
        let could = |peak: u64| peak as f64 * used as f64 * seconds;
        let mfu = cluster.peak_flops.filter(|_| seconds > 0.0).map(|peak| model_flops / could(peak));
        let tokens = settings.map(|settings| {
            let rows = settings.rows as f64 * settings.data as f64 * f64::from(schedule.n_microbatches);
            rows * settings.sequence as f64
        });
        let tasks = (0..schedule.n_devices()).map(|device| timeline.last_end(DeviceId::from_index(device))).max();
        let exchange = timeline.reduced.map_or(Ticks::ZERO, |(end, _)| end - tasks.unwrap_or_default());
        Self {
            file: cluster.name().to_owned(),
            time_unit: "ms",
            nodes: cluster.n_nodes(),
            devices_per_node: cluster.per_node,
            devices_used: used,
            flops: cluster.rates.mean(),
            rates: RatesReport::new(&cluster.rates),
            peak_flops: cluster.peak_flops,
            model_flops,
            mfu,
            tokens_per_second: tokens.filter(|_| seconds > 0.0).map(|tokens| tokens / seconds),
            exchange: time(exchange),
            beside: analysis.beside.map(BesideReport::from),
            mapping: None,
        }
    }
}

/// Operations of one microbatch in one pipeline, on one of the devices that divide its layers.
fn of_a_microbatch(analysis: &Analysis, stages: &StageSet) -> f64 {
    if !stages.accounts.is_empty() {
        let own = stages.accounts.iter().map(|account| {
            let flops = &account.flops;
            (flops.forward + flops.backward_input + flops.backward_weight - flops.again) as f64
        });
        return own.sum();
    }
    let Some(first) = analysis.schedule.orders.iter().flatten().map(|one| one.task.microbatch).min() else {
        return 0.0;
    };
    let tasks = analysis.schedule.orders.iter().flatten().map(|one| one.task).filter(|task| task.microbatch == first);
    let counted = tasks.filter(|task| task.kind != TaskKind::Recompute);
    counted.filter_map(|task| pipe_model::operations(stages, task.kind, task.stage)).map(|flops| flops as f64).sum()
}
