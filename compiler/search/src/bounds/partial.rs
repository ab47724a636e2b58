//! How short a schedule can still become that begins in some way.

use crate::exact::beam::{Search, State};
use pipe_ir::ids::{IndexVec, MicrobatchId};
use pipe_schedule::dispatch::fusion::Part;
use pipe_schedule::dispatch::job::{Mention, SeriesId, Time};

/// Room for sums that every state needs.
#[derive(Default)]
pub(crate) struct Room {
    heads: IndexVec<SeriesId, Time>,
    left: Vec<(Time, Time, Time)>,
}

impl Search<'_> {
    /// No schedule that begins like this is shorter, and the sum of the same over all devices.
    pub(crate) fn bound(&self, state: &State, room: &mut Room) -> (Time, Time) {
        self.heads(state, &mut room.heads);
        let Room { heads, left } = room;
        let (mut longest, mut sum) = (0, 0);
        for (device, all) in self.job.on_device.iter_ids() {
            let is_left = |series: &&SeriesId| (state.counts[**series] as usize) < self.job.microbatches;
            let all = || all.iter().filter(is_left).map(|series| (*series, &self.job.series[*series]));
            // A device without memory first gives some back.
            let full = |takes: i64| takes > 0 && state.held[device] + takes > self.job.capacity[device];
            let releases =
                all().filter(|(_, series)| series.takes < 0).map(|(index, _)| heads[index] + self.job.least[index]);
            let released = releases.min().unwrap_or(0);
            left.clear();
            for (index, _) in all() {
                let head = if full(self.least_taken(index)) { heads[index].max(released) } else { heads[index] };
                match self.windows.same_tail(index) {
                    Some(tail) => left.push((head, self.work_left(state, index), tail)),
                    None => left.extend(self.tasks_left(state, index, head)),
                }
            }
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

    /// What the next task of a series takes, alone or at once with its other half: a `BW` holds
    /// nothing between its halves.
    fn least_taken(&self, index: SeriesId) -> i64 {
        let takes = self.job.series[index].takes;
        match self.job.parts[index] {
            Part::First(fusion) | Part::Second(fusion) => takes.min(self.job.takes(Mention::Fusion(fusion))),
            Part::Alone => takes,
        }
    }

    /// The rest of a series' tasks one by one: the least start, duration and tail of each.
    fn tasks_left(&self, state: &State, index: SeriesId, head: Time) -> impl Iterator<Item = (Time, Time, Time)> {
        let (least, mut free) = (self.job.least[index], head);
        (state.counts[index]..self.job.microbatches as u32).map(move |microbatch| {
            let task = self.job.task(index, MicrobatchId(microbatch));
            let head = free.max(self.windows.head(task));
            free = head + least;
            (head, least, self.windows.tail(task))
        })
    }

    /// How long the rest of a series' tasks take at least. Of backwards that have begun alone, the
    /// other half takes all of its time.
    fn work_left(&self, state: &State, index: SeriesId) -> Time {
        let job = self.job;
        let left = |series: SeriesId| job.microbatches as Time - Time::from(state.counts[series]);
        match job.parts[index] {
            Part::Second(fusion) => {
                let first = job.fusions[fusion].first;
                (left(index) - left(first)) * job.series[index].duration + left(first) * job.least[index]
            }
            _ => left(index) * job.least[index],
        }
    }

    /// When the next task of each series could start at the earliest.
    fn heads(&self, state: &State, heads: &mut IndexVec<SeriesId, Time>) {
        heads.clear();
        heads.resize(self.job.series.len(), 0);
        for (index, series) in self.job.series.iter_ids() {
            let microbatch = state.counts[index];
            if microbatch as usize >= self.job.microbatches {
                continue;
            }
            let free = series
                .devices
                .iter()
                .map(|device| state.free[*device])
                .fold(self.windows.head(self.next(state, index)), Ord::max);
            let inputs = series.needs.iter().map(|(need, latency)| {
                let done = state.counts[*need] > microbatch;
                let next = || heads[*need] + self.job.least[*need];
                latency + if done { state.ends[self.slot(*need, microbatch)] } else { next() }
            });
            heads[index] = inputs.fold(free, Ord::max);
        }
    }
}
