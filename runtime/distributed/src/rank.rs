//! Ranks: the processes of a job, and which devices each of them has.

use pipe_ir::ids::DeviceId;
use std::ops::Range;

pipe_ir::ids! {
    /// One process of a job, counted from 0.
    Rank "rank "
}

impl Rank {
    /// The one that speaks for all.
    pub const FIRST: Self = Self(0);
}

/// Devices in contiguous blocks, one block for each rank; no two blocks differ by more than one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Division {
    n_devices: usize,
    n_ranks: usize,
}

impl Division {
    /// So many devices over so many ranks; `None` where some rank would have none.
    pub const fn new(n_devices: usize, n_ranks: usize) -> Option<Self> {
        if n_ranks == 0 || n_ranks > n_devices { None } else { Some(Self { n_devices, n_ranks }) }
    }

    /// How many devices there are.
    pub const fn n_devices(self) -> usize {
        self.n_devices
    }

    /// Positions of the devices of a rank.
    pub fn devices_of(self, rank: Rank) -> Range<usize> {
        let start = |rank: usize| rank * self.n_devices / self.n_ranks;
        start(rank.index())..start(rank.index() + 1)
    }

    /// The rank that has a device.
    pub fn rank_of(self, device: DeviceId) -> Rank {
        Rank::from_index(((device.index() + 1) * self.n_ranks - 1) / self.n_devices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_is_in_the_block_of_its_rank() {
        for n_devices in 1..30 {
            assert!(Division::new(n_devices, 0).is_none() && Division::new(n_devices, n_devices + 1).is_none());
            for n_ranks in 1..=n_devices {
                let division = Division::new(n_devices, n_ranks).expect("a device for each rank");
                let mut next = 0;
                for rank in (0..n_ranks).map(Rank::from_index) {
                    let own = division.devices_of(rank);
                    assert!(
                        own.start == next && (n_devices / n_ranks..=n_devices.div_ceil(n_ranks)).contains(&own.len())
                    );
                    assert!(own.clone().all(|device| division.rank_of(DeviceId::from_index(device)) == rank));
                    next = own.end;
                }
                assert_eq!(next, n_devices);
            }
        }
    }
}
