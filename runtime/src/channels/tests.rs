//! Tests of collectives over ranks, against those of one process.

use super::Channels;
use crate::values::random::mix;
use pipe_distributed::collective::Part;
use pipe_distributed::memory::Memory;
use pipe_distributed::tokens::Posted;
use pipe_distributed::{Job, Rank, RankView, Settings, job_of_threads};
use pipe_ir::graph::DType;
use pipe_ir::ids::{BufferId, DeviceId, GroupId, TokenId};
use pipe_ir::instruction::{Collective, Instruction};
use pipe_ir::program::{DeviceProgram, Program};
use pipe_ir::shares::share;
use pipe_ir::units::Bytes;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const N_DEVICES: usize = 5;

/// One group, all of whose members join as many collectives.
fn program(members: &[u32], times: usize) -> Program {
    let group = GroupId(0);
    let join =
        Instruction::CollStart { collective: Collective::AllReduce, buffer: BufferId(0), group, token: TokenId(0) };
    let device = DeviceProgram { n_tokens: 1, step: vec![join; times], ..DeviceProgram::default() };
    let groups = vec![members.iter().map(|member| DeviceId(*member)).collect()];
    let devices = vec![device; N_DEVICES];
    Program { n_microbatches: 1, n_steps: 1, n_slices: 1, groups, devices, ..Program::default() }
}

/// One collective of so many bytes, perhaps with shares in buffers of their own.
type Case = (Collective, u64, bool);

/// What a device has in the end of each collective, if it is a member. Numbers depend on the device and the case.
fn work(channels: &Channels, members: &[u32], device: u32, cases: &[Case]) -> Vec<Vec<u8>> {
    let Some(position) = members.iter().position(|member| *member == device) else { return Vec::new() };
    channels.register(DeviceId(device), None);
    let mut found = Vec::new();
    for (case, (collective, bytes, is_apart)) in cases.iter().enumerate() {
        let own = share(Bytes(*bytes), members.len(), position);
        let memory = Memory::new(Bytes(2 * bytes)).expect("small");
        let region = memory.region(Bytes::ZERO, Bytes(*bytes));
        for (index, number) in region.numbers_mut::<f32>().iter_mut().enumerate() {
            *number = (mix(u64::from(device) + 1, (case * 1_000_003 + index) as u64) % 1000) as f32 * 1.1e-3 - 0.5;
        }
        let apart = memory.region(Bytes(*bytes), own.end - own.start);
        apart.copy_from(region.part(own.start.to_usize(), apart.len()));
        let share = is_apart.then_some(apart);
        let posted = Posted { device: DeviceId(device), token: TokenId(0), region };
        channels.join(GroupId(0), Part { posted, collective: *collective, dtype: DType::F32, share });
        channels.wait(DeviceId(device), TokenId(0)).expect("nobody has a fault");
        // Of a sum that is scattered, a member has its own share.
        let is_scattered = *collective == Collective::ReduceScatter;
        let whole = region.bytes();
        found.push(if is_scattered {
            whole[own.start.to_usize()..own.end.to_usize()].to_vec()
        } else {
            whole.to_vec()
        });
    }
    found
}

fn settings(_: Rank) -> Settings {
    Settings {
        stall: Duration::from_secs(60),
        lost: Arc::new(|_| {}),
        cut: Arc::new(|_| {}),
        away: Arc::new(|_| {}),
        end: Arc::new(|| {}),
    }
}

/// What all devices have, over so many ranks or in one process.
fn together(members: &[u32], cases: &[Case], n_ranks: u32) -> Vec<Vec<Vec<u8>>> {
    let program = program(members, cases.len());
    let all = |channels: &Channels, devices: std::ops::Range<usize>| -> Vec<Vec<Vec<u8>>> {
        thread::scope(|scope| {
            let threads: Vec<_> =
                devices.map(|device| scope.spawn(move || work(channels, members, device as u32, cases))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no device panics")).collect()
        })
    };
    if n_ranks == 0 {
        return all(&Channels::new(&program, None, None).expect("small"), 0..N_DEVICES);
    }
    let rank = |job: Job| {
        let rank_view = RankView::new(&program, &job).expect("a device for each");
        let channels = Channels::new(&program, None, Some(&rank_view)).expect("small");
        let found = all(&channels, rank_view.division.devices_of(job.rank()));
        job.any(false).expect("nobody has a fault");
        found
    };
    let jobs = job_of_threads(n_ranks, settings);
    thread::scope(|scope| {
        let ranks: Vec<_> = jobs.into_iter().map(|job| scope.spawn(|| rank(job))).collect();
        ranks.into_iter().flat_map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

#[test]
fn collectives_over_ranks_have_the_bits_of_one_process() {
    let mut cases: Vec<Case> = Vec::new();
    // Less than a share for each, a few numbers, and more pieces than are under way at once.
    for bytes in [64, 4 * 777, 3 << 20, (6 << 20) + 4 * 33] {
        cases.extend(Collective::ALL.map(|collective| (collective, bytes, false)));
        cases.push((Collective::AllGather, bytes, true));
    }
    for members in [&[0, 1, 2, 3, 4][..], &[4, 0, 2], &[3, 1], &[1, 0, 4, 3]] {
        let expected = together(members, &cases, 0);
        for n_ranks in [2, 3, 5] {
            let found = together(members, &cases, n_ranks);
            for (device, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
                let what = differs.map(|case| cases[case]);
                assert!(
                    what.is_none() && found.len() == expected.len(),
                    "d{device} of {members:?}, {n_ranks} ranks: {what:?}"
                );
            }
        }
    }
}

#[test]
fn clocks_of_ranks_are_no_further_apart_than_they_say() {
    let moment = Instant::now() + Duration::from_secs(1);
    let rank = |job: Job| {
        let apart = job.mailbox().synchronise().expect("nobody has a fault");
        (apart, job.mailbox().clock(moment))
    };
    let found: Vec<(i64, i64)> = thread::scope(|scope| {
        let ranks = job_of_threads(4, settings).into_iter().map(|job| scope.spawn(move || rank(job)));
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    });
    for (apart, clock) in &found[1..] {
        assert!((clock - found[0].1).abs() <= apart + 1 && *apart <= found[0].0, "{found:?}");
    }
}
