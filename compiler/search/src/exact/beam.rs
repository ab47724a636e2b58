//! Schedules built task by task, from the first on, many at once: a beam that keeps the most
//! promising ones, or, where it keeps all that no other one dominates, a proof that no schedule is
//! shorter.
//!
//! Branching follows Giffler and Thompson (Operations Research 8, 1960): of all tasks that can run
//! next take the one that could end first; on its devices the next task is one that starts before
//! that. Their argument moves a task to the left, which is not always allowed for a task that takes
//! memory: for those there is one branch more, in which its devices first run something else, and
//! start that no earlier.
//!
//! Both forms of a backward are tried. If the task that could end first is a `B` that should run at
//! once with its `W`, it may as well come first, with the `W` in place of both, which takes no
//! longer than they do. Where it does, or where what would come first waits for other devices as
//! well, there is that branch, too ([`crate::exact::dominance`]).

use crate::bounds::head_tail::Windows;
use crate::bounds::partial::Room;
use pipe_ir::ids::{DeviceId, IndexVec, MicrobatchId};
use pipe_schedule::dispatch::job::{Job, Mention, Orders, SeriesId, TaskId, TaskSeries, Time};
use pipe_schedule::dispatch::random::Random;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// States with the same tasks that are kept at most.
const MOST_ALIKE: usize = 400;

/// What a beam did.
pub(crate) struct Explored {
    /// The shortest schedule that was met, if there is one below the limit.
    pub(crate) found: Option<(Time, Orders)>,
    /// Whether nothing was left out, so that there is no shorter one.
    pub(crate) complete: bool,
    /// Where it is complete, no schedule below the limit starts a task earlier.
    pub(crate) earliest: IndexVec<TaskId, Time>,
}

/// How to explore.
pub(crate) struct Beam {
    /// Partial schedules that are kept at each step.
    pub(crate) width: usize,
    /// Only schedules shorter than this are wanted.
    pub(crate) below: Time,
    /// Whether every schedule counts, or only those that are sure to find memory to end in.
    pub(crate) exact: bool,
}

/// A partial schedule, as far as what follows depends on it. The ends of tasks that others still wait for are kept in a
/// ring.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) counts: IndexVec<SeriesId, u32>,
    pub(crate) free: IndexVec<DeviceId, Time>,
    pub(crate) held: IndexVec<DeviceId, i64>,
    pub ends: Vec<Time>,
    /// Series and fusions that must not be next on their devices.
    blocked: Vec<Mention>,
    /// The same for states with the same counts.
    key: u64,
    parent: u32,
    /// The last task.
    mention: Mention,
    bound: Time,
    promise: Time,
}

pub(crate) struct Search<'a> {
    pub job: &'a Job,
    beam: &'a Beam,
    pub(crate) windows: Cow<'a, Windows>,
    ring: usize,
    /// By series: what a task of it adds to the key of a state.
    keys: IndexVec<SeriesId, u64>,
    /// By series: the series that may have to wait for the end of a task of it, and not only for its device.
    waiting: IndexVec<SeriesId, Vec<SeriesId>>,
    /// Whether to end where states had to be left out.
    pub(crate) only_complete: bool,
    /// The earliest start of each task that was met.
    earliest: IndexVec<TaskId, Time>,
}

/// Builds schedules until all tasks are placed. `go_on` may end it early.
pub(crate) fn explore(job: &Job, beam: &Beam, go_on: &mut dyn FnMut() -> bool) -> Explored {
    Search::new(job, beam, Cow::Owned(Windows::wide(job))).run(go_on)
}

/// The same with tasks in windows. Only what is complete counts: where states had to be left out, it ends.
pub(crate) fn explore_within(job: &Job, windows: &Windows, beam: &Beam, go_on: &mut dyn FnMut() -> bool) -> Explored {
    let mut search = Search::new(job, beam, Cow::Borrowed(windows));
    search.only_complete = true;
    search.run(go_on)
}

