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
    let (n_devices, n_stages) = (schedule.n_devices(), schedule.n_whole_stages());
    let message = match others.len() {
        0 => format!("{first} of {n_devices} devices has no stage and idles all the time"),
        more => format!("{first} and {more} more of {n_devices} devices have no stage and idle all the time"),
    };
    let label = format!("{n_stages} stage{}", if n_stages == 1 { "" } else { "s" });
    let help = "place a stage on every device, or use fewer devices";
    vec![Diagnostic::warning(Code::UnusedDevice, schedule.placement_span, label, message).help(help)]
}
