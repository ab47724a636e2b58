//! The compiler: `.pipe` text in, a proved schedule and a program out. Pure: no files, clocks, threads or hash-map order.

pub mod bounds;
pub mod check;
pub mod costs;
pub mod critical_path;
pub mod dependencies;
pub mod diagnostic;
pub mod elaborate;
#[cfg(test)]
mod examples;
pub mod files;
pub mod model;
pub mod pipeline;
pub mod schedule;
pub mod source;
pub mod syntax;
pub mod timeline;
pub mod units;
