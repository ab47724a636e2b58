//! The search beside lanes and frozen stages: what it writes is as long as it says, and on small targets no list that
//! there is contradicts its bounds and proofs.

use pipe_compiler::{Compilation, Request};
use pipe_ir::ids::DeviceId;
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::check::check;
use pipe_schedule::check::memory::peaks;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::schedule::{Schedule, ScheduledTask};
use pipe_schedule::timing::timeline::simulate;
use pipe_schedule::units::{Ticks, Units};
use pipe_search::driver::run::Prepared;
use pipe_search::emit::source::{OfPipeline, source};
use pipe_search::{Options, Progress};
use pipe_syntax::source::Sources;
use pipe_tests::cases::{compiled, no_files, prepared};
use pipe_tests::schedules::Dice;
use pipe_tests::slice::drawn;
use pipe_tests::team::team;

const OBJECTIVES: [Objective; 2] = [Objective::Makespan, Objective::LongestStage];

/// A random pipeline over a schedule, with parts on lanes, frozen stages, or both.
fn target(dice: &mut Dice, schedule: &str, [devices, stages, microbatches]: [usize; 3]) -> String {
    let lists = [
        "",
        "lane link parts s = a, x on link, b",
        "lane link parts s = x on link, a, y on link",
        "lane one lane two parts s = a, x on one, y on two, a",
        "lane link parts s = if s == 0 then a, x on link else a, b",
        "parts s = a, b",
    ];
    let last = format!("frozen s if s == {}", stages - 1);
    let frozen = ["", "frozen s if s == 0", &last, "frozen all"];
    let (parts, mut frozen) = (lists[dice.below(lists.len())], frozen[[0, 0, 0, 1, 1, 2, 3][dice.below(7)]]);
    if parts.is_empty() && frozen.is_empty() {
        frozen = "frozen s if s == 0";
    }
    let mut costs = format!("F = {}, B = {}, W = {}", 1 + dice.below(3), 1 + dice.below(3), dice.below(3));
    costs += ["", ", BW = 4", ", comm = 1"][dice.below(3)];
    if parts.contains("x on") {
        costs += &format!(", F.x = {}, B.x = {}", 1 + dice.below(4), dice.below(3));
    }
    if parts.contains(", b") && (stages > 1 || !parts.contains("else")) {
        costs += &format!(", F.b = {}", dice.below(4));
    }
    format!(
        "pipeline test {{ devices {devices} microbatches {microbatches} schedule {schedule} {parts} {frozen} cost {costs} }}"
    )
}

fn length(compilation: &Compilation, objective: Objective) -> Ticks {
    let timeline = &compilation.analysis.as_ref().expect("it was accepted").timeline;
    if objective == Objective::Makespan { timeline.makespan() } else { timeline.longest_stage() }
}

/// Searches, and judges what is written by the ordinary compiler.
fn found(prepared: &Prepared, text: &str, objective: Objective) -> (Progress, Compilation) {
    let options = Options { objective, seed: 1, rounds: 1 };
    let found = prepared.search(options, &team(1, 30), &mut |_| ()).expect("the target itself fits");
    let (source, compilation) = prepared.finish(&found, &mut Sources::default(), &no_files);
    let said: Vec<&str> = compilation.diagnostics.iter().map(|one| one.message.as_str()).collect();
    assert!(compilation.report.ok, "{said:?}\n{text}\n{source}");
    let (claimed, is) = (prepared.problem.ticks(found.length), length(&compilation, objective));
    assert_eq!(is, claimed, "{objective:?}\n{text}\n{source}");
    assert!(prepared.problem.ticks(found.bound) <= is, "{text}\n{source}");
    let peak = |schedule: &Schedule| {
        let order = check(schedule).expect("it is sound");
        peaks(schedule, &order.dependencies).iter().map(|peak| peak.activations).max()
    };
    let written = &compilation.analysis.as_ref().expect("it was accepted").schedule;
    assert!(peak(written) <= peak(&prepared.problem.schedule).max(prepared.problem.memory.iter().max().copied()));
    assert_eq!(written.frozen, prepared.problem.schedule.frozen, "{text}\n{source}");
    (found, compilation)
}

#[test]
fn what_is_written_is_sound_as_long_as_it_says_and_no_longer_than_the_target() {
    let schedules = [("1f1b", 1), ("zb_h1", 1), ("gpipe", 1), ("v_half", 2), ("interleaved_1f1b(chunks = 2)", 2)];
    let mut shorter = 0;
    for seed in 0..drawn(8, 250) as u64 {
        let mut dice = Dice(seed);
        let (schedule, chunks) = schedules[dice.below(schedules.len())];
        let devices = 2 + dice.below(2);
        let text = target(&mut dice, schedule, [devices, devices * chunks, 2 * devices]);
        let objective = OBJECTIVES[dice.below(2)];
        let own = compiled("test.pipe", &text, &Request::default());
        if !own.report.ok {
            continue;
        }
        let prepared = prepared("test.pipe", &text, &Request::default(), objective);
        let (_, compilation) = found(&prepared, &text, objective);
        assert!(length(&compilation, objective) <= length(&own, objective), "{objective:?}\n{text}");
        shorter += usize::from(length(&compilation, objective) < length(&own, objective));
    }
    assert!(shorter > 3, "{shorter} are shorter");
}

