//! Ids of what a job consists of.

use pipe_ir::ids;

ids! {
    /// A row of a job's table of series.
    SeriesId "series "
    /// A row of a job's table of fusions.
    FusionId "fusion "
    /// A task of a job: those of the first series come first, each by its microbatches.
    TaskId "task "
}

/// What an order runs next: a task of a series, or both halves of a backward at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mention {
    /// The next task of a series.
    Series(SeriesId),
    /// The next tasks of both series of a fusion.
    Fusion(FusionId),
}
