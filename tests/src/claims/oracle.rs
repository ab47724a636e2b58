//! Every schedule of a small target: is any shorter than what is said of all of them? Shares
//! nothing with the compiler, and with the search not even what it takes for granted: microbatches
//! may overtake each other, and pairs may share a device.

use super::case::{B, BW, Case, F, W};
use super::order::{Forms, Item, Orders, Run, is_first, is_last, run};
use std::collections::HashSet;

/// What is to be short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// From the first start to the last end.
    Makespan,
    /// The longest time from first start to last end on one device.
    LongestStage,
}

/// Which schedules are looked at.
#[derive(Clone, Debug)]
pub struct Scope {
    /// What is to be short.
    pub goal: Goal,
    /// Forms of backwards.
    pub forms: Forms,
    /// Activations of single stages that each device may hold.
    pub capacity: Vec<usize>,
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// No schedule is shorter.
    None,
    /// These orders are.
    Shorter(Orders),
    /// There are too many schedules.
    TooMany,
}

/// Looks for a schedule that is shorter than a limit, and gives up after so many partial schedules.
#[must_use]
pub fn shorter(case: &Case, scope: &Scope, limit: u64, patience: usize) -> Answer {
    let n = case.stages() * case.parts();
    let mut all = All {
        case,
        scope,
        limit,
        patience,
        seen: HashSet::new(),
        orders: vec![Vec::new(); case.devices],
        tails: (0..case.homes.len()).map(|replica| tails(case, scope, replica)).collect(),
    };
    let state = State {
        forward: vec![NEVER; n],
        back: vec![NEVER; n],
        waits: vec![false; n],
        gradients: vec![0; if case.homes.len() > 1 { case.stages() * case.homes.len() } else { 0 }],
        free: vec![0; case.devices],
        first: vec![NEVER; case.devices],
        held: vec![0; case.devices],
        last: 0,
    };
    if all.visit(&state) {
        return Answer::Shorter(all.orders);
    }
    if all.patience == 0 { Answer::TooMany } else { Answer::None }
}

const NEVER: u64 = u64::MAX;

/// Tasks that have started, in the order of their starts.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    /// By stage and part: the end of `F`.
    forward: Vec<u64>,
    /// The end of `B` or `BW`.
    back: Vec<u64>,
    /// Whether `W` is still to be done.
    waits: Vec<bool>,
    /// By stage and replica, where there are several: when its last gradients were there.
    gradients: Vec<u64>,
    /// When each device is free.
    free: Vec<u64>,
    /// When it started its first task.
    first: Vec<u64>,
    held: Vec<usize>,
    /// The last start.
    last: u64,
}

struct All<'a> {
    case: &'a Case,
    scope: &'a Scope,
    limit: u64,
    patience: usize,
    seen: HashSet<State>,
    orders: Orders,
    /// By replica and stage: what must follow the end of its `F`, and of its `B` or `BW`.
    tails: Vec<Vec<[u64; 2]>>,
}

/// The least that `B` or `BW` of a stage takes.
fn least_back(case: &Case, scope: &Scope, stage: usize) -> u64 {
    let forms = [(scope.forms.split[stage], B), (scope.forms.fused[stage], BW)];
    forms.into_iter().filter(|(may_be, _)| *may_be).map(|(_, kind)| case.time(kind, stage)).min().unwrap_or_default()
}

/// The least that all of the backward of a stage adds to the work of its device, where forwards may share it.
fn least_work(case: &Case, scope: &Scope, stage: usize) -> u64 {
    let longest = case.times.iter().map(|times| times[F]).max().unwrap_or_default();
    let shared = |kind: usize| {
        let pair = case.pairs[usize::from(kind == BW)].map(|pair| pair.saturating_sub(longest));
        pair.map_or(case.time(kind, stage), |pair| pair.min(case.time(kind, stage)))
    };
    let split = scope.forms.split[stage].then(|| shared(B) + case.time(W, stage));
    let fused = scope.forms.fused[stage].then(|| shared(BW));
    split.into_iter().chain(fused).min().unwrap_or_default()
}