impl<'a> Search<'a> {
    fn new(job: &'a Job, beam: &'a Beam, windows: Cow<'a, Windows>) -> Self {
        // With a memory limit few microbatches are under way, so few ends are needed.
        let most = usize::try_from(job.capacity.iter().copied().max().unwrap_or(0)).unwrap_or(0);
        let few = most.saturating_mul(4).saturating_add(8).min(job.microbatches);
        let mut random = Random::new(0);
        let keys = job.series.iter().map(|_| random.draw()).collect();
        let ring = if beam.exact { job.microbatches } else { few };
        let waiting = job.series.iter().map(|series| waiting(job, series)).collect();
        let earliest = vec![Time::MAX; job.n_tasks()].into();
        Self { job, beam, windows, ring, keys, waiting, only_complete: false, earliest }
    }

    fn run(mut self, go_on: &mut dyn FnMut() -> bool) -> Explored {
        let mut layer = vec![self.root()];
        let mut history: Vec<Vec<(u32, Mention)>> = Vec::with_capacity(self.job.n_tasks());
        let mut complete = self.beam.exact;
        let mut room = Room::default();
        // States with one task more, and with two.
        let mut children = [Vec::new(), Vec::new()];
        for _ in 0..self.job.n_tasks() {
            for (parent, state) in layer.iter().enumerate() {
                if parent % 64 == 0 && !go_on() {
                    return self.explored(None, false);
                }
                self.expand(state, parent as u32, &mut children, &mut room);
            }
            let [one, two] = children;
            children = [two, Vec::new()];
            let (next, all) = self.select(one, go_on);
            complete &= all;
            if self.only_complete && !complete {
                return self.explored(None, false);
            }
            history.push(next.iter().map(|state| (state.parent, state.mention)).collect());
            layer = next;
            if layer.is_empty() && children[0].is_empty() {
                return self.explored(None, complete);
            }
        }
        let best = layer.iter().enumerate().min_by_key(|(_, state)| self.length(state));
        let found = best.map(|(index, state)| (self.length(state), self.orders(&history, index)));
        self.explored(found, complete)
    }

    fn explored(self, found: Option<(Time, Orders)>, complete: bool) -> Explored {
        Explored { found, complete, earliest: self.earliest }
    }

    fn root(&self) -> State {
        let job = self.job;
        State {
            counts: job.series.map(|_| 0),
            free: job.capacity.map(|_| 0),
            held: job.capacity.map(|_| 0),
            ends: vec![0; job.series.len() * self.ring],
            blocked: Vec::new(),
            key: 0,
            parent: 0,
            mention: Mention::Series(SeriesId(0)),
            bound: 0,
            promise: 0,
        }
    }

    /// How long a whole schedule is.
    fn length(&self, state: &State) -> Time {
        let last = self.job.microbatches as u32 - 1;
        let rest = |series: SeriesId| state.ends[self.slot(series, last)] + self.after(series, last);
        self.job.series.ids().map(rest).max().unwrap_or(0)
    }

    /// What follows the end of a task at least, whether or not its other half has ended with it.
    fn after(&self, series: SeriesId, microbatch: u32) -> Time {
        let second = self.job.fusion_from(series).map(|fusion| self.job.fusions[fusion].second);
        self.windows.tail(self.job.task(series, MicrobatchId(microbatch)))
            - second.map_or(0, |second| self.job.least[second])
    }

    pub(crate) fn slot(&self, series: SeriesId, microbatch: u32) -> usize {
        series.index() * self.ring + microbatch as usize % self.ring
    }

    /// The next task of a series.
    pub(crate) fn next(&self, state: &State, series: SeriesId) -> TaskId {
        self.job.task(series, MicrobatchId(state.counts[series]))
    }

    fn devices(&self, mention: Mention) -> &[DeviceId] {
        &self.job.series[self.job.series_of(mention).0].devices
    }

