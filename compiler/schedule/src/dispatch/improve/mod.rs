//! A shorter schedule of a job, in so many steps: what `reorder` does.
//!
//! Few microbatches more than are ever under way are ordered, by all means that there are; the best
//! of those schedules become long again by their steady state, so this costs about the same for
//! every number of microbatches.

mod compact;
mod passes;

use crate::dispatch::backfill::Fill;
use crate::dispatch::job::{Job, Mention, Orders, Time};
use crate::dispatch::random::Random;
use crate::dispatch::round_robin::in_turns;
use crate::dispatch::rule::{Legs, Rule};
pub(crate) use compact::Slots;
use passes::{Kept, Passes, Step, Way};
use pipe_ir::task::TaskKind;

/// Microbatches of the short step beyond one and a half times those under way, and by what it is
/// congruent to the long one.
const MORE: usize = 8;
const CONGRUENT: usize = 4;
/// How many halves of a mean duration before their time forwards may start in passes, and the ways
/// that these go one after the other.
const ADVANCES: [Time; 10] = [4, 5, 6, 7, 8, 9, 10, 12, 3, 2];
const WAYS: [Way; 3] = [Way::FromEnd, Way::FromBegin, Way::FromEnd];
/// The same halves for passes by chance.
const CHANCES: [Time; 9] = [0, 2, 2, 4, 4, 6, 8, 12, 24];
/// Passes by chance.
const PASSES: usize = 300;
/// Forwards leave room for so many activations of later stages, where devices run forwards and backwards in turn.
const SPARE: i64 = 2;

/// The best schedules found, best first. `plain` is a schedule of the job; `slots` are those of its block,
/// if it has one.
pub(crate) fn improved(job: &Job, plain: &Orders, slots: Option<&Slots>, steps: u64) -> Vec<Orders> {
    let step = Step::new(job, short_step(job, plain));
    let mut passes = Passes::new(&step, steps);
    let plain = first(passes.job, plain);
    for orders in slots.iter().flat_map(|slots| slots.compacted(passes.job)) {
        passes.note(orders.clone());
        passes.refill(&orders);
    }
    search(&mut passes, &plain, least(job));
    passes.long().collect()
}

/// Microbatches that are enough for warm-up, a steady state and cool-down.
fn short_step(job: &Job, plain: &Orders) -> usize {
    let under_way = under_way(job, plain);
    let enough = under_way + under_way / 2 + MORE;
    let spare = job.microbatches.saturating_sub(enough);
    enough.min(job.microbatches) + spare % CONGRUENT
}

/// The most microbatches of one stage whose activations are alive at once.
fn under_way(job: &Job, orders: &Orders) -> usize {
    let mut most = 0;
    let mut live = vec![0_usize; job.series.len()];
    for series in orders.iter().flatten().map(|mention| &job.series[job.series_of(*mention).0]) {
        let live = &mut live[series.stage.index()];
        match series.kind {
            TaskKind::Forward => *live += 1,
            TaskKind::BackwardWeight | TaskKind::Backward => *live = live.saturating_sub(1),
            _ => {}
        }
        most = most.max(*live);
    }
    most
}

/// The first microbatches of a schedule of more.
fn first(short: &Job, plain: &Orders) -> Orders {
    let of_device = |order: &Vec<Mention>| {
        let mut counts = short.series.map(|_| 0);
        let is_first = |mention: &&Mention| {
            let count = &mut counts[short.series_of(**mention).0];
            *count += 1;
            *count <= short.microbatches
        };
        order.iter().filter(is_first).copied().collect()
    };
    plain.iter().map(of_device).collect()
}

/// Looks for schedules, until one is as good as any can be.
fn search(passes: &mut Passes<'_>, plain: &Orders, least: (Time, Time)) {
    let job = passes.job;
    let done = |passes: &Passes<'_>| {
        let is_least =
            passes.kept.first().is_some_and(|Kept { merit, .. }| (merit.length, merit.longest_stage) <= least);
        is_least || !passes.goes_on()
    };
    passes.note(plain.clone());
    for spare in 0..SPARE {
        passes.fill_well(|job, fill: &Fill<'_>| in_turns(job, fill, spare));
    }
    passes.fill_well(|_, fill| Some(fill.frame(plain)));
    let legs = Legs::new(job);
    let level = Rule::level(job);
    for advance in ADVANCES {
        let mut orders = plain.clone();
        for way in WAYS {
            if done(passes) {
                return;
            }
            let Some(next) = passes.follow(&orders, way, advance * legs.unit / 2, &level) else { break };
            orders = next;
        }
    }
    let random = &mut Random::new(1);
    for _ in 0..PASSES {
        if done(passes) || passes.kept.is_empty() {
            return;
        }
        let which = random.below(passes.kept.len());
        let from = passes.kept[random.below(which + 1)].orders.clone();
        let way = if random.below(2) == 0 { Way::FromEnd } else { Way::FromBegin };
        let advance = CHANCES[random.below(CHANCES.len())] * legs.unit / 2;
        let mut rule = level.clone();
        for _ in 0..random.below(3) {
            rule.shift(&legs, way == Way::FromEnd, random);
        }
        passes.follow(&from, way, advance, &rule);
    }
}

/// No schedule is shorter, and no longest span.
fn least(job: &Job) -> (Time, Time) {
    let (heads, tails) = (job.heads(), job.tails());
    let mut least = (0, 0);
    for all in &job.on_device {
        let work: Time = all.iter().map(|series| job.least[*series]).sum::<Time>() * job.microbatches as Time;
        let head = all.iter().map(|series| heads[*series]).min().unwrap_or(0);
        let tail = all.iter().map(|series| tails[*series]).min().unwrap_or(0);
        least = (least.0.max(head + work + tail), least.1.max(work));
    }
    least
}
