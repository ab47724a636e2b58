//! The table that `pipec check` prints for people.

use super::{certificate, cluster, stages};
use crate::output::figures::{bytes, count, number, percent, time, unit_of_times, units};
use crate::output::table::{Fact, Table, apart, facts};
use crate::output::{Style, paint};
use pipe_compiler::block_family::Numbers;
use pipe_compiler::report::activation::ActivationReport;
use pipe_compiler::report::costs::DerivedCostReport;
use pipe_compiler::report::frozen::FrozenReport;
use pipe_compiler::report::lanes::LaneReport;
use pipe_compiler::report::offload::OffloadReport;
use pipe_compiler::report::recompute::RecomputeReport;
use pipe_compiler::report::swaps::SwapReport;
use pipe_compiler::report::torch::TorchReport;
use pipe_compiler::report::versions::WeightsReport;
use pipe_compiler::report::zero::ZeroReport;
use pipe_compiler::report::{DeviceReport, Report};
use pipe_schedule::dispatch::Objective;
use pipe_syntax::torch::words;

/// Rows of devices that are printed in full; of more devices, the first and the last ones.
pub(crate) const ROWS: usize = 16;
/// Runs of stages that are named.
const RUNS: usize = 4;
/// Columns of a bar.
const BAR: usize = 14;

/// Everything in a report but its diagnostics.
pub(crate) fn table(report: &Report, colours: bool) -> String {
    let alone = report.certificate.as_ref().filter(|certificate| !certificate.not_computed.is_empty());
    apart([
        heading(report, colours),
        facts(&summary(report), colours),
        alone.map_or_else(|| devices(report, colours), certificate::devices),
        lanes(report, colours),
        stages::stages(report, colours),
        stages::changes(report, colours),
    ])
}

fn heading(report: &Report, colours: bool) -> String {
    let name = match (&report.pipeline, &report.schedule) {
        (Some(pipeline), Some(schedule)) if pipeline != schedule => format!("{pipeline} under {schedule}"),
        (_, Some(schedule)) => schedule.clone(),
        _ => report.target.clone(),
    };
    let mut text = paint(&name, Style::Strong, colours);
    let sizes = &report.sizes;
    if let (Some(devices), Some(stages), Some(microbatches), Some(tasks)) =
        (sizes.devices, sizes.stages, sizes.microbatches, sizes.tasks)
    {
        let steps = sizes.steps.filter(|steps| *steps > 1).map(|steps| count(steps as usize, "step"));
        let pipelines = sizes.data.map_or(1, |pipelines| pipelines as usize);
        let own = devices / pipelines;
        let of_group = |tensor: u32| format!("{} of {}", count(own, "group"), count(tensor as usize, "device"));
        let of_pipeline = sizes.tensor.map_or_else(|| count(own, "device"), of_group);
        let side_by_side = |_| format!("{} of {of_pipeline}", count(pipelines, "pipeline"));
        let mut counts = vec![sizes.data.map_or(of_pipeline.clone(), side_by_side), count(stages, "stage")];
        counts.extend(sizes.parts.map(|parts| count(parts, "part")));
        counts.push(count(microbatches as usize, "microbatch"));
        counts.extend(sizes.slices.map(|slices| format!("in {} each", count(slices as usize, "slice"))));
        counts.extend(steps.map(|steps| format!("in each of {steps}")));
        counts.push(count(tasks, "task"));
        text += &format!(": {}", counts.join(", "));
    }
    text.push_str(&match report.instructions {
        Some(number) => format!(", {}", count(number, "instruction")),
        None if report.ok => ", no instructions".to_owned(),
        None => String::new(),
    });
    let collectives = report.collectives.filter(|number| *number > 0);
    text.extend(collectives.map(|number| format!(", {}", count(number, "collective"))));
    let errors = report.diagnostics.iter().filter(|finding| finding.severity.is_error()).count();
    let verdict = if report.ok {
        let mut proved = vec![paint("accepted", Style::Good, colours)];
        proved.extend(report.deadlock_free.filter(|free| *free).map(|_| "deadlock free".to_owned()));
        let numbers = report.valid_for.as_ref();
        proved.extend(report.valid_for_all_microbatches.map(|_| valid_for(numbers, sizes.microbatches)));
        proved.join(", ")
    } else {
        format!("{}, {}", paint("rejected", Style::Error, colours), count(errors, "error"))
    };
    format!("{text}\n{verdict}\n")
}

