//! What the search orders. A series holds the tasks of one kind and stage in the order of their
//! microbatches: microbatches are alike, so no schedule gets longer or holds more by taking them in
//! turn. A schedule is then a list of series per device, and the n-th mention of a series is its
//! microbatch n.

pub mod fusion;
mod ids;
pub mod scale;
mod schedules;

use fusion::{Fusion, Part};
pub use ids::{FusionId, Mention, SeriesId, TaskId};
use pipe_ir::ids::{DeviceId, IndexVec, MicrobatchId, StageId};
use pipe_ir::task::TaskKind;

/// Moments and durations of the search: costs without their common divisor, so that no sum of them overflows.
pub type Time = i64;
/// For each device, what it runs, in order.
pub type Orders = IndexVec<DeviceId, Vec<Mention>>;

/// All tasks of one kind and stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskSeries {
    /// Kind of work.
    pub kind: TaskKind,
    /// Of which stage.
    pub stage: StageId,
    /// Where its tasks run; on several devices a task occupies all of them at once.
    pub devices: Vec<DeviceId>,
    /// How long one task takes.
    pub duration: Time,
    /// Memory that a task takes on each of its devices when it starts, or gives back when it ends, if negative.
    pub takes: i64,
    /// Series whose task of the same microbatch must have ended, each with the latency from there.
    pub needs: Vec<(SeriesId, Time)>,
    /// Series that need this one, likewise.
    pub feeds: Vec<(SeriesId, Time)>,
}

/// Series, in an order in which each comes after those that it needs, with the memory that they share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// All series.
    pub series: IndexVec<SeriesId, TaskSeries>,
    /// Series whose tasks of one microbatch may also be one task.
    pub fusions: IndexVec<FusionId, Fusion>,
    /// By series: what its fusion is.
    pub parts: IndexVec<SeriesId, Part>,
    /// By series: no task of it takes less, in whatever form.
    pub least: IndexVec<SeriesId, Time>,
    /// The series of each device, ascending.
    pub on_device: IndexVec<DeviceId, Vec<SeriesId>>,
    /// Tasks of each series.
    pub microbatches: usize,
    /// Memory of each device, in what [`TaskSeries::takes`] counts.
    pub capacity: IndexVec<DeviceId, i64>,
    /// What no schedule that is allowed holds more than: the same, unless how much memory there is was only estimated.
    pub most: IndexVec<DeviceId, i64>,
}

impl Job {
    /// The backwards of some stages as fusions.
    pub fn backwards(
        &self,
        is_wanted: impl Fn(StageId) -> bool,
        duration: impl Fn(StageId) -> Time,
    ) -> IndexVec<FusionId, Fusion> {
        let weights = self.series.iter_ids().filter(|(_, series)| series.kind == TaskKind::BackwardWeight);
        let wanted = weights.filter(|(_, series)| is_wanted(series.stage));
        let fusion = |(second, series): (SeriesId, &TaskSeries)| {
            let (first, _) = *series.needs.first()?;
            Some(Fusion { first, second, duration: duration(series.stage) })
        };
        wanted.filter_map(fusion).collect()
    }

    /// Series whose `feeds` are still to be filled in.
    pub fn of_series(
        mut series: IndexVec<SeriesId, TaskSeries>,
        microbatches: usize,
        capacity: IndexVec<DeviceId, i64>,
    ) -> Self {
        let mut on_device: IndexVec<DeviceId, Vec<SeriesId>> = capacity.map(|_| Vec::new());
        for id in series.ids() {
            series[id].devices.iter().for_each(|device| on_device[*device].push(id));
            for (need, latency) in series[id].needs.clone() {
                series[need].feeds.push((id, latency));
            }
        }
        let job = Self {
            series,
            fusions: IndexVec::default(),
            parts: IndexVec::default(),
            least: IndexVec::default(),
            on_device,
            microbatches,
            most: capacity.clone(),
            capacity,
        };
        job.with_fusions(IndexVec::default())
    }

    /// The same with another number of microbatches.
    pub fn with_microbatches(&self, microbatches: usize) -> Self {
        Self { microbatches, ..self.clone() }
    }

    /// The same with as much memory as any schedule may use that is allowed.
    pub fn relaxed(&self) -> Self {
        Self { capacity: self.most.clone(), ..self.clone() }
    }

    /// This job with memory in another unit: what a task of each series takes, and the capacity of each device.
    #[must_use]
    pub(crate) fn with_memory(mut self, takes: &[i64], capacity: IndexVec<DeviceId, i64>) -> Self {
        for (series, takes) in self.series.iter_mut().zip(takes) {
            series.takes = *takes;
        }
        Self { most: capacity.clone(), capacity, ..self }
    }

