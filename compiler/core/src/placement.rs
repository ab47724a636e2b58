//! Placements: the device of every task, by stage and microbatch.
//!
//! Devices repeat after some number of microbatches, at the latest after a whole step: only one period is kept.

use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};

/// Where stages live. A stage that lives on several devices is replicated: each replica runs some of the microbatches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    n_stages: usize,
    /// After how many microbatches the devices repeat; 1 where no stage is replicated.
    period: u32,
    /// The same for every number of microbatches, where the text shows it.
    repeats: Option<u32>,
    /// The devices of one period: those of all stages for microbatch 0, then for microbatch 1, and so on.
    devices: Vec<DeviceId>,
    /// By stage: the devices on which it lives, ascending.
    homes: Vec<Box<[DeviceId]>>,
}

impl Placement {
    /// Every stage on one device, by [`StageId`].
    #[must_use]
    pub fn of_stages(devices: Vec<DeviceId>) -> Self {
        let homes = devices.iter().map(|device| Box::from([*device])).collect();
        Self { n_stages: devices.len(), period: 1, repeats: Some(1), devices, homes }
    }

    /// A device for each stage of microbatch 0, then of microbatch 1, and so on.
    #[must_use]
    pub fn of_tasks(n_stages: usize, devices: Vec<DeviceId>) -> Self {
        Self::repeated(n_stages, devices, None)
    }

    /// The same, where the text shows after how many microbatches the devices repeat.
    #[must_use]
    pub fn repeated(n_stages: usize, devices: Vec<DeviceId>, repeats: Option<u32>) -> Self {
        let is_whole = |repeats: &u32| *repeats as usize * n_stages == devices.len();
        let whole = repeats.filter(is_whole);
        let least = period(&devices, n_stages);
        let mut devices = devices;
        if least <= 1 {
            devices.truncate(n_stages);
            return Self { repeats: whole.map_or(repeats, |_| Some(1)), ..Self::of_stages(devices) };
        }
        let period = whole.map_or(least, |repeats| repeats as usize);
        devices.truncate(period * n_stages);
        devices.shrink_to_fit();
        let homes = (0..n_stages).map(|stage| {
            let mut own: Vec<DeviceId> = devices.iter().skip(stage).step_by(n_stages).copied().collect();
            own.sort_unstable();
            own.dedup();
            own.into_boxed_slice()
        });
        let homes = homes.collect();
        Self { n_stages, period: u32::try_from(period).unwrap_or(u32::MAX), repeats, devices, homes }
    }

    /// Where a microbatch of a stage runs.
    #[must_use]
    pub fn device(&self, stage: StageId, microbatch: MicrobatchId) -> DeviceId {
        let phase = if self.period == 1 { 0 } else { microbatch.0 % self.period };
        self.devices[phase as usize * self.n_stages + stage.index()]
    }

    /// The same, or none where there is no such stage.
    #[must_use]
    pub fn get(&self, stage: StageId, microbatch: MicrobatchId) -> Option<DeviceId> {
        (stage.index() < self.n_stages).then(|| self.device(stage, microbatch))
    }

    /// The devices on which a stage lives, ascending.
    #[must_use]
    pub fn devices_of(&self, stage: StageId) -> &[DeviceId] {
        &self.homes[stage.index()]
    }

    /// Whether a device runs some microbatch of a stage.
    #[must_use]
    pub fn is_home(&self, stage: StageId, device: DeviceId) -> bool {
        self.homes.get(stage.index()).is_some_and(|homes| homes.binary_search(&device).is_ok())
    }

    /// Number of stages.
    #[must_use]
    pub fn n_stages(&self) -> usize {
        self.n_stages
    }

    /// All stages.
    pub fn stages(&self) -> impl Iterator<Item = StageId> + use<> {
        (0..self.n_stages).map(StageId::from_index)
    }

    /// After how many microbatches the devices repeat; 1 where no stage is replicated.
    #[must_use]
    pub fn period(&self) -> u32 {
        self.period
    }

    /// After how many microbatches the devices repeat in every step, however long; none where that is not clear.
    #[must_use]
    pub fn repeats(&self) -> Option<u32> {
        self.repeats
    }

    /// Whether some stage lives on several devices.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.period > 1
    }
}

/// The least number of rows after which rows repeat, up to all of them (Knuth, Morris and Pratt, SIAM J. Comput. 6, 1977).
fn period(devices: &[DeviceId], n_stages: usize) -> usize {
    let rows: Vec<&[DeviceId]> = devices.chunks(n_stages.max(1)).collect();
    // By number of rows: how many of them at the end are also those at the beginning, but not all.
    let mut border = vec![0_usize; rows.len() + 1];
    let mut length = 0;
    for index in 1..rows.len() {
        while length > 0 && rows[index] != rows[length] {
            length = border[length];
        }
        if rows[index] == rows[length] {
            length += 1;
        }
        border[index + 1] = length;
    }
    rows.len() - border[rows.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(n_stages: usize, rows: &[u32]) -> Placement {
        Placement::of_tasks(n_stages, rows.iter().map(|device| DeviceId(*device)).collect())
    }

    #[test]
    fn one_period_is_kept() {
        let pairs = placement(2, &[0, 1, 2, 3, 0, 1, 2, 3, 0, 1]);
        assert_eq!((pairs.period(), pairs.is_replicated()), (2, true));
        let devices = (0..6).map(|microbatch| pairs.device(StageId(1), MicrobatchId(microbatch)).0);
        assert_eq!(devices.collect::<Vec<_>>(), [1, 3, 1, 3, 1, 3]);
        assert_eq!(pairs.devices_of(StageId(0)), [DeviceId(0), DeviceId(2)]);
        assert!(pairs.is_home(StageId(1), DeviceId(3)) && !pairs.is_home(StageId(1), DeviceId(2)));
        assert_eq!(placement(1, &[0, 1, 1, 0, 1, 2]).period(), 6);
    }

    #[test]
    fn a_placement_that_never_changes_is_one_by_stages() {
        let found = placement(2, &[3, 1, 3, 1, 3, 1]);
        assert_eq!(
            (found.period(), found.repeats(), found.device(StageId(1), MicrobatchId(7))),
            (1, None, DeviceId(1))
        );
        let rows = [3, 1, 3, 1].map(DeviceId).to_vec();
        assert_eq!(Placement::repeated(2, rows, Some(2)), Placement::of_stages(vec![DeviceId(3), DeviceId(1)]));
    }
}
