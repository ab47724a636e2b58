//! Groups: a schedule that places every stage on a group of devices, as one of a device for each group.
//!
//! All devices of a group do the same in the same order, so what holds of one holds of all of them.

use crate::placement::Placement;
use crate::schedule::Schedule;
use crate::step_tasks::StepTaskKind;
use pipe_ir::ids::{DeviceId, MicrobatchId};

impl Schedule {
    /// The schedule of groups, and how many devices each has: where every task is on a whole group, and groups are
    /// devices 0 to n - 1, n to 2 n - 1 and so on. None for all other schedules.
    pub fn of_groups(&self) -> Option<(Self, u32)> {
        let size = self.placement.set_size(self.placement.stages().next()?);
        let is_plain = self.parts.is_empty()
            && self.swaps.is_empty()
            && [StepTaskKind::Reduce, StepTaskKind::Update].iter().all(|kind| self.step_tasks.first(*kind).is_none());
        if size < 2 || !is_plain || !self.n_devices().is_multiple_of(size) {
            return None;
        }
        let group = |devices: &[DeviceId]| {
            let first = devices.first()?.index();
            let is_whole = devices.len() == size && first.is_multiple_of(size);
            let follows = || devices.iter().enumerate().all(|(position, device)| device.index() == first + position);
            (is_whole && follows()).then(|| DeviceId::from_index(first / size))
        };
        let microbatches = (0..self.placement.period()).map(MicrobatchId);
        let places = microbatches.flat_map(|microbatch| self.placement.stages().map(move |stage| (stage, microbatch)));
        let sets = places.map(|(stage, microbatch)| group(self.placement.devices(stage, microbatch)));
        let sets = sets.collect::<Option<Vec<DeviceId>>>()?;
        let are_alike = |orders: &&[Vec<_>]| orders.iter().all(|order| *order == orders[0]);
        let orders: Vec<&[Vec<_>]> = self.orders.chunks(size).take_while(are_alike).collect();
        if orders.len() * size != self.n_devices() {
            return None;
        }
        let placement = Placement::repeated(self.n_stages(), sets, self.placement.repeats());
        let orders = orders.into_iter().map(|orders| orders[0].clone()).collect();
        Some((Self { placement, orders, ..self.clone() }, u32::try_from(size).ok()?))
    }
}