    /// When the next task of a series or fusion could start, if everything is there that it needs.
    fn start(&self, state: &State, mention: Mention) -> Option<Time> {
        let (first, second) = self.job.series_of(mention);
        let (devices, takes) = (&self.job.series[first].devices, self.job.takes(mention));
        let is_full = || devices.iter().any(|device| state.held[*device] + takes > self.job.capacity[*device]);
        if state.blocked.contains(&mention) || takes > 0 && is_full() {
            return None;
        }
        let mut start = devices.iter().map(|device| state.free[*device]).max().unwrap_or(0);
        for index in std::iter::once(first).chain(second) {
            let (series, microbatch) = (&self.job.series[index], state.counts[index]);
            if microbatch as usize >= self.job.microbatches {
                return None;
            }
            // The ring must not forget an end that another series still waits for.
            if self.waiting[index].iter().any(|next| state.counts[*next] as usize + self.ring <= microbatch as usize) {
                return None;
            }
            // Where both halves run at once, the second one begins as much later as the first one takes at least.
            let before = if index == first { 0 } else { self.job.least[first] };
            start = start.max(self.windows.head(self.next(state, index)) - before);
            for (need, latency) in series.needs.iter().filter(|(need, _)| second.is_none() || *need != first) {
                if state.counts[*need] <= microbatch {
                    return None;
                }
                start = start.max(state.ends[self.slot(*need, microbatch)] + latency);
            }
        }
        Some(start)
    }

    /// Whether the microbatches under way can still end one after the other, the oldest first, after a task.
    fn is_safe(&self, state: &State, next: Mention) -> bool {
        if self.beam.exact || self.job.takes(next) <= 0 {
            return true;
        }
        let (first, second) = self.job.series_of(next);
        let count = |series: SeriesId| state.counts[series] + u32::from(series == first || Some(series) == second);
        let mut held = state.held.clone();
        let mut take = |mention: Mention| {
            let takes = self.job.takes(mention);
            self.devices(mention).iter().all(|device| {
                held[*device] += takes;
                held[*device] <= self.job.capacity[*device]
            })
        };
        let all = || self.job.series.ids();
        let oldest = all().map(count).min().unwrap_or(0);
        let newest = all().map(count).max().unwrap_or(0);
        take(next)
            && (oldest..newest).all(|microbatch| {
                let mut rest = all().filter(|series| count(*series) <= microbatch);
                rest.all(|series| take(Mention::Series(series)))
            })
    }

    fn expand(&mut self, state: &State, parent: u32, children: &mut [Vec<State>; 2], room: &mut Room) {
        let mut state = State { parent, ..state.clone() };
        let job = self.job;
        loop {
            let ready = |mention| Some((mention, self.start(&state, mention)?));
            let mut ready: Vec<(Mention, Time)> = job.mentions().filter_map(ready).collect();
            let all = ready.clone();
            let is_stood_for = |one: &(Mention, Time)| {
                all.iter().any(|other| self.stands_for(*other, *one) && self.is_safe(&state, other.0))
            };
            ready.retain(|one| !is_stood_for(one));
            // Where two could end first, the one that takes no memory leaves one branch less.
            let takes = |mention: Mention| job.takes(mention) > 0;
            let end = |(mention, start): &(Mention, Time)| start + job.duration(*mention);
            let key = |one: &(Mention, Time)| (end(one), takes(one.0), one.0);
            let mut first = ready.iter().copied().min_by_key(key);
            // Few are asked: the question is as long as what is under way.
            while let Some(one) = first.filter(|one| !self.is_safe(&state, one.0)) {
                first = ready.iter().copied().filter(|other| key(other) > key(&one)).min_by_key(key);
            }
            let Some(first) = first else { return };
            let (series, _) = job.series_of(first.0);
            let (devices, ends) = (&job.series[series].devices, end(&first));
            for (mention, start) in ready {
                let (series, second) = job.series_of(mention);
                let shares = || job.series[series].devices.iter().any(|device| devices.contains(device));
                if mention == first.0 || start < ends && shares() && self.is_safe(&state, mention) {
                    let Some(child) = self.child(&mut state, mention, start, room) else { continue };
                    let earliest = &mut self.earliest[job.task(series, MicrobatchId(state.counts[series]))];
                    *earliest = start.min(*earliest);
                    children[usize::from(second.is_some())].push(child);
                }
            }
            if !self.beam.exact || !self.may_wait(first.0) {
                return;
            }
            state.blocked.push(first.0);
            for device in devices {
                state.free[*device] = state.free[*device].max(ends);
            }
            if self.bound(&state, room).0 >= self.beam.below {
                return;
            }
        }
    }

