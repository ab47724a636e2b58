//! The known traps of pipeline communication, one test each: that the trap is real, in a program
//! that falls into it, and that what the compiler writes does not. What is measured stands in
//! `tests/traps/`.

use pipe_compiler::Request;
use pipe_ir::program::Program;
use pipe_ir::text::{self, Rejected};
use pipe_ir::units::Bytes;
use pipe_ir::verify::{VerifyError, verify};
use pipe_syntax::stdlib::SCHEDULES;
use pipe_tests::cases::{compile_text, expect, read, report, root};
use pipe_tests::channels::{Channels, run};
use pipe_tests::programs::{program_of, stages_with_weights};
use pipe_tests::rewrite::{received_just_before_use, sends_held_to_the_end, weight_gradients_kept, without_classes};
use pipe_tests::schedules::one_f_one_b;
use std::path::Path;

/// How much channels may hold; 0 is rendezvous.
const CAPACITIES: [Option<usize>; 6] = [Some(0), Some(1), Some(2), Some(4), Some(16), None];
const ALL_CAPACITIES: &str = "0 1 2 4 16 any";

/// What the compiler makes of a standard schedule without a model.
fn standard(name: &str, devices: usize, microbatches: usize) -> Program {
    let text = format!("pipeline test {{ devices {devices} microbatches {microbatches} schedule {name} }}");
    let (compilation, _) = compile_text("test.pipe", &text, Path::new("."), &Request::default());
    let verified = compilation.program.unwrap_or_else(|| panic!("{name}: {:#?}", compilation.diagnostics));
    verified.program().clone()
}

/// 1F1B on 4 devices, whose stages have weights.
fn one_f_one_b_with_weights(microbatches: usize) -> Program {
    let schedule = one_f_one_b(4, microbatches);
    program_of(&schedule, &stages_with_weights(&schedule))
}

/// The peaks of a program, which the verifier has found exact.
fn peaks(program: Program) -> Vec<Bytes> {
    match verify(program) {
        Ok(verified) => verified.program().devices.iter().map(|code| code.peak).collect(),
        Err(errors) => panic!("{}", lines(&errors)),
    }
}

fn lines(errors: &[VerifyError]) -> String {
    errors.iter().map(|error| format!("{error}\n")).collect()
}

/// Compares what was measured with a file of `tests/traps`.
fn is_as_in(name: &str, measured: &str) {
    report(&expect(&root().join("tests/traps").join(name), measured).into_iter().collect::<Vec<_>>());
}

/// The peaks of our program and of another one, for several numbers of microbatches.
fn compared(other: impl Fn(&Program) -> Program) -> (Vec<[Vec<Bytes>; 2]>, String) {
    let row = |microbatches| {
        let ours = one_f_one_b_with_weights(microbatches);
        let rows = [peaks(ours.clone()), peaks(other(&ours))];
        let show = |peaks: &[Bytes]| peaks.iter().map(|peak| format!("{:>8}", peak.0)).collect::<String>();
        let text = format!("{microbatches:>12} {}  |{}\n", show(&rows[0]), show(&rows[1]));
        (rows, text)
    };
    let (rows, text): (_, String) = [8, 16, 32, 64].into_iter().map(row).unzip();
    let heads = format!("{:>12} {:<32}  | trap, d0 to d3\n", "microbatches", "compiled, d0 to d3");
    (rows, format!("; 1F1B on 4 devices: peaks in bytes, found exact by the verifier\n{heads}{text}"))
}

/// What each further microbatch adds to the peaks, if that is the same everywhere.
fn growth(peaks: &[[Vec<Bytes>; 2]], which: usize) -> Vec<u64> {
    let per_microbatch = |from: usize, n: u64| {
        let pairs = peaks[from][which].iter().zip(&peaks[from + 1][which]);
        pairs.map(|(few, many)| (many.0 - few.0) / n).collect::<Vec<_>>()
    };
    assert_eq!(per_microbatch(0, 8), per_microbatch(1, 16));
    assert_eq!(per_microbatch(1, 16), per_microbatch(2, 32));
    per_microbatch(0, 8)
}

