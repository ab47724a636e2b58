//! Bytes over time: what the allocs and frees of a program make of them, which are the same in every run.
//!
//! Instructions have no times of their own. What a device does between two tasks, up to the last
//! `free`, is drawn at the end of the first one, and the rest at the start of the second, so that
//! the order is that of the program and the peak its peak.

use super::memory::Levels;
use super::tracks::rows;
use super::{Lifespan, Measure, Memory, MemoryTrack, TickScale};
use pipe_compiler::analyze::Analysis;
use pipe_compiler::memory::live_buffers::{Holds, LiveBuffer};
use pipe_compiler::report::Report;
use pipe_ir::ids::{BufferId, DeviceId, MicrobatchId, StageId};
use pipe_ir::instruction::{Class, Instruction, LifespanEvent};
use pipe_ir::program::{DeviceProgram, Program, Space};
use pipe_ir::task::Task;
use pipe_ir::units::Bytes;
use pipe_schedule::schedule::ScheduledTask;
use std::collections::BTreeMap;

/// The memory of every device.
pub(super) fn in_bytes(analysis: &Analysis, program: &Program, report: &Report, scale: &TickScale) -> Memory {
    let devices = rows(&analysis.schedule).map(|id| {
        // What lanes use lies in the memory of their devices.
        let Some(device) = program.devices.get(id.index()) else { return MemoryTrack::default() };
        let times = times(analysis, program, (device, id), scale);
        let limit = report.per_device.get(id.index()).and_then(|own| own.limit_bytes);
        MemoryTrack { limit: limit.map(|limit| limit as f64), ..track(program, device, &times) }
    });
    Memory { measure: Measure { unit: "bytes", times: 1, over: 1 }, devices: devices.collect() }
}

/// When each instruction of a step is drawn.
fn times(
    analysis: &Analysis,
    program: &Program,
    (device, id): (&DeviceProgram, DeviceId),
    scale: &TickScale,
) -> Vec<u64> {
    let timeline = &analysis.timeline;
    let order = &analysis.schedule.orders[id.index()];
    // The first task that has not run.
    let mut next = 0;
    let mut times = vec![0; device.step.len()];
    // Where the instructions behind the last task begin, behind the last `free` among them, and when that task ends.
    let (mut begin, mut freed, mut end) = (0, 0, 0);
    for (place, instruction) in device.step.iter().enumerate() {
        match *instruction {
            Instruction::Free { .. } => freed = place + 1,
            Instruction::Run { exec, microbatch, .. } => {
                let exec = program.exec(exec);
                let own = Task { kind: exec.kind, stage: exec.stage, microbatch };
                // Updates are no tasks of a schedule.
                let mut ahead = next..order.len();
                let found = ahead.find_map(|first| Some((first, ScheduledTask::run_by(&order[first..], own)?)));
                let Some((first, n_tasks)) = found else { continue };
                next = first + n_tasks;
                let start = scale.ticks(timeline.starts[id.index()][first]);
                times[begin..freed].fill(end);
                times[freed.max(begin)..=place].fill(start);
                (begin, freed) = (place + 1, place + 1);
                end = scale.ticks(timeline.ends[id.index()][next - 1]);
            }
            _ => {}
        }
    }
    times[begin..].fill(end);
    times
}

/// A buffer that is alive at the peak.
struct Tenant {
    since: Option<u64>,
    until: Option<u64>,
    holds: Option<LiveBuffer>,
    bytes: Bytes,
}

fn track(program: &Program, device: &DeviceProgram, times: &[u64]) -> MemoryTrack {
    let mut levels = Levels::default();
    let mut holds = Holds::new(device);
    // Buffers that are alive, with their beginning.
    let mut alive: BTreeMap<BufferId, Option<u64>> = BTreeMap::new();
    let mut live = Bytes::ZERO;
    // At the peak, and those of them that are alive still.
    let (mut tenants, mut open): (Vec<Tenant>, BTreeMap<BufferId, usize>) = (Vec::new(), BTreeMap::new());
    let setup = device.setup.iter().map(|one| (one, None));
    for (instruction, at) in setup.chain(device.step.iter().zip(times.iter().map(|at| Some(*at)))) {
        holds.follow(program, device, instruction);
        let place = |buffer: BufferId| device.buffers[buffer.index()];
        match instruction.lifespan().filter(|one| place(one.buffer()).space == Space::Device) {
            Some(LifespanEvent::Begins(buffer)) => {
                let bytes = place(buffer).bytes;
                alive.insert(buffer, at);
                live += bytes;
                levels.change(at.unwrap_or_default(), bytes.0.cast_signed());
                if live == device.peak && tenants.is_empty() {
                    for (buffer, since) in &alive {
                        open.insert(*buffer, tenants.len());
                        let (holds, bytes) = (holds.of(*buffer), place(*buffer).bytes);
                        tenants.push(Tenant { since: *since, until: None, holds, bytes });
                    }
                }
            }
            Some(LifespanEvent::Ends(buffer)) => {
                let bytes = place(buffer).bytes;
                alive.remove(&buffer);
                live -= bytes;
                levels.change(at.unwrap_or_default(), -bytes.0.cast_signed());
                if let Some(tenant) = open.remove(&buffer) {
                    tenants[tenant].until = at;
                }
            }
            None => open.iter().for_each(|(buffer, tenant)| {
                let own = &mut tenants[*tenant];
                own.holds = own.holds.or(holds.of(*buffer));
            }),
        }
    }
    levels.track(lifespans(program, tenants))
}

/// What the buffers hold; those that hold the same at the same time are one.
fn lifespans(program: &Program, tenants: Vec<Tenant>) -> Vec<Lifespan> {
    let mut rows: BTreeMap<_, u64> = BTreeMap::new();
    for Tenant { since, until, holds, bytes } in tenants {
        let value = holds.map(|held| program.value(held.value));
        let what = value.map_or_else(|| "other buffers".to_owned(), |value| value.kind.word().replace('_', " "));
        let microbatch = holds.and_then(|held| held.microbatch).map(|microbatch| microbatch.0);
        let stage = value.map(|value| value.stage.0);
        *rows.entry((what, stage, microbatch, since, until)).or_default() += bytes.0;
    }
    let row =
        |((what, stage, microbatch, since, until), parts)| Lifespan { what, stage, microbatch, since, until, parts };
    rows.into_iter().map(row).collect()
}

type Sizes = BTreeMap<(DeviceId, DeviceId, Class, StageId, Option<MicrobatchId>), u64>;

/// The bytes that a device sends to another one, by class, the stage that owns the value, and but for sums microbatch.
pub(super) fn sent(program: &Program) -> Sizes {
    let mut sizes = BTreeMap::new();
    for (device, from) in program.devices.iter().zip((0..).map(DeviceId)) {
        let mut holds = Holds::new(device);
        for instruction in device.setup.iter().chain(&device.step) {
            holds.follow(program, device, instruction);
            let Instruction::SendStart { buffer, to, class, .. } = *instruction else { continue };
            let Some(held) = holds.of(buffer) else { continue };
            let value = program.value(held.value);
            let key = (from, to, class, value.stage, held.microbatch.filter(|_| class != Class::Sum));
            // A task may send several values; sums travel again and again.
            let bytes: &mut u64 = sizes.entry(key).or_default();
            *bytes = value.bytes.0 + if class == Class::Sum { 0 } else { *bytes };
        }
    }
    sizes
}