    /// This job with durations in slots, by series, and without transfer latencies.
    pub(crate) fn in_slots(&self, durations: &IndexVec<SeriesId, Time>) -> Self {
        let mut job = self.clone();
        for (series, duration) in job.series.iter_mut().zip(durations) {
            series.duration = *duration;
            series.needs.iter_mut().chain(&mut series.feeds).for_each(|(_, latency)| *latency = 0);
        }
        job.least = durations.clone();
        job
    }

    /// The same with time running backwards: what took memory gives it back, and a schedule read from its end is one of
    /// this job.
    pub fn reversed(&self) -> Self {
        let series = |series: &TaskSeries| {
            let needs = series.feeds.iter().map(|(next, latency)| (self.mirrored(*next), *latency)).collect();
            TaskSeries { takes: -series.takes, needs, feeds: Vec::new(), ..series.clone() }
        };
        let all = self.series.iter().rev().map(series).collect();
        let turned = |fusion: &Fusion| Fusion {
            first: self.mirrored(fusion.second),
            second: self.mirrored(fusion.first),
            ..*fusion
        };
        let reversed = Self::of_series(all, self.microbatches, self.capacity.clone());
        let mut reversed = reversed.with_fusions(self.fusions.iter().map(turned).collect());
        // Shares of what both halves take at least are the same, whichever comes first.
        reversed.least = self.least.iter().rev().copied().collect();
        reversed
    }

    /// Which one a series is in the reversed job.
    fn mirrored(&self, series: SeriesId) -> SeriesId {
        SeriesId(self.series.len() as u32 - 1 - series.0)
    }

    /// Orders of the reversed job as orders of this one.
    pub fn turned(&self, orders: &Orders) -> Orders {
        let turned = |mention: &Mention| match *mention {
            Mention::Series(series) => Mention::Series(self.mirrored(series)),
            Mention::Fusion(_) => *mention,
        };
        orders.iter().map(|order| order.iter().rev().map(turned).collect()).collect()
    }

    /// Number of tasks.
    pub fn n_tasks(&self) -> usize {
        self.series.len() * self.microbatches
    }

    /// All microbatches.
    pub fn all_microbatches(&self) -> impl DoubleEndedIterator<Item = MicrobatchId> + use<> {
        (0..self.microbatches as u32).map(MicrobatchId)
    }

    /// The task of a series and microbatch.
    #[inline]
    pub const fn task(&self, series: SeriesId, microbatch: MicrobatchId) -> TaskId {
        TaskId(series.0 * self.microbatches as u32 + microbatch.0)
    }

    /// The series and the microbatch of a task.
    #[inline]
    pub const fn of_task(&self, task: TaskId) -> (SeriesId, MicrobatchId) {
        let microbatches = self.microbatches as u32;
        (SeriesId(task.0 / microbatches), MicrobatchId(task.0 % microbatches))
    }

    /// The most time that a device works on one microbatch: no period is shorter.
    pub fn work(&self) -> Time {
        let work = |all: &Vec<SeriesId>| all.iter().map(|series| self.least[*series]).sum();
        self.on_device.iter().map(work).max().unwrap_or(0)
    }

    /// When the first task of each series can start at the earliest.
    pub fn heads(&self) -> IndexVec<SeriesId, Time> {
        let mut heads = IndexVec::default();
        for series in &self.series {
            let ready = series.needs.iter().map(|(need, latency)| heads[*need] + self.least[*need] + latency);
            heads.push(ready.max().unwrap_or(0));
        }
        heads
    }

    /// The longest way from the end of each series' task to the end of its microbatch.
    pub fn tails(&self) -> IndexVec<SeriesId, Time> {
        let mut tails = self.series.map(|_| 0);
        for (id, series) in self.series.iter_ids().rev() {
            let rest = series.feeds.iter().map(|(next, latency)| latency + self.least[*next] + tails[*next]);
            tails[id] = rest.max().unwrap_or(0);
        }
        tails
    }

    /// Whether every device's order keeps to its memory.
    pub fn fits(&self, orders: &Orders) -> bool {
        orders.iter_ids().all(|(device, order)| self.fits_on(device, order.iter().copied()))
    }

    /// Whether the order of one device keeps to its memory.
    pub fn fits_on(&self, device: DeviceId, mut order: impl Iterator<Item = Mention>) -> bool {
        let mut held = 0;
        order.all(|mention| {
            held += self.takes(mention);
            held <= self.capacity[device]
        })
    }
}