/// All lists of a device that keep what must follow each other in one microbatch, and take microbatches in turn.
fn lists(tasks: &[ScheduledTask]) -> Vec<Vec<ScheduledTask>> {
    let comes_before = |one: Task, other: Task, is_earlier: bool| {
        let alike = (one.kind, one.stage) == (other.kind, other.stage);
        let waits = one.microbatch == other.microbatch && is_earlier && one.kind != TaskKind::BackwardWeight;
        alike && one.microbatch < other.microbatch
            || waits && (other.kind != TaskKind::BackwardWeight || one.stage == other.stage)
    };
    fn grow(list: &mut Vec<usize>, before: &[Vec<usize>], all: &mut Vec<Vec<usize>>) {
        if list.len() == before.len() {
            all.push(list.clone());
            return;
        }
        for next in 0..before.len() {
            if !list.contains(&next) && before[next].iter().all(|one| list.contains(one)) {
                list.push(next);
                grow(list, before, all);
                list.pop();
            }
        }
    }
    let before = |other: usize| {
        let all = 0..tasks.len();
        all.filter(|one| comes_before(tasks[*one].task, tasks[other].task, *one < other)).collect()
    };
    let before: Vec<Vec<usize>> = (0..tasks.len()).map(before).collect();
    let mut all = Vec::new();
    grow(&mut Vec::new(), &before, &mut all);
    all.into_iter().map(|list| list.into_iter().map(|task| tasks[task]).collect()).collect()
}

/// The lists of a schedule's devices, one microbatch after the other.
fn own_lists(schedule: &Schedule) -> Vec<Vec<ScheduledTask>> {
    let of_device = |device: usize| {
        let list = schedule.list(DeviceId::from_index(device)).into_iter();
        let mut list: Vec<ScheduledTask> = list.map(|(queue, place)| schedule.orders[queue.index()][place]).collect();
        list.sort_by_key(|one| one.task.microbatch);
        list
    };
    (0..schedule.n_devices()).map(of_device).collect()
}

/// The shortest of all lists with the tasks of a schedule that hold no more than some parts of activations.
fn shortest(prepared: &Prepared, schedule: &Schedule, memory: u64, objective: Objective) -> (usize, Option<Ticks>) {
    let mut combined: Vec<Vec<Vec<ScheduledTask>>> = vec![Vec::new()];
    for list in own_lists(schedule) {
        let all = lists(&list);
        let with = |before: Vec<Vec<ScheduledTask>>| {
            all.iter().map(move |list| [before.clone(), vec![list.clone()]].concat()).collect::<Vec<_>>()
        };
        combined = combined.into_iter().flat_map(with).collect();
    }
    let count = combined.len();
    let of_lists = |lists: Vec<Vec<ScheduledTask>>| {
        let schedule = Schedule { orders: schedule.parts.in_queues(lists), block: None, ..schedule.clone() };
        let order = check(&schedule).ok()?;
        let held = peaks(&schedule, &order.dependencies).iter().map(|peak| peak.activations).max()?;
        let timeline = simulate(&schedule, &order, &prepared.problem.costs);
        let length = if objective == Objective::Makespan { timeline.makespan() } else { timeline.longest_stage() };
        (held <= memory).then_some(length)
    };
    (count, combined.into_iter().filter_map(of_lists).min())
}

/// Lists of backwards at once, and of those in halves.
#[test]
fn no_list_of_a_small_target_contradicts_a_bound_or_a_proof() {
    let (mut judged, mut proved, mut lists) = (0, 0, 0);
    for seed in 0..drawn(24, 600) as u64 {
        let mut dice = Dice(seed);
        let [devices, microbatches] = [[1, 2], [1, 3], [2, 2]][dice.below(3)];
        let text = target(&mut dice, "gpipe", [devices, devices, microbatches]);
        let objective = OBJECTIVES[dice.below(2)];
        let units = Units((1 + dice.below(microbatches) as u64) * Units::UNIT.0);
        let request = Request { memory: Some(MemoryLimit::of_all(units)), ..Request::default() };
        let prepared = prepared("test.pipe", &text, &request, objective);
        let (found, _) = found(&prepared, &text, objective);
        let memory = prepared.problem.memory.iter().max().copied().unwrap_or_default();
        for form in ["gpipe", "zb_h1"] {
            let own = compiled("test.pipe", &text.replace("gpipe", form), &Request::default());
            let schedule = &own.analysis.as_ref().expect("it is accepted").schedule;
            if own_lists(schedule).iter().map(Vec::len).max() > Some(if devices == 1 { 13 } else { 8 }) {
                continue;
            }
            let (count, least) = shortest(&prepared, schedule, memory, objective);
            let Some(least) = least else { continue };
            lists += count;
            judged += 1;
            let bound = prepared.problem.ticks(prepared.problem.bound(&found));
            assert!(bound <= least, "{objective:?} {form}: {bound} is no bound, {least}\n{text}");
            proved += usize::from(prepared.problem.is_proved(&found));
        }
    }
    println!("{judged} comparisons of a target with all lists of a form, {lists} lists, {proved} proved");
    assert!(judged > drawn(12, 300) && 4 * proved > judged, "{judged} judged, {proved} proved");
}

