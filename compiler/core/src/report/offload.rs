//! What offload costs: what hosts hold, what is copied in a step, which activations leave, and how
//! long devices wait for that.

use super::time;
use crate::analyze::Analysis;
use pipe_ir::ids::{DeviceId, MicrobatchId, ValueId};
use pipe_ir::instruction::{Direction, Instruction};
use pipe_ir::program::Program;
use pipe_ir::value::ValueKind;
use pipe_schedule::timing::copies::Cost;
use pipe_schedule::units::Ticks;
use serde::Serialize;
use std::collections::BTreeMap;

/// The offload of a step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct OffloadReport {
    /// What lives in the memory of hosts: `activations, optimizer, parameters`.
    pub what: String,
    /// Whether that was found to fit, and not asked for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub chosen: bool,
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
    /// Time that the device waits for copies, while its inputs have arrived.
    pub waited: f64,
    /// The activations among them, where these are offloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activations: Option<LeaveReport>,
}

/// Activations that leave a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LeaveReport {
    /// How often a value of a microbatch lies on the device, or with its host, while tasks run that
    /// do not use it, and is used again.
    pub idle: usize,
    /// How often one is with the host meanwhile.
    pub leave: usize,
    /// What these take together: as much goes in a step, and comes back.
    pub bytes: u64,
}

impl OffloadReport {
    /// None where everything stays on the devices.
    pub fn new(analysis: &Analysis, program: &Program, copies: &[Cost]) -> Option<Self> {
        let pipeline = analysis.pipeline.as_ref().filter(|pipeline| pipeline.offload.any())?;
        let per_device = (0..).map(DeviceId).zip(copies).map(|(device, Cost { waited, copying, .. })| {
            let [h2d, d2h] = Direction::ALL;
            CopyReport {
                device: device.0,
                h2d_bytes: copied(program, device, h2d),
                d2h_bytes: copied(program, device, d2h),
                h2d_time: time(Ticks(copying[h2d as usize])),
                d2h_time: time(Ticks(copying[d2h as usize])),
                waited: time(Ticks(*waited)),
                activations: pipeline.offload.activations.then(|| LeaveReport::of(program, device)),
            }
        });
        let (what, chosen) = (pipeline.offload.to_string(), pipeline.may_offload);
        Some(Self { what, chosen, per_device: per_device.collect() })
    }
}

impl LeaveReport {
    /// Those of a device: what is copied into memory of the host that the step allocates.
    fn of(program: &Program, device: DeviceId) -> Self {
        let code = &program.devices[device.index()];
        let mut found = Self::default();
        let mut is_own = vec![false; code.buffers.len()];
        // By value and microbatch: the last run that used it.
        let mut used: BTreeMap<(ValueId, MicrobatchId), usize> = BTreeMap::new();
        let mut runs = 0_usize;
        for instruction in &code.step {
            match *instruction {
                Instruction::Alloc { buffer } => is_own[buffer.index()] = true,
                Instruction::CopyStart { buffer, direction: Direction::DeviceToHost, .. } if is_own[buffer.index()] => {
                    found.leave += 1;
                    found.bytes += code.buffers[buffer.index()].bytes.0;
                }
                Instruction::Run { exec, microbatch, .. } => {
                    runs += 1;
                    for operand in &program.exec(exec).operands {
                        let kind = program.value(operand.value).kind;
                        if kind.is_persistent() || matches!(kind, ValueKind::Data | ValueKind::Loss) {
                            continue;
                        }
                        let before = used.insert((operand.value, operand.microbatch(microbatch)), runs);
                        found.idle += usize::from(before.is_some_and(|before| before + 1 < runs));
                    }
                }
                _ => {}
            }
        }
        found
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
