//! Durations on a cluster: what tasks take on its devices, and what flows between them over its links, in milliseconds.
//!
//! A task takes its operations at the rate that a device reaches, and what the devices that divide
//! its stage exchange meanwhile; what ZeRO exchanges goes on beside it, so that the longer of both
//! counts. A transfer takes the latency of its link and its bytes at the link's bandwidth. Where
//! several devices do the same side by side, the slowest counts.

use super::ways::slowest_links;
use super::{Cluster, DeviceSlot, SlotLayout, collective};
use crate::Request;
use crate::profile::Profile;
use pipe_ir::graph::{Node, Op};
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::program::{Body, Exec};
use pipe_ir::task::TaskKind;
use pipe_ir::value::ValueKind;
use pipe_model::pipeline::Pipeline;
use pipe_model::stage_set::StageSet;
use pipe_model::transformer::exchanges::{self, Among, Collective, Exchange};
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::costs::{CostName, Entry, StageCosts, of_stages};
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::units::Ticks;
use std::collections::BTreeMap;

/// The longest time that costs may have: 10^9 units.
const MOST: Ticks = Ticks(1_000_000_000_000_000);

/// The target of a request on its cluster; none without a cluster, or where [`super::check`] refuses it.
pub fn target<'a>(
    request: &'a Request,
    pipeline: Option<&'a Pipeline>,
    stages: &'a StageSet,
    schedule: &'a Schedule,
) -> Option<TimedTarget<'a>> {
    let (cluster, pipeline) = (request.cluster.as_ref()?, pipeline.filter(|pipeline| pipeline.has_model())?);
    let layout = SlotLayout::of(cluster, Some(pipeline), schedule.n_devices())?;
    Some(TimedTarget { cluster, layout, schedule, stages, pipeline })
}

/// A target on a cluster.
#[derive(Clone, Debug)]
pub struct TimedTarget<'a> {
    /// The machines.
    pub cluster: &'a Cluster,
    /// Which of them stand for which device.
    pub layout: SlotLayout,
    /// What runs where.
    pub schedule: &'a Schedule,
    /// What that is.
    pub stages: &'a StageSet,
    /// The model, and how it is divided.
    pub pipeline: &'a Pipeline,
}

