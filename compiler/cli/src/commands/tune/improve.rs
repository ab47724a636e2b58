//! Shorter orders for the best of a tuning: `pipec search` on the first row of each of a few layouts.

use crate::commands::search::find::find;
use crate::commands::search::progress::{Team, improvements};
use pipe_compiler::compile;
use pipe_schedule::dispatch::Objective;
use pipe_search::driver::alternatives::{Moves, SearchTarget};
use pipe_search::tune::report::{CandidateReport, SearchedReport};
use pipe_search::tune::{Candidate, Problem, TuneResult};
use pipe_search::{Options, Workers};
use pipe_syntax::source::{Source, Sources};
use std::time::Duration;

/// How many layouts are searched.
const LAYOUTS: usize = 3;
/// Rounds of a search, each twice as long as the one before: the time ends it.
const ROUNDS: u32 = 8;

/// An order that was found, and its source.
pub(crate) struct Improved {
    /// For what, and how good.
    pub(crate) report: SearchedReport,
    /// The text.
    pub(crate) source: String,
}

/// Searches the best, for so long in all. What cannot be searched is passed over.
pub(crate) fn improve(
    problem: &Problem,
    found: &TuneResult,
    seed: u64,
    time: Duration,
    team: &Team,
    quiet: bool,
) -> Vec<Improved> {
    let mut chosen: Vec<&Candidate> = Vec::new();
    for (candidate, _) in &found.best {
        if chosen.len() < LAYOUTS && chosen.iter().all(|other| other.layout != candidate.layout) {
            chosen.push(candidate);
        }
    }
    let (begun, mut all) = (team.elapsed(), Vec::new());
    for (index, candidate) in (1..).zip(&chosen) {
        let until = begun + time * index / u32::try_from(chosen.len()).unwrap_or(1);
        let team = team.within(until);
        if team.go_on() {
            all.extend(searched(problem, candidate, seed, &team, quiet));
        }
    }
    all
}

fn searched(problem: &Problem, candidate: &Candidate, seed: u64, team: &Team, quiet: bool) -> Option<Improved> {
    let root = Source { name: "tuned.pipe".to_owned(), text: candidate.source(problem, "") };
    let loader = |path: &str| problem.load(path);
    let objective = Objective::Makespan;
    let may = Moves::default();
    let target = SearchTarget { root: &root, loader: &loader, request: &problem.request, objective, may };
    let mut prepared = target.prepare(&mut Sources::default()).ok()?;
    let options = Options { objective, seed, rounds: ROUNDS };
    let source = find(&target, &mut prepared, options, team, &improvements(quiet))?.source;
    let root = Source { name: "tuned.pipe".to_owned(), text: source.clone() };
    let analysis = compile(&mut Sources::default(), root, &loader, &problem.request).report;
    let step = analysis.figures.makespan?;
    let (bubble_mean, bubble) = (analysis.figures.bubble_mean?, analysis.figures.bubble_makespan?);
    let peak_bytes = analysis.per_device.iter().filter_map(|row| row.peak_bytes).max()?;
    let report = SearchedReport { candidate: CandidateReport::new(candidate), step, bubble_mean, bubble, peak_bytes };
    analysis.ok.then_some(Improved { report, source })
}
