//! Models that are no chains: however their stages are laid out, they learn what one device learns.

use pipe_compiler::Request;
use pipe_ir::instruction::Instruction;
use pipe_ir::task::TaskKind;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_syntax::stdlib::SCHEDULES;
use pipe_tests::cases::{compiled, read, report, root};
use pipe_tests::pipelines::program;
use pipe_tests::training::{Bits, bits, distance, losses, start, steps};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An example with other devices, schedule and sizes.
fn example(name: &str, devices: u32, schedule: &str, sizes: &str) -> Arc<Verified> {
    let text = read(&root().join("examples").join(format!("{name}.pipe")));
    altered(name, &text, (devices, schedule, sizes))
}

fn altered(name: &str, text: &str, (devices, schedule, sizes): (u32, &str, &str)) -> Arc<Verified> {
    let lines = text.lines().map(|line| match line.split_whitespace().next() {
        Some("devices") => format!("devices {devices}"),
        Some("microbatches") => "microbatches 4".to_owned(),
        Some("schedule") => format!("schedule {schedule}"),
        Some("model") if !line.ends_with('{') => format!("model {name}({sizes})"),
        _ => line.to_owned(),
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    Arc::new(program(&text).unwrap_or_else(|found| panic!("{name}, {schedule} on {devices}: {found}")))
}

/// Losses of three steps, gradients of the first, weights of the last.
fn learn(program: &Arc<Verified>, stress: Option<u64>) -> (Vec<Vec<u64>>, Vec<Bits>, Vec<Bits>) {
    let mut run = start(program, stress);
    let mut reports = steps(&mut run, 0..1);
    let gradients = bits(&run, ValueKind::ParameterGradients);
    reports.extend(steps(&mut run, 1..3));
    let losses = losses(&reports).into_iter().map(|step| step.into_iter().map(|(_, loss)| loss).collect());
    (losses.collect(), gradients, bits(&run, ValueKind::Parameters))
}

/// Trains an example under every standard schedule whose number of stages fits.
fn assert_like_one_device(name: &str, sizes: &str) {
    let alone = learn(&example(name, 1, "1f1b", sizes), None);
    assert!(alone.0.iter().all(|step| step.len() == 4));
    assert!(alone.1.iter().all(|(_, gradient)| gradient.iter().any(|bits| *bits != 0)), "gradients are kept");
    let mut failures = Vec::new();
    for (index, (schedule, _)) in SCHEDULES.iter().enumerate().filter(|(_, (name, _))| !OTHERS.contains(name)) {
        let devices = if ONE_STAGE.contains(schedule) { 4 } else { 2 };
        if learn(&example(name, devices, schedule, sizes), Some(index as u64)) != alone {
            failures.push(format!("{name}: {schedule} on {devices} devices learns something else"));
        }
    }
    report(&failures);
}

/// Schedules with one stage per device; the others have several.
const ONE_STAGE: [&str; 5] = ["gpipe", "1f1b", "eager_1f1b", "zb_h1", "zb_h2"];
/// Schedules with replicas, with slices of sequences, or that take microbatches in another order: they add up
/// otherwise.
const OTHERS: [&str; 6] = ["dp_1f1b", "seq_1f1b", "chimera", "dualpipe", "dualpipe_v", "cyclic_dp"];

#[test]
fn a_unet_learns_what_one_device_learns() {
    assert_like_one_device("unet", "width = 32, rows = 8");
}

#[test]
fn two_towers_learn_what_one_device_learns() {
    assert_like_one_device("two_tower", "width = 16, code = 8, rows = 8, depth = 3");
}

#[test]
fn skipped_tensors_go_straight_from_device_to_device() {
    let verified = example("unet", 5, "1f1b", "width = 32, rows = 8");
    let program = verified.program();
    let mut routes = BTreeSet::new();
    for (from, device) in (0_u32..).zip(&program.devices) {
        let sends = device.step.iter().filter_map(|instruction| match instruction {
            Instruction::SendStart { to, .. } => Some(to.0),
            _ => None,
        });
        routes.extend(sends.map(|to| (from, to)));
    }
    // Along the chain, from the whole width and the half on d0 to where they are joined again, and back.
    let forward = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2), (0, 3)];
    let backward = forward.map(|(from, to)| (to, from));
    assert_eq!(routes, forward.into_iter().chain(backward).collect());
}

