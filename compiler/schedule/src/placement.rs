//! Placements: the devices of every task, by stage and microbatch.
//!
//! A task occupies all devices of its set at once; most sets have one device. Devices repeat after some number of
//! microbatches, at the latest after a whole step: only one period is kept.

use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};

/// Where stages live. A stage whose microbatches run on different devices is replicated: each
/// replica runs some of them. A stage that lives on several devices at once has the same ones for
/// all microbatches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    n_stages: usize,
    /// After how many microbatches the devices repeat; 1 where no stage is replicated.
    period: u32,
    /// The same for every number of microbatches, where the text shows it.
    repeats: Option<u32>,
    /// The devices of one period: those of all stages for microbatch 0, then for microbatch 1, and so on.
    sets: DeviceSets,
    /// By stage: the devices on which it lives, ascending.
    homes: Vec<Box<[DeviceId]>>,
}

/// Sets of devices, one after the other; each has at least one device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceSets {
    /// By set: where it ends in `devices`.
    ends: Vec<u32>,
    /// The devices of all sets, those of each ascending.
    devices: Vec<DeviceId>,
}

impl DeviceSets {
    /// Adds a set. A device that is named twice counts once.
    ///
    /// # Panics
    /// If the set is empty, or there are 2^32 devices in all sets.
    pub fn push(&mut self, set: impl IntoIterator<Item = DeviceId>) {
        let start = self.devices.len();
        self.devices.extend(set);
        if self.devices.len() - start > 1 {
            self.devices[start..].sort_unstable();
            let mut set = self.devices.split_off(start);
            set.dedup();
            self.devices.append(&mut set);
        }
        assert!(self.devices.len() > start, "a task runs somewhere");
        self.ends.push(u32::try_from(self.devices.len()).expect("there are far fewer places than 2^32"));
    }

    /// Adds sets again that are there already.
    pub fn repeat(&mut self, sets: std::ops::Range<usize>) {
        for set in sets {
            let own = self.range(set);
            self.devices.extend_from_within(own);
            self.ends.push(u32::try_from(self.devices.len()).expect("there are far fewer places than 2^32"));
        }
    }

    /// How many sets there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many devices all sets have together.
    pub fn n_places(&self) -> usize {
        self.devices.len()
    }

    /// The devices of a set, ascending.
    pub fn get(&self, set: usize) -> &[DeviceId] {
        &self.devices[self.range(set)]
    }

    fn range(&self, set: usize) -> std::ops::Range<usize> {
        let start = set.checked_sub(1).map_or(0, |before| self.ends[before]);
        start as usize..self.ends[set] as usize
    }

    /// The first device of a set.
    fn first(&self, set: usize) -> DeviceId {
        self.devices[set.checked_sub(1).map_or(0, |before| self.ends[before]) as usize]
    }

    fn truncate(&mut self, n_sets: usize) {
        self.devices
            .truncate(n_sets.checked_sub(1).and_then(|last| self.ends.get(last)).map_or(0, |end| *end as usize));
        self.ends.truncate(n_sets);
        self.devices.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Whether two rows of as many sets are alike.
    fn are_alike(&self, one: std::ops::Range<usize>, other: std::ops::Range<usize>) -> bool {
        one.zip(other).all(|(one, other)| self.get(one) == self.get(other))
    }
}

impl From<Vec<DeviceId>> for DeviceSets {
    fn from(devices: Vec<DeviceId>) -> Self {
        let n_sets = u32::try_from(devices.len()).expect("there are far fewer places than 2^32");
        Self { ends: (1..=n_sets).collect(), devices }
    }
}

impl Placement {
    /// Every stage on one device, or on one set of them, by [`StageId`].
    pub fn of_stages(sets: impl Into<DeviceSets>) -> Self {
        let sets = sets.into();
        let homes = (0..sets.len()).map(|stage| Box::from(sets.get(stage))).collect();
        Self { n_stages: sets.len(), period: 1, repeats: Some(1), sets, homes }
    }

    /// A device for each stage of microbatch 0, then of microbatch 1, and so on.
    pub fn of_tasks(n_stages: usize, devices: Vec<DeviceId>) -> Self {
        Self::repeated(n_stages, devices, None)
    }

