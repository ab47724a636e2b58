//! Parts of models on lanes: programs that give lanes instructions, and what they learn.

use pipe_compiler::{Compilation, Request};
use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::Instruction;
use pipe_ir::lanes::queues;
use pipe_ir::program::Program;
use pipe_runtime::{Backend, Options, Run, data::Data};
use pipe_tests::cases::{compile_text, read, root};
use pipe_tests::mutation::campaign::{run as damaged, seed_of};
use pipe_tests::mutation::machine::{self, Pace};
use pipe_tests::mutation::subjects::{Learned, Subject, kinds, learn};
use pipe_tests::schedules::Dice;
use pipe_tests::slice::drawn;
use std::path::Path;
use std::sync::Arc;

fn compile(text: &str) -> Compilation {
    let (compilation, _) = compile_text("test.pipe", text, Path::new("."), &Request::default());
    let said: Vec<&str> = compilation.diagnostics.iter().map(|one| one.message.as_str()).collect();
    assert!(compilation.report.ok, "{said:?}\n{:?}\n{text}", compilation.our_mistakes);
    compilation
}

fn program(compilation: &Compilation) -> Program {
    compilation.program.as_ref().expect("it has instructions").program().clone()
}

/// The tiny model, with its lines replaced.
fn tiny(lines: &[(&str, &str)]) -> String {
    lines.iter().fold(read(&root().join("tests/data/lanes/experts.pipe")), |text, (from, to)| {
        assert!(text.contains(from), "no `{from}`");
        text.replace(from, to)
    })
}

/// What two steps of a program leave, as `like` names it.
fn learned(compilation: &Compilation, like: &Program, options: &Options) -> Learned {
    let verified = compilation.program.clone().expect("it has instructions");
    let data = Arc::new(Data::synthetic(verified.program()));
    let mut run = Run::start(Arc::new(verified), options, data).expect("it starts");
    learn(&mut run, like).expect("it takes two steps")
}

fn runs_on_lanes(program: &Program) -> usize {
    let on_lane = |list: &[Instruction]| {
        let all = list.iter().zip(queues(list));
        all.filter(|(one, lane)| lane.is_some() && matches!(one, Instruction::Run { .. })).count()
    };
    program.devices.iter().map(|device| on_lane(&device.step)).sum()
}

#[test]
fn lanes_learn_the_bits_that_a_list_alone_learns() {
    let with = compile(&tiny(&[]));
    let without = compile(&tiny(&[(" on out", ""), (" on home", ""), ("    lane out\n", ""), ("    lane home\n", "")]));
    let (with_lanes, alone) = (program(&with), program(&without));
    // Forwards and backwards of two parts, of four microbatches on two devices.
    assert_eq!((runs_on_lanes(&with_lanes), runs_on_lanes(&alone)), (2 * 2 * 4 * 2, 0));
    let expected = learned(&without, &alone, &Options::new(Backend::Cpu, 3));
    for stress in [None, Some(1), Some(2), Some(3)] {
        let options = Options { stress, ..Options::new(Backend::Cpu, 3) };
        let found = learned(&with, &alone, &options);
        assert_eq!(found.difference(&expected), None, "{stress:?}");
    }
}

/// What a pipeline asks of any schedule, lanes do not change.
#[test]
fn recomputation_learns_the_same_bits_beside_lanes() {
    let plain = compile(&tiny(&[]));
    let program = program(&plain);
    let expected = learned(&plain, &program, &Options::new(Backend::Cpu, 3));
    for line in ["recompute all", "recompute F.apply", "recompute F.attend[s] if s == 0"] {
        let again = compile(&tiny(&[("    schedule merged\n", &format!("    schedule merged\n    {line}\n"))]));
        let found = learned(&again, &program, &Options { stress: Some(4), ..Options::new(Backend::Cpu, 3) });
        assert_eq!(found.difference(&expected), None, "{line}");
    }
}

