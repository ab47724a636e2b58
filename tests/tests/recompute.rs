//! Recomputation: `R` before the backward gives the same bits, in as much memory as was predicted
//! and less than without it.

use pipe_compiler::{Compilation, Request, elaborate};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run};
use pipe_schedule::policy::recompute::Recomputation;
use pipe_syntax::stdlib::SCHEDULES;
use pipe_tests::blocks::request;
use pipe_tests::cases::{compile_text, compiled, expect, read, report, root};
use pipe_tests::pipelines::{gpt, in_precision, program, verified};
use pipe_tests::slice::slice;
use pipe_tests::training::{Learned, assert_peaks, bits, losses, start, steps};
use std::sync::Arc;

const SIZES: &str = "vocab = 17, hidden = 16, heads = 2, blocks = 4, sequence = 6, rows = 2";

/// A line of a pipeline for each way to ask for it.
const ASKED: [&str; 3] = ["recompute all", "recompute 0..S - 1", "recompute S / 2, S - 1"];

/// A GPT of six layers under a schedule, and a line of the pipeline.
fn text(precision: &str, devices: u32, schedule: &str, line: &str) -> String {
    in_precision(precision, &gpt(SIZES, devices, 4, &format!("{schedule} {line}")))
}

/// Losses of two steps, gradients of the first, weights and optimizer state of the second. The
/// measured peaks must be the compiled ones.
fn learn(program: &Arc<Verified>, stress: Option<u64>) -> Learned {
    let mut run = start(program, stress);
    // A window has all its steps at once.
    let stride = u64::from(program.program().n_steps);
    let mut reports = steps(&mut run, 0..1);
    let gradients = bits(&run, ValueKind::ParameterGradients);
    reports.extend((stride..2 * stride).step_by(stride as usize).flat_map(|step| steps(&mut run, step..step + 1)));
    assert_peaks(program.program(), &reports);
    let [weights, state] = [ValueKind::Parameters, ValueKind::OptimizerState].map(|kind| bits(&run, kind));
    (losses(&reports), [gradients, weights, state])
}

fn recomputes(program: &Verified) -> Vec<u32> {
    let execs = program.program().execs.iter().filter(|exec| exec.kind == TaskKind::Recompute);
    execs.filter(|exec| exec.slice.is_none_or(|slice| slice == 0)).map(|exec| exec.stage.0).collect()
}

#[test]
fn every_standard_schedule_learns_the_same_bits_with_recomputation() {
    let one_stage = ["gpipe", "1f1b", "eager_1f1b", "zb_h1", "zb_h2"];
    let mut failures = Vec::new();
    for (index, (name, _)) in slice(4, SCHEDULES.iter().enumerate()) {
        let devices = if one_stage.contains(name) { 3 } else { 2 };
        let plain = learn(&verified(&text("f32", devices, name, "")), None);
        let line = ASKED[index % ASKED.len()];
        let again = verified(&text("f32", devices, name, line));
        if recomputes(&again).is_empty() || learn(&again, Some(index as u64)) != plain {
            failures.push(format!("{name} with {line}"));
        }
    }
    report(&failures);
}

#[test]
fn double_precision_slices_and_weights_across_steps_learn_the_same_bits() {
    let mut failures = Vec::new();
    for (precision, devices, schedule) in [
        ("f64", 3, "1f1b"),
        ("f64", 2, "zb_v"),
        ("f64", 2, "seq_1f1b(slices = 3)"),
        ("f32", 3, "seq_1f1b(slices = 2)"),
        ("f32", 2, "cyclic_dp(workers = 4, fresh = 0)"),
        ("f32", 1, "cyclic_dp(workers = 2)"),
        ("f32", 2, "dualpipe_v"),
        ("f32", 4, "dp_1f1b"),
    ] {
        let plain = learn(&verified(&text(precision, devices, schedule, "")), None);
        for (stress, line) in (3..).zip(ASKED) {
            let again = verified(&text(precision, devices, schedule, line));
            if recomputes(&again).is_empty() || learn(&again, Some(stress)) != plain {
                failures.push(format!("{schedule} in {precision} with {line}"));
            }
        }
    }
    report(&failures);
}

#[test]
fn graphs_with_skips_and_tied_weights_learn_the_same_bits() {
    for example in ["unet.pipe", "two_tower.pipe", "tied.pipe", "mlp.pipe"] {
        let folder = root().join("examples");
        let of = |recompute: Option<&str>| {
            let recompute = recompute.map(|text| text.parse::<Recomputation>().expect("stages"));
            let choice = elaborate::Request { recompute, ..elaborate::Request::default() };
            let request = Request { choice, ..Request::default() };
            // Reordered under other costs or bytes, stages that share a weight would add up their gradients
            // in another order.
            let text = read(&folder.join(example)).replace("schedule v_half", "schedule interleaved_1f1b");
            let (found, _) = compile_text(example, &text, &folder, &request);
            Arc::new(found.program.unwrap_or_else(|| panic!("{example}: {:#?}", found.diagnostics)))
        };
        let plain = learn(&of(None), None);
        for asked in ["all", "0,1"] {
            assert!(learn(&of(Some(asked)), Some(9)) == plain, "{example} {asked}");
        }
    }
}