    /// The same, or sets of devices, where the text shows after how many microbatches they repeat.
    pub fn repeated(n_stages: usize, sets: impl Into<DeviceSets>, repeats: Option<u32>) -> Self {
        let mut sets = sets.into();
        let is_whole = |repeats: &u32| *repeats as usize * n_stages == sets.len();
        let whole = repeats.filter(is_whole);
        let least = period(&sets, n_stages);
        if least <= 1 {
            sets.truncate(n_stages);
            return Self { repeats: whole.map_or(repeats, |_| Some(1)), ..Self::of_stages(sets) };
        }
        let period = whole.map_or(least, |repeats| repeats as usize);
        sets.truncate(period * n_stages);
        let homes = (0..n_stages).map(|stage| {
            let rows = (stage..sets.len()).step_by(n_stages);
            let mut own: Vec<DeviceId> = rows.flat_map(|set| sets.get(set)).copied().collect();
            own.sort_unstable();
            own.dedup();
            own.into_boxed_slice()
        });
        let homes = homes.collect();
        Self { n_stages, period: u32::try_from(period).unwrap_or(u32::MAX), repeats, sets, homes }
    }

    /// A placement of other stages with the same period. `sets` has the devices of one period.
    #[must_use]
    pub fn with_stages(&self, n_stages: usize, sets: DeviceSets) -> Self {
        Self { repeats: self.repeats, ..Self::repeated(n_stages, sets, Some(self.period)) }
    }

    fn set(&self, stage: StageId, microbatch: MicrobatchId) -> usize {
        let phase = if self.period == 1 { 0 } else { microbatch.0 % self.period };
        phase as usize * self.n_stages + stage.index()
    }

    /// Where a microbatch of a stage runs: the first of its devices.
    pub fn device(&self, stage: StageId, microbatch: MicrobatchId) -> DeviceId {
        self.sets.first(self.set(stage, microbatch))
    }

    /// All devices that a microbatch of a stage occupies, ascending.
    pub fn devices(&self, stage: StageId, microbatch: MicrobatchId) -> &[DeviceId] {
        self.sets.get(self.set(stage, microbatch))
    }

    /// The same; none where there is no such stage.
    pub fn get(&self, stage: StageId, microbatch: MicrobatchId) -> &[DeviceId] {
        if stage.index() < self.n_stages { self.devices(stage, microbatch) } else { &[] }
    }

    /// The devices on which a stage lives, ascending.
    pub fn devices_of(&self, stage: StageId) -> &[DeviceId] {
        &self.homes[stage.index()]
    }

    /// Whether a device runs some microbatch of a stage.
    pub fn is_home(&self, stage: StageId, device: DeviceId) -> bool {
        self.homes.get(stage.index()).is_some_and(|homes| homes.binary_search(&device).is_ok())
    }

    /// Number of stages.
    pub fn n_stages(&self) -> usize {
        self.n_stages
    }

    /// All stages.
    pub fn stages(&self) -> impl Iterator<Item = StageId> + use<> {
        (0..self.n_stages).map(StageId::from_index)
    }

    /// After how many microbatches the devices repeat; 1 where no stage is replicated.
    pub fn period(&self) -> u32 {
        self.period
    }

    /// After how many microbatches the devices repeat in every step, however long; none where that is not clear.
    pub fn repeats(&self) -> Option<u32> {
        self.repeats
    }

    /// Whether some stage has replicas.
    pub fn is_replicated(&self) -> bool {
        self.period > 1
    }

    /// Whether microbatches of a stage run on different devices.
    pub fn has_replicas(&self, stage: StageId) -> bool {
        self.is_replicated() && self.set_size(stage) < self.devices_of(stage).len()
    }

    /// How many devices a task of a stage occupies at once.
    pub fn set_size(&self, stage: StageId) -> usize {
        self.sets.get(stage.index()).len()
    }

    /// How many devices one task of each stage occupies, summed up: as many as there are stages,
    /// unless some are on several.
    pub fn n_places(&self) -> usize {
        self.stages().map(|stage| self.set_size(stage)).sum()
    }