/// The same model without parts, in one stage and under another schedule, adds up the same numbers in another order.
#[test]
fn a_layer_in_parts_computes_what_it_computes_as_a_whole() {
    let names = ["attend", "there", "apply", "back", "add"].map(|name| format!("    part {name}\n"));
    let wholes: Vec<(&str, &str)> = names.iter().map(|line| (line.as_str(), "")).collect();
    let plain = ("schedule merged\n", "schedule 1f1b\n");
    let [whole, divided] = [wholes.as_slice(), &[]].map(|lines| compile(&tiny(&[lines, &[plain]].concat())));
    let merged = compile(&tiny(&[]));
    let losses = |compilation: &Compilation| {
        let verified = compilation.program.clone().expect("it has instructions");
        let data = Arc::new(Data::synthetic(verified.program()));
        let mut run = Run::start(Arc::new(verified), &Options::new(Backend::Cpu, 3), data).expect("it starts");
        [0, 1, 2].map(|step| run.step(step).expect("it goes on").loss().expect("a loss"))
    };
    let expected = losses(&whole);
    for other in [divided, merged] {
        for (found, expected) in losses(&other).into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5 * expected.abs(), "{found} is not {expected}");
        }
    }
}

/// Lanes are given what the schedule says, whatever the schedule: standard ones with random parts on two lanes are
/// verified, and do the same at every pace of lanes and transfers.
#[test]
fn programs_with_lanes_do_the_same_at_every_pace() {
    const SCHEDULES: [&str; 9] =
        ["1f1b", "gpipe", "zb_h1", "zb_h2", "interleaved_1f1b(chunks = 2)", "v_half", "dualpipe", "dualpipe_v", "zb_v"];
    let mut n_on_lanes = 0;
    for seed in 0..drawn(24, 600) as u64 {
        let mut dice = Dice(seed);
        let schedule = SCHEDULES[dice.below(SCHEDULES.len())];
        let (devices, microbatches) = ([2, 4][dice.below(2)], [8, 9, 12][dice.below(3)]);
        let mut parts = vec!["a".to_owned()];
        for number in 0..1 + dice.below(4) {
            let place = ["", " on one", " on two"][dice.below(3)];
            parts.push(format!("p{number}{place}"));
        }
        parts.push(["b", "b on one", "b on two"][dice.below(3)].to_owned());
        let cost = ["", "cost F = 3, B = 2, W = 1, comm = 1", "cost F = 1, F.b = 5, comm = 2"][dice.below(3)];
        let text = format!(
            "pipeline test {{ devices {devices} microbatches {microbatches} schedule {schedule} lane one lane two \
             parts s = {} {cost} }}",
            parts.join(", ")
        );
        let (compilation, _) = compile_text("test.pipe", &text, Path::new("."), &Request::default());
        if !compilation.report.ok {
            assert!(
                !compilation.diagnostics.is_empty() && compilation.our_mistakes.is_empty(),
                "{:?}\n{text}",
                compilation.our_mistakes
            );
            continue;
        }
        let program = program(&compilation);
        n_on_lanes += runs_on_lanes(&program);
        let kinds = kinds(&program);
        let run = |pace| machine::run(&program, &kinds, 2, pace).unwrap_or_else(|why| panic!("{why}\n{text}"));
        let first = run(Pace::Eager);
        for (number, peaks) in (0..).zip(&first.peaks) {
            assert_eq!(peaks[0], program.devices[number].peak.0, "{}\n{text}", DeviceId::from_index(number));
        }
        for pace in [Pace::Lazy, Pace::Random(seed), Pace::Random(!seed)] {
            assert_eq!(run(pace), first, "{pace:?}\n{text}");
        }
    }
    assert!(n_on_lanes > 1000, "{n_on_lanes} runs on lanes");
}

#[test]
fn damage_to_programs_with_lanes_is_found_or_harmless() {
    let subject = Subject::new("lanes", "experts".into(), program(&compile(&tiny(&[])))).expect("it is sound");
    let count = drawn(250, 20_000) as u64;
    let seeds: Vec<u64> = (0..count).map(|number| seed_of(30, number)).collect();
    let findings = damaged(&[subject], &seeds, 4, &|_, _| {});
    assert!(findings.holes.is_empty(), "{:#?}", findings.holes);
    let all = findings.all;
    assert!(all.total() == count && 2 * all.rejected > count && all.same > count / 40, "{all:?}");
}