/// The schedule of 1F1B, by hand, where the stages below a number recompute.
const BY_HAND: &str = "
    schedule by_hand(below = D) {
        stages D
        place s on s
        order d {
            let warmup = min(D - 1 - d, M)
            repeat warmup { F[d] }
            for m in 0..M {
                if m < M - warmup { F[d] }
                if d < below { R[d] }
                BW[d]
            }
        }
    }";

#[test]
fn what_a_pipeline_asks_for_is_what_one_would_write_by_hand() {
    for (below, line) in [(3, "recompute all"), (2, "recompute 0..2"), (1, "recompute 0")] {
        let own = verified(&format!("{BY_HAND}{}", text("f32", 3, &format!("by_hand(below = {below})"), "")));
        let asked = verified(&text("f32", 3, "1f1b", line));
        let lists = |program: &Verified| {
            program
                .program()
                .devices
                .iter()
                .map(|device| (device.setup.clone(), device.step.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(recomputes(&own), (0..below).collect::<Vec<_>>());
        assert_eq!(lists(&own), lists(&asked), "{line}");
    }
}

/// Half of the microbatches of each stage.
const SOME: &str = "recompute F[s, m] if (s + m) % 2 == 0";

#[test]
fn every_standard_schedule_learns_the_same_bits_where_some_microbatches_recompute() {
    for (index, (name, _)) in slice(5, SCHEDULES.iter().enumerate()) {
        let text = |line: &str| text("f32", 2, name, line);
        if *name == "cyclic_dp" {
            let refused = program(&text(SOME)).expect_err("it repeats a block");
            assert!(refused.contains("repeats a block"), "{refused}");
            continue;
        }
        let again = verified(&text(SOME));
        let forwards = again.program().execs.iter().filter(|exec| exec.kind == TaskKind::Forward);
        assert!(
            forwards.clone().any(|exec| exec.is_repeated) && forwards.clone().any(|exec| !exec.is_repeated),
            "{name}"
        );
        assert!(learn(&again, Some(index as u64)) == learn(&verified(&text("")), None), "{name}");
    }
}

#[test]
fn an_order_that_recomputes_some_microbatches_is_what_a_pipeline_asks_for() {
    let by_hand = "schedule own {
        stages D
        place s on s
        order d {
            let warmup = min(D - 1 - d, M)
            repeat warmup { F[d] }
            for k in 0..M {
                if k < M - warmup { F[d] }
                if d == 0 and k % 2 == 0 { R[d, k] }
                BW[d]
            }
        }
    }";
    let own = verified(&format!("{by_hand}{}", text("f32", 3, "own", "")));
    let asked = verified(&text("f32", 3, "1f1b", "recompute F[s, m] if s == 0 and m % 2 == 0"));
    let lists = |program: &Verified| program.program().devices.iter().map(|code| code.step.clone()).collect::<Vec<_>>();
    assert_eq!(lists(&own), lists(&asked));
    let [all, some, none] = ["recompute 0", "recompute F[s, m] if s == 0 and m % 2 == 0", ""]
        .map(|line| peaks(&verified(&text("f32", 3, "1f1b", line)))[0]);
    assert!(all < some && some < none, "{all} {some} {none}");
}

/// What the devices of a program hold of a kind of values at most.
fn peaks(program: &Verified) -> Vec<Bytes> {
    program.program().devices.iter().map(|device| device.peak).collect()
}

#[test]
fn peaks_are_measured_as_predicted_and_lower_than_without() {
    let sizes = "vocab = 17, hidden = 16, heads = 4, blocks = 6, sequence = 24, rows = 2";
    let of = |schedule: &str, line: &str| verified(&gpt(sizes, 4, 8, &format!("{schedule} {line}")));
    for schedule in ["gpipe", "1f1b", "zb_h1"] {
        let (plain, again) = (of(schedule, ""), of(schedule, "recompute all"));
        // Of the devices that hold many microbatches, each needs less than four fifths.
        let n_held = if schedule == "gpipe" { 4 } else { 2 };
        for (device, (plain, again)) in peaks(&plain).into_iter().zip(peaks(&again)).take(n_held).enumerate() {
            assert!(again.0 * 5 < plain.0 * 4, "{schedule} d{device}: {again} with, {plain} without");
        }
        for backend in [Backend::Null, Backend::Cpu] {
            let data = Arc::new(Data::synthetic(again.program()));
            let mut run = Run::start(Arc::clone(&again), &Options::new(backend, 3), data).expect("starts");
            let measured = run.step(0).expect("steps").devices;
            let measured: Vec<Bytes> = measured.iter().map(|device| device.peak).collect();
            assert_eq!(measured, peaks(&again), "{schedule} {backend:?}");
        }
    }
}

fn checked(text: &str, recompute: Option<&str>, settings: &[(&str, i64)]) -> Compilation {
    let mut request = request(settings);
    request.choice.recompute = recompute.map(|text| text.parse::<Recomputation>().expect("stages"));
    compiled("test.pipe", text, &request)
}

/// What recomputes holds an activation from its `R` to its last backward: of 1F1B that is one at a
/// time, and of a schedule with halves those whose `W` is still to come. A device with p of m
/// microbatches under way works m times F longer, and waits as long as before.
#[test]
fn one_f_one_b_holds_one_activation_and_works_a_forward_more() {
    let text = pipe_syntax::stdlib::schedule("1f1b").expect("it exists");
    for (p, m) in [(1, 1), (2, 5), (4, 8), (4, 3), (7, 21)] {
        let sizes = [("devices", p), ("microbatches", m)];
        let found = checked(text, Some("all"), &sizes);
        assert!(found.report.ok, "{:#?}", found.diagnostics);
        let (report, figures) = (&found.report, &found.report.figures);
        assert_eq!((figures.peak_activation, figures.bound_activation), (Some(1.0), Some(1.0)));
        assert_eq!(report.valid_for_all_microbatches, Some(true));
        assert_eq!(report.sizes.tasks, Some(3 * (p * m) as usize));
        let cost = report.recompute.as_ref().expect("all stages recompute");
        assert_eq!((cost.time, cost.busy, cost.stages.len()), (m as f64, 4.0 * m as f64, p as usize));
        // R fits in the gap before the first backward, and then makes every round longer by one.
        let makespan = figures.makespan.expect("a step");
        assert!(figures.lower_bound.is_some_and(|bound| 4.0 * m as f64 <= bound && bound <= makespan));
        let plain = checked(text, None, &sizes).report.figures.makespan.expect("a step");
        assert!(
            plain + (m - 1) as f64 <= makespan && makespan <= plain + (m + p - 1) as f64,
            "{p} {m}: {plain} {makespan}"
        );
    }
}

#[test]
fn a_block_with_slots_for_it_is_certified_and_filled_backward() {
    let block = |again: &str| {
        format!(
            "schedule mine {{ stages D place s on s block every 4 {{
                F[s] at s {again} BW[s] at D + 1 + 3 * (D - 1 - s) }} }}"
        )
    };
    for again in ["R[s] at D + 3 * (D - 1 - s)", "R[s] fill"] {
        for devices in 1..6 {
            let found = checked(&block(again), None, &[("devices", devices), ("microbatches", 9)]);
            assert!(found.report.ok, "{again}: {:#?}", found.diagnostics);
            assert_eq!(found.report.figures.bound_activation, Some(1.0), "{again} {devices}");
            assert_eq!(found.report.valid_for_all_microbatches, Some(true));
            let slots = found.analysis.and_then(|analysis| analysis.schedule.block).expect("a block").slots;
            let starts = |kind| slots.iter().filter(move |task| task.kind == kind).map(|task| (task.stage, task.slot));
            let before: Vec<_> = starts(TaskKind::Recompute).map(|(stage, slot)| (stage, slot + 1)).collect();
            assert_eq!(before, starts(TaskKind::Backward).collect::<Vec<_>>(), "{again} {devices}");
        }
    }
}

