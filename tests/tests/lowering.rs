//! Lowering: what is accepted becomes a program that the verifier accepts, that prints, and that runs.

use pipe_ir::text;
use pipe_ir::verify::verify;
use pipe_tests as _;
use pipe_tests::programs::{program, program_of, stages_with_weights};
use pipe_tests::schedules::{Dice, Size, one_f_one_b, random};

#[test]
fn one_f_one_b_is_verified() {
    let program = program(&one_f_one_b(3, 4));
    println!("{}", text::print(&program));
    let errors = verify(program).err().unwrap_or_default();
    assert!(errors.is_empty(), "{}", errors.iter().map(|error| format!("{error}\n")).collect::<String>());
}

#[test]
fn random_schedules_are_verified() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let size = Size { devices: 1 + dice.below(5), stages: 1 + dice.below(8), microbatches: 1 + dice.below(8) };
        let schedule = random(size, &mut dice);
        let program = program_of(&schedule, &stages_with_weights(&schedule));
        let errors = verify(program).err().unwrap_or_default();
        assert!(
            errors.is_empty(),
            "seed {seed} {size:?}: {}",
            errors.iter().map(|error| format!("{error}\n")).collect::<String>()
        );
    }
}
