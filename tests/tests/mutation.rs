//! A small campaign of the `mutate` command: damage to sound programs of every family is found, or
//! does no harm. And the machine that says so is judged too.

use pipe_ir::program::Program;
use pipe_ir::verify::verify;
use pipe_syntax::stdlib::SCHEDULES;
use pipe_tests::mutation::campaign::{run, seed_of};
use pipe_tests::mutation::damage;
use pipe_tests::mutation::kinds::Kind;
use pipe_tests::mutation::machine::{self, Pace};
use pipe_tests::mutation::subjects::{Breadth, Subject, kinds, subjects};
use pipe_tests::schedules::Dice;
use pipe_tests::slice::{drawn, takes_all};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

/// Made once for all tests.
fn narrow() -> &'static [Subject] {
    static NARROW: LazyLock<Vec<Subject>> =
        LazyLock::new(|| subjects(Breadth::Narrow).unwrap_or_else(|why| panic!("{why}")));
    &NARROW
}

#[test]
fn damage_is_found_or_harmless() {
    let subjects = narrow();
    let count = drawn(250, 1500) as u64;
    let seeds: Vec<u64> = (0..count).map(|number| seed_of(12, number)).collect();
    let findings = run(subjects, &seeds, 4, &|_, _| {});
    assert!(findings.holes.is_empty(), "{:#?}", findings.holes);
    let (all, n_kinds) = (findings.all, findings.kinds.len());
    assert_eq!(all.total(), count);
    assert!(n_kinds >= drawn(45, Kind::ALL.len()), "kinds of damage that are tried: {:?}", findings.kinds);
    let is_tried = |(family, _): &(&str, &str)| !takes_all() || findings.families.contains_key(*family);
    assert!(SCHEDULES.iter().all(is_tried), "{:?}", findings.families);
    assert!(2 * all.rejected > count && all.same > count / 40, "{all:?}");
}

#[test]
fn a_seed_makes_the_same_damage_again() {
    let subjects = narrow();
    let damaged = |seed| damage(&subjects[0].program, &mut Dice(seed));
    for seed in 0..drawn(8, 200) as u64 {
        let mutant = damaged(seed);
        assert_ne!(mutant.program, subjects[0].program, "{:?}", mutant.kind);
        assert_eq!(format!("{mutant:?}"), format!("{:?}", damaged(seed)));
    }
}

/// Whether the machine of fingerprints tells a program from the sound one, without the verifier.
fn differs(subject: &Subject, program: &Program) -> bool {
    [Pace::Eager, Pace::Lazy, Pace::Random(5)].into_iter().any(|pace| {
        let outcome = catch_unwind(AssertUnwindSafe(|| machine::run(program, &kinds(&subject.program), 2, pace)));
        !matches!(outcome, Ok(Ok(outcome)) if outcome == subject.outcome)
    })
}

#[test]
fn the_machine_of_fingerprints_sees_what_the_verifier_rejects() {
    let subjects = narrow();
    let (mut seen, mut rejected) = (0, 0);
    for seed in 0..drawn(500, 1000) as u64 {
        let subject = &subjects[seed as usize % subjects.len()];
        let mutant = damage(&subject.program, &mut Dice(seed));
        let moves = matches!(
            mutant.kind,
            Kind::Drop | Kind::SwapAny | Kind::MoveRun | Kind::OperandSwap | Kind::FieldMicrobatch | Kind::FieldPeer
        );
        if moves && verify(mutant.program.clone()).is_err() {
            rejected += 1;
            seen += u32::from(differs(subject, &mutant.program));
        }
    }
    assert!(rejected > 40 && seen * 100 >= rejected * 70, "{seen} of {rejected}");
}
