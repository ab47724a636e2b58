//! What the table of `pipec check` says about all numbers of microbatches.

use crate::table::{number, percent};
use pipe_compiler::report::certificate::CertificateReport;

/// Devices that are printed in full; of more devices, the first and the last ones.
const ROWS: usize = 16;

/// Name, figure and remark of every line; none where the table shows a step.
pub(crate) fn summary(certificate: &CertificateReport) -> Vec<(&'static str, String, String)> {
    let mut lines = Vec::new();
    if certificate.not_computed.is_empty() {
        return lines;
    }
    if let (Some(period), Some(bubble)) = (certificate.steady_period, certificate.steady_bubble) {
        lines.push((
            "steady state",
            number(period),
            format!("per microbatch, bubble {} in the limit", percent(bubble)),
        ));
    }
    let words = if certificate.exact { "" } else { "at most " };
    let peak = format!("{words}{}", number(certificate.peak_activation));
    lines.push(("peak", peak, "units, over all numbers of microbatches".to_owned()));
    lines.push(("not computed", String::new(), certificate.not_computed.join(", ")));
    lines
}

/// What each device holds, and from how many microbatches on.
pub(crate) fn devices(certificate: &CertificateReport) -> String {
    let rows = &certificate.per_device;
    let mut text = format!("  {:<7}{:>9}  {:>9}  from microbatches\n", "device", "peak", "bound");
    let hidden = if rows.len() > ROWS { ROWS / 2..rows.len() - ROWS / 2 + 1 } else { 0..0 };
    for (index, row) in rows.iter().enumerate() {
        if index == hidden.start && !hidden.is_empty() {
            text.push_str(&format!("  ..     {} more devices\n", hidden.len()));
        }
        if !hidden.contains(&index) {
            let (peak, bound) = (number(row.peak_activation), number(row.bound_activation));
            let name = format!("d{}", row.device);
            text.push_str(&format!("  {name:<7}{peak:>9}  {bound:>9}  {}\n", row.peak_from_microbatches));
        }
    }
    text
}
