//! Shares: how the members of a group divide the bytes of a value among them.
//!
//! Equal parts, each a multiple of the alignment; only what is at the end may have less, down to
//! nothing. So no share is more than one alignment larger than an equal part, and a tensor may be
//! cut anywhere between two of its numbers.

use crate::graph::TensorType;
use crate::units::{ALIGNMENT, Bytes};
use crate::value::{Part, TensorSlot};
use std::ops::Range;

/// The bytes of the member at a position of a group with so many members.
pub fn share(whole: Bytes, members: usize, position: usize) -> Range<Bytes> {
    let (members, position) = (members.max(1) as u64, position as u64);
    let part = whole.0.div_ceil(members).div_ceil(ALIGNMENT.0).saturating_mul(ALIGNMENT.0);
    let at = |position: u64| Bytes(part.saturating_mul(position).min(whole.0));
    at(position)..at(position.saturating_add(1))
}

/// What some bytes of a value hold of its tensors, which are whole ones.
pub fn cut(tensors: &[TensorSlot], bytes: &Range<Bytes>) -> Vec<TensorSlot> {
    tensors.iter().filter_map(|slot| piece(slot, bytes)).collect()
}

fn piece(slot: &TensorSlot, bytes: &Range<Bytes>) -> Option<TensorSlot> {
    let end = slot.offset.0.saturating_add(slot.ty.bytes().0);
    let (from, to) = (slot.offset.max(bytes.start).0, end.min(bytes.end.0));
    if from >= to {
        return None;
    }
    let (offset, number) = (Bytes(from - bytes.start.0), slot.ty.dtype.bytes().0);
    if to - from == slot.ty.bytes().0 {
        return Some(TensorSlot { offset, ..slot.clone() });
    }
    let part = Part { whole: slot.ty.clone(), from: (from - slot.offset.0) / number };
    let ty = TensorType::new(slot.ty.dtype, &[(to - from) / number]);
    Some(TensorSlot { ty, offset, part: Some(part), ..slot.clone() })
}

#[cfg(test)]
mod tests {
    use super::share;
    use crate::units::{ALIGNMENT, Bytes};

    #[test]
    fn shares_follow_each_other_and_differ_by_less_than_an_alignment_from_an_equal_part() {
        for whole in [0, 4, 63, 64, 65, 128, 192, 1000, 4096, 5000, u64::MAX - 200] {
            for members in 1..9 {
                let mut end = Bytes::ZERO;
                for position in 0..members {
                    let own = share(Bytes(whole), members, position);
                    assert_eq!(own.start, end);
                    assert!(own.start <= own.end && own.start.0.is_multiple_of(ALIGNMENT.0) || own.start.0 == whole);
                    assert!(own.end.0 - own.start.0 < whole / members as u64 + ALIGNMENT.0 + 1);
                    end = own.end;
                }
                assert_eq!(end, Bytes(whole));
            }
        }
    }

    /// A buffer is a value's bytes and what aligns them: both are cut at the same places.
    #[test]
    fn the_bytes_behind_a_value_move_no_cut() {
        for whole in (4..3000).step_by(4) {
            for members in 1..7 {
                for position in 0..members {
                    let (own, padded) =
                        (share(Bytes(whole), members, position), share(Bytes(whole).aligned(), members, position));
                    assert_eq!(own.start.0, padded.start.0.min(whole));
                    assert_eq!(own.end.0, padded.end.0.min(whole));
                }
            }
        }
    }
}