    /// The first stage that lives on several devices at once.
    pub fn spread_stage(&self) -> Option<StageId> {
        self.stages().find(|stage| self.set_size(*stage) > 1)
    }
}

/// What devices are called together: `d2`, `d0 to d3`, `d0, d2 and d5`.
pub fn names(devices: &[DeviceId]) -> String {
    const SHOWN: usize = 4;
    match devices {
        [first, .., last] if last.index() - first.index() + 1 == devices.len() && devices.len() > 2 => {
            format!("{first} to {last}")
        }
        [first] => first.to_string(),
        [others @ .., last] if devices.len() <= SHOWN => {
            let others: Vec<String> = others.iter().map(ToString::to_string).collect();
            format!("{} and {last}", others.join(", "))
        }
        _ => {
            let shown: Vec<String> = devices.iter().take(SHOWN).map(ToString::to_string).collect();
            format!("{} and {} more", shown.join(", "), devices.len().saturating_sub(SHOWN))
        }
    }
}

/// The least number of rows after which rows repeat, up to all of them (Knuth, Morris and Pratt,
/// SIAM J. Comput. 6, 1977).
fn period(sets: &DeviceSets, n_stages: usize) -> usize {
    let n_rows = sets.len().div_ceil(n_stages.max(1));
    let row = |row: usize| row * n_stages..((row + 1) * n_stages).min(sets.len());
    let are_alike =
        |one: usize, other: usize| row(one).len() == row(other).len() && sets.are_alike(row(one), row(other));
    // By number of rows: how many of them at the end are also those at the beginning, but not all.
    let mut border = vec![0_usize; n_rows + 1];
    let mut length = 0;
    for index in 1..n_rows {
        while length > 0 && !are_alike(index, length) {
            length = border[length];
        }
        if are_alike(index, length) {
            length += 1;
        }
        border[index + 1] = length;
    }
    n_rows - border[n_rows]
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
    #[test]
    fn a_task_occupies_all_devices_of_its_set() {
        let mut sets = DeviceSets::default();
        for set in [&[0, 1, 2][..], &[2, 0, 2], &[1]] {
            sets.push(set.iter().map(|device| DeviceId(*device)));
        }
        let placement = Placement::of_stages(sets);
        let devices =
            |stage| placement.devices(StageId(stage), MicrobatchId(5)).iter().map(|one| one.0).collect::<Vec<_>>();
        assert_eq!([devices(0), devices(1), devices(2)], [vec![0, 1, 2], vec![0, 2], vec![1]]);
        assert_eq!((placement.device(StageId(1), MicrobatchId(3)), placement.n_places()), (DeviceId(0), 6));
        assert!(!placement.is_replicated() && placement.spread_stage() == Some(StageId(0)));
        assert!(!placement.has_replicas(StageId(0)) && placement.is_home(StageId(1), DeviceId(2)));
    }

    #[test]
    fn devices_are_named_together() {
        let of = |devices: &[u32]| names(&devices.iter().map(|device| DeviceId(*device)).collect::<Vec<_>>());
        assert_eq!([of(&[2]), of(&[0, 1]), of(&[0, 1, 2, 3])], ["d2", "d0 and d1", "d0 to d3"]);
        assert_eq!([of(&[0, 2, 5]), of(&[0, 2, 4, 6, 8])], ["d0, d2 and d5", "d0, d2, d4, d6 and 1 more"]);
    }

    #[test]
    fn sets_stand_beside_replicas() {
        let mut sets = DeviceSets::default();
        for device in [0, 1, 0] {
            sets.push([DeviceId(device)]);
            sets.push([DeviceId(2), DeviceId(3)]);
        }
        let placement = Placement::repeated(2, sets, Some(2));
        assert_eq!((placement.period(), placement.set_size(StageId(1))), (2, 2));
        assert!(placement.has_replicas(StageId(0)) && !placement.has_replicas(StageId(1)));
        assert_eq!(placement.devices(StageId(1), MicrobatchId(1)), [DeviceId(2), DeviceId(3)]);
    }
}
