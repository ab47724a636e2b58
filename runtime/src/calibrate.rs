//! Calibration: how fast the matrix library is by itself, to compare a training step with.

use crate::devices::cpu::{Number, library_gemm, with_numbers};
use crate::fault::RunError;
use crate::memory::Memory;
use pipe_ir::ids::DeviceId;
use pipe_ir::kernels::{Gemm, Matrix};
use pipe_ir::units::Bytes;
use std::time::{Duration, Instant};

/// The time of one call of the matrix library for the shapes and strides of a product, on operands of its own: the
/// shortest of some calls after one that warms the caches up.
///
/// # Errors
/// If the machine lacks memory for the operands.
pub fn matrix_product(gemm: &Gemm, calls: u32) -> Result<Duration, RunError> {
    let operand = |matrix: &Matrix, rows: u64, columns: u64| {
        let batch: u64 = matrix.batch.iter().zip(&gemm.batch).map(|(stride, size)| stride * (size - 1)).sum();
        let elements = batch + matrix.row * (rows - 1) + matrix.column * (columns - 1) + 1;
        let bytes = Bytes(elements * gemm.dtype.bytes().0);
        let memory = Memory::new(bytes).ok_or(RunError::OutOfMemory { device: DeviceId(0), bytes })?;
        let region = memory.region(Bytes::ZERO, bytes);
        with_numbers!(gemm.dtype, N => region.numbers_mut().fill(N::of(0.5)));
        Ok((memory, bytes))
    };
    let (a, a_bytes) = operand(&gemm.a, gemm.m, gemm.k)?;
    let (b, b_bytes) = operand(&gemm.b, gemm.k, gemm.n)?;
    let (c, c_bytes) = operand(&gemm.c, gemm.m, gemm.n)?;
    let call = || {
        let started = Instant::now();
        let region = |memory: &Memory, bytes| memory.region(Bytes::ZERO, bytes);
        let (a, b, c) = (region(&a, a_bytes), region(&b, b_bytes), region(&c, c_bytes));
        with_numbers!(gemm.dtype, N => library_gemm::<N>(gemm, a, b, c));
        started.elapsed()
    };
    call();
    Ok((0..calls.max(1)).map(|_| call()).min().unwrap_or_default())
}
