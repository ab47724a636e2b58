//! Megatron-LM: which layers its stages have, and the order in which its interleaved schedule takes microbatches and chunks.

pub mod layout;
pub mod table;

use crate::diagnostic::{Code, Diagnostic};
use crate::judge::Judged;
use pipe_ir::ids::MicrobatchId;

/// Rule of both: stage s lives on rank s % D, for every microbatch.
fn in_turn(judged: &Judged) -> Option<Diagnostic> {
    let (schedule, n) = (&judged.schedule, judged.schedule.n_devices());
    let placement = &schedule.placement;
    let stage = placement.stages().find(|stage| {
        let homes = placement.devices_of(*stage);
        homes.len() != 1 || homes[0].index() != stage.index() % n
    });
    let devices = crate::placement::names(placement.devices(stage?, MicrobatchId(0)));
    let (stage, home) = (stage?, stage?.index() % n);
    let message = format!("{stage} lives on {devices}, and Megatron places it on rank {home}");
    let error =
        Diagnostic::error(Code::CannotExport, schedule.placement_span, "stages are not placed in turn", message);
    Some(error.help("write `place s on s % D`"))
}
