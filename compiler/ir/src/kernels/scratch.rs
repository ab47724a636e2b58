//! Places of temporaries: two may share bytes if no kernel needs both. Largest first, each in the tightest gap.

use super::{Kernel, KernelPlan, Storage};
use crate::units::Bytes;
use std::ops::Range;

/// Kernels whose temporaries all have bytes of their own.
#[derive(Debug, Default)]
pub(super) struct Unpacked {
    pub(super) kernels: Vec<Kernel>,
    /// Where each temporary lies; ascending.
    pub(super) temporaries: Vec<Range<u64>>,
}

impl Unpacked {
    /// Bytes for another temporary.
    pub(super) fn reserve(&mut self, bytes: Bytes) -> Bytes {
        let start = self.temporaries.last().map_or(0, |last| last.end);
        self.temporaries.push(start..start + bytes.aligned().0);
        Bytes(start)
    }
}

/// A temporary, from the first to the last kernel that touches it.
struct Lifespan {
    index: usize,
    bytes: u64,
    kernels: Range<usize>,
}

/// Lets temporaries share bytes.
pub(super) fn pack(mut unpacked: Unpacked) -> KernelPlan {
    let mut lifespans = lifespans(&mut unpacked);
    lifespans.sort_by_key(|span| (std::cmp::Reverse(span.bytes), span.kernels.start, span.index));
    let mut starts = vec![0; unpacked.temporaries.len()];
    let mut placed: Vec<(Range<usize>, Range<u64>)> = Vec::new();
    for span in &lifespans {
        let mut taken: Vec<Range<u64>> = placed
            .iter()
            .filter(|(kernels, _)| kernels.start < span.kernels.end && span.kernels.start < kernels.end)
            .map(|(_, bytes)| bytes.clone())
            .collect();
        taken.sort_by_key(|bytes| bytes.start);
        let start = tightest_gap(&taken, span.bytes);
        starts[span.index] = start;
        placed.push((span.kernels.clone(), start..start + span.bytes));
    }
    for kernel in &mut unpacked.kernels {
        for location in kernel.locations().into_iter().filter(|location| location.place == Storage::Scratch) {
            let index = temporary_at(&unpacked.temporaries, location.offset);
            location.offset = Bytes(starts[index] + location.offset.0 - unpacked.temporaries[index].start);
        }
    }
    let scratch = placed.iter().map(|(_, bytes)| bytes.end).max().unwrap_or(0);
    KernelPlan { kernels: unpacked.kernels, scratch: Bytes(scratch) }
}

/// The lifespans of all temporaries that any kernel touches.
fn lifespans(unpacked: &mut Unpacked) -> Vec<Lifespan> {
    let mut spans: Vec<Option<Range<usize>>> = vec![None; unpacked.temporaries.len()];
    for (position, kernel) in unpacked.kernels.iter_mut().enumerate() {
        for location in kernel.locations().into_iter().filter(|location| location.place == Storage::Scratch) {
            let span = &mut spans[temporary_at(&unpacked.temporaries, location.offset)];
            let start = span.as_ref().map_or(position, |span| span.start);
            *span = Some(start..position + 1);
        }
    }
    let used = spans.into_iter().enumerate().filter_map(|(index, kernels)| Some((index, kernels?)));
    used.map(|(index, kernels)| {
        let bytes = &unpacked.temporaries[index];
        Lifespan { index, bytes: bytes.end - bytes.start, kernels }
    })
    .collect()
}

/// Which temporary holds this byte.
fn temporary_at(temporaries: &[Range<u64>], offset: Bytes) -> usize {
    temporaries.partition_point(|range| range.end <= offset.0)
}

/// The start of the smallest gap between sorted ranges that holds this many bytes, or the end of them all.
fn tightest_gap(taken: &[Range<u64>], bytes: u64) -> u64 {
    let (mut end, mut best) = (0, None);
    for range in taken {
        let gap = range.start.saturating_sub(end);
        if gap >= bytes && best.is_none_or(|(size, _)| gap < size) {
            best = Some((gap, end));
        }
        end = end.max(range.end);
    }
    best.map_or(end, |(_, start)| start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_gap_wins() {
        assert_eq!(tightest_gap(&[], 64), 0);
        assert_eq!(tightest_gap(&[0..64, 256..320, 384..448], 64), 320);
        assert_eq!(tightest_gap(&[0..64, 256..320, 384..448], 128), 64);
        assert_eq!(tightest_gap(&[0..64, 256..320, 384..448], 256), 448);
    }
}