/// For which numbers of microbatches the verdict holds.
fn valid_for(numbers: Option<&Numbers>, at_hand: Option<u32>) -> String {
    match numbers {
        Some(Numbers::Every) => "valid for every number of microbatches".to_owned(),
        Some(Numbers::Allowed) => "valid for every number of microbatches that it allows".to_owned(),
        Some(Numbers::UpTo(1)) if at_hand == Some(1) => "valid for 1 microbatch".to_owned(),
        Some(Numbers::UpTo(last)) if Some(*last) == at_hand => format!("valid for 1 to {last} microbatches"),
        Some(Numbers::UpTo(last)) => format!("valid for 1 to {last} microbatches and for this number"),
        None => "valid for this number of microbatches".to_owned(),
    }
}

fn summary(report: &Report) -> Vec<Fact> {
    let figures = &report.figures;
    let unit = unit_of_times(report);
    let mut lines = Vec::new();
    lines.extend(report.torch.iter().flat_map(torch));
    lines.extend(report.profile.iter().map(|own| Fact::new("times", own.time_unit, format!("from {}", own.file))));
    lines.extend(report.cluster.iter().flat_map(|own| cluster::summary(own, report)));
    lines.extend(halves(&report.derived_costs, unit).map(|halves| Fact::new("halves of BW", halves, HALVES)));
    if let (Some(makespan), Some(mean), Some(least)) = (figures.makespan, figures.bubble_mean, figures.bubble_makespan)
    {
        let remark = format!("mean bubble {}, of the busiest device {}", percent(mean), percent(least));
        lines.push(Fact::new("makespan", time(makespan, unit), remark));
    }
    if let (Some(longest), Some(bubble)) = (figures.longest_stage, figures.bubble_longest_stage) {
        let remark = format!("of one device; bubble of the busiest device {}", percent(bubble));
        lines.push(Fact::new("longest span", time(longest, unit), remark));
    }
    let valid_for = report.valid_for.as_ref();
    lines.extend(report.certificate.iter().flat_map(|certificate| certificate::summary(certificate, valid_for, unit)));
    if let (Some(bound), Some(gap), Some(reason)) = (figures.lower_bound, figures.gap, &figures.lower_bound_reason) {
        let gap = if gap == 0.0 { "reached".to_owned() } else { format!("gap {}", percent(gap)) };
        let reason = if report.torch.is_some() { words::of_table(reason) } else { reason.clone() };
        let remark = format!("{gap}{}: {reason}", figures.form_of_bound());
        let of_makespan = figures.makespan_lower_bound.filter(|_| figures.objective == Some(LONGEST_STAGE));
        let of = if of_makespan.is_some() { "of the longest span, " } else { "" };
        lines.push(Fact::new("lower bound", time(bound, unit), format!("{of}{remark}")));
        lines.extend(of_makespan.map(|bound| Fact::new("", time(bound, unit), "of the makespan")));
    }
    if let Some(parts) = &figures.critical_path {
        let parts: Vec<String> = parts.iter().map(|part| format!("{} {}", part.kind, time(part.time, unit))).collect();
        lines.push(Fact::new("critical path", parts.join(", "), ""));
    }
    if let (Some(peak), Some(devices)) = (figures.peak_activation, report.sizes.devices) {
        let microbatches = report.sizes.microbatches.unwrap_or_default() as usize;
        // Of each of the pipelines side by side.
        let devices = devices / report.sizes.data.unwrap_or(1).max(1) as usize;
        let certificate = figures.bound_activation.map(|bound| format!("certificate {}", number(bound)));
        // With stages of different sizes, the device that 1F1B fills most may be another one.
        let is_usual = report.activation.iter().all(|stage| stage.saved == 1.0);
        let parts = match is_usual {
            // Too few microbatches to fill a device under 1F1B.
            true if microbatches < devices => {
                let more = certificate.map_or_else(String::new, |one| format!("{one}, "));
                vec![format!("1F1B holds {microbatches}; with more microbatches: {more}1F1B {devices}")]
            }
            true => certificate.into_iter().chain([format!("1F1B holds {devices}")]).collect(),
            false => certificate.into_iter().collect(),
        };
        let (against, units) = (parts.join(", "), units(peak));
        lines.push(match figures.peak_activation_bytes {
            Some(held) => {
                let against = if against.is_empty() { against } else { format!(", {against}") };
                Fact::new("peak", bytes(held), format!("of activations and what waits for `W`; {units}{against}"))
            }
            None => Fact::new("peak", units, against),
        });
    }
    lines.extend(activations(&report.activation));
    lines.extend(report.frozen.as_ref().map(frozen));
    lines.extend(report.recompute.as_ref().map(|own| recomputation(own, unit)));
    lines.extend(report.offload.as_ref().and_then(|own| offload(own, report)));
    lines.extend(swaps(&report.swaps, unit));
    lines.extend(report.zero.as_ref().and_then(zero));
    lines.extend(stages::summary(report));
    if let Some(weights) = &report.weights {
        lines.extend(versions(weights));
    }
    lines
}

