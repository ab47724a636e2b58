//! Kernels that read bfloat16: inputs are widened, and results rounded, in room beside the arena.

use super::foreign::extent;
use crate::values::numbers::upper_half;
use pipe_distributed::Fault;
use pipe_distributed::memory::{Memory, Region};
use pipe_ir::graph::DType;
use pipe_ir::kernels::Gemm;
use pipe_ir::units::Bytes;

/// Room for what one kernel reads and for its result, or for both factors and the sums of a
/// product; it grows to what the largest one needs.
#[derive(Default)]
pub(super) struct Wide([Option<Room>; INPUTS + 1]);

/// Inputs of a kernel at most, and more than the matrices of a product or of attention.
pub(super) const INPUTS: usize = 5;

struct Room {
    memory: Memory,
    bytes: Bytes,
}

impl Wide {
    /// Where a product has its factors and its sums, from the bytes that begin with a, b and c.
    pub(super) fn of_product(
        &mut self,
        gemm: &Gemm,
        (a, b, c): (Region, Region, Region),
    ) -> Result<(Region, Region, Region), Fault> {
        if gemm.factors != DType::BF16 {
            return Ok((a, b, c));
        }
        let (m, n, k) = (gemm.m, gemm.n, gemm.k);
        let a = self.widened(0, a, extent(&gemm.a, &gemm.batch, m, k))?;
        let b = self.widened(1, b, extent(&gemm.b, &gemm.batch, k, n))?;
        let sums = if gemm.result == DType::BF16 { self.room(2, extent(&gemm.c, &gemm.batch, m, n))? } else { c };
        Ok((a, b, sums))
    }

    /// The first elements of a region that a kernel has as its input number `position`.
    pub(super) fn of_input(
        &mut self,
        position: usize,
        from: Region,
        (stored, elements): (DType, u64),
    ) -> Result<Option<Region>, Fault> {
        if stored != DType::BF16 {
            return Ok(None);
        }
        self.widened(position, from, elements as usize).map(Some)
    }

    /// Room for a result that is rounded before it is stored, if it is.
    pub(super) fn of_result(&mut self, result: DType, elements: u64) -> Result<Option<Region>, Fault> {
        (result == DType::BF16).then(|| self.room(INPUTS, elements as usize)).transpose()
    }

    /// Rows that begin with a region, with these strides, as numbers in single precision without gaps.
    pub(super) fn of_rows(
        &mut self,
        position: usize,
        from: Region,
        (row, column): (u64, u64),
        (rows, width): (u64, u64),
    ) -> Result<Region, Fault> {
        let wide = self.room(position, (rows * width) as usize)?;
        let halves = from.numbers::<u16>();
        for (numbers, first) in wide.numbers_mut::<f32>().chunks_exact_mut(width as usize).zip(multiples(row)) {
            for (number, at) in numbers.iter_mut().zip(multiples(column)) {
                *number = f32::from_bits(u32::from(halves[first + at]) << 16);
            }
        }
        Ok(wide)
    }

    /// The first elements of a region as numbers in single precision, until the room is asked for again.
    fn widened(&mut self, room: usize, from: Region, elements: usize) -> Result<Region, Fault> {
        let wide = self.room(room, elements)?;
        let halves = from.part(0, elements * size_of::<u16>());
        for (number, half) in wide.numbers_mut::<f32>().iter_mut().zip(halves.numbers::<u16>()) {
            *number = f32::from_bits(u32::from(*half) << 16);
        }
        Ok(wide)
    }

    /// Room for `elements` numbers, in the place of input number `position`.
    pub(super) fn numbers<T>(&mut self, position: usize, elements: u64) -> Result<Region, Fault> {
        let bytes = elements as usize * size_of::<T>();
        Ok(self.room(position, bytes.div_ceil(size_of::<f32>()))?.part(0, bytes))
    }

    /// Room for so many numbers in single precision.
    fn room(&mut self, room: usize, elements: usize) -> Result<Region, Fault> {
        let bytes = Bytes((elements * size_of::<f32>()) as u64);
        let room = &mut self.0[room];
        if room.as_ref().is_none_or(|room| room.bytes < bytes) {
            let no_room = || Fault::new(format!("there is no memory for {} bytes of widened numbers", bytes.0));
            *room = Some(Room { memory: Memory::new(bytes).ok_or_else(no_room)?, bytes });
        }
        let Some(room) = room else { unreachable!("the room was just made") };
        Ok(room.memory.region(Bytes::ZERO, bytes))
    }
}

/// Rounds numbers to the first halves of a region.
pub(super) fn store_rounded(numbers: Region, to: Region) {
    let numbers = numbers.numbers::<f32>();
    let to = to.part(0, numbers.len() * size_of::<u16>());
    for (half, number) in to.numbers_mut::<u16>().iter_mut().zip(numbers) {
        *half = upper_half(*number);
    }
}

/// Rounds rows of numbers without gaps to the halves that begin with a region, with these strides.
pub(super) fn store_rows(numbers: Region, width: u64, to: Region, (row, column): (u64, u64)) {
    let halves = to.numbers_mut::<u16>();
    for (numbers, first) in numbers.numbers::<f32>().chunks_exact(width as usize).zip(multiples(row)) {
        for (number, at) in numbers.iter().zip(multiples(column)) {
            halves[first + at] = upper_half(*number);
        }
    }
}

/// 0, then a stride, twice that, ..
fn multiples(stride: u64) -> impl Iterator<Item = usize> {
    (0..).map(move |index| index * stride as usize)
}

/// Rounds the sums of a product to its result, where that is bfloat16. Both lie alike.
pub(super) fn store_result(gemm: &Gemm, sums: Region, c: Region) {
    if gemm.result != DType::BF16 {
        return;
    }
    let c = c.part(0, extent(&gemm.c, &gemm.batch, gemm.m, gemm.n) * size_of::<u16>());
    let (sums, halves) = (sums.numbers::<f32>(), c.numbers_mut::<u16>());
    for matrix in 0..gemm.batch.iter().product() {
        let mut rest = matrix;
        let axes = gemm.batch.iter().zip(&gemm.c.batch).rev();
        let start = axes.fold(0, |start, (size, stride)| {
            let own = rest % size;
            rest /= size;
            start + own * stride
        });
        for row in 0..gemm.m {
            for column in 0..gemm.n {
                let at = (start + row * gemm.c.row + column * gemm.c.column) as usize;
                halves[at] = upper_half(sums[at]);
            }
        }
    }
}
