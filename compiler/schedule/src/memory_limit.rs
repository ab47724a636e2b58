//! Memory limits: how much activation memory devices may hold, all as much or each what is said for it.

use crate::schedule::Schedule;
use crate::units::{Units, parse_decimal};
use pipe_ir::ids::DeviceId;
use pipe_syntax::diagnostic::{Code, Diagnostic};

/// The most activation memory of every device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryLimit {
    first: Units,
    /// Of the other devices; empty where the first is for all.
    others: Vec<Units>,
}

impl MemoryLimit {
    /// The same for every device.
    pub fn of_all(limit: Units) -> Self {
        Self { first: limit, others: Vec::new() }
    }

    /// Reads one number for all devices, or one for each: `4`, or `4,4,3,3`.
    ///
    /// # Errors
    /// Says what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wanted = "expected a number from 0 to 10^9 with at most 6 decimals, or one for each device, as in `4.5` or `4,4,3,3`";
        let numbers: Option<Vec<Units>> = text.split(',').map(|text| parse_decimal(text.trim()).map(Units)).collect();
        let mut numbers = numbers.ok_or(wanted)?;
        Ok(Self { first: numbers.remove(0), others: numbers })
    }

    /// What a device may hold.
    pub fn of(&self, device: DeviceId) -> Units {
        device.index().checked_sub(1).and_then(|other| self.others.get(other)).copied().unwrap_or(self.first)
    }

    /// Activations of single stages that each device may hold, in the parts of [`Schedule::activations`].
    pub fn activations(&self, schedule: &Schedule) -> Vec<u64> {
        let devices = (0..schedule.n_devices()).map(DeviceId::from_index);
        devices.map(|device| schedule.parts_in(self.of(device))).collect()
    }

    /// Rule: there is one number for all devices, or one for each.
    pub fn miscounted(&self, schedule: &Schedule) -> Option<Diagnostic> {
        let (n_limits, n_devices) = (self.others.len() + 1, schedule.n_devices());
        if n_limits == 1 || n_limits == n_devices {
            return None;
        }
        let message =
            format!("there are {n_limits} memory limits, and `{}` runs on {n_devices} devices", schedule.name);
        let error = Diagnostic::error(Code::OutOfRange, schedule.span, "this schedule", message);
        Some(error.help(format!("give `--memory` one number for all devices, or {n_devices} of them")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_is_for_all_devices_and_several_are_for_one_each() {
        let of = |text| MemoryLimit::parse(text).map(|limit| [0, 1, 2].map(|device| limit.of(DeviceId(device)).0));
        assert_eq!(of("4.5"), Ok([4_500_000; 3]));
        assert_eq!(of("4, 0,0.25"), Ok([4_000_000, 0, 250_000]));
        assert_eq!(MemoryLimit::parse("4.5"), Ok(MemoryLimit::of_all(Units(4_500_000))));
        for text in ["", "4,", ",4", "-1", "4;3", "4,x"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
