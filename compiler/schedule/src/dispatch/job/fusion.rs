//! Backwards in one task or in two, where a `BW` takes less time or memory than its `B` and `W`: every microbatch of a
//! stage may have either form.
//!
//! The series of a job are those of split backwards. A fusion stands for two of them: where an order
//! mentions it, the next microbatch of both runs in one task. So `B` and `BW` of a stage count
//! together, and a `W` is that of the oldest microbatch whose `B` has run alone. A `W` needs its
//! own `B` only, nobody needs it, and both share their devices: it never waits, and which of
//! several it is changes nothing.

use super::{Job, Orders, Time};
use std::collections::VecDeque;

/// Two series whose tasks of one microbatch may be one. One of them needs only the other, from which
/// nobody else on other devices waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fusion {
    /// The series that comes first: that of `B`, or of `W` where time runs backwards.
    pub first: usize,
    /// The other one.
    pub second: usize,
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
    First(usize),
    /// The second half of this fusion.
    Second(usize),
}

impl Job {
    /// The same, where the tasks of some series may be one.
    #[must_use]
    pub fn with_fusions(mut self, fusions: Vec<Fusion>) -> Self {
        self.least = self.series.iter().map(|series| series.duration).collect();
        self.parts = vec![Part::Alone; self.series.len()];
        for (index, Fusion { first, second, duration }) in fusions.iter().enumerate() {
            self.parts[*first] = Part::First(index);
            self.parts[*second] = Part::Second(index);
            // In either form, `B` and then `W` of these durations have room in the time that the backward takes.
            self.least[*first] = self.least[*first].min(*duration);
            self.least[*second] = self.least[*second].min(duration - self.least[*first]);
        }
        self.fusions = fusions;
        self
    }

    /// The fusion that an order's mention of a task is, if it is not a series.
    #[must_use]
    pub fn fusion(&self, mention: usize) -> Option<&Fusion> {
        self.fusions.get(mention.checked_sub(self.series.len())?)
    }

    /// How an order mentions a series whose task runs at once with the one that follows it, if that may be.
    pub fn mention(&self, first: usize) -> Option<usize> {
        match self.parts.get(first) {
            Some(Part::First(fusion)) => Some(self.series.len() + fusion),
            _ => None,
        }
    }

    /// The series of which a mention runs a task: the first, and of a fusion the second.
    pub fn series_of(&self, mention: usize) -> (usize, Option<usize>) {
        self.fusion(mention).map_or((mention, None), |fusion| (fusion.first, Some(fusion.second)))
    }

    /// What a device runs of one microbatch where it holds least of it: `B` and `W` at once where
    /// `B` leaves more than it gives back.
    #[must_use]
    pub fn turn(&self, device: usize) -> Vec<usize> {
        let leaves_more = |fusion: usize| self.series[self.fusions[fusion].first].takes > 0;
        let mention = |series: &usize| match self.parts.get(*series) {
            Some(Part::First(fusion)) if leaves_more(*fusion) => Some(self.series.len() + fusion),
            Some(Part::Second(fusion)) if leaves_more(*fusion) => None,
            _ => Some(*series),
        };
        self.on_device[device].iter().filter_map(mention).collect()
    }

    /// One microbatch after the other: where that is something else, at last in the form in which
    /// every device holds least.
    pub fn in_turn(&self) -> Vec<Orders> {
        let repeated = |turns: Vec<Vec<usize>>| -> Orders {
            turns.into_iter().map(|turn| turn.repeat(self.microbatches)).collect()
        };
        let least = (0..self.on_device.len()).map(|device| self.turn(device)).collect();
        let mut forms = vec![repeated(self.on_device.clone()), repeated(least)];
        forms.dedup();
        forms
    }

    /// The memory that a mention takes on each of its devices.
    #[must_use]
    pub fn takes(&self, mention: usize) -> i64 {
        let (first, second) = self.series_of(mention);
        self.series[first].takes + second.map_or(0, |second| self.series[second].takes)
    }

    /// How long a mention takes.
    pub fn duration(&self, mention: usize) -> Time {
        self.fusion(mention).map_or_else(|| self.series[mention].duration, |fusion| fusion.duration)
    }

