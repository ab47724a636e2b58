//! Backwards in one task or in two, where a `BW` takes less time or memory than its `B` and `W`: every microbatch of a
//! stage may have either form.
//!
//! The series of a job are those of split backwards. A fusion stands for two of them: where an order
//! mentions it, the next microbatch of both runs in one task. So `B` and `BW` of a stage count
//! together, and a `W` is that of the oldest microbatch whose `B` has run alone. A `W` needs its
//! own `B` only, nobody needs it, and both share their devices: it never waits, and which of
//! several it is changes nothing.

use super::{FusionId, Job, Mention, Orders, SeriesId, Time};
use pipe_ir::ids::{DeviceId, IndexVec, MicrobatchId};
use std::collections::VecDeque;

/// Two series whose tasks of one microbatch may be one. One of them needs only the other, from which
/// nobody else on other devices waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fusion {
    /// The series that comes first: that of `B`, or of `W` where time runs backwards.
    pub first: SeriesId,
    /// The other one.
    pub second: SeriesId,
    /// How long both take at once.
    pub duration: Time,
}

/// What a series is to the fusions of its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Part {
    /// No: it runs as it is.
    #[default]
    Alone,
    /// The first half of this fusion.
    First(FusionId),
    /// The second half of this fusion.
    Second(FusionId),
}

impl Job {
    /// The same, where the tasks of some series may be one.
    #[must_use]
    pub fn with_fusions(mut self, fusions: IndexVec<FusionId, Fusion>) -> Self {
        self.least = self.series.iter().map(|series| series.duration).collect();
        self.parts = self.series.map(|_| Part::Alone);
        for (id, Fusion { first, second, duration }) in fusions.iter_ids() {
            self.parts[*first] = Part::First(id);
            self.parts[*second] = Part::Second(id);
            // In either form, `B` and then `W` of these durations have room in the time that the backward takes.
            self.least[*first] = self.least[*first].min(*duration);
            self.least[*second] = self.least[*second].min(duration - self.least[*first]);
        }
        self.fusions = fusions;
        self
    }

    /// All that an order may mention.
    pub fn mentions(&self) -> impl Iterator<Item = Mention> + use<> {
        self.series.ids().map(Mention::Series).chain(self.fusions.ids().map(Mention::Fusion))
    }

    /// The fusion of which a series is the first half.
    pub fn fusion_from(&self, first: SeriesId) -> Option<FusionId> {
        match self.parts[first] {
            Part::First(fusion) => Some(fusion),
            Part::Second(_) | Part::Alone => None,
        }
    }

    /// The series of which a mention runs a task: the first, and of a fusion the second.
    #[inline]
    pub fn series_of(&self, mention: Mention) -> (SeriesId, Option<SeriesId>) {
        match mention {
            Mention::Series(series) => (series, None),
            Mention::Fusion(fusion) => (self.fusions[fusion].first, Some(self.fusions[fusion].second)),
        }
    }

    /// What a device runs of one microbatch where it holds least of it: `B` and `W` at once where
    /// `B` leaves more than it gives back.
    pub fn turn(&self, device: DeviceId) -> Vec<Mention> {
        self.fused_on(&self.all_on(device), |fusion| self.series[self.fusions[fusion].first].takes > 0)
    }

    fn all_on(&self, device: DeviceId) -> Vec<Mention> {
        self.on_device[device].iter().copied().map(Mention::Series).collect()
    }

    /// One microbatch after the other: where that is something else, at last in the form in which
    /// every device holds least.
    pub fn in_turn(&self) -> Vec<Orders> {
        let repeated = |turn: Vec<Mention>| turn.repeat(self.microbatches);
        let plain = self.on_device.map(|device| repeated(self.all_on(device)));
        let mut forms = vec![plain, self.on_device.map(|device| repeated(self.turn(device)))];
        forms.dedup();
        forms
    }

    /// The memory that a mention takes on each of its devices.
    pub fn takes(&self, mention: Mention) -> i64 {
        let (first, second) = self.series_of(mention);
        self.series[first].takes + second.map_or(0, |second| self.series[second].takes)
    }

    /// How long a mention takes.
    pub fn duration(&self, mention: Mention) -> Time {
        match mention {
            Mention::Series(series) => self.series[series].duration,
            Mention::Fusion(fusion) => self.fusions[fusion].duration,
        }
    }

    /// The same orders with all backwards of some fusions at once, each where its `B` was.
    pub fn fused(&self, orders: &Orders, is_wanted: impl Fn(FusionId) -> bool) -> Orders {
        orders.iter().map(|order| self.fused_on(order, &is_wanted)).collect()
    }

