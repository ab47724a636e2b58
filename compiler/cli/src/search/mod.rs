//! Searching: how a prepared target is searched, what is shown meanwhile, and what would have been shorter than a run.

pub(crate) mod improve;
pub(crate) mod progress;
pub(crate) mod run;
