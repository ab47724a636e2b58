//! Durations of the search: without their common divisor, and small enough that no sum of them overflows.

use super::Time;
use crate::ratio::gcd;
use crate::timing::durations::Costs;
use crate::units::Ticks;

/// What one unit of [`Time`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    divisor: u64,
    /// Whether nothing is lost.
    pub is_exact: bool,
}

impl Scale {
    /// A scale for steps of so many tasks.
    pub fn new(costs: &Costs, n_tasks: usize) -> Self {
        // Nothing that is searched has pairs, but bounds are rounded up to what lengths with pairs may be, too.
        let tasks = || costs.tasks.iter().flatten().chain(costs.pairs.iter().flatten());
        let all = || tasks().chain(costs.latency.times()).map(|ticks| ticks.0);
        let common = all().fold(0, gcd).max(1);
        let total = u128::from(all().max().unwrap_or(0)) * (n_tasks as u128 + 1) * 4;
        let least = u64::try_from(total.div_ceil(1 << 60)).unwrap_or(u64::MAX);
        Self { divisor: common.max(least), is_exact: least <= common }
    }

    /// A duration of the costs.
    pub fn of(&self, ticks: Ticks) -> Time {
        Time::try_from(ticks.0 / self.divisor).unwrap_or(Time::MAX)
    }

    /// A lower bound of the costs: rounded up, where all durations are whole.
    pub fn at_least(&self, ticks: Ticks) -> Time {
        if self.is_exact { Time::try_from(ticks.0.div_ceil(self.divisor)).unwrap_or(Time::MAX) } else { self.of(ticks) }
    }

    /// Back to the unit of the costs.
    pub fn ticks(&self, time: Time) -> Ticks {
        Ticks(u64::try_from(time).unwrap_or(0).saturating_mul(self.divisor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::latency::Latency;
    use crate::timing::sharing::Sharing;
    use pipe_ir::task::TaskKind;

    #[test]
    fn bounds_are_rounded_up_only_where_all_lengths_are_whole() {
        let scale = |ticks: [u64; 2]| {
            let [usual, other] = ticks.map(Ticks);
            let costs = Costs {
                tasks: vec![[usual; TaskKind::ALL.len()]],
                each: Vec::new(),
                pairs: [None; TaskKind::ALL.len()],
                latency: Latency::uniform(other),
                copy: Ticks::ZERO,
                swaps: Default::default(),
                sharing: Sharing::default(),
            };
            Scale::new(&costs, 1_000)
        };
        let exact = scale([6, 4]);
        assert_eq!((exact.is_exact, exact.of(Ticks(6)), exact.at_least(Ticks(7))), (true, 3, 4));
        // Durations lose their last digits, so a whole step may be as short as the bound.
        let rough = scale([1_000_000_000_000_000, 7]);
        assert!(!rough.is_exact);
        for ticks in [7, 1_000_000_000_000_000, 3_000_000_000_000_001].map(Ticks) {
            assert!(rough.ticks(rough.at_least(ticks)) <= ticks && rough.at_least(ticks) == rough.of(ticks));
        }
    }
}