/// The objective that is not the makespan.
const LONGEST_STAGE: &str = Objective::LongestStage.name();
/// What is said of halves that follow.
const HALVES: &str = "without costs of their own: they follow from that of BW";

/// The costs of `B` and `W` that nobody gave, if there are any.
pub(crate) fn halves(derived: &[DerivedCostReport], unit: Option<&str>) -> Option<String> {
    let times = |kind| derived.iter().filter(move |half| half.kind == kind).map(|half| half.time);
    let all = ["B", "W"]
        .into_iter()
        .filter_map(|kind| Some(format!("{kind} {}", range(times(kind), |half| time(half, unit))?)));
    Some(all.collect::<Vec<_>>().join(", ")).filter(|all| !all.is_empty())
}

/// `3`, or `3 to 4`.
fn range(figures: impl Iterator<Item = f64> + Clone, show: impl Fn(f64) -> String) -> Option<String> {
    let (least, most) = (figures.clone().reduce(f64::min)?, figures.reduce(f64::max)?);
    Some(if least == most { show(most) } else { format!("{} to {}", show(least), show(most)) })
}

/// What a schedule of PyTorch was read as.
fn torch(report: &TorchReport) -> Vec<Fact> {
    let form = match report.form {
        "tasks" => format!("{} actions and no transfers, which PyTorch puts in itself", report.actions),
        _ => format!("{} actions, {} transfers", report.actions, report.transfers),
    };
    let words = |transports: &[&str]| if transports.is_empty() { "none".to_owned() } else { transports.join(", ") };
    let mut lines = vec![
        Fact::new("PyTorch", &report.version, form),
        Fact::new("runs over", format!("{} (`--transport`)", words(&report.transports)), ""),
    ];
    let deferred = report.transports_deferred.as_ref();
    lines.extend(deferred.map(|deferred| Fact::new("", format!("{} with `defer_pp_recv=True`", words(deferred)), "")));
    lines
}

/// What stages save, and what of it waits for `W`, where that was said.
fn activations(stages: &[ActivationReport]) -> Vec<Fact> {
    let range = |of: fn(&ActivationReport) -> f64| range(stages.iter().map(of), number).unwrap_or_default();
    let mut lines = Vec::new();
    if stages.iter().any(|stage| stage.saved != 1.0) {
        lines.push(Fact::new("stages save", range(|stage| stage.saved), "activations"));
    }
    if stages.iter().any(|stage| stage.waiting < stage.saved) {
        lines.push(Fact::new("waits for W", range(|stage| stage.waiting), "of an activation, after its B"));
    }
    lines
}

/// Which stages do not train.
fn frozen(report: &FrozenReport) -> Fact {
    let remark = match &report.forward_only {
        _ if report.is_all_forward => "forward only; caches between microbatches are not counted".to_owned(),
        forward if *forward == report.stages => "forward only".to_owned(),
        forward if forward.is_empty() => "without weight gradients".to_owned(),
        forward => format!("without weight gradients; {} forward only", runs(forward)),
    };
    Fact::new("frozen", runs(&report.stages), remark)
}

/// Numbers of stages as runs: `s0 to s3, s6`.
fn runs(stages: &[u32]) -> String {
    let runs: Vec<&[u32]> = stages.chunk_by(|one, other| one + 1 == *other).collect();
    let shown = runs.iter().take(RUNS).map(|run| match run {
        [one] => format!("s{one}"),
        [first, .., last] => format!("s{first} to s{last}"),
        [] => String::new(),
    });
    let more = (runs.len() > RUNS).then(|| "..".to_owned());
    shown.chain(more).collect::<Vec<_>>().join(", ")
}

/// Which stages run their forward once more, and what that costs where it costs most.
fn recomputation(report: &RecomputeReport, unit: Option<&str>) -> Fact {
    let share = percent(if report.busy > 0.0 { report.time / report.busy } else { 0.0 });
    let (more, all) = (time(report.time, unit), time(report.busy, unit));
    let cost = format!("{more} of the {all} that d{} works, {share}", report.device);
    Fact::new("recompute", runs(&report.stages), cost)
}

