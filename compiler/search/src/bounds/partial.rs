//! How short a schedule can still become that begins in some way.

use crate::exact::beam::{Search, State};
use pipe_schedule::dispatch::fusion::Part;
use pipe_schedule::dispatch::job::Time;

/// Room for sums that every state needs.
#[derive(Default)]
pub(crate) struct Room {
    heads: Vec<Time>,
    left: Vec<(Time, Time, Time)>,
}

impl Search<'_> {
    /// No schedule that begins like this is shorter, and the sum of the same over all devices.
    pub(crate) fn bound(&self, state: &State, room: &mut Room) -> (Time, Time) {
        self.heads(state, &mut room.heads);
        let Room { heads, left } = room;
        let (mut longest, mut sum) = (0, 0);
        for (device, lanes) in self.job.on_device.iter().enumerate() {
            let is_left = |lane: &&usize| (state.counts[**lane] as usize) < self.job.microbatches;
            let lanes = || lanes.iter().filter(is_left).map(|lane| (*lane, &self.job.lanes[*lane]));
            // A device without memory first gives some back.
            let full = |takes: i64| takes > 0 && state.held[device] + takes > self.job.capacity[device];
            let releases =
                lanes().filter(|(_, lane)| lane.takes < 0).map(|(index, _)| heads[index] + self.job.least[index]);
            let released = releases.min().unwrap_or(0);
            left.clear();
            for (index, _) in lanes() {
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

    /// What the next task of a lane takes, alone or at once with its other half: a `BW` holds
    /// nothing between its halves.
    fn least_taken(&self, index: usize) -> i64 {
        let takes = self.job.lanes[index].takes;
        match self.job.parts[index] {
            Part::First(fusion) | Part::Second(fusion) => takes.min(self.job.takes(self.job.lanes.len() + fusion)),
            Part::Alone => takes,
        }
    }

    /// The rest of a lane's tasks one by one: the least start, duration and tail of each.
    fn tasks_left(&self, state: &State, index: usize, head: Time) -> impl Iterator<Item = (Time, Time, Time)> {
        let (least, mut free) = (self.job.least[index], head);
        (state.counts[index]..self.job.microbatches as u32).map(move |microbatch| {
            let head = free.max(self.windows.head(index, microbatch));
            free = head + least;
            (head, least, self.windows.tail(index, microbatch))
        })
    }

    /// How long the rest of a lane's tasks take at least. Of backwards that have begun alone, the
    /// other half takes all of its time.
    fn work_left(&self, state: &State, index: usize) -> Time {
        let job = self.job;
        let left = |lane: usize| job.microbatches as Time - Time::from(state.counts[lane]);
        match job.parts[index] {
            Part::Second(fusion) => {
                let first = job.fusions[fusion].first;
                (left(index) - left(first)) * job.lanes[index].duration + left(first) * job.least[index]
            }
            _ => left(index) * job.least[index],
        }
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
            let free = lane
                .devices
                .iter()
                .map(|device| state.free[*device])
                .fold(self.windows.head(index, microbatch), Ord::max);
            let inputs = lane.needs.iter().map(|(need, latency)| {
                let done = state.counts[*need] > microbatch;
                let next = || heads[*need] + self.job.least[*need];
                latency + if done { state.ends[self.slot(*need, microbatch)] } else { next() }
            });
            heads[index] = inputs.fold(free, Ord::max);
        }
    }
}
