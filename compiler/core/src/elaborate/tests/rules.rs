//! Numbers that depend on the stage, the microbatch and the slice.

use super::{elaborated, errors};
use pipe_ir::ids::{MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::timing::costs::of_stages;
use pipe_schedule::timing::durations::Costs;

/// The costs of a pipeline of two devices with three microbatches, and what is defined before it.
fn costs(definitions: &str, schedule: &str, line: &str) -> Costs {
    let text = format!("{definitions} pipeline p {{ devices 2 microbatches 3 schedule {schedule} {line} }}");
    let found = elaborated(&text, &[]).unwrap_or_else(|errors| panic!("{line}: {errors:#?}"));
    let costs = found.pipeline.expect("a pipeline").costs.expect("costs");
    of_stages(&costs, found.schedule.n_stages())
}

/// What tasks of a kind take, by stage and microbatch, in tenths of a unit.
fn tenths(costs: &Costs, kind: TaskKind) -> Vec<Vec<u64>> {
    let of = |stage: usize, microbatch| {
        let task = Task { kind, stage: StageId::from_index(stage), microbatch: MicrobatchId(microbatch) };
        costs.of_task(task).0 / 100_000
    };
    let of_stage = |stage| (0..3).map(|microbatch| of(stage, microbatch)).collect();
    (0..costs.tasks.len()).map(of_stage).collect()
}

#[test]
fn costs_follow_from_stage_and_microbatch() {
    let find = |line: &str, kind| tenths(&costs("import std.schedules.1f1b", "1f1b", line), kind);
    let forward = TaskKind::Forward;
    assert_eq!(find("cost F[s] = 1 + s / 2", forward), [[10; 3], [15; 3]]);
    assert_eq!(find("cost F[s, m] = [1, 2.5, 4][m] + s", forward), [[10, 25, 40], [20, 35, 50]]);
    // Names are the writer's, and `S`, `D` and `M` are known.
    assert_eq!(find("cost F[stage, i] = S + D + M + 10 * stage + i", forward), [[70, 80, 90], [170, 180, 190]]);
    // A later entry holds, for all that it is about.
    assert_eq!(find("cost F = 7, F[s, m] = m, F[1] = 3", forward), [[0, 10, 20], [30; 3]]);
    assert_eq!(find("cost F[0] = 3, F[s, m] = 1 + m", forward), [[10, 20, 30]; 2]);
    // What follows from other kinds follows by microbatch.
    let line = "cost B[s, m] = 1 + m, W[s, m] = 3 - m, F[s, m] = s + m";
    assert_eq!(find(line, TaskKind::Backward), [[40; 3]; 2]);
    assert_eq!(find(line, TaskKind::Recompute), [[0, 10, 20], [10, 20, 30]]);
    assert_eq!(find("cost BW[s, m] = 2 + 2 * m", TaskKind::BackwardWeight), [[10, 20, 30]; 2]);
}

#[test]
fn the_least_and_the_most_are_those_of_all_microbatches() {
    let found = costs("import std.schedules.1f1b", "1f1b", "cost F[s, m] = [1, 4, 2][m], B = 2");
    assert!(found.differ());
    let of = |find: &dyn Fn(TaskKind, StageId) -> pipe_schedule::units::Ticks| {
        [TaskKind::Forward, TaskKind::BackwardInput].map(|kind| find(kind, StageId(1)).0)
    };
    assert_eq!(of(&|kind, stage| found.of(kind, stage)), [1_000_000, 2_000_000]);
    assert_eq!(of(&|kind, stage| found.most(kind, stage)), [4_000_000, 2_000_000]);
    assert_eq!(found.rows(StageId(1)).len(), 3);
    // Where all are alike, nothing depends on the microbatch.
    assert!(!costs("import std.schedules.1f1b", "1f1b", "cost F[s, m] = 2 + 0 * m").differ());
}

#[test]
fn slices_have_costs_of_their_own() {
    let sliced = "import std.schedules.seq_1f1b";
    let of = |line: &str| {
        let found = costs(sliced, "seq_1f1b(slices = 2)", line);
        let of =
            |at| found.of_task(Task { kind: TaskKind::Forward, stage: StageId(1), microbatch: MicrobatchId(at) }).0;
        [0, 1, 2, 3, 4, 5].map(|at| of(at) / 1_000_000)
    };
    assert_eq!(of("cost F[s, m, q] = 10 * m + q + 1"), [1, 2, 11, 12, 21, 22]);
    assert_eq!(of("cost F[s, m] = 1 + m"), [1, 1, 2, 2, 3, 3]);
}

#[test]
fn pipelines_read_what_files_define() {
    let definitions = "import std.schedules.1f1b
        let tokens = [90, 45, 180]  let heavy(s) = if s == 0 then 1.5 else 1  let width = 4";
    let find = |line: &str| tenths(&costs(definitions, "1f1b", line), TaskKind::Forward);
    assert_eq!(find("cost F[s, m] = heavy(s) * tokens[m] / 90"), [[15, 7, 30], [10, 5, 20]]);
    assert_eq!(find("cost F = width / 8"), [[5; 3]; 2]);
    let text = "import std.models.gpt import std.schedules.1f1b let width = 8 let count = 4
        pipeline p { model gpt(vocab = 8, hidden = 2 * width, heads = 2, blocks = count, sequence = 4, rows = 1)
            devices 2 microbatches count schedule 1f1b }";
    let found = elaborated(text, &[]).expect("names of files are known in a pipeline");
    assert_eq!(found.schedule.n_microbatches, 4);
    assert_eq!(found.pipeline.and_then(|it| it.model).expect("a model").arguments["hidden"].as_whole(), Some(16));
}

#[test]
fn activations_follow_from_the_stage() {
    let of = |line: &str| {
        let text = format!("import std.schedules.1f1b pipeline p {{ devices 4 microbatches 4 schedule 1f1b {line} }}");
        let schedule = elaborated(&text, &[]).unwrap_or_else(|errors| panic!("{errors:#?}")).schedule;
        let whole = schedule.activations.whole as f64;
        (0..4).map(|stage| schedule.activations.of(StageId(stage)).saved as f64 / whole).collect::<Vec<_>>()
    };
    assert_eq!(of("activation F[s] = 1 + s / 4"), [1.0, 1.25, 1.5, 1.75]);
    assert_eq!(of("activation F[s] = 2, F[1] = 1"), [2.0, 1.0, 2.0, 2.0]);
}

#[test]
fn wrong_rules_are_told_at_their_place() {
    let find = |line: &str| {
        let text = format!("import std.schedules.1f1b pipeline p {{ devices 2 microbatches 3 schedule 1f1b {line} }}");
        errors(&text, &[]).remove(0)
    };
    for (line, message, place) in [
        ("cost comm[s] = 1", "`comm` is no kind of task, so it has no stage", "comm[s]"),
        ("cost F[s, m, q, r] = 1", "`F` has a stage, a microbatch and a slice, and here are 4 names", "r"),
        ("cost F[s, s] = 1", "`s` stands for two things in `F[s, s]`", "s"),
        ("cost F[m, s] = 1", "`m` stands for the stage here, and elsewhere for the microbatch", "m"),
        ("cost F[m] = m", "`m` stands for the stage here, and elsewhere for the microbatch", "m"),
        ("cost F[D] = 1", "`D` has a fixed meaning in schedules", "D"),
        ("cost F[s] = 1, F[s, m] = 2", "`cost` gives `F[s, m]` twice", "F[s, m]"),
        ("cost F[s] = [1, 2, 3][s + 2]", "position 3 of a list of 3 numbers: positions are 0 to 2", "s + 2"),
        ("cost F[s] = s - 1", "the result is -1, which is below 0", "s - 1"),
        ("cost F[s] = m", "unknown name `m`", "m"),
        ("activation F[s, m] = 1", "`F[s, m]` has 2 names, but an activation depends only on the stage", "m"),
        ("activation F[s] = 1, F[t] = 2", "`activation` sets `F[t]` twice", "F[t]"),
    ] {
        let (found, at) = find(line);
        assert_eq!((found.as_str(), at.as_str()), (message, place), "{line}");
    }
}
