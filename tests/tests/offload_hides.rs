//! Programs whose activations leave between two uses take as long as without, hold less, learn the
//! same bits, and need in both memories what was compiled.

use pipe_compiler::report::offload::LeaveReport;
use pipe_compiler::{Compilation, Request};
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_schedule::policy::offload::Offload;
use pipe_schedule::timing::costs::StageCosts;
use pipe_syntax::stdlib::SCHEDULES;
use pipe_tests::cases::{compile_text, report};
use pipe_tests::pipelines::gpt;
use pipe_tests::slice::slice;
use pipe_tests::training::learn;
use std::path::Path;
use std::sync::Arc;

const SIZES: &str = "vocab = 17, hidden = 16, heads = 2, blocks = 8, sequence = 8, rows = 2";

/// A schedule, how many devices, and what its pipeline says beside.
type Case<'a> = (&'a str, u32, &'a str);

fn text((schedule, devices, line): Case<'_>) -> String {
    gpt(SIZES, devices, 8, &format!("{schedule} {line}")).replace(" memory 4GiB", "")
}

fn compiled(text: &str, costs: &str) -> Compilation {
    let costs = StageCosts::parse(costs).expect("well-formed");
    let request = Request { costs: Some(costs), program: true, ..Request::default() };
    let (compilation, _) = compile_text("test.pipe", text, Path::new("."), &request);
    assert!(compilation.report.ok, "{text}: {:#?} {:#?}", compilation.diagnostics, compilation.our_mistakes);
    compilation
}

fn program(compilation: &Compilation) -> &Program {
    compilation.program.as_ref().expect("accepted").program()
}

/// The most that any device holds.
fn peak(compilation: &Compilation) -> Bytes {
    program(compilation).devices.iter().map(|code| code.peak).max().unwrap_or_default()
}

/// What leaves, over all devices.
fn leave(compilation: &Compilation) -> LeaveReport {
    let offload = compilation.report.offload.as_ref().expect("something is offloaded");
    let sum = |one: LeaveReport, other: LeaveReport| LeaveReport {
        idle: one.idle + other.idle,
        leave: one.leave + other.leave,
        bytes: one.bytes + other.bytes,
    };
    offload.per_device.iter().filter_map(|row| row.activations).fold(LeaveReport::default(), sum)
}

/// Schedules in which values wait for their backwards.
const CASES: [Case<'static>; 10] = [
    ("gpipe", 4, ""),
    ("1f1b", 4, ""),
    ("1f1b", 4, "recompute all"),
    ("interleaved_1f1b(chunks = 2)", 4, ""),
    ("zb_h1", 4, ""),
    ("v_half", 4, ""),
    ("zb_v", 4, ""),
    ("dualpipe_v", 4, ""),
    ("chimera", 4, ""),
    ("seq_1f1b", 4, ""),
];

const TASKS: &str = "F=3,B=3,W=2,BW=5,U=4,comm=1";

#[test]
fn the_step_takes_as_long_as_without_and_the_device_that_holds_most_holds_less() {
    let mut failures = Vec::new();
    for case in slice(2, CASES) {
        let plain = compiled(&text(case), TASKS);
        let mut before = usize::MAX;
        for copy in [0, 30, 200, 1000, 1_000_000] {
            let line = format!("{} offload activations", case.2);
            let away = compiled(&text((case.0, case.1, &line)), &format!("{TASKS},copy={copy}"));
            let (one, other) = (away.analysis.as_ref().expect("timed"), plain.analysis.as_ref().expect("timed"));
            let same = one.timeline.makespan() == other.timeline.makespan()
                && (&one.timeline.starts, &one.timeline.ends) == (&other.timeline.starts, &other.timeline.ends);
            let waited = away.report.offload.iter().flat_map(|own| &own.per_device).any(|row| row.waited > 0.0);
            let LeaveReport { idle, leave, .. } = leave(&away);
            // Where stages recompute, little waits, and none of it while the device holds most.
            let falls = peak(&away) < peak(&plain) || peak(&away) == peak(&plain) && (copy > 30 || !case.2.is_empty());
            let is_sound = same && !waited && falls && leave <= idle && leave <= before;
            if !is_sound || (copy <= 30) != (leave > 0) && copy != 200 && copy != 1000 {
                let (peak, whole) = (peak(&away), peak(&plain));
                failures.push(format!("{case:?}, copy {copy}: {same}, {waited}, {leave} of {idle}, {peak} of {whole}"));
            }
            before = leave;
        }
    }
    report(&failures);
}

