//! Random steps as the search sees them: stages on one device or on several, in a chain or any
//! graph, of which some recompute, with costs of their own, backwards of one form or both, memory
//! that differs by device, and links that differ.

use crate::schedules::{Dice, Size, spread};
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::TaskKind;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::job::{Job, SeriesId};
use pipe_schedule::dispatch::scale::Scale;
use pipe_schedule::policy::activation::{Activations, Held, Shares};
use pipe_schedule::policy::recompute::recomputing;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::latency::Latency;
use pipe_schedule::timing::sharing::Sharing;
use pipe_schedule::units::Ticks;
use pipe_search::Problem;

/// A step, as large as that at most. Memory is counted in activations, of which parts may wait for
/// `W`, or in something smaller, of which halves of a backward leave more or less to each other.
#[must_use]
pub fn random_step(most: Size, dice: &mut Dice) -> Problem {
    let mut drawn = |most: usize| 1 + dice.below(most);
    let size =
        Size { devices: drawn(most.devices), stages: drawn(most.stages), microbatches: drawn(most.microbatches) };
    let is_alike = |schedule: &Schedule| schedule.slices.count() == 1 && schedule.recomputed_microbatches().is_empty();
    let mut schedule =
        std::iter::repeat_with(|| spread(size, dice)).find(is_alike).expect("many have microbatches alike");
    let costs = costs(size, dice);
    let scale = Scale::new(&costs, schedule.n_tasks() * 2);
    let counted = dice.below(3);
    if counted == 1 {
        schedule.activations = shares(size.stages, dice).of(size.stages, &schedule.parts).expect("few parts");
    }
    let job = Job::new(&schedule, &costs, &scale, vec![0; size.devices].into());
    let (mut job, held) = match counted {
        0 => in_parts(job, &schedule, (&costs, &scale), dice),
        _ => (job, schedule.activations.clone()),
    };
    let one_microbatch = |all: &Vec<SeriesId>| {
        let held = all.iter().scan(0, |held, series| {
            *held += job.series[*series].takes;
            Some(*held)
        });
        held.max().unwrap_or(0).max(0)
    };
    let most = 4 * schedule.activations.whole as usize;
    job.capacity = job.on_device.iter().map(|all| one_microbatch(all) + dice.below(most) as i64).collect();
    job.most.clone_from(&job.capacity);
    let memory = job.most.iter().map(|most| most.unsigned_abs()).collect();
    let objective = Objective::Makespan;
    Problem {
        job,
        scale,
        bound: 0,
        schedule,
        costs,
        objective,
        pairs_pay: false,
        ends_with_tasks: true,
        held,
        memory,
        unit: None,
    }
}

/// What activations count, where that differs by stage.
#[must_use]
pub fn shares(n_stages: usize, dice: &mut Dice) -> Shares {
    let mut ratio = |least: usize, most: usize| {
        let below = 1 + dice.below(4);
        format!("{}/{below}", least + dice.below(most * below + 1 - least))
    };
    let entry = |stage: usize| format!("F[{stage}]={},W[{stage}]={}", ratio(1, 2), ratio(0, 1));
    let all: Vec<String> = (0..n_stages).map(entry).collect();
    all.join(",").parse().expect("well-formed")
}

/// Costs of stages that have nothing in common, or take no time for some things.
fn costs(size: Size, dice: &mut Dice) -> Costs {
    let (form, no_weights) = (dice.below(4), dice.below(6) == 0);
    let row = |_| {
        let [forward, input, weight, again] = [5, 6, 5, 6].map(|most| dice.below(most) as u64);
        let weight = if no_weights { weight / 4 } else { weight };
        let both = match form {
            0 => input + weight,
            1 => (input + weight).saturating_sub(1 + dice.below(3) as u64).max(input),
            2 => input + weight + dice.below(3) as u64,
            _ => dice.below((input + weight) as usize + 2) as u64,
        };
        let mut row = [Ticks::ZERO; TaskKind::ALL.len()];
        for (kind, time) in [
            (TaskKind::Forward, forward),
            (TaskKind::BackwardInput, input),
            (TaskKind::BackwardWeight, weight),
            (TaskKind::Backward, both),
            (TaskKind::Recompute, again),
        ] {
            row[kind.index()] = Ticks(time);
        }
        row
    };
    let tasks = (0..size.stages).map(row).collect();
    let mut device = || DeviceId::from_index(dice.below(size.devices));
    let ends = [(device(), device()), (device(), device())];
    let links = ends.map(|(one, other)| (one, other, Ticks(dice.below(4) as u64)));
    let latency = Latency::with_links(Ticks(dice.below(3) as u64), links.into_iter().filter(|link| link.0 != link.1));
    Costs {
        tasks,
        each: Vec::new(),
        pairs: [None; TaskKind::ALL.len()],
        latency,
        copy: Ticks::ZERO,
        swaps: Default::default(),
        sharing: Sharing::default(),
    }
}

/// The same with what `F` saves for `B` and for `W`, what `B` leaves for `W`, and what is kept to
/// recompute from. A backward may then also run at once where that only saves memory. Returns the
/// least that stages hold of a microbatch.
fn in_parts(
    mut job: Job,
    schedule: &Schedule,
    (costs, scale): (&Costs, &Scale),
    dice: &mut Dice,
) -> (Job, Activations) {
    let parts = |_| [3, 3, 5, 3].map(|most| dice.below(most) as i64);
    let parts: Vec<[i64; 4]> = (0..schedule.n_stages()).map(parts).collect();
    let recomputing = recomputing(schedule);
    for series in job.series.iter_mut() {
        let ([for_input, for_weight, deferred, kept], again) =
            (parts[series.stage.index()], recomputing[series.stage.index()]);
        series.takes = match series.kind {
            TaskKind::Forward if again => kept,
            TaskKind::Forward => for_input + for_weight,
            TaskKind::Recompute => for_input + for_weight - kept,
            TaskKind::BackwardInput => deferred - for_input,
            TaskKind::BackwardWeight => -deferred - for_weight,
            TaskKind::Backward | TaskKind::Update => -for_input - for_weight,
        };
    }
    let may_fuse = |stage: StageId| {
        let [for_input, _, deferred, _] = parts[stage.index()];
        deferred > for_input || costs.saved_by_fusing(stage) > Ticks::ZERO
    };
    let fusions = job.backwards(may_fuse, |stage| scale.of(costs.of(TaskKind::Backward, stage)));
    let held = parts.iter().map(|[for_input, for_weight, deferred, _]| {
        let [saved, waiting] = [*for_input, *for_input.min(deferred)].map(|part| (for_weight + part).unsigned_abs());
        Held { saved, waiting }
    });
    (job.with_fusions(fusions), Activations::in_other_parts(held.collect()))
}
