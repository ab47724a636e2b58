//! Megatron-LM: which options run a schedule, which layers its stages have, and the order in which its
//! interleaved schedule takes microbatches and chunks.

pub mod arguments;
pub mod job;
pub mod layout;
pub mod table;

use crate::analyze::Analysis;
use pipe_ir::ids::MicrobatchId;
use pipe_syntax::diagnostic::{Code, Diagnostic};

/// Rule of both: stage s lives on rank s % D, for every microbatch.
fn in_turn(analysis: &Analysis) -> Option<Diagnostic> {
    let (schedule, n) = (&analysis.schedule, analysis.schedule.n_devices());
    if !schedule.parts.is_empty() {
        let message = "stages have parts, and Megatron runs whole stages";
        let error = Diagnostic::error(Code::CannotExport, schedule.span, "this schedule", message);
        return Some(error.help("leave `parts` out"));
    }
    if !schedule.swaps.is_empty() {
        let message = "activations are evicted, and Megatron keeps them on their ranks";
        let error = Diagnostic::error(Code::CannotExport, schedule.span, "this schedule", message);
        return Some(error.help("leave `evict` and `fetch` out"));
    }
    if !schedule.step_tasks.is_empty() {
        let message = "sums and updates have places, and Megatron has its own";
        let error = Diagnostic::error(Code::CannotExport, schedule.span, "this schedule", message);
        return Some(error.help("leave `reduce` and `update` out"));
    }
    let placement = &schedule.placement;
    let stage = placement.stages().find(|stage| {
        let homes = placement.devices_of(*stage);
        homes.len() != 1 || homes[0].index() != stage.index() % n
    });
    let devices = pipe_schedule::placement::names(placement.devices(stage?, MicrobatchId(0)));
    let (stage, home) = (stage?, stage?.index() % n);
    let message = format!("{stage} lives on {devices}, and Megatron places it on rank {home}");
    let error =
        Diagnostic::error(Code::CannotExport, schedule.placement_span, "stages are not placed in turn", message);
    Some(error.help("write `place s on s % D`"))
}