/// What lives in the memory of hosts, and what its copies cost the device that copies most.
fn offload(own: &OffloadReport, report: &Report) -> Option<Fact> {
    let most = own.per_device.iter().rev().max_by_key(|row| row.h2d_bytes + row.d2h_bytes)?;
    let host = report.per_device.iter().filter_map(|row| row.host_peak_bytes).max().unwrap_or_default();
    let (come, back, device) = (bytes(most.h2d_bytes), bytes(most.d2h_bytes), most.device);
    let waits = own.per_device.iter().rev().max_by(|one, other| one.waited.total_cmp(&other.waited))?;
    let cost = match most.h2d_time + most.d2h_time > 0.0 {
        true => format!("; d{} waits {} for copies", waits.device, time(waits.waited, unit_of_times(report))),
        false => String::new(),
    };
    let state = most.h2d_bytes.max(most.d2h_bytes) > most.activations.map_or(0, |own| own.bytes);
    let chunks = match state {
        true => format!("; {come} come to d{device} in a step, {back} go back"),
        false => String::new(),
    };
    let leave = most.activations.map_or_else(String::new, |own| {
        let (leave, idle, bytes) = (own.leave, own.idle, bytes(own.bytes));
        format!("; {leave} of {idle} idle activations leave d{device} for a while, {bytes} in a step")
    });
    let chosen = if own.chosen { "does not fit without; " } else { "" };
    let remark = format!("{chosen}hosts hold {} at most{chunks}{leave}{cost}", bytes(host));
    Some(Fact::new("offload", &own.what, remark))
}

/// Where activations wait, and what that costs the device that waits longest.
fn swaps(rows: &[SwapReport], unit: Option<&str>) -> Option<Fact> {
    let places = || rows.iter().flat_map(|row| row.places.iter().map(move |own| (row.device, own)));
    let all: u64 = places().map(|(_, own)| own.places).sum();
    let shown = places().take(RUNS).map(|(device, own)| format!("d{device} keeps {} on {}", own.places, own.home));
    let more = (places().count() > RUNS).then(|| "..".to_owned());
    let most = rows.iter().rev().max_by(|one, other| one.waited.total_cmp(&other.waited))?;
    let waits = match rows.iter().any(|row| row.evict_time + row.fetch_time > 0.0) {
        true => format!("; d{} waits {} for copies", most.device, time(most.waited, unit)),
        false => String::new(),
    };
    let where_to = shown.chain(more).collect::<Vec<_>>().join(", ").replace("on host", "with its host");
    Some(Fact::new("swap", count(usize::try_from(all).unwrap_or(usize::MAX), "place"), format!("{where_to}{waits}")))
}

/// What replicas divide, and what the device keeps that keeps most.
fn zero(own: &ZeroReport) -> Option<Fact> {
    let most = own.per_device.iter().rev().max_by_key(|row| row.optimizer_bytes)?;
    let (kept, whole) = (bytes(most.optimizer_bytes), bytes(most.undivided_optimizer_bytes));
    let state = format!("d{} keeps {kept} of {whole} of the optimizer's state", most.device);
    let come = own.per_device.iter().rev().max_by_key(|row| row.undivided_gradient_bytes - row.gradient_bytes)?;
    let gradients = match come.undivided_gradient_bytes - come.gradient_bytes {
        0 => String::new(),
        divided => format!("; {} of gradients come and go on d{}", bytes(divided), come.device),
    };
    let weights = match own.per_device.iter().rev().max_by_key(|row| row.gatherings).filter(|row| row.gatherings > 0) {
        None => String::new(),
        Some(row) => {
            let (kept, whole) = (bytes(row.parameter_bytes), bytes(row.undivided_parameter_bytes));
            let (times, bytes) = (count(row.gatherings, "time"), bytes(row.gathered_bytes));
            format!("; d{} keeps {kept} of {whole} of weights, and gathers {times}, {bytes} in a step", row.device)
        }
    };
    Some(Fact::new("zero", own.stage, state + &gradients + &weights))
}

/// What tasks read, and how many versions that keeps alive.
fn versions(weights: &WeightsReport) -> [Fact; 2] {
    let most = count(weights.staleness_most as usize, "step");
    let behind = format!(
        "{} read the newest, at most {most} behind, {} on average",
        percent(weights.fresh),
        number(weights.staleness_mean)
    );
    let alive = format!("alive at once, {} on average", number(weights.versions_alive_mean));
    let bytes = weights.bytes.map_or_else(String::new, |all| format!(", {} in all", bytes(all)));
    [
        Fact::new("weights", weights.mode, behind),
        Fact::new(
            "versions",
            weights.versions_alive_most,
            format!("{alive}, of {}{bytes}", count(weights.stages.len(), "stage")),
        ),
    ]
}

