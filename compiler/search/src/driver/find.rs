//! How a prepared target is searched: with a first look where memory is an estimate, and again with
//! less where what was found needs more.

use super::alternatives::SearchTarget;
use super::run::Prepared;
use crate::{Options, Problem, Progress, Workers};
use pipe_compiler::Compilation;
use pipe_syntax::files::Loader;
use pipe_syntax::source::Sources;

/// What was found, as the ordinary compiler sees it.
#[derive(Debug)]
pub struct SearchResult {
    /// The orders, and how they were found.
    pub found: Progress,
    /// The text.
    pub source: String,
    /// Its compilation.
    pub compilation: Compilation,
    /// The texts behind that.
    pub sources: Sources,
}

/// Who is told of improvements: of what is searched, and what was found.
pub type Told<'a> = dyn FnMut(&Problem, &Progress) + 'a;

/// Searches; none where there was no time to find any schedule. Where there is not enough memory
/// for anything, what may be otherwise then is searched.
pub fn find(
    target: &SearchTarget<'_>,
    prepared: &mut Prepared,
    options: Options,
    workers: &dyn Workers,
    told: &mut Told<'_>,
) -> Option<SearchResult> {
    let fits = |found: &SearchResult| found.compilation.report.ok;
    let found = find_as_is(prepared, options, workers, target.loader, told)?;
    if fits(&found) || !prepared.estimates_memory() {
        return Some(found);
    }
    for mut other in target.otherwise(prepared).take_while(|_| workers.go_on()) {
        if let Some(found) = find_as_is(&mut other, options, workers, target.loader, told).filter(fits) {
            *prepared = other;
            return Some(found);
        }
    }
    Some(found)
}

fn find_as_is(
    prepared: &mut Prepared,
    options: Options,
    workers: &dyn Workers,
    loader: &Loader<'_>,
    told: &mut Told<'_>,
) -> Option<SearchResult> {
    let finished = |prepared: &Prepared, found: Progress| {
        let mut sources = Sources::default();
        let (source, compilation) = prepared.finish(&found, &mut sources, loader);
        SearchResult { found, source, compilation, sources }
    };
    // Where memory is an estimate, a first search without improvement says how good it is.
    let mut rounds = if prepared.estimates_memory() { 0 } else { options.rounds };
    let mut accepted: Option<SearchResult> = None;
    let mut result = loop {
        let report = &mut |progress: &Progress| told(&prepared.problem, progress);
        let Some(found) = prepared.search(Options { rounds, ..options }, workers, report) else { break accepted };
        let result = finished(prepared, found);
        if result.compilation.report.ok {
            let is_last = rounds == options.rounds || !workers.go_on();
            let best = accepted.take().filter(|other| other.found.length < result.found.length).unwrap_or(result);
            if is_last {
                break Some(best);
            }
            (accepted, rounds) = (Some(best), options.rounds);
        } else if !workers.go_on() || !prepared.tighten(&result.found, &result.compilation) {
            break accepted.or(Some(result));
        }
    };
    let may_be_better = |best: &SearchResult| prepared.estimates_memory() || !best.compilation.report.ok;
    if let Some(best) = result.as_mut().filter(|best| may_be_better(best)) {
        // There may be orders that the pipeline's memory is enough for, though it was not for what
        // was found, or not thought to be.
        let is_better = |other: &Progress| !best.compilation.report.ok || other.length < best.found.length;
        let others = prepared.all_instead_of(&best.found).into_iter().filter(is_better);
        let other = others.map(|other| finished(prepared, other)).find(|other| other.compilation.report.ok);
        if let Some(other) = other {
            *best = other;
        }
    }
    result
}
