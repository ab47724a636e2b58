//! Lowering: the traps of pipeline communication, each with the smallest schedule that would fall into it; and
//! `tests/ir/lower/*.pipe` beside the program that each becomes.

use pipe_compiler::Request;
use pipe_ir::ids::{DeviceId, ValueId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use pipe_ir::text;
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::verify;
use pipe_syntax::stdlib::SCHEDULES;
use pipe_tests::cases::{compile_text, expect, files, read, report, root};
use pipe_tests::pipelines::{self, gpt};
use pipe_tests::programs::{program, program_of, stages_with_weights};
use pipe_tests::schedules::{one_f_one_b, schedule, task};
use pipe_tests::shared::ADAMW;

fn verified(program: Program) -> Program {
    match verify(program) {
        Ok(verified) => verified.program().clone(),
        Err(errors) => panic!("{}", errors.iter().map(|error| format!("{error}\n")).collect::<String>()),
    }
}

/// The most bytes of values of these kinds alive at once on a device.
fn most(program: &Program, device: usize, kinds: &[ValueKind]) -> Bytes {
    let code = &program.devices[device];
    let (mut alive, mut peak) = (Bytes::ZERO, Bytes::ZERO);
    let mut held: Vec<Option<ValueId>> = vec![None; code.buffers.len()];
    let counts = |value: ValueId| kinds.contains(&program.value(value).kind);
    for instruction in &code.step {
        let mut hold = |buffer: usize, value: ValueId| {
            if held[buffer].is_none() && counts(value) {
                held[buffer] = Some(value);
                alive += program.value(value).bytes;
                peak = peak.max(alive);
            }
        };
        match *instruction {
            Instruction::Run { exec, operands, .. } => {
                for (operand, buffer) in program.exec(exec).operands.iter().zip(code.operands(operands)) {
                    hold(buffer.index(), operand.value);
                }
            }
            Instruction::RecvStart { buffer, value, .. } => hold(buffer.index(), value),
            Instruction::Free { buffer } => {
                if let Some(value) = held[buffer.index()].take() {
                    alive -= program.value(value).bytes;
                }
            }
            _ => {}
        }
    }
    peak
}

fn transfers(program: &Program) -> Vec<(DeviceId, DeviceId)> {
    let of = |(device, code): (usize, &pipe_ir::program::DeviceProgram)| {
        let from = DeviceId::from_index(device);
        let sends = code.step.iter().filter_map(move |instruction| match instruction {
            Instruction::SendStart { to, .. } => Some((from, *to)),
            _ => None,
        });
        sends.collect::<Vec<_>>()
    };
    program.devices.iter().enumerate().flat_map(of).collect()
}

#[test]
fn saved_activations_keep_the_bound_of_1f1b() {
    let devices = 4;
    let program = verified(program(&one_f_one_b(devices, 12)));
    for device in 0..devices {
        let saved = most(&program, device, &[ValueKind::SavedForWeight]);
        assert_eq!(saved, Bytes((devices - device) as u64 * (1 << 20)), "d{device}");
    }
}

#[test]
fn send_buffers_are_not_held_to_the_end_of_the_step() {
    let program = verified(program(&one_f_one_b(4, 12)));
    for device in 0..4 {
        let flowing = most(&program, device, &[ValueKind::Activation, ValueKind::Gradient]);
        // One on its way out and two on their way in, for each class, whatever the number of microbatches.
        assert!(flowing <= Bytes(6 << 16), "d{device} holds {flowing}");
    }
}

#[test]
fn peaks_do_not_grow_with_microbatches() {
    let peaks = |microbatches| {
        let schedule = one_f_one_b(4, microbatches);
        let program = verified(program_of(&schedule, &stages_with_weights(&schedule)));
        program.devices.iter().map(|code| code.peak).collect::<Vec<_>>()
    };
    assert_eq!(peaks(8), peaks(40));
}

#[test]
fn weight_gradients_have_one_buffer() {
    let schedule = one_f_one_b(3, 10);
    let program = verified(program_of(&schedule, &stages_with_weights(&schedule)));
    for device in 0..3 {
        assert_eq!(most(&program, device, &[ValueKind::ParameterGradients]), Bytes(5000));
    }
}

#[test]
fn nothing_is_sent_to_the_same_device_and_everything_straight() {
    // s0 and s1 share d0, s2 is on d2, s3 on d1: nobody forwards for others.
    let places = [0, 0, 2, 1];
    let mut orders = vec![Vec::new(); 3];
    for microbatch in 0..3 {
        for stage in 0..4 {
            orders[places[stage]].push(task(TaskKind::Forward, stage, microbatch));
        }
        for stage in (0..4).rev() {
            orders[places[stage]].push(task(TaskKind::Backward, stage, microbatch));
        }
    }
    let placement = places.into_iter().map(DeviceId::from_index).collect();
    let program = verified(program(&schedule("shared", placement, orders, 3)));
    let mut found = transfers(&program);
    found.sort_unstable();
    let id = DeviceId;
    let once = [(id(0), id(2)), (id(1), id(2)), (id(2), id(0)), (id(2), id(1))];
    assert_eq!(found, once.into_iter().flat_map(|pair| [pair; 3]).collect::<Vec<_>>());
}

#[test]
fn sources_become_the_programs_beside_them() {
    let folder = root().join("tests/ir/lower");
    let cases = files(&folder, "pipe");
    let failure = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (compilation, _) = compile_text(&name, &read(path), &folder, &Request::default());
        match compilation.program {
            Some(verified) => expect(&path.with_extension("ir"), &text::print(verified.program())),
            None => Some(format!("{name} is rejected: {:#?}", compilation.diagnostics)),
        }
    };
    report(&cases.iter().filter_map(failure).collect::<Vec<_>>());
    assert!(cases.len() >= 3);
}

#[test]
fn a_gpt_becomes_a_sound_program_under_every_standard_schedule() {
    let sizes = "vocab = 16, hidden = 8, heads = 2, blocks = 6, sequence = 4, rows = 2";
    for (schedule, _) in SCHEDULES {
        let text = gpt(sizes, 4, 8, schedule);
        for text in [text.replace(ADAMW, "sgd(learning_rate = 0.1)"), text] {
            let program = pipelines::verified(&text);
            assert!(program.program().values.iter().all(|value| value.bytes.0 > 0), "{schedule}");
        }
    }
}