fn devices(report: &Report, colours: bool) -> String {
    let rows = &report.per_device;
    let share = |part: Option<f64>, whole: f64| if whole > 0.0 { part.unwrap_or_default() / whole } else { 0.0 };
    let worked = |row: &DeviceReport| share(row.busy, report.figures.makespan.unwrap_or_default());
    let most = rows.iter().filter_map(|row| row.peak_activation).fold(0.0, f64::max);
    let held = |row: &DeviceReport| share(row.peak_activation, most);
    let figure = |figure: Option<f64>| figure.map(number).unwrap_or_default();
    let unit = unit_of_times(report);
    let moment = |moment: Option<f64>| moment.map(|moment| time(moment, unit)).unwrap_or_default();
    let limit = |row: &DeviceReport| row.limit_activation.map(|limit| format!("of {}", number(limit)));
    let limits_differ = rows.windows(2).any(|pair| pair[0].limit_activation != pair[1].limit_activation);
    let has_bytes = rows.iter().any(|row| row.peak_bytes.is_some());
    let held_bytes = |row: &DeviceReport| row.peak_bytes.map(bytes);
    // Tables of PyTorch have ranks.
    let (heading, letter) = if report.torch.is_some() { ("rank", "") } else { ("device", "d") };
    Table::new(colours)
        .left(heading, 0, 7, |row: &DeviceReport| format!("{letter}{}", row.device))
        .when(report.figures.makespan.is_some(), |table| {
            table
                .right("start", 0, 9, |row| moment(row.first_start))
                .rank(3)
                .right("end", 2, 9, |row| moment(row.last_end))
                .rank(3)
                .right("busy", 2, 9, |row| moment(row.busy))
                .rank(2)
                .left("", 2, BAR, |row| bar(worked(row)))
                .style(Style::Good)
                .rank(4)
                .right("", 1, 5, |row| percent(worked(row)))
                .right("peak", 2, 6, |row| figure(row.peak_activation))
                .when(limits_differ, |table| table.left("of limit", 1, 8, |row| limit(row).unwrap_or_default()))
                .left("", 2, BAR, |row| bar(held(row)))
                .style(Style::Warning)
                .rank(5)
        })
        .when(has_bytes, |table| table.right("bytes", 2, 9, |row| held_bytes(row).unwrap_or_default()))
        .left("", 0, 0, limits)
        .at_most(ROWS, "device")
        .draw(rows)
}

/// What the devices do on lanes, and how much of that compute hides.
fn lanes(report: &Report, colours: bool) -> String {
    let rows: Vec<(u32, &LaneReport)> =
        report.per_device.iter().flat_map(|device| device.lanes.iter().map(|lane| (device.device, lane))).collect();
    if rows.is_empty() {
        return String::new();
    }
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let makespan = report.figures.makespan.unwrap_or_default();
    let unit = unit_of_times(report);
    let width = rows.iter().map(|(device, lane)| format!("d{device} {}", lane.lane).len()).max().unwrap_or(0).max(7);
    Table::new(colours)
        .left("lane", 0, width, |(device, lane): &(u32, &LaneReport)| format!("d{device} {}", lane.lane))
        .right("start", 2, 7, |(_, lane)| time(lane.first_start, unit))
        .right("end", 2, 9, |(_, lane)| time(lane.last_end, unit))
        .right("busy", 2, 9, |(_, lane)| time(lane.busy, unit))
        .left("", 2, BAR, |(_, lane)| bar(share(lane.busy, makespan)))
        .style(Style::Good)
        .right("", 1, 5, |(_, lane)| percent(share(lane.busy, makespan)))
        .right("behind compute", 2, 14, |(_, lane)| percent(share(lane.hidden, lane.busy)))
        .at_most(ROWS, "lane")
        .draw(&rows)
}

/// What a device may hold, and what its host does.
fn limits(row: &DeviceReport) -> String {
    let of = |limit: Option<u64>| limit.map_or_else(String::new, |limit| format!(" of {}", bytes(limit)));
    let host = row.host_peak_bytes.map(|host| format!(", host {}{}", bytes(host), of(row.host_limit_bytes)));
    of(row.limit_bytes) + &host.unwrap_or_default()
}

/// A bar of eighths.
fn bar(share: f64) -> String {
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * (8 * BAR) as f64).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        text.push(PARTS[eighths % 8]);
    }
    text
}