fn tails(case: &Case, scope: &Scope, replica: usize) -> Vec<[u64; 2]> {
    let stages = case.stages();
    let latency = |from, to| case.latency(replica * case.slices, from, to);
    let mut tails = vec![[0; 2]; stages];
    for stage in 0..stages {
        let own = if scope.forms.fused[stage] { 0 } else { case.time(W, stage) };
        let onward = stage
            .checked_sub(1)
            .map_or(0, |before| latency(stage, before) + least_back(case, scope, before) + tails[before][1]);
        tails[stage][1] = own.max(onward);
    }
    for stage in (0..stages).rev() {
        let own = least_back(case, scope, stage) + tails[stage][1];
        let onward = if stage + 1 == stages {
            0
        } else {
            latency(stage, stage + 1) + case.time(F, stage + 1) + tails[stage + 1][0]
        };
        tails[stage][0] = own.max(onward);
    }
    tails
}

impl All<'_> {
    fn visit(&mut self, state: &State) -> bool {
        if self.patience == 0 || self.is_long(state) || !self.seen.insert(state.clone()) {
            return false;
        }
        self.patience -= 1;
        let is_done = |index: usize| state.back[index] != NEVER && !state.waits[index];
        if (0..state.back.len()).all(is_done) {
            // Then replicas add up their gradients.
            let is_short = |run: Run| run.makespan < self.limit;
            let is_all = self.case.homes.len() == 1 || self.scope.goal == Goal::LongestStage;
            return is_all || run(self.case, &self.orders).is_some_and(is_short);
        }
        let mut nexts = self.nexts(state);
        if self.scope.goal == Goal::Makespan && nexts.iter().any(|(start, item)| self.ends_late(*start, item)) {
            return false;
        }
        nexts.sort_by_key(|(start, item)| (*start, item.task));
        for (start, item) in nexts {
            let next = self.after(state, start, &item);
            let device = item.device(self.case);
            self.orders[device].push(item);
            if self.visit(&next) {
                return true;
            }
            self.orders[device].pop();
        }
        false
    }

    /// Whether some device works so long from now on that the limit is passed.
    fn is_long(&self, state: &State) -> bool {
        let (case, parts) = (self.case, self.case.parts());
        (0..case.devices).any(|device| {
            let mut left = 0;
            for stage in 0..case.stages() {
                let own = (0..parts).filter(|part| case.place(stage, *part) == device);
                for index in own.map(|part| stage * parts + part) {
                    left += if state.forward[index] == NEVER { case.time(F, stage) } else { 0 };
                    left += if state.back[index] == NEVER { least_work(case, self.scope, stage) } else { 0 };
                    left += if state.waits[index] { case.time(W, stage) } else { 0 };
                }
            }
            let free = if left > 0 { state.free[device].max(state.last) } else { state.free[device] };
            let from = match self.scope.goal {
                Goal::Makespan => 0,
                Goal::LongestStage => state.first[device].min(free),
            };
            free + left - from >= self.limit
        })
    }

    /// Whether a task that must be done, and cannot start before this, lets the step end too late,
    /// in whatever form it is.
    fn ends_late(&self, start: u64, item: &Item) -> bool {
        let [kind, stage, part] = item.task;
        let tails = &self.tails[self.case.replica(part)];
        let rest = match kind {
            _ if item.beside.is_some() => return false,
            F => self.case.time(F, stage) + tails[stage][0],
            W => self.case.time(W, stage),
            _ => least_back(self.case, self.scope, stage) + tails[stage][1],
        };
        start + rest >= self.limit
    }

    /// What can be next, and when, no earlier than the last start. A `W` is that of the part whose `B`
    /// ended first: nothing waits for it, and all take as long. Microbatches of a replica enter the first
    /// stage in their order: they are alike.
    fn nexts(&self, state: &State) -> Vec<(u64, Item)> {
        let (case, stages, parts) = (self.case, self.case.stages(), self.case.parts());
        let replicas = case.homes.len();
        let (mut forwards, mut backs, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for stage in 0..stages {
            let own = |part: usize| stage * parts + part;
            let mut has_entered = vec![false; replicas];
            for part in (0..parts).filter(|part| state.forward[own(*part)] == NEVER) {
                let device = case.place(stage, part);
                let has_room = state.held[device] < self.scope.capacity[device];
                let is_new = stage == 0 && is_first(case, part);
                if !has_room || is_new && std::mem::replace(&mut has_entered[case.replica(part)], true) {
                    continue;
                }
                let before = stage.checked_sub(1).map_or(0, |before| state.forward[before * parts + part]);
                let beside = if is_first(case, part) { 0 } else { state.forward[own(part - 1)] };
                if before != NEVER && beside != NEVER {
                    let hop = if stage == 0 { 0 } else { case.latency(part, stage - 1, stage) };
                    forwards.push((beside.max(before + hop), Item::one(F, stage, part)));
                }
            }
            for part in (0..parts).filter(|part| state.back[own(*part)] == NEVER) {
                let gradient = if stage + 1 == stages { 0 } else { state.back[(stage + 1) * parts + part] };
                let beside = if is_last(case, part) { 0 } else { state.back[own(part + 1)] };
                let forward = state.forward[own(part)];
                if [forward, gradient, beside].contains(&NEVER) {
                    continue;
                }
                let arrived = if stage + 1 == stages { 0 } else { gradient + case.latency(part, stage + 1, stage) };
                for (may_be, kind) in [(self.scope.forms.split[stage], B), (self.scope.forms.fused[stage], BW)] {
                    let ready = forward.max(arrived).max(beside);
                    backs.extend(may_be.then(|| (ready, Item::one(kind, stage, part))));
                }
            }
            for replica in 0..replicas {
                let waiting = (0..parts).filter(|part| case.replica(*part) == replica && state.waits[own(*part)]);
                let first = waiting.min_by_key(|part| state.back[own(*part)]);
                weights.extend(first.map(|part| (state.back[own(part)], Item::one(W, stage, part))));
            }
        }
        let mut all: Vec<(u64, Item)> = forwards.iter().chain(&backs).chain(&weights).copied().collect();
        for (forward, backward) in forwards.iter().flat_map(|forward| backs.iter().map(move |back| (forward, back))) {
            if forward.1.device(case) == backward.1.device(case) {
                let pair = Item { task: forward.1.task, beside: Some(backward.1.task) };
                all.push((forward.0.max(backward.0), pair));
            }
        }
        let start = |(ready, item): (u64, Item)| (ready.max(state.free[item.device(case)]), item);
        // Whoever starts before the last start was there before it.
        all.into_iter().map(start).filter(|(start, _)| *start >= state.last).collect()
    }

    fn after(&self, state: &State, start: u64, item: &Item) -> State {
        let (case, parts) = (self.case, self.case.parts());
        let [kind, stage, part] = item.task;
        let device = item.device(case);
        let duration = match item.beside {
            Some([kind, of, _]) => case.pair(stage, (kind, of)),
            None => case.time(kind, stage),
        };
        let mut next = state.clone();
        let end = start + duration;
        (next.last, next.free[device]) = (start, end);
        if self.scope.goal == Goal::LongestStage {
            next.first[device] = next.first[device].min(start);
        }
        for [kind, stage, part] in std::iter::once([kind, stage, part]).chain(item.beside) {
            let index = stage * parts + part;
            let replica = stage * case.homes.len() + case.replica(part);
            if let Some(gradients) = next.gradients.get_mut(replica).filter(|_| kind == W || kind == BW) {
                *gradients = end.max(*gradients);
            }
            match kind {
                F => {
                    next.forward[index] = end;
                    next.held[device] += 1;
                }
                W => next.waits[index] = false,
                _ => next.back[index] = end,
            }
            next.waits[index] |= kind == B;
            next.held[device] -= usize::from(kind == W || kind == BW);
        }
        next
    }
}