/// The tasks of the only device of a schedule.
fn tasks(text: &str) -> (Schedule, Vec<Task>) {
    let compilation = compiled("test.pipe", text, &Request::default());
    assert!(compilation.report.ok, "{:?}\n{text}", compilation.diagnostics);
    let schedule = compilation.analysis.expect("it was accepted").schedule;
    let tasks = schedule.orders[0].iter().map(|one| one.task).collect();
    (schedule, tasks)
}

/// Lists of stages with several parts of one name mention microbatches only if they have to.
#[test]
fn parts_of_one_name_are_told_apart() {
    for (order, names_microbatches) in [
        ("repeat M { F[d] } repeat M { BW[d] }", false),
        ("repeat M { F.mlp[d] F.mlp[d] } repeat M { B[d] W[d] }", false),
        ("for m in 0..M { F.mlp[d, m] } for m in 0..M { F.mlp[d, m] } repeat M { BW[d] }", true),
        ("repeat M { F[d] } for m in 0..M { B.mlp[d, m] } for m in 0..M { BW.mlp[d, m] W.mlp[d, m] }", true),
        (
            "repeat M { F[d] } for m in 0..M { if m == 1 { B.mlp[d, m] BW.mlp[d, m] } else { BW.mlp[d, m] B.mlp[d, m] }
             W.mlp[d, m] }",
            true,
        ),
    ] {
        let with = |schedule: &str| {
            format!(
                "{schedule} pipeline test {{ devices 1 microbatches 3 schedule own cost F = 1, B = 1, W = 1, BW = 2 }}"
            )
        };
        let text = with(&format!("schedule own {{ stages D place s on s parts s = mlp, mlp order d {{ {order} }} }}"));
        let (schedule, expected) = tasks(&text);
        let written = source(&schedule, "own", "As it was.", &OfPipeline::default());
        assert_eq!(tasks(&with(&written)).1, expected, "{written}");
        assert_eq!(written.contains("[0, 1]"), names_microbatches, "{written}");
    }
}

/// `B` and `BW` of one microbatch count together, and `W` passes over what ran `BW`.
#[test]
fn backwards_of_both_forms_run_different_parts_of_one_name() {
    let order = "repeat M { F[d] } for m in 0..M { B.mlp[d, m] BW.mlp[d, m] W.mlp[d, m] }";
    let text = format!(
        "schedule own {{ stages D place s on s parts s = mlp, mlp order d {{ {order} }} }}
         pipeline test {{ devices 1 microbatches 2 schedule own cost F = 1, B = 1, W = 1 }}"
    );
    let of_first = tasks(&text).1.into_iter().filter(|task| task.microbatch.0 == 0);
    let tasks: Vec<(TaskKind, u32)> = of_first.map(|task| (task.kind, task.stage.0)).collect();
    use TaskKind::{Backward, BackwardInput, BackwardWeight, Forward};
    assert_eq!(tasks, [(Forward, 0), (Forward, 1), (BackwardInput, 1), (Backward, 0), (BackwardWeight, 1)]);
}

/// The pipeline, its schedule or both may declare lanes, parts and frozen stages. What is written declares the rest.
#[test]
fn declarations_of_the_pipeline_are_not_repeated() {
    let order = "order d { repeat M { F[d] } repeat M { BW[d] } }";
    let parts = "parts s = a, x on link, b";
    let frozen = "order d { if d == 0 { repeat M { F[0] F[2] } repeat M { BW[2] } }
                              else { repeat M { F[1] F[3] } repeat M { BW[3] BW[1] } } }";
    let lanes = "cost F = 1, BW = 2, F.x = 2, B.x = 2";
    for (own, of_pipeline) in [
        (format!("stages D place s on s {parts} {order}"), format!("lane link {lanes}")),
        (format!("stages D place s on s lane link {order}"), format!("{parts} {lanes}")),
        (format!("stages D place s on s lane link {parts} {order}"), lanes.to_owned()),
        (format!("stages D place s on s {order}"), format!("lane link {parts} {lanes}")),
        (format!("stages 2 * D place s on s % D frozen s if s == 0 {frozen}"), "frozen s if s == 3".to_owned()),
    ] {
        let text =
            format!("schedule own {{ {own} }} pipeline test {{ devices 2 microbatches 4 schedule own {of_pipeline} }}");
        let prepared = prepared("test.pipe", &text, &Request::default(), Objective::Makespan);
        found(&prepared, &text, Objective::Makespan);
    }
}
