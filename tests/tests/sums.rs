//! Sums of gradients that travel between replicas: whatever `check` accepts without a flush, the
//! verifier accepts, and it runs to its end with the stated peak.

use pipe_compiler::block_family::Numbers;
use pipe_compiler::{Certificates, Compilation, Request};
use pipe_ir::instruction::{Class, Instruction};
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run};
use pipe_schedule::timing::costs::StageCosts;
use pipe_tests::blocks::request;
use pipe_tests::cases::{self, report};
use pipe_tests::pipelines::gpt;
use pipe_tests::schedules::Dice;
use pipe_tests::slice::drawn;
use std::sync::Arc;

fn compiled(text: String, costs: Option<StageCosts>) -> Compilation {
    compiled_with(text, costs, &[])
}

fn compiled_with(text: String, costs: Option<StageCosts>, settings: &[(&str, i64)]) -> Compilation {
    cases::compiled("test.pipe", &text, &Request { costs, ..request(settings) })
}

/// A block of some microbatches in any slots, on devices that change from microbatch to microbatch. Many are refused.
fn random_block(dice: &mut Dice) -> (String, String) {
    let (devices, stages, size) = (2 + dice.below(3), 1 + dice.below(3), 1 + dice.below(4));
    let microbatches = size * (1 + dice.below(3));
    let pick = |dice: &mut Dice, gaps: &[usize]| gaps[dice.below(gaps.len())];
    let (step, late) = (pick(dice, &[0, 0, 1, 2, 5, 9]), pick(dice, &[0, 0, 1, 3, 8]));
    let (along, across) = (dice.below(devices), 1 + dice.below(devices - 1));
    let order = if dice.below(4) == 0 { format!("({} - m)", size - 1) } else { "m".to_owned() };
    let period = size * stages * 2 + dice.below(6);
    let split = dice.below(3) == 0;
    let again = ["", "", "recompute all", "recompute 0"][dice.below(4)];
    let backward = format!("at {} + {late} * m + {step} * {order} + 3 * ({} - s)", 2 * stages, stages - 1);
    let backward = if split { format!("B[s, m] {backward}\n W[s, m] fill") } else { format!("BW[s, m] {backward}") };
    let text = format!(
        "schedule run {{
            stages {stages}
            place s, m on ({along} * s + {across} * m) % D
            weights newest
            slots F = 1, B = 1, W = 1, BW = 1
            block of {size} every {period} {{
                F[s, m] at s + {step} * {order}
                {backward}
            }}
        }}
        pipeline p {{ devices {devices} microbatches {microbatches} schedule run {again} }}"
    );
    let costs = ["F=1,BW=2", "F=0,B=0,W=0,BW=0", "F=3,B=1,W=2,comm=4", "F=1,B=2,W=0,BW=5,comm=1"];
    (text, costs[dice.below(costs.len())].to_owned())
}

#[test]
fn what_check_accepts_without_a_flush_runs_to_its_end_with_the_stated_peak() {
    let (mut accepted, mut travelling, mut stuck, mut failures) = (0, 0, 0, Vec::new());
    for seed in 0..drawn(500, 1500) as u64 {
        let (text, costs) = random_block(&mut Dice(seed));
        let found = compiled(text.clone(), Some(StageCosts::parse(&costs).expect("costs")));
        failures.extend(found.our_mistakes.first().map(|mistake| format!("seed {seed}, {costs}: {mistake}\n{text}")));
        stuck += usize::from(found.diagnostics.iter().any(|one| one.code.name() == "deadlock"));
        let Some(program) = found.program else { continue };
        let is_sum = |one: &Instruction| matches!(one, Instruction::SendStart { class: Class::Sum, .. });
        let sums = program.program().devices.iter().flat_map(|code| &code.step).filter(|one| is_sum(one)).count();
        let analysis = found.analysis.expect("accepted");
        assert_eq!(sums > 0, !analysis.order.dependencies.sums().is_empty(), "{text}");
        accepted += 1;
        travelling += usize::from(sums > 0);
        if accepted % 8 > 0 {
            continue;
        }
        let program = Arc::new(program);
        let options = Options { stress: Some(seed), ..Options::new(Backend::Null, 0) };
        let data = Arc::new(Data::synthetic(program.program()));
        let mut run = Run::start(Arc::clone(&program), &options, data).expect("it starts");
        let measured = run.step(0).unwrap_or_else(|error| panic!("{error}\n{text}"));
        for (measured, stated) in measured.devices.iter().zip(&program.program().devices) {
            assert_eq!(measured.peak, stated.peak, "{text}");
        }
    }
    report(&failures);
    assert!(travelling > 100 && stuck > 3, "{accepted} accepted, {travelling} with sums, {stuck} stuck");
}

