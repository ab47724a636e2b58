//! What branching may leave out: which schedule is as good after two of its tasks have changed
//! places, or one has moved to the front.

use crate::exact::beam::Search;
use pipe_schedule::dispatch::fusion::Part;
use pipe_schedule::dispatch::job::{FusionId, Mention, SeriesId, TaskSeries, Time};

impl Search<'_> {
    /// Whether tasks are alike that nothing waits for, such as the `W` of two stages of a device,
    /// and the first one could start no later: in a schedule that runs the second one first they
    /// can change places. Not where it counts when each starts.
    pub(crate) fn stands_for(&self, (one, start): (Mention, Time), (other, its_start): (Mention, Time)) -> bool {
        let (Mention::Series(one), Mention::Series(other)) = (one, other) else { return false };
        let (first, second) = (&self.job.series[one], &self.job.series[other]);
        let alike = |series: &TaskSeries| (series.duration, series.takes, series.feeds.is_empty());
        !self.only_complete
            && (start, one) < (its_start, other)
            && first.feeds.is_empty()
            && alike(first) == alike(second)
            && first.devices == second.devices
            && self.windows.same_tail(one).is_some()
            && self.windows.same_tail(one) == self.windows.same_tail(other)
    }

    /// Whether a schedule may need a task later than it could end, though nothing else runs on its
    /// devices before: for the memory, or where the other form of a backward takes its place, which
    /// is not always as good there.
    pub(crate) fn may_wait(&self, mention: Mention) -> bool {
        let job = self.job;
        let is_longer = |half: SeriesId, fusion: FusionId| job.series[half].duration > job.fusions[fusion].duration;
        // The n-th of these halves needs the n-th of other series: none can take the place of a later one.
        let is_bound = |fusion: FusionId| job.series[job.fusions[fusion].second].needs.len() > 1;
        let forms = match mention {
            Mention::Fusion(fusion) => is_bound(fusion),
            Mention::Series(series) => match job.parts[series] {
                Part::First(fusion) => is_longer(job.fusions[fusion].second, fusion),
                Part::Second(fusion) => is_bound(fusion) && is_longer(job.fusions[fusion].first, fusion),
                Part::Alone => false,
            },
        };
        forms || job.takes(mention) > 0
    }
}

#[cfg(test)]
mod tests {
    use crate::exact::beam::{Beam, explore};
    use crate::tests::staged;

    /// A `B` leaves much for a long `W`, and a `BW` is short: the best schedule needs both forms,
    /// also if it is built from its end.
    #[test]
    fn halves_of_a_short_backward_are_not_moved_to_where_both_were() {
        let mut job = staged(&[0, 1], 2, 0, [1, 0, 4], 1);
        job.series.iter_mut().for_each(|series| series.takes = [1, 3, -4, 0, 0, 0][series.kind.index()]);
        job.capacity = vec![5, 8].into();
        let fusions = job.backwards(|_| true, |stage| [3, 1][stage.index()]);
        let job = job.with_fusions(fusions);
        for job in [job.reversed(), job] {
            let beam = Beam { width: 1_000, below: 11, exact: true };
            let explored = explore(&job, &beam, &mut || true);
            assert_eq!((explored.complete, explored.found.map(|(length, _)| length)), (true, Some(10)));
        }
    }
}
