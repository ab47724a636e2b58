//! Offload: state in the memory of hosts gives the same bits, in as much memory of both spaces as was predicted.

use pipe_compiler::Request;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::instruction::{Direction, Instruction};
use pipe_ir::program::{Program, Space};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run};
use pipe_schedule::policy::offload::Offload;
use pipe_schedule::timing::costs::StageCosts;
use pipe_syntax::stdlib::SCHEDULES;
use pipe_tests::cases::{compile_text, report};
use pipe_tests::pipelines::{gpt, in_precision, verified};
use pipe_tests::programs::assert_read_back;
use pipe_tests::slice::slice;
use pipe_tests::training::{learn, steps};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const SIZES: &str = "vocab = 17, hidden = 16, heads = 2, blocks = 6, sequence = 6, rows = 2";

/// Bytes of weights, gradients and optimizer state of the stages of a device.
fn state(program: &Program, device: usize) -> u64 {
    let fills = program.devices[device].setup.iter().filter_map(|instruction| match instruction {
        Instruction::Fill { value, .. } => Some(program.value(*value)),
        _ => None,
    });
    fills.filter(|value| value.kind != ValueKind::Scratch).map(|value| value.bytes.0).sum()
}

fn copies(program: &Program, meant: Direction) -> usize {
    let is_meant = |one: &&Instruction| matches!(one, Instruction::CopyStart { direction, .. } if *direction == meant);
    program.devices.iter().map(|code| code.step.iter().filter(is_meant).count()).sum()
}

#[test]
fn every_schedule_that_flushes_learns_the_same_bits_with_its_state_elsewhere() {
    let one_stage = ["gpipe", "1f1b", "eager_1f1b", "zb_h1", "zb_h2"];
    let mut failures = Vec::new();
    for (index, (name, _)) in slice(3, SCHEDULES.iter().enumerate()) {
        let devices = if one_stage.contains(name) { 3 } else { 2 };
        let plain = verified(&gpt(SIZES, devices, 4, name));
        if !plain.program().lags.is_empty() {
            // Versions of weights stay where they are used.
            continue;
        }
        let offload = Offload::ALL[index % Offload::ALL.len()];
        // Activations leave where nothing says that there is room for them.
        let away = gpt(SIZES, devices, 4, &format!("{name} offload {offload}"));
        let away = verified(&if offload.activations { away.replace(" memory 4GiB", "") } else { away });
        let total = |program: &Program| (0..program.devices.len()).map(|device| state(program, device)).sum::<u64>();
        if total(plain.program()) != total(away.program()) || copies(away.program(), Direction::DeviceToHost) == 0 {
            failures.push(format!("{name}: other state with {offload}"));
        }
        if learn(&away, Some(index as u64)) != learn(&plain, None) {
            failures.push(format!("{name} with {offload}"));
        }
    }
    report(&failures);
}

#[test]
fn momentum_double_precision_and_stages_that_recompute_learn_the_same_bits() {
    let mut failures = Vec::new();
    let adamw = "adamw(learning_rate = 0.001, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1)";
    for (precision, optimizer) in [("f64", adamw), ("f32", "sgd(learning_rate = 0.1, momentum = 0.9)")] {
        let text = |line: &str| {
            let text = gpt(SIZES, 2, 4, &format!("1f1b recompute all {line}")).replace(adamw, optimizer);
            verified(&in_precision(precision, &text))
        };
        if learn(&text("offload optimizer, parameters"), Some(3)) != learn(&text(""), None) {
            failures.push(format!("{optimizer} in {precision}"));
        }
    }
    report(&failures);
}

/// Layers of one large matrix each, so that state is nearly all of the memory.
const LAYERS: &str = "
    layer lookup(width, rows) {
        data drawn: i32[rows]
        weight table: [7, width] = normal(1)
        output gather(table, drawn)
    }
    layer dense(width) {
        input x
        weight matrix: [width, width] = normal(0.1)
        output tanh(matmul(x, matrix))
    }
    layer guess(width, rows) {
        input x
        data drawn: i32[rows]
        weight matrix: [width, 7] = normal(0.7)
        loss cross_entropy(matmul(x, matrix), drawn)
    }
    model deep(width = 96, rows = 2) {
        lookup(width, rows)
        repeat 46 { dense(width) }
        guess(width, rows)
    }";

