//! When tasks run: costs, latencies, the timeline of a schedule, and what ends its step.

pub mod all_gather;
pub mod copies;
pub mod costs;
pub mod critical_path;
pub mod durations;
pub mod latency;
pub mod links;
pub mod reductions;
pub mod sharing;
pub mod speeds;
pub mod swaps;
pub mod timeline;
