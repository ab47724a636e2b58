//! `behind`: stages that read what others, or they themselves, computed for an earlier microbatch.

use pipe_compiler::{Compilation, Request};
use pipe_ir::ids::ValueId;
use pipe_ir::program::Program;
use pipe_schedule::bounds::BoundKind;
use pipe_tests::cases::compiled;
use pipe_tests::mutation::machine::{Outcome, Pace, run};
use pipe_tests::mutation::subjects::kinds;
use pipe_tests::programs::{program_of, stages_with_weights};
use pipe_tests::schedules::Dice;
use std::collections::BTreeMap;

fn of(text: &str) -> Compilation {
    compiled("behind.pipe", text, &Request::default())
}

/// Decoding with `groups` groups of sequences, and a block every `period` slots.
fn decoding(devices: u64, groups: u64, period: u64, microbatches: u64) -> String {
    format!(
        "schedule decode(groups) {{
            stages D place s on s
            frozen all
            reads s from if s == 0 then S - 1 behind groups else s - 1
            block every {period} {{ F[s] at s }}
        }}
        pipeline p {{ devices {devices} microbatches {microbatches} schedule decode(groups = {groups}) }}"
    )
}

/// When all tokens are there at the earliest: every task waits for its device, for the stage before it, and the first
/// stage for the last one of the same group.
fn tokens(devices: u64, groups: u64, microbatches: u64) -> u64 {
    let mut ends: Vec<Vec<u64>> = Vec::new();
    for own in 0..microbatches as usize {
        let mut start = own.checked_sub(groups as usize).map_or(0, |before| *ends[before].last().expect("stages"));
        let mut row = Vec::new();
        let free = ends.last().cloned().unwrap_or_else(|| vec![0; devices as usize]);
        for free in free {
            start = start.max(free) + 1;
            row.push(start);
        }
        ends.push(row);
    }
    *ends.last().and_then(|row| row.last()).expect("a microbatch")
}

#[test]
fn a_block_that_waits_for_an_earlier_token_has_the_slots_for_it() {
    for (devices, groups, period) in
        (1..5).flat_map(|devices| (1..6).flat_map(move |groups| (1..5).map(move |period| (devices, groups, period))))
    {
        let found = of(&decoding(devices, groups, period, 12));
        let case = format!("{devices} devices, {groups} groups, every {period}");
        assert_eq!(found.report.ok, groups * period >= devices, "{case}: {:#?}", found.diagnostics);
        if !found.report.ok {
            assert!(found.diagnostics.iter().all(|one| one.code.name() == "starts-before-input"), "{case}");
            continue;
        }
        assert!(found.report.certificate.is_some() && found.program.is_some(), "{case}");
        let makespan = tokens(devices, groups, 12) as f64;
        assert_eq!(found.report.figures.makespan, Some(makespan), "{case}");
        // Where chains and devices limit each other, the bound may be lower.
        let bound = found.report.figures.lower_bound.expect("known");
        let is_exact = groups >= devices || groups == 1;
        assert!(bound == makespan || bound < makespan && !is_exact, "{case}: {bound} of {makespan}");
    }
}

#[test]
fn too_few_groups_are_why_decoding_takes_long() {
    let analysis = of(&decoding(4, 2, 2, 16)).analysis.expect("accepted");
    assert_eq!(analysis.bound.kind, BoundKind::Earlier);
}

/// A random graph: within a microbatch stages read lower ones, and any stage of microbatches before.
fn random_graph(dice: &mut Dice, n_stages: usize) -> String {
    let mut text = String::new();
    for stage in 0..n_stages {
        let mut reads: Vec<String> =
            (0..stage).filter(|before| before + 1 == stage || dice.below(4) == 0).map(|s| s.to_string()).collect();
        for from in 0..n_stages {
            if dice.below(4) == 0 {
                reads.push(format!("{from} behind {}", 1 + dice.below(4)));
            }
        }
        let reads = if reads.is_empty() { "none".to_owned() } else { reads.join(", ") };
        text += &if stage + 1 == n_stages { reads } else { format!("if s == {stage} then {reads} else ") };
    }
    text
}

