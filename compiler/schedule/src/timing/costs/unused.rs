//! Rule: every cost of tasks or pairs that was given is what some task or pair takes.
//!
//! `B` and `W` also serve a `BW` that has no cost, and `F` such an `R`: that is what their costs
//! mean. A `BW` from which only `B` and `W` take their costs ([`super::halves`]) causes a warning
//! all the same, because nobody gave those. Updates run behind the tasks that are timed, and are
//! left out.

use super::halves::HALVES;
use super::parts::Runs as PartRuns;
use super::{CostName, Entry, StageCosts};
use crate::schedule::Schedule;
use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics, Edit};
use std::collections::BTreeSet;

/// A warning for each of these costs that nothing in the schedule takes. `all` are the costs that
/// the schedule is timed with: they end with these, and before them stand those of a profile or a
/// cluster, where there is one. `has_sums` says whether the step sums gradients over devices.
pub fn check(costs: &StageCosts, all: &StageCosts, schedule: &Schedule, has_sums: bool) -> Diagnostics {
    if !schedule.parts.is_empty() {
        return of_parts(costs, schedule, has_sums);
    }
    let runs = Runs::of(schedule);
    let deciding = deciding(all, schedule.n_stages());
    let swaps = schedule.swaps.kinds();
    let n_others = all.entries.len() - costs.entries.len();
    let warning = |(index, entry): (usize, &Entry)| {
        let (reason, help) = match &entry.name {
            CostName::Tasks(kind) | CostName::Stages(kind, _) if *kind != TaskKind::Update => {
                let place = n_others + index;
                let decides = |stage: &StageId| deciding[stage.index()][kind.index()] == Some(place);
                let about = schedule.placement.stages().filter(decides);
                match about.map(|stage| runs.of_cost(*kind, stage, &deciding)).max() {
                    Some(Use::Direct) => return None,
                    Some(Use::ByHalves) => {
                        ("no such task: `B` and `W` follow from it", Some("give `B` and `W` costs of their own"))
                    }
                    Some(Use::Nothing) => ("no such task", None),
                    None => ("another cost for each of these tasks", Some("leave it out")),
                }
            }
            CostName::Pair(kind) if !runs.pairs[kind.index()] => {
                ("no such pair", Some("leave it out, or pair tasks with `&`"))
            }
            CostName::Swap(kind) if !swaps.contains(kind) => ("no such statement", Some("leave it out")),
            CostName::Reduce if !has_sums => ("no gradients to sum over several devices", Some("leave it out")),
            _ => return None,
        };
        let said = match &entry.rule {
            Some(rule) => format!("`{rule}` has a cost"),
            None => format!("`{}` takes {}", entry.name, entry.time),
        };
        let message = format!("{said}, but `{}` has {reason}", schedule.name);
        let label = if entry.span.is_some() { "for no task" } else { "this schedule" };
        let warning = Diagnostic::warning(Code::UnusedCost, entry.span.unwrap_or(schedule.span), label, message);
        let kinds = || format!("leave it out; the tasks of `{}` are {}", schedule.name, runs.words());
        let help = help.map_or_else(kinds, str::to_owned);
        let cut = entry.cut.filter(|_| help.starts_with("leave it out"));
        let edit = cut.map(|span| Edit { span, text: String::new() });
        Some(warning.help(help).edit_with(edit))
    };
    // Of a rule for all stages, one warning is enough, and none where some stage takes its cost.
    let rules = costs.entries.iter().enumerate().collect::<Vec<_>>();
    let alike = |one: &(usize, &Entry), next: &(usize, &Entry)| {
        one.1.rule.is_some() && (&one.1.rule, one.1.span) == (&next.1.rule, next.1.span)
    };
    let of_run = |run: &[(usize, &Entry)]| {
        let found: Option<Diagnostics> = run.iter().map(|entry| warning(*entry)).collect();
        found.and_then(|found| found.into_iter().next())
    };
    rules.chunk_by(alike).filter_map(of_run).collect()
}

