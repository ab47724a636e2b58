//! Calibration: how fast the matrix library, copies and transfers are by themselves, to compare a training step with.

use crate::channels::Channels;
use crate::devices::cpu::{Number, library_gemm, with_numbers};
use pipe_distributed::memory::{Memory, Region};
use pipe_distributed::tokens::{End, Posted};
use pipe_distributed::{Job, Rank, RankView, RunError};
use pipe_ir::ids::{BufferId, DeviceId, MicrobatchId, TokenId, ValueId};
use pipe_ir::instruction::{Class, Instruction};
use pipe_ir::kernels::{Gemm, Kernel, Location, Matrix, Storage, plan};
use pipe_ir::program::{Body, DeviceProgram, Program};
use pipe_ir::units::Bytes;
use std::thread;
use std::time::{Duration, Instant};

/// Every matrix product of a program once, on operands of its own.
pub fn gemms(program: &Program) -> Vec<Gemm> {
    let graphs = program.execs.iter().filter_map(|exec| match &exec.body {
        Body::Graph(graph) => Some(graph),
        Body::Abstract | Body::Optimizer | Body::Squares => None,
    });
    let mut found: Vec<Gemm> = Vec::new();
    for kernel in graphs.flat_map(|graph| plan(graph).kernels) {
        let Kernel::Gemm(gemm) = kernel else { continue };
        let alone = |matrix: Matrix, operand| Matrix {
            at: Location { place: Storage::Operand(operand), offset: Bytes::ZERO },
            ..matrix
        };
        let Gemm { a, b, c, .. } = gemm.clone();
        let gemm = Gemm { a: alone(a, 0), b: alone(b, 1), c: alone(c, 2), ..gemm };
        if !found.contains(&gemm) {
            found.push(gemm);
        }
    }
    found
}

/// Elements from the first to the last one of both factors and the result.
pub fn lengths(gemm: &Gemm) -> [u64; 3] {
    let Gemm { m, n, k, .. } = *gemm;
    [(&gemm.a, m, k), (&gemm.b, k, n), (&gemm.c, m, n)].map(|(matrix, rows, columns)| {
        let batch: u64 = matrix.batch.iter().zip(&gemm.batch).map(|(stride, size)| stride * (size - 1)).sum();
        batch + matrix.row * (rows - 1) + matrix.column * (columns - 1) + 1
    })
}

/// The time of one call of the matrix library for the shapes and strides of a product, on operands
/// of its own: the shortest of some calls after one that warms the caches up. What is stored as
/// bfloat16 is in single precision here, as the library takes it.
///
/// # Errors
/// If the machine lacks memory for the operands.
pub fn matrix_product(gemm: &Gemm, calls: u32) -> Result<Duration, RunError> {
    let gemm = &Gemm { factors: gemm.dtype, result: gemm.dtype, ..gemm.clone() };
    let operand = |elements: u64| {
        let bytes = Bytes(elements * gemm.dtype.bytes().0);
        let memory = memory(bytes)?;
        let region = memory.region(Bytes::ZERO, bytes);
        with_numbers!(gemm.dtype, N => region.numbers_mut().fill(N::of(0.5)));
        Ok::<_, RunError>((memory, bytes))
    };
    let [a, b, c] = lengths(gemm).map(operand);
    let ((a, a_bytes), (b, b_bytes), (c, c_bytes)) = (a?, b?, c?);
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

/// The time of a transfer of so many bytes between two device threads that wait for nothing else:
/// half the median of some there and back again, after one that warms up.
///
/// # Errors
/// If the machine lacks memory for both ends.
pub fn link(bytes: Bytes, times: u32) -> Result<Duration, RunError> {
    let ends = [memory(bytes)?, memory(bytes)?];
    let channels = Channels::new(&there_and_back(2, [0, 1]), None, None)?;
    let region = |end: usize| ends[end].region(Bytes::ZERO, bytes);
    let rounds = thread::scope(|scope| {
        scope.spawn(|| rounds(&channels, (1, 0), region(1), times, false));
        rounds(&channels, (0, 1), region(0), times, true)
    });
    Ok(median(rounds) / 2)
}

/// The same between devices of two ranks of a job, before it runs a program. All of its ranks do it
/// at once; the first one has the answer.
///
/// # Errors
/// If a rank lacks memory for its end, or cannot go on.
pub fn rank_link(job: &Job, ranks: [Rank; 2], bytes: Bytes, times: u32) -> Result<Duration, RunError> {
    let [leader, other] = ranks.map(Rank::index);
    let program = there_and_back(job.n_ranks(), [leader, other]);
    let rank_view = RankView::new(&program, job)?;
    let channels = Channels::new(&program, None, Some(&rank_view))?;
    let memory = memory(bytes)?;
    let (own, region) = (job.rank().index(), memory.region(Bytes::ZERO, bytes));
    let time = match own {
        own if own == leader => median(rounds(&channels, (own, other), region, times, true)) / 2,
        own if own == other => median(rounds(&channels, (own, leader), region, times, false)) / 2,
        _ => Duration::ZERO,
    };
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let all = job.gather(nanos.to_le_bytes().to_vec())?;
    let of_leader = all.get(leader).and_then(|word| word.as_slice().try_into().ok()).map_or(0, u64::from_le_bytes);
    // Nobody goes on to other channels before all have ended with these.
    job.any(false)?;
    Ok(Duration::from_nanos(of_leader))
}

/// What it takes to send to another device and to receive from it, once and then so many times; the
/// first one is left out. One of them leads.
fn rounds(channels: &Channels, (own, other): (usize, usize), region: Region, times: u32, leads: bool) -> Vec<Duration> {
    let (own, other) = (DeviceId::from_index(own), DeviceId::from_index(other));
    channels.register(own, None);
    let turn = |end: End| {
        let token = TokenId(u32::from(end == End::Receive));
        let (from, to) = if end == End::Send { (own, other) } else { (other, own) };
        channels.post(end, from, to, Class::Activation, Posted { device: own, token, region });
        channels.wait(own, token)
    };
    let order = if leads { [End::Send, End::Receive] } else { [End::Receive, End::Send] };
    let mut found = Vec::new();
    for _ in 0..=times.max(1) {
        let started = Instant::now();
        // Another rank may have ended: what asks next is told.
        if order.into_iter().try_for_each(turn).is_err() {
            break;
        }
        found.push(started.elapsed());
    }
    found.into_iter().skip(1).collect()
}

/// So many devices, two of which send to each other.
pub fn there_and_back(n_devices: usize, ends: [usize; 2]) -> Program {
    let (buffer, class) = (BufferId(0), Class::Activation);
    let mut devices = vec![DeviceProgram::default(); n_devices];
    for (own, other) in [(ends[0], ends[1]), (ends[1], ends[0])] {
        let other = DeviceId::from_index(other);
        let send = Instruction::SendStart { buffer, to: other, class, token: TokenId(0) };
        let (value, microbatch, token) = (ValueId(0), MicrobatchId(0), TokenId(1));
        let receive = Instruction::RecvStart { buffer, value, microbatch, from: other, class, token };
        devices[own] = DeviceProgram { n_tokens: 2, step: vec![send, receive], ..DeviceProgram::default() };
    }
    Program { n_microbatches: 1, n_steps: 1, n_slices: 1, devices, ..Program::default() }
}

fn memory(bytes: Bytes) -> Result<Memory, RunError> {
    Memory::new(bytes).ok_or(RunError::OutOfMemory { device: DeviceId(0), bytes })
}

/// The middle one, or the higher one of two; nothing of none.
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
