//! Phases of a step: what they take together, and what devices keep for the phases that do not run.

use pipe_compiler::phases::{Together, exceeded, names, together};
use pipe_compiler::{Compilation, Request};
use pipe_syntax::source::Source;
use pipe_tests::cases::{compiled, no_files};

const NAMES: [&str; 3] = ["step.generate", "step.score", "step.train"];

/// Three phases of models of these many blocks, with so much memory for each device.
fn text([generate, score, train]: [u32; 3], memory: &str) -> String {
    let phase = |name: &str, blocks: u32, lines: &str| {
        let cut = format!("cut [2, 1, 1, {}]", blocks - 2);
        format!("phase {name} {{ model gpt(blocks = {blocks}) {cut} microbatches 8 schedule 1f1b {lines} }}")
    };
    format!(
        "import std.models.gpt pipeline step {{ devices 4 {memory} {} {} {} }}",
        phase("generate", generate, "frozen all"),
        phase("score", score, "frozen all"),
        phase("train", train, "")
    )
}

fn phases(text: &str) -> (Vec<Compilation>, Together) {
    let root = Source { name: "step.pipe".to_owned(), text: text.to_owned() };
    assert_eq!(names(root, &no_files, None), NAMES);
    let of = |name: &str| {
        let mut request = Request::default();
        request.choice.pipeline = Some(name.to_owned());
        compiled("step.pipe", text, &request)
    };
    let all: Vec<Compilation> = NAMES.into_iter().map(of).collect();
    let sum = together(&all);
    (all, sum)
}

/// The bytes of a device's parameters in a phase.
fn parameters(phase: &Compilation, device: usize) -> u64 {
    let program = phase.program.as_ref().expect("accepted").program();
    let device = &program.devices[device];
    let size = |instruction: &pipe_ir::instruction::Instruction| match instruction {
        pipe_ir::instruction::Instruction::Alloc { buffer } => device.buffers[buffer.index()].bytes.0,
        _ => 0,
    };
    device.setup.iter().map(size).sum()
}

#[test]
fn phases_take_the_sum_of_their_times() {
    let (all, sum) = phases(&text([6, 4, 6], ""));
    let makespans: f64 = all.iter().map(|phase| phase.report.figures.makespan.expect("timed")).sum();
    assert!((sum.makespan.expect("one unit") - makespans).abs() < 1e-6);
    assert_eq!(sum.time_unit, Some("MFLOP"));
}

#[test]
fn one_model_in_two_phases_is_one_set_of_weights() {
    let (all, sum) = phases(&text([6, 4, 6], ""));
    for row in &sum.per_device {
        let peak = |phase: usize| all[phase].program.as_ref().expect("accepted").program().devices[row.device].peak.0;
        assert_eq!((row.phase, row.kept_bytes), (2, parameters(&all[1], row.device)), "d{}", row.device);
        assert_eq!(row.peak_bytes, peak(2) + row.kept_bytes, "d{}", row.device);
    }
    // Three different models are all kept beside each other.
    let (all, sum) = phases(&text([5, 4, 6], ""));
    for row in &sum.per_device {
        let others = parameters(&all[0], row.device) + parameters(&all[1], row.device);
        assert_eq!((row.phase, row.kept_bytes), (2, others), "d{}", row.device);
    }
}

#[test]
fn a_phase_that_fits_alone_may_not_fit_beside_what_others_keep() {
    let fullest = |sum: &Together| sum.per_device.iter().map(|row| row.peak_bytes).max().expect("devices");
    let (_, sum) = phases(&text([5, 4, 6], ""));
    let limit = fullest(&sum);
    for (bytes, fits) in [(limit, true), (limit - 1, false)] {
        let (all, sum) = phases(&text([5, 4, 6], &format!("memory {bytes}")));
        assert!(all.iter().all(|phase| phase.report.ok), "each fits alone");
        let found = exceeded(&sum, &all);
        assert_eq!(found.is_empty(), fits, "{bytes}: {found:#?}");
        assert!(found.iter().all(|(phase, one)| *phase == 2 && one.code.name() == "memory-exceeded"));
    }
}