/// The same for a schedule with parts.
fn of_parts(costs: &StageCosts, schedule: &Schedule, has_sums: bool) -> Diagnostics {
    let (runs, mut told) = (PartRuns::of(schedule), BTreeSet::new());
    let is_unused = |entry: &&Entry| match entry.name {
        CostName::Reduce => !has_sums,
        _ => runs.leave_out(entry, schedule),
    };
    let unused = costs.entries.iter().filter(is_unused).filter(|entry| {
        // Of a rule for all stages, one warning is enough.
        entry.rule.is_none() || told.insert((&entry.rule, entry.span))
    });
    let warning = |entry: &Entry| {
        let name = entry.rule.as_deref().map_or_else(|| entry.name.to_string(), str::to_owned);
        let message = format!("`{name}` has a cost, but `{}` has no such task", schedule.name);
        let label = if entry.span.is_some() { "for no task" } else { "this schedule" };
        let warning = Diagnostic::warning(Code::UnusedCost, entry.span.unwrap_or(schedule.span), label, message);
        let edit = entry.cut.map(|span| Edit { span, text: String::new() });
        warning.help("leave it out").edit_with(edit)
    };
    unused.map(warning).collect()
}

/// What takes a cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Use {
    Nothing,
    /// Halves of a backward, which have no costs of their own.
    ByHalves,
    Direct,
}

/// By kind, the entry that holds for a stage.
type Deciding = [Option<usize>; TaskKind::ALL.len()];

fn deciding(costs: &StageCosts, n_stages: usize) -> Vec<Deciding> {
    let mut usual: Deciding = [None; TaskKind::ALL.len()];
    for (index, entry) in costs.entries.iter().enumerate() {
        if let CostName::Tasks(kind) = entry.name {
            usual[kind.index()] = Some(index);
        }
    }
    let mut all = vec![usual; n_stages];
    for (index, entry) in costs.entries.iter().enumerate() {
        if let CostName::Stages(kind, about) = &entry.name {
            let about = all.iter_mut().take(about.end as usize).skip(about.start as usize);
            about.for_each(|stage| stage[kind.index()] = Some(index));
        }
    }
    all
}

/// The kinds of tasks of each stage, and of the backwards of pairs.
struct Runs {
    stages: Vec<[bool; TaskKind::ALL.len()]>,
    pairs: [bool; TaskKind::ALL.len()],
}

impl Runs {
    fn of(schedule: &Schedule) -> Self {
        let none = [false; TaskKind::ALL.len()];
        let mut runs = Self { stages: vec![none; schedule.n_stages()], pairs: none };
        for order in &schedule.orders {
            for (place, one) in order.iter().enumerate() {
                runs.stages[one.task.stage.index()][one.task.kind.index()] = true;
                let partner = order.get(place + 1).filter(|_| one.with_next);
                partner.into_iter().for_each(|next| runs.pairs[next.task.kind.index()] = true);
            }
        }
        runs
    }

    /// What takes the cost of a kind at a stage, where some entry gives it.
    fn of_cost(&self, kind: TaskKind, stage: StageId, deciding: &[Deciding]) -> Use {
        let runs = |kind: TaskKind| self.stages[stage.index()][kind.index()];
        let follows = |other: TaskKind| runs(other) && deciding[stage.index()][other.index()].is_none();
        let serves = match kind {
            TaskKind::Forward => follows(TaskKind::Recompute),
            TaskKind::BackwardInput | TaskKind::BackwardWeight => follows(TaskKind::Backward),
            TaskKind::Backward | TaskKind::Recompute | TaskKind::Update => false,
        };
        match () {
            () if runs(kind) || serves => Use::Direct,
            () if kind == TaskKind::Backward && HALVES.into_iter().any(follows) => Use::ByHalves,
            () => Use::Nothing,
        }
    }

    /// The kinds of tasks that there are.
    fn words(&self) -> String {
        let runs = |kind: &TaskKind| self.stages.iter().any(|stage| stage[kind.index()]);
        let names: Vec<&str> = TaskKind::ALL.into_iter().filter(runs).map(TaskKind::letters).collect();
        match names.as_slice() {
            [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
            names => names.join(", "),
        }
    }
}
