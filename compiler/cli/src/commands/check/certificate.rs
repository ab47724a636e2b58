//! What the table of `pipec check` says about all numbers of microbatches.

use super::table::ROWS;
use crate::output::figures::{count, number, percent, time};
use crate::output::table::{Fact, Table};
use pipe_compiler::block_family::Numbers;
use pipe_compiler::report::certificate::{CertificateReport, DeviceCertificate};

/// What is known of all numbers; nothing where the table shows a step.
pub(crate) fn summary(
    certificate: &CertificateReport,
    numbers: Option<&Numbers>,
    unit: Option<&'static str>,
) -> Vec<Fact> {
    let mut lines = Vec::new();
    let is_alone = !certificate.not_computed.is_empty();
    let at_most = if certificate.exact { "" } else { "at most " };
    if let (Some(period), Some(mean), Some(least)) =
        (certificate.steady_period, certificate.steady_bubble_mean, certificate.steady_bubble)
        && (is_alone || certificate.steady_links_add.is_some() && certificate.exact)
    {
        // What `reorder` makes of a block may go on faster.
        let remark = match certificate.steady_links_add.filter(|_| certificate.exact) {
            Some(added) => format!(
                "{} add{} {}, ",
                links(&certificate.steady_links),
                if certificate.steady_links.len() == 1 { "s" } else { "" },
                time(added, unit)
            ),
            None => String::new(),
        };
        let (mean, least) = (percent(mean), percent(least));
        let remark = format!("per microbatch, {remark}mean bubble {mean} in the limit, of the busiest device {least}");
        lines.push(Fact::new("steady state", format!("{at_most}{}", time(period, unit)), remark));
    }
    if !is_alone {
        return lines;
    }
    let peak = format!("{at_most}{}", number(certificate.peak_activation));
    // A block of one number of microbatches says nothing of others.
    let is_one = matches!(numbers, Some(Numbers::UpTo(_)));
    let over =
        if is_one { "units, with this number of microbatches" } else { "units, over all numbers of microbatches" };
    lines.push(Fact::new("peak", peak, over));
    if let Some(weights) = &certificate.weights {
        let (given, all) = (weights.staleness_most, weights.staleness_most_of_all);
        let behind =
            format!("at most {} behind, {all} over all numbers of microbatches", count(given as usize, "step"));
        lines.push(Fact::new("weights", weights.mode, behind));
    }
    lines.push(Fact::new("not computed", "", certificate.not_computed.join(", ")));
    lines
}

/// `link d0-d1`, `links d1-d2-d3`, or each by itself where they do not form a line.
fn links(links: &[[u32; 2]]) -> String {
    const SHOWN: usize = 5;
    let word = if links.len() == 1 { "link" } else { "links" };
    let is_line = links.windows(2).all(|pair| pair[0][1] == pair[1][0]);
    let mut names: Vec<String> = if is_line {
        let first = links.first().map(|link| link[0]);
        first.into_iter().chain(links.iter().map(|link| link[1])).map(|device| format!("d{device}")).collect()
    } else {
        links.iter().map(|[one, other]| format!("d{one}-d{other}")).collect()
    };
    if names.len() > SHOWN + 1 {
        names.splice(SHOWN - 1..names.len() - 1, ["..".to_owned()]);
    }
    format!("{word} {}", names.join(if is_line { "-" } else { ", " }))
}

/// What each device holds, and from how many microbatches on.
pub(crate) fn devices(certificate: &CertificateReport) -> String {
    let versions = |versions: Option<u64>| versions.map(|most| most.to_string()).unwrap_or_default();
    Table::new(false)
        .left("device", 0, 7, |row: &DeviceCertificate| format!("d{}", row.device))
        .right("peak", 2, 7, |row| number(row.peak_activation))
        .right("bound", 2, 9, |row| number(row.bound_activation))
        .left("from microbatches", 2, 17, |row| row.peak_from_microbatches)
        .when(certificate.weights.is_some(), |table| {
            table
                .right("versions", 2, 9, |row| versions(row.versions))
                .right("at most", 2, 8, |row| versions(row.versions_of_all))
        })
        .at_most(ROWS, "device")
        .draw(&certificate.per_device)
}
