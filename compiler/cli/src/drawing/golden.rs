//! The picture that tests compare and comments quote: one row per device, one cell per slot.
//!
//! A cell names the kind and the microbatch, and with a letter the stage where a device holds
//! several: `F0b` is the forward of the device's second stage. Where microbatches are cut in
//! slices, `F0.1` is the forward of the first one's second slice. A task of two slots stands in two
//! cells; a dot is an idle slot. Of the cells of two tasks that share the device one half, `F3&`,
//! names the first, and the rest, `&B0`, the second.

use super::letter;
use pipe_compiler::analyze::Analysis;
use pipe_plot::tracks::{Occupancy, common_slot, tracks};
use pipe_schedule::units::Ticks;

/// Cells of a row; longer timelines have no golden picture.
const CELLS: u64 = 1000;

/// The picture, or why there is none.
///
/// # Errors
/// If the timeline has too many slots.
pub fn draw(analysis: &Analysis) -> Result<String, String> {
    let tracks = tracks(analysis);
    let slot = common_slot(&tracks);
    let makespan = analysis.timeline.makespan();
    let n_slots = makespan.0 / slot.0;
    if n_slots > CELLS {
        return Err(format!("a timeline of {n_slots} slots is too long for this form: use fewer microbatches"));
    }
    let rows: Vec<Vec<String>> = tracks
        .iter()
        .map(|track| {
            let mut cells = vec![".".to_owned(); n_slots as usize];
            for mark in &track.marks {
                let stage = if track.stages.len() > 1 { suffix(mark.nth_stage) } else { String::new() };
                let text = format!("{}{}{stage}", letter(mark.task.kind), track.number(mark));
                let own = (mark.start.0 / slot.0) as usize..(mark.end.0 / slot.0) as usize;
                let middle = own.start + own.len() / 2;
                match mark.share {
                    Occupancy::Whole => cells[own].fill(text),
                    Occupancy::First if own.len() == 1 => cells[own].fill(text),
                    Occupancy::Second if own.len() == 1 => cells[own.start].push_str(&format!("&{text}")),
                    Occupancy::First => cells[own.start..middle].fill(format!("{text}&")),
                    Occupancy::Second => cells[middle..own.end].fill(format!("&{text}")),
                }
            }
            cells
        })
        .collect();
    let width = rows.iter().flatten().map(String::len).max().unwrap_or(1);
    let label = tracks.iter().map(|track| track.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (track, cells) in tracks.iter().zip(&rows) {
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:width$}")).collect();
        let (name, idle) = (&track.name, makespan - track.busy());
        let held = analysis.peaks.get(track.device.index()).filter(|_| !track.is_lane);
        let peak = held.map(|peak| format!("  peak {}", analysis.schedule.units(peak.activations)));
        text.push_str(&format!("{name:label$} {}  bubble {idle}{}\n", cells.join(" "), peak.unwrap_or_default()));
    }
    let unit = if slot == Ticks::UNIT { String::new() } else { format!(", one cell is {slot}") };
    Ok(format!("makespan {makespan}{unit}\n{text}"))
}

/// `a`, `b`, .. `z`, then numbers.
fn suffix(nth_stage: usize) -> String {
    match u8::try_from(nth_stage) {
        Ok(nth) if nth < 26 => char::from(b'a' + nth).to_string(),
        _ => format!("#{nth_stage}"),
    }
}