    /// The state after a task more, if it can lead to what is wanted. The one before is the same again afterwards.
    fn child(&self, state: &mut State, mention: Mention, start: Time, room: &mut Room) -> Option<State> {
        let (first, second) = self.job.series_of(mention);
        let (end, takes) = (start + self.job.duration(mention), self.job.takes(mention));
        let all = || std::iter::once(first).chain(second);
        if all().any(|series| end + self.after(series, state.counts[series]) >= self.beam.below) {
            return None;
        }
        let devices = &self.job.series[first].devices;
        let free: Vec<Time> = devices.iter().map(|device| state.free[*device]).collect();
        let mut before = [0; 2];
        for (series, before) in all().zip(&mut before) {
            let slot = self.slot(series, state.counts[series]);
            *before = std::mem::replace(&mut state.ends[slot], end);
            state.counts[series] += 1;
        }
        for device in devices {
            state.free[*device] = end;
            state.held[*device] += takes;
        }
        let (bound, promise) = self.bound(state, room);
        let child = (bound < self.beam.below).then(|| {
            let key = all().fold(state.key, |key, series| key.wrapping_add(self.keys[series]));
            let mut child = State { key, mention, bound, promise, ..state.clone() };
            let stays = |next: &Mention| !self.devices(*next).iter().any(|device| devices.contains(device));
            child.blocked.retain(stays);
            child
        });
        for (device, free) in devices.iter().zip(free) {
            state.free[*device] = free;
            state.held[*device] -= takes;
        }
        for (series, before) in all().zip(before) {
            state.counts[series] -= 1;
            let slot = self.slot(series, state.counts[series]);
            state.ends[slot] = before;
        }
        child
    }

    /// The most promising states that no other one dominates, and whether these are all.
    fn select(&self, mut children: Vec<State>, go_on: &mut dyn FnMut() -> bool) -> (Vec<State>, bool) {
        children.sort_unstable_by(|one, other| {
            let rank = |state: &State| (state.bound, state.promise, state.key, state.parent, state.mention);
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
        let blocked = || one.blocked.iter().all(|next| other.blocked.contains(next));
        no_later(&one.free, &other.free)
            && one.counts == other.counts
            && blocked()
            && self.job.series.ids().all(|index| {
                let last = one.counts[index];
                // Where nobody waits, only the end of the last one counts, for what must follow it.
                let nexts = self.waiting[index].iter().map(|next| one.counts[*next]);
                let from = nexts.min().unwrap_or(last).min(last.saturating_sub(1));
                (from..last).all(|microbatch| {
                    let slot = self.slot(index, microbatch);
                    one.ends[slot] <= other.ends[slot]
                })
            })
    }

    /// The orders of a state of the last layer.
    fn orders(&self, history: &[Vec<(u32, Mention)>], last: usize) -> Orders {
        let mut orders: Orders = self.job.capacity.map(|_| Vec::new());
        let (mut layer, mut index) = (history.len(), last);
        while layer > 0 {
            let (parent, mention) = history[layer - 1][index];
            let (series, second) = self.job.series_of(mention);
            for device in &self.job.series[series].devices {
                orders[*device].push(mention);
            }
            layer -= if second.is_some() { 2 } else { 1 };
            index = parent as usize;
        }
        orders.iter_mut().for_each(|order| order.reverse());
        orders
    }
}

/// The series whose tasks may start later because of a series' task than its device allows.
fn waiting(job: &Job, series: &TaskSeries) -> Vec<SeriesId> {
    let shares = |next: SeriesId| job.series[next].devices.iter().any(|device| series.devices.contains(device));
    series.feeds.iter().filter(|(next, latency)| *latency > 0 || !shares(*next)).map(|(next, _)| *next).collect()
}
