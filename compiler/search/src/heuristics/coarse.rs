//! A pipeline with half the devices: pairs of stages become one, pairs of devices too, for half the
//! microbatches. What is urgent there is urgent here, so rules are found where they are cheap and
//! carried over, as multigrid methods do.

use pipe_ir::ids::{DeviceId, IndexVec, StageId};
use pipe_ir::task::TaskKind;
use pipe_schedule::dispatch::fusion::Fusion;
use pipe_schedule::dispatch::job::{FusionId, Job, SeriesId, TaskSeries, Time};
use pipe_schedule::dispatch::rule::{AT_ONCE, Legs, Rule};

/// The fewest devices that are worth halving.
const FEWEST: usize = 8;

/// A job with half the devices.
#[derive(Clone, Debug)]
pub(crate) struct Coarse {
    pub job: Job,
    /// By series of the larger job: its series of the smaller one.
    series: IndexVec<SeriesId, SeriesId>,
    /// The same for fusions.
    fusions: IndexVec<FusionId, FusionId>,
}

/// A job with half the devices, if stages and devices come in pairs.
pub(crate) fn coarser(job: &Job) -> Option<Coarse> {
    let n_devices = job.capacity.len();
    if n_devices < FEWEST || !n_devices.is_multiple_of(2) || job.microbatches < 2 {
        return None;
    }
    let key = |series: &TaskSeries| (series.kind, series.stage.index() / 2);
    let mut keys: Vec<(TaskKind, usize)> = Vec::new();
    let mut series_of = IndexVec::default();
    for series in &job.series {
        let index = keys.iter().position(|known| *known == key(series)).unwrap_or(keys.len());
        if index == keys.len() {
            keys.push(key(series));
        }
        series_of.push(SeriesId::from_index(index));
    }
    let small = (0..keys.len()).map(|index| paired(job, &series_of, SeriesId::from_index(index)));
    let small: IndexVec<_, _> = small.collect::<Option<_>>()?;
    let [low, high] = [0, 1].map(|first| job.capacity.iter().skip(first).step_by(2));
    let capacity = low.zip(high).map(|(one, other)| (one + other) / 4).collect();
    let small = Job::of_series(small, job.microbatches / 2, capacity);
    let (fused, fusions) = paired_fusions(job, &series_of);
    Some(Coarse { job: small.with_fusions(fused), series: series_of, fusions })
}

/// One series for two, on one device for two.
fn paired(job: &Job, series_of: &IndexVec<SeriesId, SeriesId>, own: SeriesId) -> Option<TaskSeries> {
    let members: Vec<&TaskSeries> =
        series_of.iter().zip(&job.series).filter(|of| *of.0 == own).map(|of| of.1).collect();
    let [one, other] = members[..] else { return None };
    let (&[DeviceId(device)], &[DeviceId(beside)]) = (&one.devices[..], &other.devices[..]) else { return None };
    let mut needs: Vec<(SeriesId, Time)> =
        one.needs.iter().chain(&other.needs).map(|(need, latency)| (series_of[*need], *latency)).collect();
    needs.retain(|(need, _)| *need != own);
    needs.sort_unstable_by_key(|(need, latency)| (*need, -latency));
    needs.dedup_by_key(|(need, _)| *need);
    // Series must come after those that they need.
    let is_sound = device != beside && device / 2 == beside / 2 && needs.iter().all(|(need, _)| *need < own);
    is_sound.then(|| TaskSeries {
        kind: one.kind,
        stage: StageId::from_index(one.stage.index() / 2),
        devices: vec![DeviceId(device / 2)],
        duration: (one.duration + other.duration) / 2,
        takes: (one.takes + other.takes) / 2,
        needs,
        feeds: Vec::new(),
    })
}

