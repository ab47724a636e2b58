//! How many bytes devices have: as many on each, or a number of its own for each.

use crate::ids::DeviceId;
use crate::units::Bytes;
use std::sync::Arc;

/// Bytes that each device has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capacity {
    least: Bytes,
    /// By device, where they differ. Devices beyond the last have as much as the least.
    each: Option<Arc<[Bytes]>>,
}

impl From<Bytes> for Capacity {
    /// As many on every device.
    fn from(bytes: Bytes) -> Self {
        Self { least: bytes, each: None }
    }
}

impl Capacity {
    /// A number for each device; nothing without devices.
    pub fn of_devices(each: Vec<Bytes>) -> Self {
        let least = each.iter().min().copied().unwrap_or_default();
        let differ = each.iter().any(|bytes| *bytes != least);
        Self { least, each: differ.then(|| each.into()) }
    }

    /// What a device has.
    pub fn of(&self, device: DeviceId) -> Bytes {
        self.each.as_ref().and_then(|each| each.get(device.index())).copied().unwrap_or(self.least)
    }

    /// What the devices with the least have.
    pub const fn least(&self) -> Bytes {
        self.least
    }

    /// Whether devices have different numbers.
    pub const fn differs(&self) -> bool {
        self.each.is_some()
    }

    /// On each device the lower of both.
    #[must_use]
    pub fn min(&self, other: &Self) -> Self {
        match (&self.each, &other.each) {
            (None, None) => self.least.min(other.least).into(),
            (Some(each), _) | (None, Some(each)) => {
                let devices = (0..each.len()).map(DeviceId::from_index);
                Self::of_devices(devices.map(|device| self.of(device).min(other.of(device))).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_the_lower_of_two_numbers() {
        let unequal = Capacity::of_devices([80, 80, 40].map(Bytes).to_vec());
        let both = unequal.min(&Bytes(60).into());
        assert_eq!([0, 1, 2].map(|device| both.of(DeviceId(device))), [60, 60, 40].map(Bytes));
        assert_eq!((both.least(), both.differs()), (Bytes(40), true));
        assert_eq!(Capacity::from(Bytes(30)).min(&unequal), Bytes(30).into());
        assert_eq!(Capacity::of_devices(vec![Bytes(7); 3]), Bytes(7).into());
    }
}