#[test]
fn a_tensor_is_sent_once_to_a_device_with_several_readers() {
    // Stages 1 and 2 read stage 0 and live on d1.
    let text = "
        layer start() {
            data tokens: i32[4]
            weight table: [8, 4] = normal(1)
            output gather(table, tokens)
        }
        layer dense() {
            input x
            weight up: [4, 4] = normal(1)
            output tanh(matmul(x, up))
        }
        layer finish() {
            input a
            input b
            data tokens: i32[4]
            weight up: [4, 8] = normal(1)
            loss cross_entropy(matmul(a * b, up), tokens)
        }
        model m() { let a = start()  let b = dense() from a  finish() from a, b }
        schedule two() {
            stages 3
            place s on min(s, 1)
            order d { repeat M { if d == 0 { F[0] BW[0] } else { F[1] F[2] BW[2] BW[1] } } }
        }
        pipeline p {
            model m
            devices 2
            microbatches 3
            schedule two
            train { data synthetic  steps 1  optimizer sgd(learning_rate = 0.1) }
        }";
    let verified = program(text).expect("sound");
    let program = verified.program();
    let count = |device: usize, wanted: fn(&Instruction) -> bool| {
        program.devices[device].step.iter().filter(|instruction| wanted(instruction)).count()
    };
    assert_eq!(count(0, |one| matches!(one, Instruction::SendStart { .. })), 3, "one activation per microbatch");
    // Each reader's gradient goes back on its own.
    assert_eq!(count(1, |one| matches!(one, Instruction::SendStart { .. })), 6);
}

const TIED: &str = "vocab = 17, hidden = 16, heads = 2, sequence = 5, rows = 2";

/// An example whose data are random.
fn tied(devices: u32, schedule: &str) -> Arc<Verified> {
    let text = read(&root().join("examples/tied.pipe")).replace("data \"data/shakespeare.txt\"", "data synthetic");
    altered("tied", &text, (devices, schedule, TIED))
}

#[test]
fn tied_weights_learn_what_one_device_learns() {
    let alone = learn(&tied(1, "1f1b"), None);
    let names: Vec<&str> = alone.2.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"0.embedding.token") && !names.iter().any(|name| name.ends_with("table")), "{names:?}");
    let on_one_device = [(2, "v_half"), (3, "v_zb"), (3, "1f1b_v"), (1, "interleaved_1f1b(chunks = 6)")];
    // Here embedding and head live on two devices or more, which reduce the table's gradient.
    let apart = [(2, "1f1b"), (3, "zb_h1"), (4, "1f1b"), (4, "chimera")];
    for (devices, schedule) in on_one_device.into_iter().chain(apart) {
        let program = tied(devices, schedule);
        assert_eq!(program.program().n_collectives() > 0, apart.contains(&(devices, schedule)), "{schedule}");
        let parameters = program.program().values.iter().filter(|value| value.kind == ValueKind::Parameters);
        let tables = parameters.flat_map(|value| &value.tensors).filter(|slot| slot.ty.shape == [17, 16]);
        assert_eq!(tables.count(), 1, "one table");
        let once = learn(&program, Some(u64::from(devices)));
        assert!(once == learn(&program, Some(9)), "{schedule}: two runs differ");
        // Embedding and head add to the table's gradient one after the other, not as one sum.
        assert!(distance(&once.1, &alone.1) < 1e-5, "{schedule}: {}", distance(&once.1, &alone.1));
    }
}

#[test]
fn fill_waits_for_the_inputs_in_the_graph_and_for_no_others() {
    // Stage 1 begins a branch of its own, so nothing keeps it from starting with stage 0; stage 2 joins both.
    let text = "
        layer start(width) { data drawn: i32[4]  weight table: [8, width] = normal(1)  output gather(table, drawn) }
        layer finish(width) {
            input a
            input b
            data drawn: i32[4]
            weight last: [width, 8] = normal(1)
            loss cross_entropy(matmul(a * b, last), drawn)
        }
        model pair(width = 4) {
            let left = start(width)
            let right = start(width)
            finish(width) from left, right
        }
        schedule x { stages D  place s on s  block every 3 { F[s] fill  BW[s] fill } }
        pipeline p { model pair  devices 3  microbatches 4  schedule x }";
    let found = compiled("test.pipe", text, &Request::default());
    assert!(found.report.ok, "{:#?}", found.diagnostics);
    let schedule = found.analysis.expect("it runs").schedule;
    let starts = |kind| {
        let mut starts: Vec<_> =
            schedule.block.iter().flat_map(|block| &block.slots).filter(|task| task.kind == kind).collect();
        starts.sort_by_key(|task| task.stage);
        starts.into_iter().map(|task| task.slot).collect::<Vec<_>>()
    };
    assert_eq!(starts(TaskKind::Forward), [0, 0, 1]);
    assert_eq!(starts(TaskKind::Backward), [4, 4, 2]);
}