fn deep(memory: &str, line: &str) -> String {
    format!(
        "{LAYERS}
        pipeline large {{
            model deep
            devices 2 {memory}
            microbatches 2
            schedule interleaved_1f1b(chunks = 24)
            {line}
            train {{ data synthetic steps 10 seed 7 optimizer adamw(learning_rate = 0.001) }}
        }}"
    )
}

#[test]
fn a_model_with_three_times_as_much_state_as_its_devices_hold_learns_the_same_bits() {
    let plain = verified(&deep("", ""));
    let limit = 1080 << 10;
    let text = deep("memory 1080KiB host 3MiB", "offload optimizer, parameters");
    let small = verified(&text);
    let program = small.program();
    for (device, code) in program.devices.iter().enumerate() {
        assert!(state(program, device) >= 3 * limit, "{} bytes", state(program, device));
        assert!(code.arena.0 <= limit && code.limit == Some(Bytes(limit)), "{} bytes", code.arena);
        assert_eq!(code.extent(Space::Host).limit, Some(Bytes(3 << 20)));
    }
    assert_eq!(learn(&small, Some(5)), learn(&plain, None));
    // Without offload it does not fit, and the error says what would make it fit.
    let (compilation, _) =
        compile_text("x.pipe", &deep("memory 1080KiB host 3MiB", ""), Path::new("."), &Request::default());
    let help: Vec<_> = compilation.diagnostics.iter().filter_map(|found| found.help.as_deref()).collect();
    assert!(help.iter().any(|help| help.contains("`offload optimizer, parameters` would fit: ")), "{help:?}");
    // Nor does it with half the memory of the hosts.
    let text = deep("memory 1080KiB host 1MiB", "offload optimizer, parameters");
    let (compilation, _) = compile_text("x.pipe", &text, Path::new("."), &Request::default());
    let found: Vec<_> = compilation.diagnostics.iter().map(|found| found.message.as_str()).collect();
    assert!(found.iter().any(|message| message.contains("of its host's memory, but may use 1MiB")), "{found:?}");
}

#[test]
fn programs_with_copies_are_read_as_they_are_written() {
    let program = verified(&gpt(SIZES, 2, 4, "1f1b offload optimizer, parameters"));
    let program = program.program();
    assert!(program.execs.iter().any(|exec| exec.chunk.is_some_and(|chunk| chunk.number > 2)));
    assert_read_back(program);
}

#[test]
fn weights_that_did_not_change_are_dropped_and_all_goes_back_once() {
    let program = verified(&gpt(SIZES, 2, 4, "1f1b offload optimizer, parameters"));
    let program = program.program();
    let updates = program.execs.iter().filter(|exec| exec.kind == TaskKind::Update);
    let n_stages = 2;
    // Each chunk's state, and each stage's weights.
    assert_eq!(copies(program, Direction::DeviceToHost), updates.count() + n_stages);
}

#[test]
fn a_checkpoint_fits_with_and_without() {
    let [plain, away] =
        ["", "offload optimizer, parameters"].map(|line| verified(&gpt(SIZES, 2, 4, &format!("1f1b {line}"))));
    let state = |program: &Arc<Verified>| {
        let data = Arc::new(Data::synthetic(program.program()));
        let mut run = Run::start(Arc::clone(program), &Options::new(Backend::Cpu, 3), data).expect("a run");
        steps(&mut run, 0..2);
        let mut state = pipe_runtime::checkpoint::state(&run, 2).expect("read");
        state.tensors.sort_by(|one, other| one.name.cmp(&other.name));
        state
    };
    assert_eq!(state(&plain), state(&away));
}

