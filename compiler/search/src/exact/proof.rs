//! What each way to a proof says by itself, for those who judge the search: its own answer would
//! hide a bound that is too high where the best schedule was found before.

use crate::bounds::first_device::least_span;
use crate::bounds::head_tail::refute;
use crate::bounds::idle::least_with_pauses;
use crate::exact::beam::{Beam, explore};
use pipe_schedule::dispatch::job::{Job, Time};

/// Lower bounds for schedules in all the memory that there may be, each with where it comes from.
pub type Bounds = Vec<(&'static str, Time)>;

/// Bounds on the makespan that suppose a schedule shorter than `below`, with so many partial
/// schedules at once at most. None is above `below`.
pub fn of_makespan(job: &Job, below: Time, width: usize) -> Bounds {
    let jobs = [job.relaxed(), job.relaxed().reversed()];
    let beam = || Beam { width, below, exact: true };
    let refuted = |in_pairs| refute(&jobs[0], &jobs[1], beam(), in_pairs, &mut || true);
    let all = |job: &Job| {
        let explored = explore(job, &beam(), &mut || true);
        let least = explored.found.map_or(below, |(length, _)| length);
        if explored.complete { least } else { 0 }
    };
    vec![
        ("devices alone", refuted(false)),
        ("devices in pairs", refuted(true)),
        ("all schedules", all(&jobs[0])),
        ("all schedules, from their end", all(&jobs[1])),
    ]
}

/// Bounds on the longest span.
pub fn of_longest_stage(job: &Job) -> Bounds {
    let job = job.relaxed();
    vec![
        ("the way back", least_span(&job)),
        ("pauses", least_with_pauses(&job)),
        ("work", job.work() * job.microbatches as Time),
    ]
}
