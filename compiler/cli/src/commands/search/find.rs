//! A search whose improvements are shown.

use super::progress::{Shown, Team, improvement};
use pipe_search::driver::alternatives::SearchTarget;
use pipe_search::driver::find::{SearchResult, find as search};
use pipe_search::driver::run::Prepared;
use pipe_search::{Options, Problem, Progress};

/// Searches; none where there was no time to find any schedule.
pub(crate) fn find(
    target: &SearchTarget<'_>,
    prepared: &mut Prepared,
    options: Options,
    team: &Team,
    shown: &Shown,
) -> Option<SearchResult> {
    let told = &mut |problem: &Problem, found: &Progress| shown.show(improvement(problem, found), team.elapsed());
    let result = search(target, prepared, options, team, told);
    shown.finish();
    result
}
