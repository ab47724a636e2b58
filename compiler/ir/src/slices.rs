//! The places of slices in their sequence.

use crate::program::Program;

/// How microbatches are cut along their sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slicing {
    count: u64,
    /// The share of each slice. Empty if all are equal.
    shares: Vec<u32>,
}

/// The place of a slice in its sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlicePlace {
    /// Positions before it.
    pub start: u64,
    /// Positions of the whole sequence.
    pub length: u64,
}

impl Slicing {
    /// How a program cuts its microbatches.
    pub fn of(program: &Program) -> Self {
        Self { count: program.n_slices.into(), shares: program.slice_shares.clone() }
    }

    /// Finds a slice of `size` positions in its sequence. None if another slice would not have whole positions.
    pub fn place(&self, slice: u32, size: u64) -> Option<SlicePlace> {
        if self.shares.is_empty() {
            return Some(SlicePlace { start: size.checked_mul(slice.into())?, length: size.checked_mul(self.count)? });
        }
        let sum = |shares: &[u32]| shares.iter().map(|share| u64::from(*share)).sum::<u64>();
        let own = u64::from(*self.shares.get(slice as usize)?);
        let part = |share: u64| {
            let positions = size.checked_mul(share)?;
            (own > 0 && positions % own == 0).then(|| positions / own)
        };
        self.shares.iter().try_for_each(|share| part(u64::from(*share)).map(drop))?;
        Some(SlicePlace { start: part(sum(&self.shares[..slice as usize]))?, length: part(sum(&self.shares))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_lie_one_after_the_other() {
        let equal = Slicing { count: 4, shares: Vec::new() };
        assert_eq!(equal.place(2, 8), Some(SlicePlace { start: 16, length: 32 }));
        let unequal = Slicing { count: 4, shares: vec![5, 4, 4, 3] };
        let places = [(0, 10), (1, 8), (2, 8), (3, 6)].map(|(slice, size)| unequal.place(slice, size));
        assert_eq!(places, [0, 10, 18, 26].map(|start| Some(SlicePlace { start, length: 32 })));
        assert_eq!([unequal.place(0, 8), unequal.place(4, 8), unequal.place(1, u64::MAX)], [None; 3]);
    }
}
