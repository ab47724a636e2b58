//! Warnings: what is sound, and probably not what was meant.

use crate::schedule::Schedule;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};

/// Every warning about a sound schedule.
pub fn lint(schedule: &Schedule) -> Diagnostics {
    let idle: Vec<String> = schedule
        .orders
        .iter()
        .take(schedule.n_devices())
        .enumerate()
        .filter(|(_, order)| order.is_empty())
        .map(|(device, _)| format!("d{device}"))
        .collect();
    let [first, others @ ..] = idle.as_slice() else { return Vec::new() };
    let names = if others.is_empty() { first.clone() } else { format!("{first} and {} more", others.len()) };
    let message = format!("{names} of {} devices have no stage and idle all the time", schedule.n_devices());
    let label = format!("{} stages", schedule.n_whole_stages());
    let help = "place a stage on every device, or use fewer devices";
    vec![Diagnostic::warning(Code::UnusedDevice, schedule.placement_span, label, message).help(help)]
}
