//! Collectives: the part of each member, and sums in the order of a group.

use crate::memory::Region;
use crate::tokens::Posted;
use bytemuck::Pod;
use pipe_ir::graph::DType;
use pipe_ir::instruction::Collective;
use pipe_ir::shares::share;
use pipe_ir::units::{ALIGNMENT, Bytes};
use std::ops::{AddAssign, Range};

/// A member's part of a collective.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Whose, and where its buffer is.
    pub posted: Posted,
    /// What all of them do.
    pub collective: Collective,
    /// What the buffer consists of.
    pub dtype: DType,
    /// Its share of what is gathered, where that is not in the buffer itself.
    pub share: Option<Region>,
}

/// The share of a member, of so many bytes of so many members.
pub fn own_bytes(bytes: usize, members: usize, position: usize) -> Range<usize> {
    let own = share(Bytes(bytes as u64), members, position);
    own.start.to_usize()..own.end.to_usize()
}

/// Where what a member gives another one in an all-to-all lies in the buffers of both.
pub struct Handed {
    /// In the giver's buffer.
    pub leaves: Range<usize>,
    /// In the other one's.
    pub arrives: Range<usize>,
}

impl Handed {
    /// From the member at one position to that at another. A buffer has `bytes` bytes.
    pub fn of(bytes: usize, members: usize, from: usize, to: usize) -> Self {
        let half = bytes / 2;
        let alignment = ALIGNMENT.to_usize();
        let part = half / members / alignment * alignment;
        let of = |start: usize| start..start + part;
        Self { leaves: of(to * part), arrives: of(half + from * part) }
    }
}

/// Writes the sum of regions of one size, in their order, to some of them or others.
pub fn sum_up(dtype: DType, all: impl Iterator<Item = Region> + Clone, to: impl Iterator<Item = Region> + Clone) {
    match dtype {
        DType::F32 => add_up::<f32>(all, to),
        DType::F64 => add_up::<f64>(all, to),
        // Indices have no gradients, and those of weights are added up in single precision at least.
        DType::BF16 | DType::I32 => {}
    }
}

/// Elements that are added up at once, so that they stay close to the processor.
const CHUNK: usize = 512;

fn add_up<T: Pod + AddAssign>(mut all: impl Iterator<Item = Region> + Clone, to: impl Iterator<Item = Region> + Clone) {
    let Some(first) = all.next() else { return };
    let end = first.len() / size_of::<T>();
    let mut sum = [T::zeroed(); CHUNK];
    for start in (0..end).step_by(CHUNK) {
        let range = start..(start + CHUNK).min(end);
        let sum = &mut sum[..range.len()];
        sum.copy_from_slice(&first.numbers::<T>()[range.clone()]);
        for other in all.clone() {
            let other = &other.numbers::<T>()[range.clone()];
            sum.iter_mut().zip(other).for_each(|(sum, number)| *sum += *number);
        }
        for to in to.clone() {
            to.numbers_mut::<T>()[range.clone()].copy_from_slice(sum);
        }
    }
}
