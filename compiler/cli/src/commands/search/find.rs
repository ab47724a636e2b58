//! How a prepared target is searched: with a first look where memory is an estimate, and again with
//! less where what was found needs more.

use super::progress::{Shown, Team, improvement};
use pipe_compiler::Compilation;
use pipe_search::driver::alternatives::SearchTarget;
use pipe_search::driver::run::Prepared;
use pipe_search::{Options, Progress, Workers};
use pipe_syntax::files::Loader;
use pipe_syntax::source::Sources;

/// What was found, as the ordinary compiler sees it.
pub(crate) struct SearchResult {
    /// The orders, and how they were found.
    pub(crate) found: Progress,
    /// The text.
    pub(crate) source: String,
    /// Its compilation.
    pub(crate) compilation: Compilation,
    /// The texts behind that.
    pub(crate) sources: Sources,
}

/// Searches; none where there was no time to find any schedule. Where there is not enough memory
/// for anything, what may be otherwise then is searched.
pub(crate) fn find(
    target: &SearchTarget<'_>,
    prepared: &mut Prepared,
    options: Options,
    team: &Team,
    shown: &Shown,
) -> Option<SearchResult> {
    let fits = |found: &SearchResult| found.compilation.report.ok;
    let found = find_as_is(prepared, options, team, target.loader, shown)?;
    if fits(&found) || !prepared.estimates_memory() {
        return Some(found);
    }
    for mut other in target.otherwise(prepared).take_while(|_| team.go_on()) {
        if let Some(found) = find_as_is(&mut other, options, team, target.loader, shown).filter(fits) {
            *prepared = other;
            return Some(found);
        }
    }
    Some(found)
}

fn find_as_is(
    prepared: &mut Prepared,
    options: Options,
    team: &Team,
    loader: &Loader<'_>,
    shown: &Shown,
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
        let report = &mut |progress: &Progress| shown.show(improvement(&prepared.problem, progress), team.elapsed());
        let Some(found) = prepared.search(Options { rounds, ..options }, team, report) else { break accepted };
        let result = finished(prepared, found);
        if result.compilation.report.ok {
            let is_last = rounds == options.rounds || !team.go_on();
            let best = accepted.take().filter(|other| other.found.length < result.found.length).unwrap_or(result);
            if is_last {
                break Some(best);
            }
            (accepted, rounds) = (Some(best), options.rounds);
        } else if !team.go_on() || !prepared.tighten(&result.found, &result.compilation) {
            break accepted.or(Some(result));
        }
    };
    if let Some(best) = result.as_mut().filter(|_| prepared.estimates_memory()) {
        // There may be orders that the pipeline's memory is enough for, though it was not for what
        // was found, or not thought to be.
        let is_better = |other: &Progress| !best.compilation.report.ok || other.length < best.found.length;
        let others = prepared.all_instead_of(&best.found).into_iter().filter(is_better);
        let other = others.map(|other| finished(prepared, other)).find(|other| other.compilation.report.ok);
        if let Some(other) = other {
            *best = other;
        }
    }
    shown.finish();
    result
}
