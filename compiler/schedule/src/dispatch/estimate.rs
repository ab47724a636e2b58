//! How long a schedule would be after a move, without timing all of it: the longest way through the
//! tasks that change places, with heads before them and tails behind them as they are now (after
//! Balas and Vazacopoulos, Management Science 44, 1998). For two neighbours that is exact for ways
//! through them; further moves may change heads and tails as well.

use super::Objective;
use super::job::{TaskId, Time};
use super::plan::{Move, Plan};
use pipe_ir::ids::DeviceId;

/// Room for the tasks that change places.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    tasks: Vec<TaskId>,
    heads: Vec<Time>,
    tails: Vec<Time>,
}

impl Plan<'_> {
    /// For every task, the longest way from its end to the end of the schedule, as the schedule is timed.
    pub fn note_tails(&mut self) {
        for place in (0..self.sequence.len()).rev() {
            let task = self.sequence[place];
            self.tails[task] = self.tail(task, None, Time::MIN, |_| None);
        }
    }

    /// The longest way from the end of a task: through the tasks that need it, and on its devices, except one.
    fn tail(
        &self,
        task: TaskId,
        except: Option<DeviceId>,
        least: Time,
        known: impl Fn(TaskId) -> Option<Time>,
    ) -> Time {
        let (series, microbatch) = self.job.of_task(task);
        let rest = |next: TaskId| self.duration(next) + known(next).unwrap_or(self.tails[next]);
        let mut tail = least;
        for (next, latency) in &self.job.series[series].feeds {
            tail = tail.max(latency + rest(self.job.task(*next, microbatch)));
        }
        for (device, place) in self.places_of(task).filter(|(device, _)| Some(*device) != except) {
            tail = tail.max(match self.orders[device].get(place + 1) {
                Some(next) => self.duration(*next) + self.tails[*next],
                None => self.after_last(device),
            });
        }
        tail
    }

    /// What the end of a device's last task adds to the length: where the length counts from the
    /// device's first start, less than nothing.
    fn after_last(&self, device: DeviceId) -> Time {
        match self.objective {
            Objective::Makespan => 0,
            Objective::LongestStage => self.orders[device].first().map_or(0, |first| -self.starts[*first]),
        }
    }

    /// About how long the schedule would be if a task moved.
    pub fn estimate(&self, Move { device, from, to }: Move, moved: &mut Moved) -> Time {
        let (low, high) = (from.min(to), from.max(to));
        let order = &self.orders[device];
        let Moved { tasks, heads, tails } = moved;
        tasks.clear();
        tasks.extend_from_slice(&order[low..=high]);
        if from < to {
            tasks.rotate_left(1)
        } else {
            tasks.rotate_right(1)
        }
        heads.clear();
        let mut free = if low > 0 { self.end(order[low - 1]) } else { 0 };
        for (index, task) in tasks.iter().enumerate() {
            let known = |need: TaskId| tasks[..index].iter().position(|other| *other == need);
            let end = |need: TaskId| known(need).map_or_else(|| self.end(need), |at| heads[at] + self.duration(need));
            let head = self.head(*task, device, free, end);
            heads.push(head);
            free = head + self.duration(*task);
        }
        tails.clear();
        tails.resize(tasks.len(), 0);
        let mut rest = match order.get(high + 1) {
            Some(next) => self.duration(*next) + self.tails[*next],
            None => self.after_last(device),
        };
        let mut longest = Time::MIN;
        for index in (0..tasks.len()).rev() {
            let known =
                |next: TaskId| Some(tails[index + 1 + tasks[index + 1..].iter().position(|other| *other == next)?]);
            let tail = self.tail(tasks[index], Some(device), rest, known);
            tails[index] = tail;
            rest = self.duration(tasks[index]) + tail;
            longest = longest.max(heads[index] + rest);
        }
        longest
    }

    /// When a task could start after the one before it on a device, with its other devices as they are.
    fn head(&self, task: TaskId, device: DeviceId, free: Time, end: impl Fn(TaskId) -> Time) -> Time {
        let (series, microbatch) = self.job.of_task(task);
        let mut head = free;
        for (need, latency) in &self.job.series[series].needs {
            head = head.max(end(self.job.task(*need, microbatch)) + latency);
        }
        for (other, place) in self.places_of(task).filter(|(other, place)| *other != device && *place > 0) {
            head = head.max(self.end(self.orders[other][place - 1]));
        }
        head
    }
}
