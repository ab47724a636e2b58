//! Schedules built task by task, from the first on, many at once: a beam that keeps the most promising ones, or, where it
//! keeps all that no other one dominates, a proof that no schedule is shorter.
//!
//! Branching follows Giffler and Thompson (Operations Research 8, 1960): of all tasks that can run next take the one that
//! could end first; on its devices the next task is one that starts before that. Their argument moves a task to the left,
//! which is not always allowed for a task that takes memory: for those there is one branch more, in which its devices
//! first run something else, and start that no earlier.

use super::job::{Job, Lane, Orders, Time};
use super::random::Random;
use super::relax::Relaxed;
use std::collections::BTreeMap;

/// States with the same tasks that are kept at most.
const MOST_ALIKE: usize = 400;

/// What a beam did.
pub(super) struct Explored {
    /// The shortest schedule that was met, if there is one below the limit.
    pub(super) found: Option<(Time, Orders)>,
    /// Whether nothing was left out, so that there is no shorter one.
    pub(super) complete: bool,
}

/// How to explore.
pub(super) struct Beam {
    /// Partial schedules that are kept at each step.
    pub(super) width: usize,
    /// Only schedules shorter than this are wanted.
    pub(super) below: Time,
    /// Whether every schedule counts, or only those that are sure to find memory to end in.
    pub(super) exact: bool,
}

/// A partial schedule, as far as what follows depends on it. The ends of tasks that others still wait for are kept in a
/// ring.
#[derive(Clone)]
struct State {
    counts: Vec<u32>,
    free: Vec<Time>,
    held: Vec<i64>,
    ends: Vec<Time>,
    /// Lanes that must not be next on their devices.
    blocked: Vec<bool>,
    /// The same for states with the same counts.
    key: u64,
    parent: u32,
    lane: u32,
    bound: Time,
    promise: Time,
}

struct Search<'a> {
    job: &'a Job,
    beam: &'a Beam,
    heads: Vec<Time>,
    tails: Vec<Time>,
    ring: usize,
    /// By lane: what a task of it adds to the key of a state.
    keys: Vec<u64>,
}

/// Room for sums that every state needs.
#[derive(Default)]
struct Room {
    heads: Vec<Time>,
    left: Vec<(Time, Time, Time)>,
}

/// Builds schedules until all tasks are placed. `go_on` may end it early.
pub(super) fn explore(job: &Job, beam: &Beam, go_on: &mut dyn FnMut() -> bool) -> Explored {
    Search::new(job, beam, vec![0; job.lanes.len()], job.tails()).run(go_on)
}

/// The same for an easier problem.
pub(super) fn explore_relaxed(relaxed: &Relaxed, beam: &Beam, go_on: &mut dyn FnMut() -> bool) -> Explored {
    let Relaxed { job, heads, tails } = relaxed;
    Search::new(job, beam, heads.clone(), tails.clone()).run(go_on)
}

impl<'a> Search<'a> {
    fn new(job: &'a Job, beam: &'a Beam, heads: Vec<Time>, tails: Vec<Time>) -> Self {
        // With a memory limit few microbatches are under way, so few ends are needed.
        let most = usize::try_from(job.capacity.iter().copied().max().unwrap_or(0)).unwrap_or(0);
        let few = most.saturating_mul(4).saturating_add(8).min(job.microbatches);
        let mut random = Random::new(0);
        let keys = job.lanes.iter().map(|_| random.next()).collect();
        Self { job, beam, heads, tails, ring: if beam.exact { job.microbatches } else { few }, keys }
    }