/// The capacities of channels with which all devices come to their ends.
fn ends(program: &Program, tagged: bool) -> String {
    let show = |capacity: Option<usize>| match (capacity, run(program, Channels { capacity, tagged })) {
        (_, Err(_)) => "-".to_owned(),
        (Some(capacity), Ok(())) => capacity.to_string(),
        (None, Ok(())) => "any".to_owned(),
    };
    CAPACITIES.map(show).join(" ")
}

#[test]
fn untagged_channels_get_stuck_whatever_they_hold() {
    let title = "; Capacities of channels with which all devices come to their ends; 4 devices, 8 microbatches";
    let heads = ["", "compiled", "before use", "and untagged", "what the verifier says of that"];
    let row = |cells: [&str; 5]| {
        let [name, compiled, tagged, untagged, verdict] = cells;
        format!("{name:<20} {compiled:<14} | {tagged:<14} | {untagged:<14} | {verdict}\n")
    };
    let mut table = format!("{title}\n{}", row(heads));
    for (name, _) in SCHEDULES {
        let program = standard(name, 4, 8);
        let naive = received_just_before_use(&program);
        let [compiled, tagged, untagged] = [ends(&program, true), ends(&naive, true), ends(&naive, false)];
        assert_eq!(compiled, ALL_CAPACITIES, "{name}");
        let verdict = match verify(without_classes(&naive)) {
            Ok(_) => "accepted".to_owned(),
            Err(errors) => errors.first().map(|error| error.message.clone()).unwrap_or_default(),
        };
        if *name == "dualpipe_v" {
            assert_eq!((tagged.as_str(), untagged.as_str()), ("- 1 2 4 16 any", "- - - - - -"));
            assert!(verdict.contains(" of its channel, but "), "{verdict}");
        }
        table.push_str(&row([name, &compiled, &tagged, &untagged, &verdict]));
    }
    is_as_in("untagged.txt", &table);
}

#[test]
fn send_buffers_held_to_the_end_of_the_step_lose_the_bound_of_1f1b() {
    let (peaks, table) = compared(sends_held_to_the_end);
    is_as_in("held_sends.txt", &table);
    assert_eq!(growth(&peaks, 0), [0; 4]);
    assert!(growth(&peaks, 1).iter().all(|bytes| *bytes > 0));
}

#[test]
fn channels_of_capacity_one_hide_a_rendezvous_deadlock() {
    let text = read(&root().join("tests/traps/capacity_one.ir"));
    let program = text::parse(&text).expect("a program").program;
    assert_eq!(ends(&program, true), "- 1 2 4 16 any");
    // What real schedules come to that way stands in `untagged.txt`.
    assert_eq!(ends(&received_just_before_use(&standard("1f1b", 4, 8)), true), "- 1 2 4 16 any");
    assert_eq!(ends(&standard("1f1b", 4, 8), true), ALL_CAPACITIES);
    match text::check(&text) {
        Err(Rejected::Verify(errors)) => is_as_in("capacity_one.stderr", &lines(&errors)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn weight_gradients_kept_per_microbatch_grow_with_their_number() {
    let (peaks, table) = compared(weight_gradients_kept);
    is_as_in("kept_weight_gradients.txt", &table);
    assert_eq!(growth(&peaks, 0), [0; 4]);
    // The weights of a stage have 5000 bytes.
    assert_eq!(growth(&peaks, 1), [Bytes(5000).aligned().0; 4]);
}

#[test]
fn receiving_just_before_use_gets_stuck_in_every_schedule_but_gpipe() {
    let mut table = String::from(
        "; What the verifier says of each program, if its devices receive just before use; 4 devices, 8 microbatches\n",
    );
    for (name, _) in SCHEDULES {
        let naive = received_just_before_use(&standard(name, 4, 8));
        let ends = run(&naive, Channels { capacity: Some(0), tagged: true }).is_ok();
        assert_eq!(ends, *name == "gpipe", "{name}");
        let verdict = match verify(naive) {
            Ok(_) => "accepted".to_owned(),
            Err(errors) => {
                for error in &errors {
                    assert!(error.message.starts_with("deadlock: "), "{name}: {error}");
                    assert!((2..=6).contains(&error.notes.len()), "{name}: {error}");
                }
                errors.first().map(|error| error.message.clone()).unwrap_or_default()
            }
        };
        assert_eq!(verdict == "accepted", ends, "{name}");
        table.push_str(&format!("{name:<20} {verdict}\n"));
    }
    is_as_in("received_just_before_use.txt", &table);
}
