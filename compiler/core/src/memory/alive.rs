//! Activations in bytes: what microbatches keep on each device, as the allocs and frees of its list say.
//!
//! Counted is what tasks make for later tasks of a microbatch: what flows in and out, what is saved
//! for the backward pass, and what waits for `W`. Weights, their gradients, the optimizer's state,
//! data, losses and temporaries are not: another order of the tasks has them too.

use crate::memory::live_buffers::Holds;
use pipe_ir::ids::BufferId;
use pipe_ir::instruction::LifespanEvent;
use pipe_ir::program::{DeviceProgram, Program, Space};
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;

/// The most bytes of activations that each device of a program holds at once.
pub fn activations(program: &Program) -> Vec<Bytes> {
    program.devices.iter().map(|device| of_device(program, device)).collect()
}

fn of_device(program: &Program, device: &DeviceProgram) -> Bytes {
    let mut holds = Holds::new(device);
    // By lifespan: whether it is one of an activation. By buffer: the lifespan that has begun.
    let mut is_counted: Vec<bool> = Vec::new();
    let mut open: Vec<Option<usize>> = vec![None; device.buffers.len()];
    // Buffers of which it is not known yet what they hold.
    let mut unknown: Vec<BufferId> = Vec::new();
    let mut events: Vec<(usize, BufferId, bool)> = Vec::new();
    for instruction in device.setup.iter().chain(&device.step) {
        holds.follow(program, device, instruction);
        match instruction.lifespan() {
            Some(LifespanEvent::Begins(buffer)) if device.buffers[buffer.index()].space == Space::Device => {
                open[buffer.index()] = Some(is_counted.len());
                events.push((is_counted.len(), buffer, true));
                is_counted.push(false);
                unknown.push(buffer);
            }
            Some(LifespanEvent::Ends(buffer)) => {
                let begun = open[buffer.index()].take();
                events.extend(begun.map(|lifespan| (lifespan, buffer, false)));
                unknown.retain(|other| *other != buffer);
            }
            Some(LifespanEvent::Begins(_)) | None => unknown.retain(|buffer| {
                let Some(held) = holds.of(*buffer) else { return true };
                let lifespan = open[buffer.index()];
                lifespan.into_iter().for_each(|one| is_counted[one] = is_activation(program.value(held.value).kind));
                false
            }),
        }
    }
    let (mut alive, mut most) = (Bytes::ZERO, Bytes::ZERO);
    for (_, buffer, begins) in events.into_iter().filter(|(lifespan, _, _)| is_counted[*lifespan]) {
        let bytes = device.buffers[buffer.index()].bytes;
        if begins {
            alive += bytes;
            most = most.max(alive);
        } else {
            alive -= bytes;
        }
    }
    most
}

/// Whether values of a kind are made by a task of a microbatch for later ones of it.
const fn is_activation(kind: ValueKind) -> bool {
    match kind {
        ValueKind::Activation
        | ValueKind::Gradient
        | ValueKind::Carried
        | ValueKind::CarriedGradient
        | ValueKind::SavedForInput
        | ValueKind::SavedForWeight
        | ValueKind::DeferredGradient => true,
        ValueKind::Parameters
        | ValueKind::ParameterGradients
        | ValueKind::OptimizerState
        | ValueKind::GradientNorm
        | ValueKind::Scratch
        | ValueKind::Held
        | ValueKind::Exchanged
        | ValueKind::Data
        | ValueKind::Loss => false,
    }
}