    fn run(&self, go_on: &mut dyn FnMut() -> bool) -> Explored {
        let mut layer = vec![self.root()];
        let mut history: Vec<Vec<(u32, u32)>> = Vec::with_capacity(self.job.n_tasks());
        let mut complete = self.beam.exact;
        let mut room = Room::default();
        for _ in 0..self.job.n_tasks() {
            let mut children = Vec::new();
            for (parent, state) in layer.iter().enumerate() {
                if parent % 64 == 0 && !go_on() {
                    return Explored { found: None, complete: false };
                }
                self.expand(state, parent as u32, &mut children, &mut room);
            }
            let (next, all) = self.select(children, go_on);
            complete &= all;
            history.push(next.iter().map(|state| (state.parent, state.lane)).collect());
            layer = next;
            if layer.is_empty() {
                return Explored { found: None, complete };
            }
        }
        let best = layer.iter().enumerate().min_by_key(|(_, state)| self.length(state));
        let found = best.map(|(index, state)| (self.length(state), self.orders(&history, index)));
        Explored { found, complete }
    }

    fn root(&self) -> State {
        let (n_lanes, n_devices) = (self.job.lanes.len(), self.job.capacity.len());
        State {
            counts: vec![0; n_lanes],
            free: vec![0; n_devices],
            held: vec![0; n_devices],
            ends: vec![0; n_lanes * self.ring],
            blocked: vec![false; n_lanes],
            key: 0,
            parent: 0,
            lane: 0,
            bound: 0,
            promise: 0,
        }
    }

    /// How long a whole schedule is.
    fn length(&self, state: &State) -> Time {
        let last = |lane: usize| state.ends[self.slot(lane, self.job.microbatches as u32 - 1)] + self.tails[lane];
        (0..self.job.lanes.len()).map(last).max().unwrap_or(0)
    }

    fn slot(&self, lane: usize, microbatch: u32) -> usize {
        lane * self.ring + microbatch as usize % self.ring
    }

    /// When the next task of a lane could start, if everything is there that it needs.
    fn start(&self, state: &State, index: usize) -> Option<Time> {
        let (lane, microbatch) = (&self.job.lanes[index], state.counts[index]);
        if microbatch as usize >= self.job.microbatches || state.blocked[index] {
            return None;
        }
        let over = |device: &usize| lane.takes > 0 && state.held[*device] + lane.takes > self.job.capacity[*device];
        // The ring must not forget an end that another lane still waits for.
        let late = |(next, _): &(usize, Time)| state.counts[*next] as usize + self.ring <= microbatch as usize;
        if lane.devices.iter().any(over) || lane.feeds.iter().any(late) {
            return None;
        }
        let mut start = lane.devices.iter().map(|device| state.free[*device]).fold(self.heads[index], Ord::max);
        for (need, latency) in &lane.needs {
            if state.counts[*need] <= microbatch {
                return None;
            }
            start = start.max(state.ends[self.slot(*need, microbatch)] + latency);
        }
        Some(start)
    }

    /// Whether the microbatches under way can still end one after the other, the oldest first, after a task of a lane.
    fn is_safe(&self, state: &State, next: usize) -> bool {
        if self.beam.exact || self.job.lanes[next].takes <= 0 {
            return true;
        }
        let count = |lane: usize| state.counts[lane] + u32::from(lane == next);
        let mut held = state.held.clone();
        let mut take = |lane: usize| {
            let lane = &self.job.lanes[lane];
            lane.devices.iter().all(|device| {
                held[*device] += lane.takes;
                held[*device] <= self.job.capacity[*device]
            })
        };
        let n_lanes = self.job.lanes.len();
        let oldest = (0..n_lanes).map(count).min().unwrap_or(0);
        let newest = (0..n_lanes).map(count).max().unwrap_or(0);
        take(next) && (oldest..newest).all(|microbatch| (0..n_lanes).all(|lane| count(lane) > microbatch || take(lane)))
    }

    /// Whether tasks are alike that nothing waits for, such as the `W` of two stages of a device, and the first one could
    /// start no later: in a schedule that runs the second one first they can change places.
    fn stands_for(&self, (one, start): (usize, Time), (other, its_start): (usize, Time)) -> bool {
        let (first, second) = (&self.job.lanes[one], &self.job.lanes[other]);
        let alike = |lane: &Lane| (lane.duration, lane.takes, lane.feeds.is_empty());
        (start, one) < (its_start, other)
            && first.feeds.is_empty()
            && alike(first) == alike(second)
            && first.devices == second.devices
            && self.tails[one] == self.tails[other]
    }