/// When everything is done, by going through the instructions of all devices again and again until
/// no task ends later: a copy of 1 MiB takes so long, a task 3 or 5, and what goes from device to
/// device 1.
fn end_of_step(program: &Program, copy: f64) -> f64 {
    let mut ends: BTreeMap<(TaskKind, StageId, MicrobatchId), (DeviceId, f64)> = BTreeMap::new();
    loop {
        let (before, mut last) = (ends.clone(), 0.0_f64);
        for (device, code) in (0..).map(DeviceId).zip(&program.devices) {
            let (mut now, mut queues, mut tokens) = (0.0_f64, [0.0_f64; 2], BTreeMap::new());
            for instruction in &code.step {
                match *instruction {
                    Instruction::Run { exec, microbatch, .. } => {
                        let exec = program.exec(exec);
                        let (kind, length, input) = match exec.kind {
                            TaskKind::Forward => (exec.kind, 3.0, exec.stage.0.checked_sub(1)),
                            TaskKind::Backward => (exec.kind, 5.0, Some(exec.stage.0 + 1)),
                            _ => continue,
                        };
                        let input = input.and_then(|stage| ends.get(&(kind, StageId(stage), microbatch)));
                        now = input.map_or(now, |(from, end)| now.max(end + f64::from(u8::from(*from != device))));
                        now += length;
                        ends.insert((kind, exec.stage, microbatch), (device, now));
                    }
                    Instruction::CopyStart { buffer, direction, token, .. } => {
                        let queue = &mut queues[direction as usize];
                        *queue = queue.max(now) + code.buffers[buffer.index()].bytes.0 as f64 / 1_048_576.0 * copy;
                        tokens.insert(token, *queue);
                    }
                    Instruction::Wait { token } => now = tokens.get(&token).map_or(now, |end| now.max(*end)),
                    _ => {}
                }
            }
            last = last.max(now);
        }
        if before == ends {
            return last;
        }
    }
}

#[test]
fn the_makespan_waits_for_copies_and_for_who_waits_for_them() {
    let mut longer = 0;
    for (schedule, offload) in [
        ("1f1b", "optimizer, parameters"),
        ("1f1b", "parameters"),
        ("gpipe", "optimizer"),
        ("interleaved_1f1b(chunks = 2)", "optimizer, parameters"),
    ] {
        // As little room as goes.
        let text = gpt(SIZES, 3, 6, &format!("{schedule} offload {offload}")).replace("memory 4GiB", "");
        for copy in [0_u32, 20, 300, 3000] {
            let costs = StageCosts::parse(&format!("F=3,BW=5,comm=1,copy={copy}")).expect("well-formed");
            let request = Request { costs: Some(costs), program: true, ..Request::default() };
            let (compilation, _) = compile_text("test.pipe", &text, Path::new("."), &request);
            let (figures, program) = (&compilation.report.figures, compilation.program.as_ref().expect("accepted"));
            let (makespan, replayed) = (figures.makespan.expect("timed"), end_of_step(program.program(), copy.into()));
            assert!((makespan - replayed).abs() < 1e-3, "{schedule}, {offload}, {copy}: {makespan}, {replayed}");
            let path = figures.critical_path.as_ref().expect("timed");
            let sum: f64 = path.iter().map(|part| part.time).sum();
            assert!((sum - makespan).abs() < 1e-3, "{schedule}, {offload}, {copy}: {path:?} of {makespan}");
            longer += usize::from(path.iter().any(|part| part.kind == "copy"));
        }
    }
    assert!(longer >= 8, "{longer} wait for copies");
}

#[test]
fn updates_behind_the_last_task_are_not_copies() {
    let text = gpt(SIZES, 3, 6, "1f1b offload optimizer").replace("memory 4GiB", "");
    let parts = |update: u32| {
        let costs = StageCosts::parse(&format!("F=3,BW=5,U={update},comm=1,copy=20")).expect("well-formed");
        let request = Request { costs: Some(costs), program: true, ..Request::default() };
        let (compilation, _) = compile_text("test.pipe", &text, Path::new("."), &request);
        let path = compilation.report.figures.critical_path.expect("timed");
        let sum = path.iter().map(|part| part.time).sum::<f64>();
        assert!((sum - compilation.report.figures.makespan.expect("timed")).abs() < 1e-3, "{path:?}");
        ["U", "copy"].map(|kind| path.iter().filter(|part| part.kind == kind).map(|part| part.time).sum::<f64>())
    };
    let ([none, all_copies], [short, some], [long, few]) = (parts(0), parts(2), parts(2000));
    assert!(none == 0.0 && all_copies > 0.0 && some <= all_copies, "{all_copies} {some}");
    // All chunks of a stage take what its update takes, as far as whole ticks go.
    assert!((short - 2.0).abs() < 0.01 && (long - 2000.0).abs() < 0.01 && few <= some, "{short} {long} {few}");
}
