//! How fast a profile's machine computes: what layouts and models that were not measured are timed with.

use super::{HELP, Profile, spanned};
use crate::cluster::{Cluster, Rates};
use pipe_ir::task::TaskKind;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::{FileId, Sources};

/// Of these are operations told.
const GIGA: u64 = 1_000_000_000;

/// Operations, and the nanoseconds that they took.
type Work = (u128, u128);

impl Profile {
    /// The operations of each kind in a second: all that were measured, over all stages, by their
    /// time. `BW` and its halves stand for each other where one of them was not measured, and `F`
    /// for `R`.
    ///
    /// # Errors
    /// If forwards or backwards have no operations or take no time; with the one source that this is about.
    pub fn rates(&self) -> Result<Rates, Box<(Diagnostic, Sources)>> {
        use TaskKind::{Backward, BackwardInput, BackwardWeight, Forward, Recompute, Update};
        let measured = |kind: TaskKind| self.work(|task| task == kind).filter(|(flops, _)| *flops > 0);
        let halves = |both: &[TaskKind]| self.work(|task| both.contains(&task)).filter(|(flops, _)| *flops > 0);
        let of = |kind: TaskKind| match kind {
            Forward => measured(Forward),
            Recompute => measured(Recompute).or_else(|| measured(Forward)),
            Backward => measured(Backward).or_else(|| {
                // Of one half alone nothing follows for both.
                measured(BackwardInput).and(measured(BackwardWeight)).and(halves(&[BackwardInput, BackwardWeight]))
            }),
            BackwardInput | BackwardWeight => measured(kind).or_else(|| measured(Backward)),
            Update => measured(Update).or_else(|| self.work(|_| true)),
        };
        let mut rates = [u64::MAX; TaskKind::ALL.len()];
        for kind in TaskKind::ALL {
            let Some((flops, nanos)) = of(kind) else {
                let message = format!("`{}` does not say how fast `{}` is computed", self.name(), kind.letters());
                let help = "a profile of a model with operations in `F` and `BW`, or `F`, `B` and `W`, says it";
                return Err(self.refusal("its stages", message, help));
            };
            let per_second = flops.saturating_mul(1_000_000_000).checked_div(nanos);
            let Some(rate) = per_second.and_then(|rate| u64::try_from(rate).ok()).filter(|rate| *rate > 0) else {
                let message = format!("`{}` of `{}`: {flops} operations in {nanos} ns", kind.letters(), self.name());
                return Err(self.refusal("of these stages", message, HELP));
            };
            rates[kind.index()] = rate;
        }
        let (flops, nanos) = self.work(|kind| kind != Update).unwrap_or((0, 1));
        let mean = u64::try_from(flops.saturating_mul(1_000_000_000) / nanos.max(1)).unwrap_or(u64::MAX);
        Ok(Rates::measured(self.name().to_owned(), rates, mean))
    }

    /// The cluster with devices that compute at the [`rates`](Self::rates) of this profile.
    ///
    /// # Errors
    /// If the profile does not say them, or they are more than the peak that the cluster states.
    pub fn calibrate(&self, cluster: Cluster) -> Result<Cluster, Box<(Diagnostic, Sources)>> {
        let rates = self.rates()?;
        let mut kinds = TaskKind::ALL.into_iter().filter(|kind| *kind != TaskKind::Update);
        let peak = cluster.peak_flops.unwrap_or(u64::MAX);
        if let Some(kind) = kinds.find(|kind| rates.of(*kind) > peak) {
            let (name, letters, reached) = (self.name(), kind.letters(), rates.of(kind).div_ceil(GIGA));
            let (cluster, peak) = (cluster.name(), peak / GIGA);
            let message = format!(
                "`{letters}` of `{name}` reaches {reached} GFLOPS, and a device of `{cluster}` {peak} GFLOPS at its peak"
            );
            let help = "was it measured on other devices, or are its `flops` those of several?";
            return Err(self.refusal("of these stages", message, help));
        }
        Ok(cluster.at_rates(rates))
    }

