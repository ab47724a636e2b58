//! Layouts: which devices of a cluster each device of a schedule stands for.

use super::{Cluster, DeviceSlot};
use pipe_ir::ids::DeviceId;
use pipe_model::pipeline::{Elaborated, Pipeline};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use std::collections::BTreeSet;

/// Positions of pipelines on the device slots of a cluster: devices that divide a layer sit next to each
/// other, then come those of the pipelines side by side, then the next position. Nodes are filled
/// in an order that may be given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotLayout {
    /// Devices of the schedule.
    pub positions: u32,
    /// Pipelines side by side.
    pub data: u32,
    /// Devices that divide each layer.
    pub tensor: u32,
    per_node: u32,
    /// Which node is filled first, second, ..; empty for the order of the file, and else all of them.
    nodes: Vec<u32>,
}

impl SlotLayout {
    /// That of so many positions, pipelines side by side and devices that divide each layer; none
    /// where the cluster has too few.
    pub fn new(cluster: &Cluster, positions: usize, data: u64, tensor: u64) -> Option<Self> {
        let wanted = (positions as u64).checked_mul(data)?.checked_mul(tensor)?;
        let (positions, per_node) = (u32::try_from(positions).ok()?, cluster.per_node);
        (wanted <= u64::from(cluster.n_device_slots())).then_some(())?;
        let (data, tensor) = (u32::try_from(data).ok()?, u32::try_from(tensor).ok()?);
        Some(Self { positions, data, tensor, per_node, nodes: Vec::new() })
    }

    /// The same with some nodes filled before the others: different ones of the cluster's.
    #[must_use]
    pub fn on_nodes(self, cluster: &Cluster, first: &[u32]) -> Self {
        let own: BTreeSet<u32> = first.iter().copied().collect();
        let others = (0..cluster.n_nodes()).filter(|node| !own.contains(node));
        let nodes = first.iter().copied().filter(|node| *node < cluster.n_nodes()).chain(others).collect();
        Self { nodes, ..self }
    }

    /// Which node is filled first, second, ..: all of them.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// How many nodes have device slots that are taken.
    pub const fn n_nodes(&self) -> u64 {
        self.n_device_slots().div_ceil(self.per_node as u64)
    }

    /// That of a pipeline; none where the cluster has too few devices.
    pub fn of(cluster: &Cluster, pipeline: Option<&Pipeline>, positions: usize) -> Option<Self> {
        let (data, tensor) = divided(pipeline);
        let layout = Self::new(cluster, positions, data, tensor)?;
        let transformer = pipeline.and_then(|pipeline| pipeline.transformer.as_ref());
        let listed = transformer.map_or(&[][..], |own| &own.settings.nodes);
        let listed: Vec<u32> = listed.iter().filter_map(|node| u32::try_from(*node).ok()).collect();
        let first = if cluster.fill.is_empty() { &listed } else { &cluster.fill };
        Some(layout.on_nodes(cluster, first))
    }

    /// Where one of the devices sits that divide a layer of a position, in one of the pipelines side by side.
    pub fn device_slot(&self, position: DeviceId, replica: u32, part: u32) -> DeviceSlot {
        let rank = self.rank(position, replica, part);
        let node = rank / self.per_node;
        let node = self.nodes.get(node as usize).copied().unwrap_or(node);
        DeviceSlot(node * self.per_node + rank % self.per_node)
    }

    /// How many nodes are filled before that of a device, likewise.
    pub const fn node_before(&self, position: DeviceId, replica: u32, part: u32) -> u32 {
        self.rank(position, replica, part) / self.per_node
    }

    const fn rank(&self, position: DeviceId, replica: u32, part: u32) -> u32 {
        (position.0 * self.data + replica) * self.tensor + part
    }

    /// The device slots that divide the layers of a position, of one pipeline.
    pub fn parts(&self, position: DeviceId, replica: u32) -> Vec<DeviceSlot> {
        (0..self.tensor).map(|part| self.device_slot(position, replica, part)).collect()
    }

