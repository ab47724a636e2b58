//! Bounds from the memory of one device: how long it is idle in warm-up and cool-down, and how many
//! lifespans it has room for.
//!
//! A stage holds [`Held::saved`] of a microbatch at least from its `F` (or `R`) to the end of its
//! `B` or `BW`, and from there to the end of `W` [`Held::waiting`].

use super::{Chain, Share, times};
use crate::policy::activation::Held;
use crate::units::Ticks;
use pipe_ir::ids::StageId;

/// With k activations, a device can run few tasks before the first activation can be given back,
/// and few after the last forward; the rest of that time is idle. For a V at unit cost this is 6m +
/// 6p - 3k - 1. Forwards of stages that recompute hold nothing, so a device with such a stage may
/// run any number of them.
pub(super) fn warmup(chain: &Chain, stages: &[Share], memory: u64) -> Ticks {
    let room = Room::new(stages, memory);
    let least = |index: usize| Chain::least(stages, |stage| chain.steps(stage)[index].end());
    let (released, input) = (least(3), least(2));
    let backward = Chain::least(stages, |stage| chain.steps(stage)[2].duration);
    let begun = Chain::least(stages, |stage| chain.steps(stage)[2].head);
    let backwards = (released - begun).0.checked_div(backward.0).unwrap_or(u64::MAX);
    let bound = idle(chain, stages, &room, (released, room.before_weights(backwards)));
    if room.part == 0 { bound } else { bound.max(idle(chain, stages, &room, (input, room.whole()))) }
}

/// The bound where at most `held` forwards run before the moment `released`.
fn idle(chain: &Chain, stages: &[Share], room: &Room, (released, held): (Ticks, u64)) -> Ticks {
    let steps = |stage: StageId| chain.steps(stage);
    // Before `released` at most `held` forwards have run, and no backward before its head.
    let backwards = released - Chain::least(stages, |stage| steps(stage)[2].head);
    let forwards = times(Chain::most(stages, |stage| chain.most_forward[stage.index()]), held);
    let begun = released - Chain::least(stages, |stage| steps(stage)[0].head);
    let idle_before = released - (forwards + backwards).min(begun);
    // In the last `drained` no forward runs, so all that runs belongs to what is held then.
    let drained = Chain::least(stages, |stage| steps(stage)[0].tail);
    let idle_after = drained - room.work_left(chain, stages).min(drained);
    let all = |share: &Share| {
        let each = steps(share.stage).map(|step| step.of_all(share.n_microbatches));
        each.into_iter().fold(Ticks::ZERO, |sum, work| sum + work)
    };
    let work = stages.iter().fold(Ticks::ZERO, |sum, share| sum + all(share));
    // Both idle times count where the two windows cannot overlap.
    let one = (work + idle_before).max(work + idle_after);
    if one >= released + drained { work + idle_before + idle_after } else { one }
}

/// What a device has room for.
struct Room {
    memory: u64,
    /// Microbatches of all stages.
    all: u64,
    /// The least that a stage saves, and that waits for its `W`.
    saved: u64,
    waiting: u64,
    /// The most that a `B` gives back.
    part: u64,
}

impl Room {
    fn new(stages: &[Share], memory: u64) -> Self {
        let least = |of: fn(Held) -> u64| stages.iter().map(|share| of(share.held)).min().unwrap_or_default();
        Self {
            memory,
            all: stages.iter().map(|share| share.n_microbatches).sum(),
            saved: least(|held| held.saved),
            waiting: least(|held| held.waiting),
            part: stages.iter().map(|share| share.part).max().unwrap_or_default(),
        }
    }

    /// How often something fits, of all that there is.
    fn times(&self, memory: u64, each: u64) -> u64 {
        memory.checked_div(each).map_or(self.all, |times| times.min(self.all))
    }

    /// Forwards that can run before anything is given back.
    fn whole(&self) -> u64 {
        self.times(self.memory, self.saved)
    }

    /// Forwards that can run before any `W` or `BW` has ended, and at most so many `B`: the last
    /// one holds all that it saves.
    fn before_weights(&self, backwards: u64) -> u64 {
        let Some(rest) = self.memory.checked_sub(self.saved) else { return 0 };
        let given_back = self.part.saturating_mul(backwards);
        let one_after_the_other = self.times(rest, self.waiting).saturating_add(1).min(self.all);
        one_after_the_other.min(self.times(self.memory.saturating_add(given_back), self.saved))
    }

    /// The most that remains to be done of what is held at one moment.
    fn work_left(&self, chain: &Chain, stages: &[Share]) -> Ticks {
        let rest = Chain::most(stages, |stage| chain.most[stage.index()]);
        let whole = times(rest, self.times(self.memory, self.waiting));
        // Of what is held, all of the backward is left, or only `W`: no more than all memory filled
        // with what is longest for its memory.
        let fills = |time: Ticks, each: u64| {
            let ticks = u128::from(time.0) * u128::from(self.memory);
            let most = || times(time, self.all);
            ticks.checked_div(each.into()).map_or_else(most, |ticks| Ticks(u64::try_from(ticks).unwrap_or(u64::MAX)))
        };
        let of_stage = |share: &Share| {
            let (all, weight) = (chain.most[share.stage.index()], chain.most_weight[share.stage.index()]);
            (
                fills(all, share.held.saved).max(fills(weight, share.held.waiting)),
                share.held.saved == 0 || share.held.waiting == 0,
            )
        };
        let each: Vec<(Ticks, bool)> = stages.iter().map(of_stage).collect();
        // What takes no memory comes beside the rest.
        if each.iter().any(|(_, is_free)| *is_free) {
            return whole;
        }
        whole.min(each.into_iter().map(|(ticks, _)| ticks).max().unwrap_or_default())
    }
}

/// Activations times lifespans fit in the device's memory times the time from its first forward on.
pub(super) fn area(chain: &Chain, stages: &[Share], memory: u64) -> Ticks {
    let room = Room::new(stages, memory);
    let both = |share: &Share| [chain.lifespans[share.stage.index()], chain.steps(share.stage)[3].duration];
    let lifespan = |share: &Share| both(share).into_iter().fold(Ticks::ZERO, |sum, part| sum + part);
    let lifespans = stages.iter().fold(Ticks::ZERO, |sum, share| sum + times(lifespan(share), share.n_microbatches));
    let by_count = lifespans.0.div_ceil(room.times(memory, room.waiting).max(1));
    let parts = |sum: u128, share: &Share| {
        let [saved, waiting] = both(share);
        let of_one = wide(saved.0).checked_mul(share.held.saved.into())?;
        let of_one = of_one.checked_add(wide(waiting.0).checked_mul(share.held.waiting.into())?)?;
        sum.checked_add(of_one.checked_mul(share.n_microbatches.into())?)
    };
    let parts = stages.iter().try_fold(0, parts).unwrap_or_default();
    let by_parts = u64::try_from(parts.div_ceil(u128::from(memory).max(1))).unwrap_or(u64::MAX);
    let first = Chain::least(stages, |stage| chain.forward[stage.index()].head);
    first + Ticks(by_count.max(by_parts)) + Chain::least(stages, |stage| chain.weight[stage.index()].tail)
}

fn wide(number: u64) -> u128 {
    number.into()
}
