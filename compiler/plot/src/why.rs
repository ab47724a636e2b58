//! Why a target cannot run, in words that pictures of it share.

use crate::numbers::{bytes, time, units};
use crate::stop::{Misfit, StopWait};
use crate::{Copy, DrawnTask, Picture, SwapOf};
use pipe_ir::instruction::Direction;
use pipe_schedule::swaps::SwapKind;

/// Waits of a cycle that are told; the rest of a longer one is counted.
const TOLD: usize = 6;

/// Why a target cannot run, line by line.
pub fn words(picture: &Picture) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for cycle in picture.stop.iter().flat_map(|stop| &stop.cycles) {
        lines.extend(cycle.iter().take(TOLD).map(|wait| waiting(picture, wait)));
        if cycle.len() > TOLD {
            lines.push(format!("and {} more likewise, in a cycle", cycle.len() - TOLD));
        }
    }
    lines.extend(picture.misfits.iter().map(|misfit| too_much(picture, misfit)));
    lines
}

/// Where a device stands, and what for.
pub fn waiting(picture: &Picture, wait: &StopWait) -> String {
    let task = |index: u32| &picture.tasks[index as usize];
    let (at, needs) = (task(wait.task), task(wait.needs));
    let until =
        if wait.meets { format!("{} to come to it", device(picture, needs.device)) } else { needed(picture, needs) };
    let own = device(picture, at.device);
    format!("{own} at {} (line {}) waits for {until} (line {})", name(picture, at), wait.line, wait.needs_line)
}

/// A task, and whose it is.
fn needed(picture: &Picture, task: &DrawnTask) -> String {
    format!("{} of {}", name(picture, task), device(picture, task.device))
}

/// `F s1 m2`, as the compiler writes it.
pub fn name(picture: &Picture, task: &DrawnTask) -> String {
    let slice = if picture.microbatches[1] > 1 { format!(" q{}", task.slice) } else { String::new() };
    let letters = task.kind.letters();
    match picture.parts.get(task.stage as usize).and_then(|name| name.split_once('.')) {
        Some((stage, part)) => format!("{letters}.{part} {stage} m{}{slice}", task.microbatch),
        None => format!("{letters} s{} m{}{slice}", task.stage, task.microbatch),
    }
}

/// `evict s0 m2 to d7`, or `fetch s0 m2 from the host`; none of a copy that is neither.
pub fn swap(picture: &Picture, copy: &Copy) -> Option<String> {
    let SwapOf { stage, microbatch, slice, peer } = copy.swap?;
    let slice = if picture.microbatches[1] > 1 { format!(" q{slice}") } else { String::new() };
    let home = peer.map_or_else(|| "the host".to_owned(), |peer| device(picture, peer));
    let (word, way) = match copy.direction {
        Direction::DeviceToHost => (SwapKind::Evict.word(), "to"),
        Direction::HostToDevice => (SwapKind::Fetch.word(), "from"),
    };
    Some(format!("{word} s{stage} m{microbatch}{slice} {way} {home}"))
}

/// `d1`, or `d1 link`.
pub fn device(picture: &Picture, row: u32) -> String {
    let name = picture.devices.get(row as usize).and_then(|device| device.name.clone());
    name.unwrap_or_else(|| format!("d{row}"))
}

/// Which device holds too much, from when on, and how much.
pub fn too_much(picture: &Picture, misfit: &Misfit) -> String {
    let Misfit { unit, limit, from, over, .. } = misfit;
    let amount = |amount: f64| match *unit {
        "bytes" => bytes(amount as u64),
        _ => units(amount),
    };
    let from = time(*from as f64 / picture.clock.ticks_per_unit as f64, picture.clock.unit);
    format!(
        "{} exceeds its {} from {from} on, by up to {}",
        device(picture, misfit.device),
        amount(*limit),
        amount(*over)
    )
}
