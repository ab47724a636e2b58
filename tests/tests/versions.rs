//! Weights across steps: the versions that tasks read, against Cyclic Data Parallelism (arXiv 2403.08837).

use pipe_compiler::Compilation;
use pipe_compiler::report::Report;
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::schedule::Schedule;
use pipe_syntax::stdlib;
use pipe_tests::blocks::request;
use pipe_tests::cases;
use serde_json::Value;
use std::path::Path;

/// Where the workers of a cycle are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Workers {
    /// All on one device.
    Together,
    /// One on each device.
    Apart,
    /// Nowhere: each stage has a device, through which all microbatches go.
    Stages,
}

const WORKERS: [Workers; 3] = [Workers::Together, Workers::Apart, Workers::Stages];

fn text_of(workers: Workers) -> String {
    let text = stdlib::schedule("cyclic_dp").expect("a standard schedule").to_owned();
    if workers != Workers::Stages {
        return text;
    }
    text.replace("place s, m on m % D", "place s on s")
}

fn compiled(text: String, settings: &[(&str, i64)]) -> Compilation {
    let compilation = cases::compiled("test.pipe", &text, &request(settings));
    assert!(compilation.report.ok, "{:#?} {:#?}", compilation.diagnostics, compilation.our_mistakes);
    compilation
}

fn of_cycle(weights: &str, n: i64, workers: Workers) -> Compilation {
    let devices = if workers == Workers::Together { 1 } else { n };
    let fresh = i64::from(weights == "newest");
    let settings = [("devices", devices), ("workers", n), ("microbatches", n), ("steps", 4), ("fresh", fresh)];
    compiled(text_of(workers), &settings)
}

/// The figures of Cyclic Data Parallelism.
fn figures() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/cyclic_dp.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the figures")).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn tasks_stand_in_the_slots_of_the_published_table() {
    let compilation = of_cycle("newest", 3, Workers::Stages);
    let analysis = compilation.analysis.expect("it runs");
    let block = analysis.schedule.block.as_ref().expect("a block");
    for row in figures()["schedule"]["slot_table_N3"]["rows"].as_array().expect("rows") {
        for stage in 0..3 {
            let slot = row["slot"].as_u64().expect("a slot");
            let expected = row[format!("stage{}", stage + 1)].as_str();
            let device = DeviceId::from_index(stage);
            let at = |task: Task| {
                let first = block.slots.iter().find(|one| one.kind == task.kind && one.stage == task.stage);
                first.expect("a task of the block").slot + u64::from(task.microbatch.0) * block.period
            };
            let order = &analysis.schedule.orders[device.index()];
            let position = order.iter().position(|scheduled| at(scheduled.task) == slot);
            let found = position.map(|position| {
                let task = order[position].task;
                let kind = if task.kind == TaskKind::Forward { "F" } else { "B" };
                format!("{kind}{}@t{}", task.microbatch.0 % 3 + 1, task.microbatch.0 / 3)
            });
            assert_eq!(found.as_deref(), expected, "slot {slot}, stage {stage}");
        }
    }
}

#[test]
fn versions_are_those_of_cyclic_data_parallelism() {
    for case in figures()["schedule"]["cases"].as_array().expect("cases") {
        let n = case["N"].as_i64().expect("a number");
        for (weights, key) in [("previous", "v1"), ("newest", "v2")] {
            for workers in WORKERS {
                let report = of_cycle(weights, n, workers).report;
                let found = report.weights.expect("weights across steps");
                let fresh = &case["fresh_matrix_v2_rows_i_cols_j"];
                for (stage, row) in found.stages.iter().enumerate() {
                    for (microbatch, behind) in row.behind.iter().enumerate() {
                        let is_fresh =
                            u32::try_from(fresh[microbatch][stage].as_u64().expect("0 or 1")).expect("0 or 1");
                        let expected = if weights == "previous" { 1 } else { 1 - is_fresh };
                        assert_eq!(*behind, expected, "{n} {weights} microbatch {microbatch} of stage {stage}");
                    }
                    assert!(row.versions_alive <= 2 && row.staleness_most <= 1);
                }
                let share = if weights == "previous" { 0.0 } else { number(&case["fresh_fraction_v2"]) };
                assert!((found.fresh - share).abs() < 1e-12, "{n} {weights}: {} fresh", found.fresh);
                let alive = &case["live_param_versions"][key];
                let (most, mean) =
                    (number(&alive["stage_versions_live_max"]), number(&alive["stage_versions_live_avg"]));
                assert!((found.versions_alive_mean - mean).abs() < 1e-12, "{n} {weights}: {found:?}");
                if workers != Workers::Together {
                    // On one device a slot of the cycle is as many slots as there are stages, and
                    // none of them is fuller.
                    assert_eq!(found.versions_alive_most as f64, most, "{n} {weights}");
                }
            }
        }
    }
}

