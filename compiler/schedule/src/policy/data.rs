//! Data parallelism: a schedule several times side by side, on other devices and with other microbatches each time.

use crate::placement::{DeviceSets, Placement};
use crate::ratio::gcd;
use crate::schedule::{Block, BlockTask, Schedule, ScheduledTask};
use crate::slices::Slices;
use crate::stage_graph::Earlier;
use pipe_ir::ids::{DeviceId, MicrobatchId};
use pipe_ir::task::Task;

/// How many pipelines there are.
#[derive(Clone, Copy)]
struct Copies(u32);

impl Copies {
    fn all(self) -> impl Iterator<Item = u32> {
        0..self.0
    }

    /// A microbatch of one of them: they take microbatches in turn.
    fn microbatch(self, at: MicrobatchId, copy: u32, slices: Slices) -> MicrobatchId {
        MicrobatchId((slices.microbatch(at) * self.0 + copy) * slices.count() + slices.slice(at))
    }

    /// The other way round: which microbatch of which of them it is.
    fn origin(self, at: MicrobatchId, slices: Slices) -> (MicrobatchId, u32) {
        let microbatch = slices.microbatch(at);
        (MicrobatchId(microbatch / self.0 * slices.count() + slices.slice(at)), microbatch % self.0)
    }

    /// The device of one of them that stands for this device, next to those of the others.
    fn device(self, device: DeviceId, copy: u32) -> DeviceId {
        DeviceId(device.0 * self.0 + copy)
    }
}

impl Schedule {
    /// The schedule `n` times side by side. Microbatch `m` of pipeline `r` is number `m * n + r` of all, and its device
    /// `d` is device `d * n + r`. All pipelines hold the same weights. None where weights change during a step, or
    /// where activations, sums or updates have places, or slices read earlier microbatches.
    pub fn side_by_side(&self, n: u32) -> Option<Self> {
        if self.window.is_some() || !self.swaps.is_empty() || !self.step_tasks.is_empty() || !self.carried.is_empty() {
            return None;
        }
        let (copies, slices) = (Copies(n), self.slices);
        if slices != Slices::ONE && !self.graph.earlier().is_empty() {
            return None;
        }
        let mut sets = DeviceSets::default();
        // Devices repeat after whole microbatches.
        let whole = |period: u32| period / gcd(period, slices.count()) * slices.count();
        for at in (0..whole(self.placement.period()) * n).map(MicrobatchId) {
            let (microbatch, copy) = copies.origin(at, slices);
            for stage in self.placement.stages() {
                let devices = self.placement.devices(stage, microbatch);
                sets.push(devices.iter().map(|device| copies.device(*device, copy)));
            }
        }
        let repeats = self.placement.repeats().map(|repeats| whole(repeats) * n);
        let of_task = |one: ScheduledTask, copy: u32| {
            let microbatch = copies.microbatch(one.task.microbatch, copy, slices);
            ScheduledTask { task: Task { microbatch, ..one.task }, ..one }
        };
        let order =
            |order: &[ScheduledTask], copy: u32| order.iter().map(|one| of_task(*one, copy)).collect::<Vec<_>>();
        let of_block = |block: &Block| {
            let task = |one: &BlockTask, copy| BlockTask {
                microbatch: copies.microbatch(one.microbatch, copy, slices),
                ..*one
            };
            Block {
                microbatches: block.microbatches * n,
                slots: copies.all().flat_map(|copy| block.slots.iter().map(move |one| task(one, copy))).collect(),
                only: block.only.map(|only| only * n),
                ..block.clone()
            }
        };
        let earlier = self.graph.earlier().iter().map(|edge| Earlier { behind: edge.behind * n, ..*edge });
        let graph = self.graph.clone().with_earlier(earlier);
        Some(Self {
            graph,
            pipelines: self.pipelines * n,
            n_microbatches: self.n_microbatches * n,
            placement: Placement::repeated(self.n_stages(), sets, repeats),
            orders: self.orders.iter().flat_map(|own| copies.all().map(|copy| order(own, copy))).collect(),
            block: self.block.as_ref().map(of_block),
            ..self.clone()
        })
    }
}