    /// What tasks of some kinds do in all; none where there are none.
    fn work(&self, is_wanted: impl Fn(TaskKind) -> bool) -> Option<Work> {
        let tasks = self.tasks.iter().map(|(task, _)| task).filter(|task| is_wanted(task.kind));
        let each = tasks.map(|task| (u128::from(task.flops), u128::from(task.ns)));
        each.reduce(|one, other| (one.0 + other.0, one.1 + other.1))
    }

    fn refusal(&self, label: &str, message: String, help: &str) -> Box<(Diagnostic, Sources)> {
        let place = spanned(FileId(0), &self.stages.1);
        let error = Diagnostic::error(Code::UnusableProfile, place, label.to_owned(), message).help(help);
        Box::new((error, Sources { files: vec![self.source.clone()] }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipe_syntax::source::Source;

    fn profile(tasks: &str) -> Profile {
        let text = format!(
            r#"{{"schema": "pipec.profile/1", "target": "x", "stages": 2, "transfer_ns": 1, "tasks": [{tasks}]}}"#
        );
        Profile::read(Source { name: "x.json".to_owned(), text }).map_err(|wrong| wrong.0).expect("well-formed")
    }

    fn task(stage: u32, kind: &str, ns: u64, flops: u64) -> String {
        format!(r#"{{"stage": {stage}, "kind": "{kind}", "ns": {ns}, "flops": {flops}}}"#)
    }

    #[test]
    fn kinds_that_were_not_measured_follow_from_others() {
        let of = |tasks: &[String]| {
            let rates = profile(&tasks.join(",")).rates().map_err(|wrong| wrong.0).expect("enough is measured");
            let kinds = [TaskKind::Forward, TaskKind::BackwardInput, TaskKind::BackwardWeight, TaskKind::Backward];
            (kinds.map(|kind| rates.of(kind)), rates.of(TaskKind::Recompute), rates.mean())
        };
        // 400 operations in 20 ns, and 600 in 20 ns: the rates of stages are weighed by their time.
        let forward = [task(0, "F", 10, 100), task(1, "F", 10, 300)];
        let fused = [&forward[..], &[task(0, "BW", 20, 600), task(1, "U", 5, 1)]].concat();
        assert_eq!(
            of(&fused),
            ([20_000_000_000, 30_000_000_000, 30_000_000_000, 30_000_000_000], 20_000_000_000, 25_000_000_000)
        );
        let halves = [&forward[..], &[task(0, "B", 10, 100), task(0, "W", 30, 100), task(0, "R", 1, 1)]].concat();
        assert_eq!(
            of(&halves),
            ([20_000_000_000, 10_000_000_000, 3_333_333_333, 5_000_000_000], 1_000_000_000, 9_852_459_016)
        );
    }

    #[test]
    fn what_says_nothing_about_rates_is_refused_with_its_kind() {
        let wrong = |tasks: &[String]| profile(&tasks.join(",")).rates().expect_err("nothing to go by").0.message;
        assert_eq!(wrong(&[task(0, "BW", 1, 1)]), "`x.json` does not say how fast `F` is computed");
        assert_eq!(wrong(&[task(0, "F", 1, 0), task(0, "BW", 1, 0)]), "`x.json` does not say how fast `F` is computed");
        assert_eq!(wrong(&[task(0, "F", 1, 1), task(0, "B", 1, 1)]), "`x.json` does not say how fast `W` is computed");
        assert_eq!(wrong(&[task(0, "F", 0, 7), task(0, "BW", 1, 1)]), "`F` of `x.json`: 7 operations in 0 ns");
        assert_eq!(
            wrong(&[task(0, "F", 1_000_000_000, 0), task(0, "BW", 1, 1)]),
            "`x.json` does not say how fast `F` is computed"
        );
    }
}
