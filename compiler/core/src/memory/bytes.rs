//! Rule: no device ever holds more bytes than it has, or than the pipeline requires. Programs that
//! run must fit with their arena.
//!
//! What is alive follows from the allocs and frees of the device's own instructions, so it does not depend on time.

use crate::memory::peak_breakdown::{Contributor, Fullest};
use pipe_ir::gpu::room::Beside;
use pipe_ir::ids::DeviceId;
use pipe_ir::program::{DeviceProgram, Program};
use pipe_ir::units::Bytes;
use pipe_ir::units::capacity::Capacity;
use pipe_model::pipeline::Pipeline;
use pipe_model::transformer::StageAccount;
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};

/// Kinds of values that are named one by one; the rest is summed up.
const SHOWN: usize = 6;

/// Compares every device's arena with the pipeline's memory and its requirements.
///
/// # Errors
/// A diagnostic per device and limit.
pub fn check(
    pipeline: &Pipeline,
    schedule: &Schedule,
    (program, beside): (&Program, Option<Beside>),
    accounts: &[StageAccount],
) -> Result<(), Diagnostics> {
    let mut found = Diagnostics::new();
    // Of all devices: each of them has as much. Rounded up, because `memory` and `host` take whole
    // bytes only, and at least these.
    let enough = |bytes: &dyn Fn(&DeviceProgram) -> Bytes| {
        program.devices.iter().map(bytes).max().unwrap_or_default().0.div_ceil(1024)
    };
    let (memory_enough, host_enough) = (enough(&|device| pipeline.needed(device)), enough(&|device| device.host.arena));
    for (index, device) in program.devices.iter().enumerate() {
        let id = DeviceId::from_index(index);
        let (peak, needed) = (device.peak, pipeline.needed(device));
        if let Some((capacity, span)) = pipeline.memory.as_ref().filter(|(capacity, _)| needed > capacity.of(id)) {
            let message = format!("{id} needs {needed}, but has {}", capacity.of(id));
            let mut diagnostic = Diagnostic::error(Code::MemoryExceeded, *span, of_each(capacity, id), message);
            let fullest = Fullest::of(program, device);
            if let Some(run) = fullest.task {
                let scheduled = ScheduledTask::of_run(&schedule.orders[index], run);
                let task = schedule.slices.task(scheduled.map_or(run, |scheduled| scheduled.task));
                let text = format!("{id} holds {peak} at `{task}`");
                diagnostic = match scheduled.map(|scheduled| schedule.origins[usize::from(scheduled.origin)]) {
                    Some(span) => diagnostic.label(span, text),
                    None => diagnostic.note(text),
                };
            }
            diagnostic = alive(diagnostic, &fullest.contributors(program, accounts));
            diagnostic = reserved(diagnostic, beside);
            // Only the first is known to be enough.
            let enough = match capacity.differs() {
                true => format!("{}KiB on {id} are enough", needed.0.div_ceil(1024)),
                false => format!("`memory {memory_enough}KiB` is enough"),
            };
            found.push(diagnostic.help(format!("{enough}; more devices or a schedule with a lower peak may be")));
        }
        if let Some((capacity, span)) = pipeline.host.as_ref().filter(|(own, _)| device.host.arena > own.of(id)) {
            let (needed, has) = (device.host.arena, capacity.of(id));
            let message = format!("{id} needs {needed} of its host's memory, but may use {has}");
            let error = Diagnostic::error(Code::MemoryExceeded, *span, of_each(capacity, id), message);
            let enough = match capacity.differs() {
                true => format!("{}KiB of the host for {id}", needed.0.div_ceil(1024)),
                false => format!("`host {host_enough}KiB`"),
            };
            found.push(error.help(format!("use more devices, offload less, or {enough}")));
        }
        for requirement in &pipeline.requirements {
            if let Some(limit) = requirement.memory().filter(|limit| needed > *limit) {
                let message = format!("{id} needs {needed}, but at most {limit} is required");
                let error = Diagnostic::error(Code::RequirementFailed, requirement.span, "does not hold", message);
                let contributors = Fullest::of(program, device).contributors(program, accounts);
                found.push(alive(error, &contributors).help("use a schedule with a lower peak"));
            }
        }
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// What is not for the pipeline, where nobody wrote it.
fn reserved(diagnostic: Diagnostic, beside: Option<Beside>) -> Diagnostic {
    let Some(beside) = beside else { return diagnostic };
    let (all, Beside { driver, products, nccl }) = (beside.sum(), beside);
    diagnostic.note(format!(
        "{all} of each GPU are reserved: up to {driver} for the driver, {products} for cuBLASLt and {nccl} for NCCL; \
         `reserved` in `[device]` sets another amount"
    ))
}

/// What is said of the line that gives a device its bytes.
fn of_each(capacity: &Capacity, device: DeviceId) -> String {
    let bytes = capacity.of(device);
    if capacity.differs() { format!("{bytes} on {device}") } else { format!("{bytes} each") }
}

fn alive(mut diagnostic: Diagnostic, contributors: &[Contributor]) -> Diagnostic {
    for Contributor { what, buffers, bytes } in contributors.iter().take(SHOWN) {
        let buffers = if *buffers == 1 { "1 buffer".to_owned() } else { format!("{buffers} buffers") };
        diagnostic = diagnostic.note(format!("alive at this point: {bytes} of {what}, {buffers}"));
    }
    diagnostic
}