impl TimedTarget<'_> {
    /// What the tasks take.
    pub fn tasks(&self) -> StageCosts {
        let stages = self.schedule.placement.stages();
        let all = stages.flat_map(|stage| TaskKind::ALL.map(|kind| (stage, kind)));
        let entries = all.filter_map(|(stage, kind)| {
            let time = self.task(stage, kind)?;
            Some(Entry::new(CostName::Stages(kind, stage.0..stage.0 + 1), time.min(MOST)))
        });
        let copy = self.cluster.copy().map(|time| Entry::new(CostName::Copy, time.min(MOST)));
        StageCosts::of(entries.chain(copy).collect())
    }

    /// A task of a stage; none where the stage has none of this kind.
    fn task(&self, stage: StageId, kind: TaskKind) -> Option<Ticks> {
        let computes = self.cluster.rates.time(kind, pipe_model::operations(self.stages, kind, stage)?.into());
        let account = self.pipeline.transformer.as_ref().zip(self.stages.accounts.get(stage.index()));
        let Some((transformer, account)) = account else {
            let exec = self.stages.stages.get(stage.index()).and_then(|own| own.run_of(kind, false));
            let exchanges = exec.map_or_else(Vec::new, |exec| exchanged_by(&self.stages.execs[exec.index()]));
            return Some(computes + self.exchanged(stage, &exchanges));
        };
        let (within, beside) =
            (exchanges::within(transformer, account, kind), exchanges::beside(transformer, account, kind));
        let time = computes + self.exchanged(stage, &within);
        Some(time.max(self.exchanged(stage, &beside)))
    }

    /// What some exchanges of a stage take one after the other.
    pub fn exchanged(&self, stage: StageId, exchanges: &[Exchange]) -> Ticks {
        let homes = self.schedule.placement.devices_of(stage);
        let of = |one: &Exchange| {
            let times =
                self.groups(homes, one.among).map(|group| collective::time(self.cluster, &group, one.what, one.bytes));
            let slowest = times.max().unwrap_or_default();
            Ticks(slowest.0.saturating_mul(one.times))
        };
        exchanges.iter().map(of).fold(Ticks::ZERO, |sum, time| sum + time)
    }

    /// The groups in which the devices of some positions exchange something.
    fn groups<'s>(&'s self, homes: &'s [DeviceId], among: Among) -> Box<dyn Iterator<Item = Vec<DeviceSlot>> + 's> {
        let layout = &self.layout;
        let settings = self.pipeline.transformer.as_ref().map(|transformer| &transformer.settings);
        let expert = settings.map_or(1, |settings| u32::try_from(settings.expert).unwrap_or(1)).max(1);
        let replicas = move |first: u32, step: u32, n: u32| (0..n).map(move |index| first + step * index);
        let parts = move || (0..layout.tensor).map(DevicePart);
        match among {
            Among::Tensor => {
                let all = homes.iter().flat_map(move |home| (0..layout.data).map(move |replica| (*home, replica)));
                Box::new(all.map(move |(home, replica)| layout.parts(home, replica)))
            }
            Among::Data => Box::new(parts().map(move |part| layout.alike(homes, part.0))),
            Among::Experts => {
                let firsts = (0..layout.data).step_by(expert as usize);
                let all = homes.iter().flat_map(move |home| firsts.clone().map(move |first| (*home, first)));
                Box::new(all.flat_map(move |(home, first)| {
                    parts().map(move |part| {
                        replicas(first, 1, expert).map(|one| layout.device_slot(home, one, part.0)).collect()
                    })
                }))
            }
            Among::Alike => Box::new((0..expert).flat_map(move |first| {
                parts().map(move |part| {
                    let of = |home: &DeviceId| {
                        let home = *home;
                        replicas(first, expert, layout.data / expert)
                            .map(move |one| layout.device_slot(home, one, part.0))
                    };
                    homes.iter().flat_map(of).collect()
                })
            })),
        }
    }

    /// All costs under these of tasks and links, by stage.
    pub fn costs(&self, request: &Request, tasks: StageCosts, links: StageCosts) -> Costs {
        of_stages(&self.given(request, tasks, links), self.schedule.n_stages())
    }

    /// All costs under these of tasks and links: those of a request come first, then the links,
    /// then the tasks of its profile, then these.
    pub(crate) fn given(&self, request: &Request, tasks: StageCosts, links: StageCosts) -> StageCosts {
        let given = [Some(links), request.profile.as_ref().map(Profile::costs), Some(tasks)];
        let given = request.costs.iter().cloned().chain(given.into_iter().flatten()).reduce(StageCosts::or);
        // Whatever shared processors when it was measured, here every device is a device slot of the cluster.
        StageCosts { sharing: None, ..given.unwrap_or_default() }
    }

    /// What flows between devices, in the slowest of the pipelines side by side for each two of them.
    pub fn links(&self) -> StageCosts {
        stage_costs(slowest_links(self.ways(None)))
    }

    /// Bytes between any two devices, the lower one first: the most that flow at once.
    pub(super) fn between(&self) -> BTreeMap<(DeviceId, DeviceId), u128> {
        let mut bytes: BTreeMap<(DeviceId, DeviceId), u128> = BTreeMap::new();
        let placement = &self.schedule.placement;
        let most = self.flowing();
        for (before, after) in self.stages.graph.edges() {
            let flows = most.get(&(before, after)).copied().unwrap_or_default();
            for (from, to) in pairs(placement.devices_of(before), placement.devices_of(after)) {
                let known = bytes.entry((from.min(to), from.max(to))).or_default();
                *known = (*known).max(flows);
            }
        }
        bytes
    }

    /// Bytes that flow between two stages, forward or backward, whichever are more.
    fn flowing(&self) -> BTreeMap<(StageId, StageId), u128> {
        let mut forward: BTreeMap<(StageId, StageId), u128> = BTreeMap::new();
        let mut backward = forward.clone();
        for exec in &self.stages.execs {
            let (wanted, flows) = match exec.kind {
                TaskKind::Forward => (ValueKind::Activation, &mut forward),
                TaskKind::BackwardInput | TaskKind::Backward => (ValueKind::Gradient, &mut backward),
                _ => continue,
            };
            let mut own: BTreeMap<(StageId, StageId), u128> = BTreeMap::new();
            for operand in &exec.operands {
                let value = &self.stages.values[operand.value.index()];
                if value.kind == wanted && value.stage != exec.stage {
                    let pair = (value.stage.min(exec.stage), value.stage.max(exec.stage));
                    *own.entry(pair).or_default() += u128::from(value.bytes.0);
                }
            }
            for (pair, bytes) in own {
                let known = flows.entry(pair).or_default();
                *known = (*known).max(bytes);
            }
        }
        for (pair, bytes) in backward {
            let known = forward.entry(pair).or_default();
            *known = (*known).max(bytes);
        }
        forward
    }
}

/// What the members of a tensor-parallel group exchange in a task.
fn exchanged_by(exec: &Exec) -> Vec<Exchange> {
    let Body::Graph(graph) = &exec.body else { return Vec::new() };
    let exchange = |node: &Node| {
        let what = match node.op {
            Op::AllReduce => Collective::AllReduce,
            Op::AllGather { .. } => Collective::AllGather,
            Op::ReduceScatter => Collective::ReduceScatter,
            Op::AllToAll => Collective::AllToAll,
            _ => return None,
        };
        // What is gathered is the whole; all else is as large on each.
        let whole = if what == Collective::AllGather { &node.ty } else { &graph.node(node.inputs[0]).ty };
        Some(Exchange { among: Among::Tensor, what, bytes: whole.bytes().0.into(), times: 1 })
    };
    graph.nodes.iter().filter_map(exchange).collect()
}

/// Links as costs; others take no time.
pub(crate) fn stage_costs(links: impl IntoIterator<Item = ((DeviceId, DeviceId), Ticks)>) -> StageCosts {
    let entry =
        |((one, other), time): ((DeviceId, DeviceId), Ticks)| Entry::new(CostName::Link(one, other), time.min(MOST));
    let usual = Entry::new(CostName::Transfer, Ticks::ZERO);
    StageCosts::of(std::iter::once(usual).chain(links.into_iter().map(entry)).collect())
}

/// Which part of each layer.
#[derive(Clone, Copy)]
struct DevicePart(u32);

fn pairs<'d>(from: &'d [DeviceId], to: &'d [DeviceId]) -> impl Iterator<Item = (DeviceId, DeviceId)> + 'd {
    let with = move |one: &DeviceId| {
        let one = *one;
        to.iter().filter(move |other| **other != one).map(move |other| (one, *other))
    };
    from.iter().flat_map(with)
}
