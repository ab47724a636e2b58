//! Random schedules: what the compiler accepts is verified, prints, and runs to its end under
//! rendezvous and random delays with the predicted peak. Random damage to a program is found, or
//! does no harm.

use pipe_ir::forms::json;
use pipe_ir::ids::{BufferId, GroupId, MicrobatchId, TokenId, ValueId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::{DeviceProgram, Program};
use pipe_ir::text;
use pipe_ir::verify::{Verified, verify};
use pipe_runtime::{Backend, Options, Run};
use pipe_tests::programs::{program_of, stages_with_weights};
use pipe_tests::schedules::{Dice, Size, analysis_as_it_runs, disordered, random, stuck};
use proptest::prelude::*;
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn size(dice: &mut Dice) -> Size {
    Size { devices: 1 + dice.below(5), stages: 1 + dice.below(8), microbatches: 1 + dice.below(8) }
}

fn lowered(seed: u64) -> Program {
    let mut dice = Dice(seed);
    let schedule = random(size(&mut dice), &mut dice);
    program_of(&schedule, &stages_with_weights(&schedule))
}

fn explain(errors: &[impl std::fmt::Display]) -> String {
    errors.iter().map(|error| format!("{error}\n")).collect()
}

/// Takes two steps on null devices with random delays; the measured peaks must be the stated ones.
fn replay(verified: Verified, seed: u64) -> Result<(), String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let stated: Vec<_> = verified.program().devices.iter().map(|code| code.peak).collect();
        let options = Options { stress: Some(seed), ..Options::new(Backend::Null, 0) };
        let nothing = |_: u64, _: ValueId, _: MicrobatchId, _: &mut [u8]| {};
        let result = (|| {
            let mut run = Run::start(Arc::new(verified), &options, Arc::new(nothing)).map_err(|e| e.to_string())?;
            run.step(0).map_err(|e| e.to_string())?;
            let report = run.step(1).map_err(|e| e.to_string())?;
            let measured: Vec<_> = report.devices.iter().map(|device| device.peak).collect();
            if measured == stated { Ok(()) } else { Err(format!("measured {measured:?}, stated {stated:?}")) }
        })();
        // The receiver is gone only if the test has failed already.
        let _ = sender.send(result);
    });
    receiver.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| Err("it does not end".to_owned()))
}

/// Another number of the same table, or one just outside of it.
fn other(number: u32, dice: &mut Dice) -> u32 {
    if dice.below(2) == 0 { number.wrapping_add(1) } else { number.saturating_sub(1) }
}

fn change(instruction: &mut Instruction, dice: &mut Dice) {
    match instruction {
        Instruction::Alloc { buffer }
        | Instruction::Free { buffer }
        | Instruction::Emit { buffer }
        | Instruction::Fill { buffer, .. }
        | Instruction::Load { buffer, .. } => *buffer = BufferId(other(buffer.0, dice)),
        Instruction::Run { microbatch, .. } => *microbatch = MicrobatchId(other(microbatch.0, dice)),
        Instruction::SendStart { token, .. } => *token = TokenId(other(token.0, dice)),
        Instruction::RecvStart { microbatch, value, .. } => match dice.below(2) {
            0 => *microbatch = MicrobatchId(other(microbatch.0, dice)),
            _ => *value = ValueId(other(value.0, dice)),
        },
        Instruction::CollStart { group, token, .. } | Instruction::GatherStart { group, token, .. } => {
            match dice.below(2) {
                0 => *group = GroupId(other(group.0, dice)),
                _ => *token = TokenId(other(token.0, dice)),
            }
        }
        Instruction::CopyStart { token, .. } | Instruction::LaneStart { token, .. } => {
            *token = TokenId(other(token.0, dice))
        }
        Instruction::Wait { token } => *token = TokenId(other(token.0, dice)),
    }
}

