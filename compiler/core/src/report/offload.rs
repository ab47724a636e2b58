//! What offload costs: what hosts hold, what is copied in a step, and how long devices wait for that.

use super::time;
use crate::judge::Judged;
use crate::offload::timing::{Cost, Event, cost};
use crate::units::Ticks;
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::{Direction, Instruction};
use pipe_ir::program::{Exec, Program};
use pipe_ir::task::{Task, TaskKind};
use serde::Serialize;

/// The offload of a step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct OffloadReport {
    /// What lives in the memory of hosts: `optimizer, parameters`.
    pub what: String,
    /// Of every device.
    pub per_device: Vec<CopyReport>,
}

/// The copies of one device.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CopyReport {
    /// Which.
    pub device: u32,
    /// Bytes that come from the host in a step.
    pub h2d_bytes: u64,
    /// Bytes that go back.
    pub d2h_bytes: u64,
    /// Time in copies from the host, by the cost of `copy`.
    pub h2d_time: f64,
    /// Time in copies back.
    pub d2h_time: f64,
    /// Time that the device waits for copies, on its own: not counting what others then wait for it.
    pub waited: f64,
}

impl OffloadReport {
    /// None where everything stays on the devices.
    #[must_use]
    pub fn new(judged: &Judged, program: &Program) -> Option<Self> {
        let offload = judged.pipeline.as_ref().map(|pipeline| pipeline.offload).filter(|offload| offload.any())?;
        let devices = (0..program.devices.len()).map(DeviceId::from_index);
        let per_device = devices.map(|device| {
            let Cost { waited, copying, .. } = cost(&events(judged, program, device));
            let [h2d, d2h] = Direction::ALL;
            CopyReport {
                device: device.0,
                h2d_bytes: copied(program, device, h2d),
                d2h_bytes: copied(program, device, d2h),
                h2d_time: time(Ticks(copying[h2d as usize])),
                d2h_time: time(Ticks(copying[d2h as usize])),
                waited: time(Ticks(waited)),
            }
        });
        Some(Self { what: offload.to_string(), per_device: per_device.collect() })
    }
}

/// Bytes that are copied one way in a step.
fn copied(program: &Program, device: DeviceId, meant: Direction) -> u64 {
    let code = &program.devices[device.index()];
    let copies = code.step.iter().filter_map(|instruction| match instruction {
        Instruction::CopyStart { buffer, direction, .. } if *direction == meant => {
            Some(code.buffers[buffer.index()].bytes.0)
        }
        _ => None,
    });
    copies.sum()
}

/// What a device does, with tasks at the times of the timeline.
fn events(judged: &Judged, program: &Program, device: DeviceId) -> Vec<Event> {
    let code = &program.devices[device.index()];
    let (starts, ends) = (&judged.timeline.starts[device.index()], &judged.timeline.ends[device.index()]);
    let mut tasks = judged.schedule.orders[device.index()].iter().zip(starts.iter().zip(ends));
    let mut copies = vec![false; code.n_tokens as usize];
    let (mut events, mut before) = (Vec::new(), Ticks::ZERO);
    for instruction in &code.step {
        match *instruction {
            Instruction::Run { exec, microbatch, .. } => {
                let exec = program.exec(exec);
                let own = Task { kind: exec.kind, stage: exec.stage, microbatch };
                let found = if exec.kind == TaskKind::Update { None } else { tasks.find(|(one, _)| one.task == own) };
                events.push(match found {
                    // Two tasks that share the device have the same start and end.
                    Some((_, (start, end))) => {
                        let length = *end - (*start).max(before);
                        before = *end;
                        Event::Work { from: start.0, length: length.0 }
                    }
                    None => Event::Work { from: before.0, length: update(judged, program, exec) },
                });
            }
            Instruction::CopyStart { buffer, direction, token, .. } => {
                copies[token.index()] = true;
                let bytes = u128::from(code.buffers[buffer.index()].bytes.0);
                let length = (bytes * u128::from(judged.costs.copy.0)).div_ceil(1 << 20);
                let length = u64::try_from(length).unwrap_or(u64::MAX);
                events.push(Event::Copy { direction, copy: token.index(), length });
            }
            Instruction::Wait { token } if copies[token.index()] => events.push(Event::Wait { copy: token.index() }),
            _ => {}
        }
    }
    events
}

/// How long an update takes: a chunk's share of that of its stage.
fn update(judged: &Judged, program: &Program, exec: &Exec) -> u64 {
    let whole = u128::from(judged.costs.of(TaskKind::Update, exec.stage).0);
    let weights = exec.operands.first().map_or(1, |operand| program.value(operand.value).bytes.0.max(1));
    let share = exec.chunk.map_or(weights, |chunk| chunk.to.0 - chunk.from.0);
    u64::try_from(whole * u128::from(share) / u128::from(weights)).unwrap_or(u64::MAX)
}
