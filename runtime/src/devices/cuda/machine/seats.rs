//! Seats: which GPU each device of a program has. Devices are spread over the GPUs in equal blocks; several may share one.

use super::super::driver::{DriverError, Gpu};
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The GPUs of a run.
#[derive(Debug)]
pub(super) struct Seats {
    /// By device.
    devices: Vec<Arc<Gpu>>,
    gpus: Vec<Arc<Gpu>>,
}

impl Seats {
    /// GPUs for all devices of a program.
    ///
    /// # Errors
    /// Says in one line why there are none, or why they cannot work together.
    pub(super) fn new(program: &Program) -> Result<Self, String> {
        let n_gpus = Gpu::count()?;
        let ordinals = spread(program.devices.len(), n_gpus);
        let mut gpus = BTreeMap::new();
        for ordinal in ordinals.iter().collect::<BTreeSet<_>>() {
            let gpu = Gpu::at(*ordinal).map_err(|error| format!("GPU {ordinal} cannot be used: {error}"))?;
            gpus.insert(*ordinal, gpu);
        }
        let devices = ordinals.iter().map(|ordinal| Arc::clone(&gpus[ordinal])).collect();
        let seats = Self { devices, gpus: gpus.into_values().collect() };
        seats.join(program)?;
        Ok(seats)
    }

    /// Lets GPUs touch each other's memory: transfers are then direct, and a collective's kernel reads the parts of all members.
    fn join(&self, program: &Program) -> Result<(), String> {
        let mut apart = BTreeSet::new();
        for from in &self.gpus {
            for to in self.gpus.iter().filter(|to| to.ordinal() != from.ordinal()) {
                let reached =
                    from.reach(to).map_err(|error| format!("GPU {} cannot be used: {error}", from.ordinal()))?;
                if !reached {
                    apart.insert((from.ordinal(), to.ordinal()));
                }
            }
        }
        for group in &program.groups {
            let Some(first) = group.first().map(|device| self.of(*device).ordinal()) else { continue };
            let others = group.iter().map(|device| (first, self.of(*device).ordinal()));
            if let Some((first, other)) = others.into_iter().find(|pair| apart.contains(pair)) {
                let members: Vec<String> = group.iter().map(DeviceId::to_string).collect();
                return Err(format!(
                    "{} work together, but GPU {first} does not reach the memory of GPU {other}: \
                     CUDA_VISIBLE_DEVICES can name one GPU, or GPUs that reach each other",
                    members.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// The GPU of a device.
    pub(super) fn of(&self, device: DeviceId) -> &Arc<Gpu> {
        &self.devices[device.index()]
    }

    /// Those that are used.
    pub(super) fn gpus(&self) -> &[Arc<Gpu>] {
        &self.gpus
    }

    /// The place of a device's GPU among those that are used.
    pub(super) fn place(&self, device: DeviceId) -> usize {
        let ordinal = self.of(device).ordinal();
        self.gpus.iter().position(|gpu| gpu.ordinal() == ordinal).unwrap_or(0)
    }

    /// Names, with the number of devices on each.
    pub(super) fn names(&self) -> Vec<(String, usize)> {
        let on = |gpu: &Arc<Gpu>| self.devices.iter().filter(|own| own.ordinal() == gpu.ordinal()).count();
        self.gpus.iter().map(|gpu| (gpu.name().to_owned(), on(gpu))).collect()
    }

    /// Waits for all of them.
    pub(super) fn synchronise(&self) -> Result<(), DriverError> {
        self.gpus.iter().try_for_each(|gpu| gpu.synchronise())
    }
}

/// The GPU of each device, in equal blocks.
fn spread(n_devices: usize, n_gpus: usize) -> Vec<usize> {
    (0..n_devices).map(|device| device * n_gpus / n_devices.max(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn devices_are_spread_in_equal_blocks() {
        assert_eq!(spread(4, 1), [0, 0, 0, 0]);
        assert_eq!(spread(4, 2), [0, 0, 1, 1]);
        assert_eq!(spread(3, 2), [0, 0, 1]);
        assert_eq!(spread(2, 4), [0, 2]);
        assert!(spread(0, 1).is_empty());
    }
}