/// Damages one place of a device's program.
fn damage(code: &mut DeviceProgram, dice: &mut Dice) {
    let (from, to) = (dice.below(code.step.len()), dice.below(code.step.len()));
    match dice.below(6) {
        0 => {
            let moved = code.step.remove(from);
            code.step.insert(to, moved);
        }
        1 => {
            code.step.remove(from);
        }
        2 => code.step.insert(to, code.step[from]),
        3 => change(&mut code.step[from], dice),
        4 if !code.operands.is_empty() => {
            let operand = dice.below(code.operands.len());
            code.operands[operand] = BufferId(other(code.operands[operand].0, dice));
        }
        _ => {
            let buffer = dice.below(code.buffers.len());
            code.buffers[buffer].offset.0 = code.buffers[buffer].offset.0.saturating_sub(64);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lowered_programs_are_verified_and_round_trip(seed: u64) {
        let program = lowered(seed);
        let parsed = text::parse(&text::print(&program)).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&parsed.program, &program);
        let mut written = Vec::new();
        json::write(&program, &mut written).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let written = str::from_utf8(&written).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let parsed = json::parse(written).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&parsed, &program);
        let verified = verify(program);
        prop_assert!(verified.is_ok(), "{}", explain(&verified.err().unwrap_or_default()));
    }

    #[test]
    fn damaged_text_is_rejected_without_panic(seed: u64, cut in 0.0..1.0_f64, byte: u8) {
        let whole = lowered(seed);
        let mut bytes = text::print(&whole).into_bytes();
        let at = (cut * bytes.len() as f64) as usize % bytes.len();
        bytes[at] = byte % 128;
        // Whatever the answer is, it comes.
        let _ = text::check(&String::from_utf8_lossy(&bytes));
        bytes.truncate(at);
        if let Ok(rest) = text::check(&String::from_utf8_lossy(&bytes)) {
            // All that may be missing is the last line end, or devices at the end that have nothing to do.
            let devices = &rest.program().devices;
            prop_assert_eq!(&whole.devices[..devices.len()], &devices[..]);
            prop_assert!(whole.devices[devices.len()..].iter().all(|code| code.step.is_empty()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn accepted_programs_run_to_their_end_with_the_stated_peak(seed: u64) {
        let verified = verify(lowered(seed)).map_err(|errors| TestCaseError::fail(explain(&errors)))?;
        prop_assert_eq!(replay(verified, seed), Ok(()));
    }

    #[test]
    fn orders_are_rejected_if_and_only_if_they_get_stuck(seed: u64) {
        let mut dice = Dice(seed);
        for _ in 0..8 {
            prop_assert_eq!(analysis_as_it_runs(&disordered(size(&mut dice), &mut dice)), Ok(()));
        }
        // The last one shows that whatever is accepted really runs, with the stated peaks.
        let schedule = disordered(size(&mut dice), &mut dice);
        if stuck(&schedule).is_empty() {
            let program = program_of(&schedule, &stages_with_weights(&schedule));
            let verified = verify(program).map_err(|errors| TestCaseError::fail(explain(&errors)))?;
            prop_assert_eq!(replay(verified, seed), Ok(()));
        }
    }

    #[test]
    fn damage_is_found_or_harmless(seed: u64) {
        let program = lowered(seed);
        let mut dice = Dice(seed ^ 1);
        for _ in 0..25 {
            let mut damaged = program.clone();
            let device = dice.below(damaged.devices.len());
            if damaged.devices[device].step.is_empty() {
                continue;
            }
            damage(&mut damaged.devices[device], &mut dice);
            if damaged == program {
                continue;
            }
            if let Ok(verified) = verify(damaged) {
                prop_assert_eq!(replay(verified, seed), Ok(()));
            }
        }
    }
}

#[test]
fn disordered_schedules_are_of_both_kinds() {
    let of_seed = |seed| {
        let mut dice = Dice(seed);
        let schedule = disordered(size(&mut dice), &mut dice);
        stuck(&schedule).is_empty()
    };
    let running = (0..200).filter(|seed| of_seed(*seed)).count();
    assert!((40..160).contains(&running), "{running} of 200 run");
}