#[test]
fn no_task_waits_longer_than_for_the_copies_of_state() {
    let mut failures = Vec::new();
    for (schedule, offload) in [
        ("1f1b", "parameters"),
        ("interleaved_1f1b(chunks = 2)", "optimizer, parameters"),
        ("dualpipe_v", "parameters"),
        ("zb_h1", "optimizer"),
        ("gpipe", "parameters"),
    ] {
        for copy in [0, 10, 60, 400] {
            let costs = format!("{TASKS},copy={copy}");
            let state = compiled(&text((schedule, 4, &format!("offload {offload}"))), &costs);
            let both = compiled(&text((schedule, 4, &format!("offload activations, {offload}"))), &costs);
            let makespan = |one: &Compilation| one.report.figures.makespan;
            let starts = |one: &Compilation| one.analysis.as_ref().map(|analysis| analysis.timeline.starts.clone());
            let leave = leave(&both).leave;
            let same = makespan(&both) == makespan(&state) && starts(&both) == starts(&state);
            if !same || peak(&both) > peak(&state) || copy <= 10 && leave == 0 {
                let times = (makespan(&both), makespan(&state));
                failures.push(format!("{schedule}, {offload}, {copy}: {leave} leave, {times:?}"));
            }
        }
    }
    report(&failures);
}

#[test]
fn every_schedule_learns_the_same_bits_while_its_activations_are_away() {
    let mut failures = Vec::new();
    for (index, (name, _)) in slice(5, SCHEDULES.iter().enumerate()) {
        let devices = if ["gpipe", "1f1b", "eager_1f1b", "zb_h1", "zb_h2"].contains(name) { 3 } else { 2 };
        let sizes = "vocab = 17, hidden = 8, heads = 2, blocks = 6, sequence = 6, rows = 1";
        let text = |line: &str| gpt(sizes, devices, 6, &format!("{name} {line}")).replace(" memory 4GiB", "");
        let [plain, away] = ["", "offload activations"].map(|line| compiled(&text(line), "copy=0"));
        // Two replicas have each backward right behind its forward, or with two tasks between them.
        let LeaveReport { idle, leave, .. } = leave(&away);
        if (leave == 0) != ["dp_1f1b", "cyclic_dp"].contains(name) {
            failures.push(format!("{name}: {leave} of {idle} leave"));
        }
        let [plain, away] = [plain, away].map(|one| Arc::new(one.program.expect("accepted")));
        if learn(&away, Some(index as u64)) != learn(&plain, None) {
            failures.push(format!("{name} learns something else"));
        }
    }
    report(&failures);
}

/// 1F1B on 4 devices, the first of which keeps the activations of 4 microbatches; as much memory as said.
fn limited(memory: u64, line: &str) -> String {
    let text = gpt(SIZES, 4, 8, &format!("1f1b {line}"));
    text.replace("memory 4GiB", &format!("memory {memory}KiB host 1MiB"))
}

#[test]
fn no_more_leaves_than_memory_asks_for_and_the_error_says_that_it_would_fit() {
    let costs = &format!("{TASKS},copy=30");
    let plain = compiled(&text(("1f1b", 4, "")), costs);
    let all = compiled(&text(("1f1b", 4, "offload activations")), costs);
    let arena = |one: &Compilation| program(one).devices.iter().map(|code| code.arena.0).max().unwrap_or(0);
    let (most, least) = (arena(&plain).div_ceil(1024), arena(&all).div_ceil(1024));
    assert!(most > least + 8, "{most}KiB, {least}KiB");
    let mut before = 0;
    for memory in [most, most - 1, most.midpoint(least), least + 1] {
        let away = compiled(&limited(memory, "offload activations"), costs);
        let found = leave(&away).leave;
        assert!(arena(&away) <= memory << 10 && found >= before && found <= leave(&all).leave, "{memory}KiB: {found}");
        assert!((found == 0) == (memory == most), "{memory}KiB: {found} leave");
        let device = &program(&away).devices[0];
        assert_eq!((device.limit, device.host.limit.is_some()), (Some(Bytes(memory << 10)), found > 0));
        before = found;
    }
    let text = limited(most - 1, "");
    let request = Request { costs: StageCosts::parse(costs).ok(), ..Request::default() };
    let (compilation, _) = compile_text("x.pipe", &text, Path::new("."), &request);
    let help: Vec<_> = compilation.diagnostics.iter().filter_map(|found| found.help.as_deref()).collect();
    assert!(help.iter().any(|help| help.contains("`offload activations` would fit: ")), "{help:?}");
}

#[test]
fn words_are_read_as_they_are_written() {
    for offload in Offload::ALL {
        let (compilation, _) = compile_text(
            "x.pipe",
            &text(("1f1b", 2, &format!("offload {offload}"))),
            Path::new("."),
            &Request::default(),
        );
        assert_eq!(compilation.analysis.and_then(|analysis| analysis.pipeline).map(|own| own.offload), Some(offload));
    }
}