/// The fusions of the smaller job, and which of them each of the larger one is.
fn paired_fusions(
    job: &Job,
    series_of: &IndexVec<SeriesId, SeriesId>,
) -> (IndexVec<FusionId, Fusion>, IndexVec<FusionId, FusionId>) {
    let mut fusions: IndexVec<FusionId, Fusion> = IndexVec::default();
    let mut places = IndexVec::default();
    for fusion in &job.fusions {
        let (first, second) = (series_of[fusion.first], series_of[fusion.second]);
        let known = fusions.ids().find(|known| fusions[*known].first == first);
        if let Some(known) = known {
            fusions[known].duration = (fusions[known].duration + fusion.duration) / 2;
        }
        places.push(known.unwrap_or_else(|| fusions.push(Fusion { first, second, duration: fusion.duration })));
    }
    (fusions, places)
}

impl Coarse {
    /// A rule of the smaller job as one of the larger: twice as long, and between two devices in between.
    pub(crate) fn finer(&self, job: &Job, rule: &Rule) -> Rule {
        let legs = Legs::new(&self.job);
        let between = |values: &IndexVec<SeriesId, Time>, series: SeriesId| {
            let own = self.series[series];
            let (leg, place) = legs.place[own];
            let leg = &legs.series[leg];
            let is_first = job.series[series].devices[0].0.is_multiple_of(2);
            let beside = if is_first { place.saturating_sub(1) } else { (place + 1).min(leg.len() - 1) };
            (values[own], values[leg[beside]])
        };
        let rank = |series: SeriesId| {
            let (own, beside) = between(&rule.ranks, series);
            (3 * own + beside) / 2
        };
        let hold = |series: SeriesId| match between(&rule.hold, series) {
            (AT_ONCE, _) | (_, AT_ONCE) => AT_ONCE,
            (own, beside) => (3 * own + beside) / 2,
        };
        Rule {
            ranks: job.series.map(rank),
            spare: job.series.map(|series| 2 * rule.spare[self.series[series]]),
            hold: job.series.map(hold),
            wait: rule.wait,
            fused: self.fusions.iter().map(|fusion| rule.fused[*fusion]).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{fusing, staged, v};
    use pipe_schedule::dispatch::Objective;
    use pipe_schedule::dispatch::list::Dispatch;
    use pipe_schedule::dispatch::random::Random;

    #[test]
    fn half_a_v_is_a_v_and_its_rules_are_some_of_the_whole() {
        let place: Vec<usize> = (0..8).collect();
        for (whole, half) in [
            (v(8, 16, 8, [1, 1, 1], 0), v(4, 8, 4, [1, 1, 1], 0)),
            (v(8, 12, 16, [4, 6, 2], 3), v(4, 6, 8, [4, 6, 2], 3)),
            (fusing(8, 8, 8, [2, 3, 2, 4], 1), fusing(4, 4, 4, [2, 3, 2, 4], 1)),
            (staged(&place, 8, 8, [1, 2, 1], 1), staged(&place[..4], 4, 4, [1, 2, 1], 1)),
        ] {
            let coarse = coarser(&whole).expect("devices come in pairs");
            assert_eq!(coarse.job, half);
            let random = &mut Random::new(1);
            let rules = std::iter::repeat_with(|| Rule::random(&half, &Legs::new(&half), random)).take(40);
            let finer = rules.map(|rule| coarse.finer(&whole, &rule));
            let mut dispatch = Dispatch::new(&whole, Objective::Makespan);
            let fitting = finer.filter_map(|rule| dispatch.orders(&rule)).filter(|orders| whole.fits(orders)).count();
            assert!(fitting > 10, "{fitting}");
            assert!(coarser(&half).is_none());
        }
        let odd: Vec<usize> = (0..9).collect();
        assert!(coarser(&staged(&odd, 8, 8, [1, 1, 1], 0)).is_none());
        // Stages 1 and 2 lie on devices that are no pair.
        assert!(coarser(&staged(&[0, 2, 1, 3, 4, 5, 6, 7], 8, 8, [1, 1, 1], 0)).is_none());
    }
}