    /// The same orders with all backwards of some fusions at once, each where its `B` was.
    pub fn fused(&self, orders: &Orders, is_wanted: impl Fn(usize) -> bool) -> Orders {
        let fused = |mention: &usize| match self.parts.get(*mention) {
            Some(Part::First(fusion)) if is_wanted(*fusion) => Some(self.series.len() + fusion),
            Some(Part::Second(fusion)) if is_wanted(*fusion) => None,
            _ => Some(*mention),
        };
        orders.iter().map(|order| order.iter().filter_map(fused).collect()).collect()
    }

    /// The same orders with those backwards split that a device runs after all that takes memory,
    /// each `W` right after its `B`: there the next device waits for the gradient, and there is
    /// time enough.
    pub fn split_at_end(&self, orders: &Orders) -> Orders {
        let of_device = |order: &Vec<usize>| {
            let end = order.iter().rposition(|mention| self.takes(*mention) > 0).map_or(0, |last| last + 1);
            let (begin, end) = order.split_at(end);
            let mut end = self.split(&vec![end.to_vec()]);
            begin.iter().copied().chain(end.pop().unwrap_or_default()).collect()
        };
        orders.iter().map(of_device).collect()
    }

    /// The same orders with all backwards split, each `W` right after its `B`.
    pub fn split(&self, orders: &Orders) -> Orders {
        let both = |mention: &usize| {
            let (first, second) = self.series_of(*mention);
            std::iter::once(first).chain(second)
        };
        orders.iter().map(|order| order.iter().flat_map(both).collect()).collect()
    }
}

/// Counts microbatches along orders.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    next: Vec<usize>,
    /// By series: microbatches whose first half has run alone, and the second has not.
    halves: Vec<VecDeque<usize>>,
}

impl Counts {
    pub(crate) fn new(job: &Job) -> Self {
        let halves = if job.fusions.is_empty() { 0 } else { job.series.len() };
        Self { next: vec![0; job.series.len()], halves: vec![VecDeque::new(); halves] }
    }

    /// The microbatch of the next mention. `None` for a `W` before its `B`, where either form may be.
    pub(crate) fn next(&mut self, job: &Job, mention: usize) -> Option<usize> {
        let (first, second) = job.series_of(mention);
        let part = job.parts[first];
        if matches!(part, Part::Second(_)) {
            self.next[first] += 1;
            return self.halves[first].pop_front();
        }
        let microbatch = self.next[first];
        self.next[first] += 1;
        match (part, second) {
            (_, Some(second)) => self.next[second] += 1,
            (Part::First(fusion), None) => self.halves[job.fusions[fusion].second].push_back(microbatch),
            _ => {}
        }
        Some(microbatch)
    }

    /// Whether each of some series has had so many tasks.
    pub(crate) fn are_all(&self, series: &[usize], microbatches: usize) -> bool {
        series.iter().all(|one| self.next[*one] == microbatches)
    }
}

#[cfg(test)]
mod tests {
    use crate::dispatch::samples::fusing;

    #[test]
    fn forms_of_orders_keep_their_tasks_and_memory() {
        // F0, F1, B1, W1, B0, W0 on one device, and a `BW` for each stage.
        let job = fusing(1, 2, 2, [1, 2, 2, 3], 0);
        let (f0, f1, b1, w1, b0, w0, both1, both0) = (0, 1, 2, 3, 4, 5, 6, 7);
        let split = vec![vec![f0, f1, b1, b0, w1, w0, f0, f1, b1, w1, b0, w0]];
        let fused = vec![vec![f0, f1, both1, both0, f0, f1, both1, both0]];
        let at_end = vec![vec![f0, f1, both1, both0, f0, f1, b1, w1, b0, w0]];
        assert_eq!(job.fused(&split, |_| true), fused);
        assert_eq!(job.split_at_end(&fused), at_end);
        assert_eq!(job.fused(&at_end, |_| true), fused);
        assert_eq!(job.fused(&split, |fusion| fusion == 1)[0][..6], [f0, f1, b1, both0, w1, f0]);
        assert!([split, fused, at_end].iter().all(|orders| job.fits(orders)));
        assert_eq!((job.takes(both0), job.duration(both0), job.least[b0], job.least[w0]), (-1, 3, 2, 1));
    }
}
