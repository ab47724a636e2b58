//! Calibration: how fast the matrix library, copies and transfers are by themselves, to compare a training step with.

use crate::channel::{Channels, End, Posted};
use crate::devices::cpu::{Number, library_gemm, with_numbers};
use crate::fault::RunError;
use crate::memory::Memory;
use pipe_ir::ids::{BufferId, DeviceId, MicrobatchId, TokenId, ValueId};
use pipe_ir::instruction::{Class, Instruction};
use pipe_ir::kernels::{Gemm, Matrix};
use pipe_ir::program::{DeviceProgram, Program};
use pipe_ir::units::Bytes;
use std::thread;
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
        let memory = memory(bytes)?;
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

/// The time of a copy of so many bytes: the median of some after one that touches all pages.
///
/// # Errors
/// If the machine lacks memory for both ends.
pub fn copy(bytes: Bytes, times: u32) -> Result<Duration, RunError> {
    let (from, to) = (memory(bytes)?, memory(bytes)?);
    let copy = |_| {
        let started = Instant::now();
        to.region(Bytes::ZERO, bytes).copy_from(from.region(Bytes::ZERO, bytes));
        started.elapsed()
    };
    copy(0);
    Ok(median((0..times.max(1)).map(copy).collect()))
}

/// The time of a transfer of so many bytes between two device threads that wait for nothing else: half the median of some
/// there and back again, after one that warms up.
///
/// # Errors
/// If the machine lacks memory for both ends.
pub fn link(bytes: Bytes, times: u32) -> Result<Duration, RunError> {
    let ends = [memory(bytes)?, memory(bytes)?];
    let channels = Channels::new(&there_and_back(), None, None)?;
    let turn = |own: u32, end: End| {
        let (device, token) = (DeviceId(own), TokenId(u32::from(end == End::Receive)));
        let region = ends[device.index()].region(Bytes::ZERO, bytes);
        let (from, to) = if end == End::Send { (own, 1 - own) } else { (1 - own, own) };
        channels.post(end, DeviceId(from), DeviceId(to), Class::Activation, Posted { device, token, region });
        // Nothing poisons these channels.
        let _ = channels.wait(device, token);
    };
    let round = || {
        let started = Instant::now();
        turn(0, End::Send);
        turn(0, End::Receive);
        started.elapsed()
    };
    let times = times.max(1);
    let rounds = thread::scope(|scope| {
        scope.spawn(|| {
            channels.register(DeviceId(1));
            for _ in 0..=times {
                turn(1, End::Receive);
                turn(1, End::Send);
            }
        });
        channels.register(DeviceId(0));
        (0..=times).map(|_| round()).skip(1).collect()
    });
    Ok(median(rounds) / 2)
}

/// The two queues of two devices that send to each other.
fn there_and_back() -> Program {
    let (buffer, class) = (BufferId(0), Class::Activation);
    let device = |other: u32| {
        let send = Instruction::SendStart { buffer, to: DeviceId(other), class, token: TokenId(0) };
        let (value, microbatch, token) = (ValueId(0), MicrobatchId(0), TokenId(1));
        let receive = Instruction::RecvStart { buffer, value, microbatch, from: DeviceId(other), class, token };
        DeviceProgram { n_tokens: 2, step: vec![send, receive], ..DeviceProgram::default() }
    };
    Program {
        name: String::new(),
        n_stages: 0,
        n_microbatches: 1,
        n_steps: 1,
        lags: Vec::new(),
        n_slices: 1,
        groups: Vec::new(),
        values: Vec::new(),
        execs: Vec::new(),
        devices: vec![device(1), device(0)],
        training: None,
    }
}

fn memory(bytes: Bytes) -> Result<Memory, RunError> {
    Memory::new(bytes).ok_or(RunError::OutOfMemory { device: DeviceId(0), bytes })
}

/// The middle one, or the higher one of two; nothing of none.
#[must_use]
pub fn median<T: Ord + Copy + Default>(mut times: Vec<T>) -> T {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_and_copies_of_all_sizes_take_time() {
        for bytes in [Bytes(1), Bytes(64), Bytes(1 << 20)] {
            assert!(link(bytes, 5).expect("memory") > Duration::ZERO, "{bytes}");
        }
        let (small, large) = (copy(Bytes(1 << 10), 9).expect("memory"), copy(Bytes(1 << 24), 9).expect("memory"));
        assert!(large > small, "{large:?} {small:?}");
        assert!(copy(Bytes(u64::MAX), 1).is_err() && link(Bytes(u64::MAX), 1).is_err());
    }
}