/// All forwards, then all backwards in the reverse order.
fn there_and_back(graph: &str, (n_stages, devices, microbatches): (usize, usize, usize), backward: &str) -> String {
    let each = |order: &mut dyn Iterator<Item = usize>, task: &dyn Fn(usize) -> String| {
        order.map(|stage| format!("if d == {stage} % D {{ {} }} ", task(stage))).collect::<String>()
    };
    let forward = each(&mut (0..n_stages), &|stage| format!("F[{stage}, m]"));
    let halves = |stage: usize| match backward {
        "" => format!("BW[{stage}, M - 1 - m]"),
        again => format!("{again} B[{stage}, M - 1 - m] W[{stage}, M - 1 - m]").replace("#", &stage.to_string()),
    };
    let back = each(&mut (0..n_stages).rev(), &halves);
    format!(
        "schedule graph {{
            stages {n_stages} place s on s % D
            reads s from {graph}
            order d {{ for m in 0..M {{ {forward} }} for m in 0..M {{ {back} }} }}
        }}
        pipeline p {{ devices {devices} microbatches {microbatches} schedule graph }}"
    )
}

/// What a program computes, whichever device does it.
fn computed(outcome: &Outcome) -> (Vec<Vec<u64>>, Vec<BTreeMap<ValueId, u64>>) {
    let whole = |of: &BTreeMap<(ValueId, _), u64>| of.iter().map(|((value, _), print)| (*value, *print)).collect();
    (outcome.losses.clone(), outcome.persistent.iter().map(whole).collect())
}

fn outcome(program: &Program, pace: Pace) -> Outcome {
    run(program, &kinds(program), 2, pace).expect("it runs to its end")
}

#[test]
fn any_graph_computes_on_several_devices_what_it_computes_on_one() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let (n_stages, microbatches) = (2 + dice.below(4), 1 + dice.below(6));
        let graph = random_graph(&mut dice, n_stages);
        let backward = ["", " ", "R[#, M - 1 - m]"][dice.below(3)];
        let mut all = Vec::new();
        for devices in [1, 2.min(n_stages), n_stages] {
            let text = there_and_back(&graph, (n_stages, devices, microbatches), backward);
            let found = of(&text);
            assert!(found.report.ok, "seed {seed}: {text}\n{:#?} {:?}", found.diagnostics, found.our_mistakes);
            let (bound, makespan) = (found.report.figures.lower_bound.expect("known"), found.report.figures.makespan);
            assert!(Some(bound) <= makespan, "seed {seed}: {bound} of {makespan:?}");
            let schedule = found.analysis.expect("accepted").schedule;
            let program = program_of(&schedule, &stages_with_weights(&schedule));
            let paces = [Pace::Eager, Pace::Lazy, Pace::Random(seed)];
            all.extend(paces.map(|pace| computed(&outcome(&program, pace))));
        }
        assert!(all.iter().all(|one| *one == all[0]), "seed {seed}: {graph}");
        assert!(!all[0].0.iter().all(Vec::is_empty), "seed {seed}: there are losses");
    }
}

#[test]
fn a_frozen_stage_passes_gradients_on_to_those_that_it_reads_of_earlier_microbatches() {
    // Only s1 trains. s0 reads it for a later microbatch, so its backward hands the gradient back.
    let found = of("schedule ring {
        stages D place s on s
        frozen s if s != 1
        reads s from s - 1, S - 1 - s behind 1
        order d { repeat M { F[d] } for m in 0..M { if d == 1 { BW[1, M - 1 - m] } else { B[d, M - 1 - m] } } }
    }
    pipeline p { devices 2 microbatches 3 schedule ring }");
    assert!(found.report.ok, "{:#?}", found.diagnostics);
}
