//! How long a schedule would be after a move, without timing all of it: the longest way through the
//! tasks that change places, with heads before them and tails behind them as they are now (after
//! Balas and Vazacopoulos, Management Science 44, 1998). For two neighbours that is exact for ways
//! through them; further moves may change heads and tails as well.

use super::Objective;
use super::job::Time;
use super::plan::Plan;

/// Room for the tasks that change places.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    nodes: Vec<u32>,
    heads: Vec<Time>,
    tails: Vec<Time>,
}

impl Plan<'_> {
    /// For every task, the longest way from its end to the end of the schedule, as the schedule is timed.
    pub fn note_tails(&mut self) {
        for place in (0..self.sequence.len()).rev() {
            let node = self.sequence[place];
            self.tails[node as usize] = self.tail(node, None, Time::MIN, |_| None);
        }
    }

    /// The longest way from the end of a task: through the tasks that need it, and on its devices, except one.
    fn tail(&self, node: u32, except: Option<usize>, least: Time, known: impl Fn(u32) -> Option<Time>) -> Time {
        let m = self.job.microbatches;
        let (series, microbatch) = (node as usize / m, node as usize % m);
        let rest = |next: u32| self.duration(next) + known(next).unwrap_or(self.tails[next as usize]);
        let mut tail = least;
        for (next, latency) in &self.job.series[series].feeds {
            tail = tail.max(latency + rest((next * m + microbatch) as u32));
        }
        for (device, place) in self.places_of(node).filter(|(device, _)| Some(*device) != except) {
            tail = tail.max(match self.orders[device].get(place + 1) {
                Some(next) => self.duration(*next) + self.tails[*next as usize],
                None => self.after_last(device),
            });
        }
        tail
    }

    /// What the end of a device's last task adds to the length: where the length counts from the
    /// device's first start, less than nothing.
    fn after_last(&self, device: usize) -> Time {
        match self.objective {
            Objective::Makespan => 0,
            Objective::LongestStage => self.orders[device].first().map_or(0, |first| -self.starts[*first as usize]),
        }
    }

    /// About how long the schedule would be if a task moved to another place of its device's order.
    pub fn estimate(&self, device: usize, from: usize, to: usize, moved: &mut Moved) -> Time {
        let (low, high) = (from.min(to), from.max(to));
        let order = &self.orders[device];
        let Moved { nodes, heads, tails } = moved;
        nodes.clear();
        nodes.extend_from_slice(&order[low..=high]);
        if from < to {
            nodes.rotate_left(1)
        } else {
            nodes.rotate_right(1)
        }
        heads.clear();
        let mut free = if low > 0 { self.end(order[low - 1]) } else { 0 };
        for (index, node) in nodes.iter().enumerate() {
            let known = |need: u32| nodes[..index].iter().position(|other| *other == need);
            let end = |need: u32| known(need).map_or_else(|| self.end(need), |at| heads[at] + self.duration(need));
            let head = self.head(*node, device, free, end);
            heads.push(head);
            free = head + self.duration(*node);
        }
        tails.clear();
        tails.resize(nodes.len(), 0);
        let mut rest = match order.get(high + 1) {
            Some(next) => self.duration(*next) + self.tails[*next as usize],
            None => self.after_last(device),
        };
        let mut longest = Time::MIN;
        for index in (0..nodes.len()).rev() {
            let known =
                |next: u32| Some(tails[index + 1 + nodes[index + 1..].iter().position(|other| *other == next)?]);
            let tail = self.tail(nodes[index], Some(device), rest, known);
            tails[index] = tail;
            rest = self.duration(nodes[index]) + tail;
            longest = longest.max(heads[index] + rest);
        }
        longest
    }

    /// When a task could start after the one before it on a device, with its other devices as they are.
    fn head(&self, node: u32, device: usize, free: Time, end: impl Fn(u32) -> Time) -> Time {
        let m = self.job.microbatches;
        let (series, microbatch) = (node as usize / m, node as usize % m);
        let mut head = free;
        for (need, latency) in &self.job.series[series].needs {
            head = head.max(end((need * m + microbatch) as u32) + latency);
        }
        for (other, place) in self.places_of(node).filter(|(other, place)| *other != device && *place > 0) {
            head = head.max(self.end(self.orders[other][place - 1]));
        }
        head
    }
}