    /// The device slots of all pipelines that have the same part of some positions.
    pub fn alike(&self, positions: &[DeviceId], part: u32) -> Vec<DeviceSlot> {
        let of = |position: &DeviceId| {
            let position = *position;
            (0..self.data).map(move |replica| self.device_slot(position, replica, part))
        };
        positions.iter().flat_map(of).collect()
    }

    /// Device slots that are taken.
    pub const fn n_device_slots(&self) -> u64 {
        self.positions as u64 * self.data as u64 * self.tensor as u64
    }
}

/// Pipelines side by side, and devices that divide each layer.
fn divided(pipeline: Option<&Pipeline>) -> (u64, u64) {
    let settings = pipeline.and_then(|pipeline| pipeline.transformer.as_ref()).map(|transformer| &transformer.settings);
    let members = pipeline.map_or(1, |pipeline| pipeline.members().into());
    settings.map_or((1, members), |settings| (settings.data, settings.tensor))
}

/// Rule: a target has a model, so that a cluster says how long it takes, and no more devices than the cluster.
pub fn check(cluster: &Cluster, elaborated: &Elaborated) -> Option<Diagnostic> {
    let (schedule, pipeline) = (&elaborated.schedule, elaborated.pipeline.as_ref());
    let error = |span, label: String, message: String| Diagnostic::error(Code::UnusableCluster, span, label, message);
    let Some(pipeline) = pipeline.filter(|pipeline| pipeline.has_model()) else {
        let message =
            format!("`{}` has no model, so `{}` does not say how long it takes", schedule.name, cluster.name());
        let help = "bind the schedule to a model in a pipeline, or give times by `--cost`";
        return Some(error(schedule.span, "without operations and bytes".to_owned(), message).help(help));
    };
    if !schedule.parts.is_empty() {
        let message = format!(
            "`{}` runs parts of stages, and `{}` says how long whole stages take",
            schedule.name,
            cluster.name()
        );
        let help = "leave `parts` out, or give the times of parts by `cost` instead of a cluster";
        return Some(error(pipeline.span, "parts".to_owned(), message).help(help));
    }
    if SlotLayout::of(cluster, Some(pipeline), schedule.n_devices()).is_some() {
        return misplaced(cluster, pipeline);
    }
    let ((data, tensor), positions) = (divided(Some(pipeline)), schedule.n_devices());
    let wanted = positions as u128 * u128::from(data) * u128::from(tensor);
    let (nodes, per_node, device_slots) = (cluster.n_nodes(), cluster.per_node, cluster.n_device_slots());
    let message = format!("`{}` takes {wanted} devices, but `{}` has {device_slots}", pipeline.name, cluster.name());
    let degrees = [("tensor", tensor), ("data", data)].into_iter().filter(|(_, degree)| *degree > 1);
    let degrees: Vec<String> = degrees.map(|(name, degree)| format!("{name} {degree}")).collect();
    let label = match degrees.is_empty() {
        true => format!("{positions} devices"),
        false => format!("{positions} devices with {}", degrees.join(" and ")),
    };
    let one = error(pipeline.span, label, message).help("use fewer devices, or less `tensor` or `data`");
    Some(match cluster.nodes_span() {
        Some(span) => one.label(span, format!("{nodes} nodes of {per_node} devices")),
        None => one,
    })
}

/// Rule: nodes that are filled first are nodes of the cluster, each once.
fn misplaced(cluster: &Cluster, pipeline: &Pipeline) -> Option<Diagnostic> {
    let transformer = pipeline.transformer.as_ref()?;
    let nodes = &transformer.settings.nodes;
    let (name, last) = (cluster.name(), cluster.n_nodes() - 1);
    let mut sorted = nodes.clone();
    sorted.sort_unstable();
    let message = match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => format!("`nodes` has node {} twice", pair[0]),
        None => {
            let node = sorted.last().filter(|node| **node > u64::from(last))?;
            format!("`nodes` has node {node}, but the last node of `{name}` is {last}")
        }
    };
    let error = Diagnostic::error(Code::UnusableCluster, transformer.place("nodes"), "filled in this order", message);
    Some(error.help("list nodes in the order in which they are filled; those left out follow"))
}