/// What the sums of a certified block wait for is there with every number of microbatches and steps; where they travel
/// against the slots, nothing is said of other numbers, and some of them may be stuck.
#[test]
fn certified_sums_are_stuck_with_no_number_of_microbatches() {
    let (mut certified, mut open) = (0, 0);
    for seed in 0..drawn(160, 600) as u64 {
        let (text, _) = random_block(&mut Dice(seed));
        let found = compiled(text.clone(), None);
        let Some(analysis) = found.analysis.filter(|analysis| !analysis.order.dependencies.sums().is_empty()) else {
            continue;
        };
        let is_certified =
            found.report.valid_for == Some(Numbers::Allowed) || found.report.valid_for == Some(Numbers::Every);
        assert_eq!(is_certified, found.report.certificate.is_some(), "{text}");
        assert_eq!(is_certified, found.report.valid_for_all_microbatches == Some(true), "{text}");
        if !is_certified {
            open += 1;
            continue;
        }
        certified += 1;
        let size = analysis.schedule.block.as_ref().map_or(1, |block| i64::from(block.microbatches));
        for turns in [1, 2, 3, 5, 7] {
            let sizes = [("microbatches", turns * size)];
            let other = compiled_with(text.clone(), None, &sizes);
            assert!(other.report.ok, "{sizes:?}: {:#?}\n{text}", other.diagnostics);
        }
    }
    assert!(certified > 50 && open > 2, "{certified} certified, {open} for one number only");
}

/// The sums of a step of these two microbatches are never stuck, but the second device takes them before the first.
#[test]
fn sums_against_the_slots_are_not_certified() {
    let text = "
        schedule run {
            stages 1
            place s, m on m % 2
            weights newest
            slots F = 1, BW = 1
            block of 2 every 4 { F[s, m] at 1 - m  BW[s, m] at 3 - m }
        }
        pipeline p { devices 2  microbatches MANY  schedule run }";
    let found = compiled(text.replace("MANY", "2"), None);
    assert!(found.report.ok, "{:#?}", found.diagnostics);
    assert_eq!((found.report.valid_for, found.report.valid_for_all_microbatches), (None, Some(false)));
    assert!(found.report.certificate.is_none());
    // Who asks for the certificate alone gets the verdict of the step.
    let request = Request { certificate: Certificates::Alone, ..Request::default() };
    let found = cases::compiled("test.pipe", &text.replace("MANY", "2"), &request);
    assert!(found.report.ok && found.report.certificate.is_none() && found.analysis.is_some());
}

#[test]
fn a_sum_travels_in_the_gradient_buffer_and_takes_no_memory_of_its_own() {
    let sizes = "vocab = 17, hidden = 16, heads = 2, blocks = 4, sequence = 5, rows = 2";
    let found = compiled(gpt(sizes, 4, 4, "cyclic_dp"), None);
    let program = found.program.expect("accepted");
    for (row, code) in found.report.per_device.iter().zip(&program.program().devices) {
        assert_eq!(row.peak_bytes, Some(code.peak.0), "check states what the program needs");
        let set_up = code.setup.iter().filter_map(|one| match one {
            Instruction::Alloc { buffer } => Some(*buffer),
            _ => None,
        });
        let set_up: Vec<_> = set_up.collect();
        let mut sums = 0;
        for one in &code.step {
            if let Instruction::RecvStart { buffer, class: Class::Sum, .. } = one {
                assert!(set_up.contains(buffer), "{buffer} is that of the gradients");
                sums += 1;
            }
        }
        assert!(sums > 0);
    }
}

#[test]
fn a_stage_without_weights_has_no_sum() {
    let text = "
        layer first { data x: f32[4]  weight w: [4] = ones  output x * w }
        layer last { input h  data y: f32[4]  loss reshape(mean((h - y) * (h - y), 0), []) }
        model small() { first()  last() }
        pipeline p {
            model small()
            devices 2
            microbatches 2
            schedule cyclic_dp
            train { data synthetic  steps 4  optimizer sgd(learning_rate = 0.1) }
        }";
    let found = compiled(text.to_owned(), None);
    let analysis = found.analysis.unwrap_or_else(|| panic!("{:#?}", found.diagnostics));
    let sums = analysis.order.dependencies.sums();
    assert_eq!([0, 1].map(|stage| sums.travels(pipe_ir::ids::StageId(stage))), [true, false]);
    assert!(found.program.is_some(), "{:?}", found.our_mistakes);
}