    fn fused_on(&self, order: &[Mention], is_wanted: impl Fn(FusionId) -> bool) -> Vec<Mention> {
        let fused = |mention: &Mention| match *mention {
            Mention::Series(series) => match self.parts[series] {
                Part::First(fusion) if is_wanted(fusion) => Some(Mention::Fusion(fusion)),
                Part::Second(fusion) if is_wanted(fusion) => None,
                _ => Some(*mention),
            },
            Mention::Fusion(_) => Some(*mention),
        };
        order.iter().filter_map(fused).collect()
    }

    /// The same orders with those backwards split that a device runs after all that takes memory,
    /// each `W` right after its `B`: there the next device waits for the gradient, and there is
    /// time enough.
    pub fn split_at_end(&self, orders: &Orders) -> Orders {
        let of_device = |order: &Vec<Mention>| {
            let end = order.iter().rposition(|mention| self.takes(*mention) > 0).map_or(0, |last| last + 1);
            let (begin, end) = order.split_at(end);
            begin.iter().copied().chain(self.split_on(end)).collect()
        };
        orders.iter().map(of_device).collect()
    }

    /// The same orders with all backwards split, each `W` right after its `B`.
    pub fn split(&self, orders: &Orders) -> Orders {
        orders.iter().map(|order| self.split_on(order).collect()).collect()
    }

    fn split_on(&self, order: &[Mention]) -> impl Iterator<Item = Mention> {
        let both = order.iter().map(|mention| self.series_of(*mention));
        both.flat_map(|(first, second)| std::iter::once(first).chain(second)).map(Mention::Series)
    }
}

/// Counts microbatches along orders.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    next: IndexVec<SeriesId, u32>,
    /// By series: microbatches whose first half has run alone, and the second has not.
    halves: IndexVec<SeriesId, VecDeque<MicrobatchId>>,
}

impl Counts {
    pub(crate) fn new(job: &Job) -> Self {
        let halves = if job.fusions.is_empty() { 0 } else { job.series.len() };
        Self { next: job.series.map(|_| 0), halves: vec![VecDeque::new(); halves].into() }
    }

    /// The microbatch of the next mention. `None` for a `W` before its `B`, where either form may be.
    pub(crate) fn next(&mut self, job: &Job, mention: Mention) -> Option<MicrobatchId> {
        let (first, second) = job.series_of(mention);
        let part = job.parts[first];
        let microbatch = MicrobatchId(self.next[first]);
        self.next[first] += 1;
        match (part, second) {
            (Part::Second(_), _) => return self.halves[first].pop_front(),
            (_, Some(second)) => self.next[second] += 1,
            (Part::First(fusion), None) => self.halves[job.fusions[fusion].second].push_back(microbatch),
            _ => {}
        }
        Some(microbatch)
    }

    /// Whether each of some series has had so many tasks.
    pub(crate) fn are_all(&self, series: &[SeriesId], microbatches: usize) -> bool {
        series.iter().all(|one| self.next[*one] as usize == microbatches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::samples::fusing;

    #[test]
    fn forms_of_orders_keep_their_tasks_and_memory() {
        // F0, F1, B1, W1, B0, W0 on one device, and a `BW` for each stage.
        let job = fusing(1, 2, 2, [1, 2, 2, 3], 0);
        let all: Vec<Mention> = job.mentions().collect();
        let [f0, f1, b1, w1, b0, w0, both1, both0] = all[..] else { panic!("{all:?}") };
        let split: Orders = vec![vec![f0, f1, b1, b0, w1, w0, f0, f1, b1, w1, b0, w0]].into();
        let fused = vec![vec![f0, f1, both1, both0, f0, f1, both1, both0]].into();
        let at_end = vec![vec![f0, f1, both1, both0, f0, f1, b1, w1, b0, w0]].into();
        assert_eq!(job.fused(&split, |_| true), fused);
        assert_eq!(job.split_at_end(&fused), at_end);
        assert_eq!(job.fused(&at_end, |_| true), fused);
        let later = job.fused(&split, |fusion| Mention::Fusion(fusion) == both0);
        assert_eq!(later[DeviceId(0)][..6], [f0, f1, b1, both0, w1, f0]);
        assert!([split, fused, at_end].iter().all(|orders| job.fits(orders)));
        let least = [b0, w0].map(|half| job.least[job.series_of(half).0]);
        assert_eq!((job.takes(both0), job.duration(both0), least), (-1, 3, [2, 1]));
    }
}
