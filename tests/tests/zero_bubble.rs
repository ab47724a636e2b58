//! The zero-bubble paper (arXiv 2401.10241), as it counts memory: what its list schedules reach,
//! the search begins with.

use pipe_ir::task::TaskKind;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::costs::StageCosts;
use pipe_search::Options;
use pipe_syntax::source::Sources;
use pipe_syntax::stdlib;
use pipe_tests::blocks::request;
use pipe_tests::cases::{no_files, prepared};
use pipe_tests::slice::takes_all;
use pipe_tests::team::team;
use std::path::Path;

/// The rows of a table, in which nothing is published that the other table has.
fn rows() -> Vec<serde_json::Value> {
    let data = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("data/zb_recomputed.json"));
    let data: serde_json::Value = serde_json::from_str(&data.expect("the table")).expect("JSON");
    data["rows"].as_array().expect("rows").clone()
}

/// What a row says.
fn number(row: &serde_json::Value, name: &str) -> u64 {
    row[name].as_u64().expect("a number")
}

/// Of a whole activation, and of what waits for `W`: 48 of 131 parts for the first model, 16 of 37 for the others.
fn parts(row: &serde_json::Value) -> (i64, i64) {
    if number(row, "devices") == 8 && number(row, "F") < 20_000 { (131, 48) } else { (37, 16) }
}

/// The most that a device holds, in parts of an activation, where a stage is so many of the stages of a device.
fn most(schedule: &Schedule, device: usize, (whole, waiting): (i64, i64)) -> i64 {
    let (mut held, mut most) = (0, 0);
    for one in &schedule.orders[device] {
        held += match one.task.kind {
            TaskKind::Forward => whole,
            TaskKind::BackwardInput => waiting - whole,
            TaskKind::BackwardWeight => -waiting,
            TaskKind::Backward => -whole,
            _ => 0,
        };
        most = most.max(held);
    }
    most
}

/// The longest span that the search finds before its first round, and whether nothing is shorter;
/// checked like any source.
fn found(row: &serde_json::Value, name: &str, chunks: i64, units: i64) -> (f64, bool) {
    let half = |kind: &str| number(row, kind) as f64 / chunks as f64;
    let (whole, waiting) = parts(row);
    let mut request = request(&["devices", "microbatches"].map(|name| (name, number(row, name).cast_signed())));
    request.choice.activation = Some(format!("W={waiting}/{whole}").parse().expect("well-formed"));
    let costs = format!("F={},B={},W={},comm={}", half("F"), half("B"), half("W"), number(row, "comm"));
    request.costs = Some(StageCosts::parse(&costs).expect("well-formed"));
    request.memory = Some(MemoryLimit::parse(&units.to_string()).expect("well-formed"));
    let text = stdlib::schedule(name).expect("it is there");
    let prepared = prepared(&format!("std:{name}"), text, &request, Objective::LongestStage);
    let options = Options { objective: Objective::LongestStage, seed: 1, rounds: 0 };
    let found = prepared.search(options, &team(1, 1_000), &mut |_| ()).expect("it fits");
    let (source, compilation) = prepared.finish(&found, &mut Sources::default(), &no_files);
    assert!(compilation.report.ok, "{:?}\n{source}", compilation.diagnostics);
    let schedule = &compilation.analysis.as_ref().expect("it was judged").schedule;
    for device in 0..schedule.n_devices() {
        let held = most(schedule, device, (whole, waiting));
        assert!(held <= whole * units * chunks, "d{device} holds {held}\n{source}");
    }
    let length = prepared.problem.ticks(found.length).0 as f64 / 1e6;
    assert!(compilation.report.figures.longest_stage.is_some_and(|longest| longest <= length), "{source}");
    (length, found.bound == found.length)
}

/// Compares what the search begins with against a schedule of the paper, which is the target of
/// that name with so many stages on each device. `units` are the activations that a device may
/// hold, by the number of devices, and `more` the share by which it may be worse.
fn is_nearly_found(schedule: &str, (name, chunks): (&str, i64), units: impl Fn(i64) -> i64, more: f64) {
    // The two largest take as long as all others, and the next ones most of the rest.
    let most = if takes_all() { 3072 } else { 128 };
    for row in rows().iter().filter(|row| number(row, "devices") * number(row, "microbatches") <= most) {
        let work =
            (number(row, "microbatches") * ["F", "B", "W"].map(|kind| number(row, kind)).iter().sum::<u64>()) as f64;
        let (length, is_proved) = found(row, name, chunks, units(number(row, "devices").cast_signed()));
        let (bubble, reached) = (1.0 - work / length, row["longest_stage"][schedule].as_f64().expect("a share"));
        assert!(bubble <= reached + more, "{schedule} {row}: {bubble}");
        // In the memory of 1F1B, nothing has a shorter longest span than ZB-H1.
        assert!(is_proved || schedule != "zb_1p", "{row}");
    }
}

#[test]
fn zb_1p_is_found_before_the_first_round() {
    is_nearly_found("zb_1p", ("zb_h1", 1), |devices| devices, 0.000_051);
}

#[test]
fn zb_2p_is_nearly_found_before_the_first_round() {
    // Rounds do the rest.
    is_nearly_found("zb_2p", ("zb_h1", 1), |devices| 2 * devices, 0.000_3);
}

#[test]
fn zb_v_is_found_before_the_first_round() {
    is_nearly_found("zb_v", ("v_half", 2), |devices| devices, 0.000_051);
}