    fn expand(&self, state: &State, parent: u32, children: &mut Vec<State>, room: &mut Room) {
        let mut state = State { parent, ..state.clone() };
        loop {
            let ready = |lane| Some((lane, self.start(&state, lane)?));
            let mut ready: Vec<(usize, Time)> = (0..self.job.lanes.len()).filter_map(ready).collect();
            ready.retain(|(lane, _)| self.is_safe(&state, *lane));
            let others = ready.clone();
            ready.retain(|one| !others.iter().any(|other| self.stands_for(*other, *one)));
            // Where two could end first, the one that takes no memory leaves one branch less.
            let takes = |lane: usize| self.job.lanes[lane].takes > 0;
            let end = |(lane, start): &(usize, Time)| start + self.job.lanes[*lane].duration;
            let Some(first) = ready.iter().min_by_key(|one| (end(one), takes(one.0), one.0)).copied() else { return };
            let (devices, ends) = (&self.job.lanes[first.0].devices, end(&first));
            for (lane, start) in ready {
                let shares = || self.job.lanes[lane].devices.iter().any(|device| devices.contains(device));
                if lane == first.0 || start < ends && shares() {
                    children.extend(self.child(&mut state, lane, start, room));
                }
            }
            if !self.beam.exact || !takes(first.0) {
                return;
            }
            state.blocked[first.0] = true;
            for device in devices {
                state.free[*device] = state.free[*device].max(ends);
            }
            if self.bound(&state, room).0 >= self.beam.below {
                return;
            }
        }
    }

    /// The state after a task more, if it can lead to what is wanted. The one before is the same again afterwards.
    fn child(&self, state: &mut State, index: usize, start: Time, room: &mut Room) -> Option<State> {
        let lane = &self.job.lanes[index];
        let (slot, end) = (self.slot(index, state.counts[index]), start + lane.duration);
        let free: Vec<Time> = lane.devices.iter().map(|device| state.free[*device]).collect();
        let before = std::mem::replace(&mut state.ends[slot], end);
        state.counts[index] += 1;
        for device in &lane.devices {
            state.free[*device] = end;
            state.held[*device] += lane.takes;
        }
        let (bound, promise) = self.bound(state, room);
        let child = (bound < self.beam.below).then(|| {
            let key = state.key.wrapping_add(self.keys[index]);
            let mut child = State { key, lane: index as u32, bound, promise, ..state.clone() };
            for own in lane.devices.iter().flat_map(|device| &self.job.on_device[*device]) {
                child.blocked[*own] = false;
            }
            child
        });
        for (device, free) in lane.devices.iter().zip(free) {
            state.free[*device] = free;
            state.held[*device] -= lane.takes;
        }
        state.counts[index] -= 1;
        state.ends[slot] = before;
        child
    }

    /// No schedule that begins like this is shorter, and the sum of the same over all devices.
    fn bound(&self, state: &State, room: &mut Room) -> (Time, Time) {
        self.heads(state, &mut room.heads);
        let Room { heads, left } = room;
        let (mut longest, mut sum) = (0, 0);
        for (device, lanes) in self.job.on_device.iter().enumerate() {
            let is_left = |lane: &&usize| (state.counts[**lane] as usize) < self.job.microbatches;
            let lanes = || lanes.iter().filter(is_left).map(|lane| (*lane, &self.job.lanes[*lane]));
            // A device without memory first gives some back.
            let full = |takes: i64| takes > 0 && state.held[device] + takes > self.job.capacity[device];
            let releases = lanes().filter(|(_, lane)| lane.takes < 0).map(|(index, lane)| heads[index] + lane.duration);
            let released = releases.min().unwrap_or(0);
            left.clear();
            left.extend(lanes().map(|(index, lane)| {
                let head = if full(lane.takes) { heads[index].max(released) } else { heads[index] };
                let rest = self.job.microbatches as Time - Time::from(state.counts[index]);
                (head, rest * lane.duration, self.tails[index])
            }));
            left.sort_unstable();
            let (mut work, mut tail, mut bound) = (0, Time::MAX, state.free[device]);
            for (head, rest, after) in left.iter().rev() {
                work += rest;
                tail = tail.min(*after);
                bound = bound.max(head + work + tail);
            }
            longest = longest.max(bound);
            sum += bound;
        }
        (longest, sum)
    }