/// Activations of single stages alive before each backward that follows a forward: the fullest moment of its slot.
fn alive(schedule: &Schedule) -> Vec<usize> {
    let order = &schedule.orders[0];
    let (mut alive, mut counts) = (0_usize, Vec::new());
    for (position, task) in order.iter().enumerate() {
        if task.task.kind == TaskKind::Forward {
            alive += 1;
            continue;
        }
        if order[position - 1].task.kind == TaskKind::Forward {
            counts.push(alive);
        }
        alive -= 1;
    }
    counts[counts.len() / 4..counts.len() / 2].to_vec()
}

#[test]
fn activations_of_all_workers_are_constant() {
    for case in figures()["schedule"]["cases"].as_array().expect("cases") {
        let n = case["N"].as_i64().expect("a number");
        let compilation = of_cycle("newest", n, Workers::Together);
        // One device: a unit is a microbatch's activations.
        let peak = compilation.report.figures.peak_activation.expect("a peak");
        assert!((peak - number(&case["cdp_single_device_act_in_A"])).abs() < 1e-12, "{n}: {peak}");
        let schedule = &compilation.analysis.expect("it runs").schedule;
        let counts = alive(schedule);
        let most = usize::try_from(n * (n + 1) / 2).expect("small");
        assert!(!counts.is_empty() && counts.iter().all(|count| *count == most), "{n}: {counts:?}");
        let apart = of_cycle("newest", n, Workers::Stages).report;
        for (row, expected) in
            apart.per_device.iter().zip(case["cdp_stage_peak_microbatches"].as_array().expect("peaks"))
        {
            assert_eq!(row.peak_activation, Some(number(expected)), "{n}");
        }
    }
}

#[test]
fn every_stage_is_used_once_in_every_slot() {
    for n in [2, 3, 4, 5, 8_i64] {
        let schedule = of_cycle("newest", n, Workers::Together).analysis.expect("it runs").schedule;
        let workers = usize::try_from(n).expect("small");
        // After the first worker's first pass and before the last one's last, every slot of the cycle is full.
        let steady = &schedule.orders[0];
        let first = warm_up(workers);
        let last = steady.len() - first;
        let full = &steady[first..last];
        assert!(!full.is_empty() && full.len().is_multiple_of(workers), "{n}");
        for slot in full.chunks_exact(workers) {
            let mut stages: Vec<_> = slot.iter().map(|task| task.task.stage.0).collect();
            stages.sort_unstable();
            assert!(stages.into_iter().eq(0..u32::try_from(n).expect("small")), "{n}: {slot:?}");
            assert!(slot.is_sorted_by_key(|task| task.task.kind != TaskKind::Forward), "forwards first");
        }
    }
}

/// Tasks in the slots before all workers are under way: worker i starts in slot 2 i.
fn warm_up(workers: usize) -> usize {
    (0..2 * (workers - 1)).map(|slot| slot / 2 + 1).sum()
}

/// 1F1B without a flush, as PipeDream runs it.
const ASYNCHRONOUS: &str = "schedule pipedream {
    stages D
    place s on s
    weights newest
    block every 3 {
        F[s]  at s
        BW[s] at D + 2 * (D - 1 - s)
    }
}";

#[test]
fn one_microbatch_a_step_reads_what_pipedream_reads() {
    // One update per microbatch: stage s has D - s microbatches under way, and reads a version D - 1 - s updates old.
    for devices in 1..=6_u32 {
        let settings = [("devices", i64::from(devices)), ("microbatches", 1)];
        let compilation = compiled(ASYNCHRONOUS.to_owned(), &settings);
        let weights = compilation.report.weights.as_ref().expect("weights across steps");
        for (stage, row) in weights.stages.iter().enumerate() {
            let behind = devices - 1 - u32::try_from(stage).expect("small");
            assert_eq!(
                (row.behind.as_slice(), row.versions_alive),
                ([behind].as_slice(), behind + 1),
                "{devices} {stage}"
            );
        }
        assert!(compilation.report.valid_for_all_microbatches.expect("proved"));
        let analysis = compilation.analysis.expect("it runs");
        let first = Task { kind: TaskKind::Forward, stage: StageId(0), microbatch: MicrobatchId(0) };
        assert_eq!(analysis.order.position(first), 0);
    }
}

#[test]
fn a_window_has_whole_turns_of_all_versions() {
    let steps = |report: &Report| report.sizes.steps.expect("steps");
    assert_eq!(steps(&compiled(ASYNCHRONOUS.to_owned(), &[("devices", 3), ("microbatches", 1)]).report), 6);
    assert_eq!(steps(&compiled(ASYNCHRONOUS.to_owned(), &[("devices", 3), ("microbatches", 9)]).report), 4);
    let text = ASYNCHRONOUS.replace("newest", "if M > 4 then newest else flush");
    assert_eq!(steps(&compiled(text.clone(), &[("microbatches", 4)]).report), 1);
    assert_eq!(steps(&compiled(text, &[("microbatches", 5)]).report), 4);
}