#[test]
fn pictures_match() {
    for (name, microbatches) in [("1f1b", 5), ("v_half", 6)] {
        let text = pipe_syntax::stdlib::schedule(name).expect("it exists");
        let sizes = [("devices", 4), ("microbatches", microbatches)];
        let analysis = checked(text, Some("all"), &sizes).analysis.expect("a step");
        let picture = pipec::drawing::golden::draw(&analysis).expect("a picture");
        let found =
            format!("std:{name} --recompute all, 4 devices, {microbatches} microbatches, F = R = B = W = 1\n{picture}");
        let path = root().join(format!("tests/golden/{name}_recompute.txt"));
        failures(expect(&path, &found));
    }
}

fn failures(found: Option<String>) {
    report(&found.into_iter().collect::<Vec<_>>());
}

#[test]
fn reordering_with_recomputation_is_shorter_in_the_same_peak() {
    for name in ["v_half", "1f1b_v", "zb_v"] {
        let text = pipe_syntax::stdlib::schedule(name).expect("it exists");
        let plain = text.replace("    reorder\n", "");
        assert_ne!(plain, text);
        let sizes = [("devices", 4), ("microbatches", 12)];
        let [before, after] = [&plain[..], text].map(|text| checked(text, Some("all"), &sizes).report.figures);
        assert!(after.makespan <= before.makespan && after.peak_activation <= before.peak_activation, "{name}");
    }
}