    /// When the next task of each lane could start at the earliest.
    fn heads(&self, state: &State, heads: &mut Vec<Time>) {
        heads.clear();
        heads.resize(self.job.lanes.len(), 0);
        for (index, lane) in self.job.lanes.iter().enumerate() {
            let microbatch = state.counts[index];
            if microbatch as usize >= self.job.microbatches {
                continue;
            }
            let free = lane.devices.iter().map(|device| state.free[*device]).fold(self.heads[index], Ord::max);
            let inputs = lane.needs.iter().map(|(need, latency)| {
                let done = state.counts[*need] > microbatch;
                let next = || heads[*need] + self.job.lanes[*need].duration;
                latency + if done { state.ends[self.slot(*need, microbatch)] } else { next() }
            });
            heads[index] = inputs.fold(free, Ord::max);
        }
    }

    /// The most promising states that no other one dominates, and whether these are all.
    fn select(&self, mut children: Vec<State>, go_on: &mut dyn FnMut() -> bool) -> (Vec<State>, bool) {
        children.sort_unstable_by(|one, other| {
            let rank = |state: &State| (state.bound, state.promise, state.key, state.parent, state.lane);
            rank(one).cmp(&rank(other))
        });
        let (mut kept, mut all) = (Vec::new(), true);
        let mut alike: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (index, child) in children.into_iter().enumerate() {
            if index % 64 == 0 && !go_on() {
                return (kept, false);
            }
            let others = alike.entry(child.key).or_default();
            if others.iter().any(|other| self.dominates(&kept[*other as usize], &child)) {
                continue;
            }
            if kept.len() == self.beam.width {
                return (kept, false);
            }
            // Many that do the same take longer to compare than they are worth.
            if others.len() == MOST_ALIKE {
                all = false;
                continue;
            }
            others.push(kept.len() as u32);
            kept.push(child);
        }
        (kept, all)
    }

    /// Whether one state can do everything that another one with the same tasks can, and no later.
    fn dominates(&self, one: &State, other: &State) -> bool {
        let no_later = |one: &[Time], other: &[Time]| one.iter().zip(other).all(|(one, other)| one <= other);
        let blocked = || one.blocked.iter().zip(&other.blocked).all(|(one, other)| !one || *other);
        no_later(&one.free, &other.free)
            && one.counts == other.counts
            && blocked()
            && self.job.lanes.iter().enumerate().all(|(index, lane)| {
                let last = one.counts[index];
                // Where nobody waits, only the end of the last one counts, for what must follow it.
                let nexts = lane.feeds.iter().map(|(next, _)| one.counts[*next]);
                let from = nexts.min().unwrap_or(last).min(last.saturating_sub(1));
                (from..last).all(|microbatch| {
                    let slot = self.slot(index, microbatch);
                    one.ends[slot] <= other.ends[slot]
                })
            })
    }

    /// The orders of a state of the last layer.
    fn orders(&self, history: &[Vec<(u32, u32)>], last: usize) -> Orders {
        let mut orders: Orders = vec![Vec::new(); self.job.capacity.len()];
        let mut index = last;
        for layer in history.iter().rev() {
            let (parent, lane) = layer[index];
            for device in &self.job.lanes[lane as usize].devices {
                orders[*device].push(lane as usize);
            }
            index = parent as usize;
        }
        orders.iter_mut().for_each(|order| order.reverse());
        orders
    }
}
