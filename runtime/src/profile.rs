//! Profiles: how often each kind of kernel ran, how long it took and what it computed.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// What one kind of kernel did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Entry {
    /// Number of launches.
    pub count: u64,
    /// Time of all launches, in nanoseconds.
    pub nanos: u64,
    /// Floating-point operations of matrix products.
    pub flops: u64,
    /// Elements of the iteration spaces.
    pub elements: u64,
}

/// Entries by kind of kernel (`gemm`, `elementwise`, `softmax`, ...).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Profile {
    /// By kind.
    pub entries: BTreeMap<Cow<'static, str>, Entry>,
}

impl Profile {
    /// Adds the launches of another profile.
    pub fn merge(&mut self, other: &Self) {
        for (kind, entry) in &other.entries {
            let own = self.entries.entry(kind.clone()).or_default();
            own.count += entry.count;
            own.nanos += entry.nanos;
            own.flops += entry.flops;
            own.elements += entry.elements;
        }
    }

    /// Time of all launches, in nanoseconds.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.entries.values().map(|entry| entry.nanos).sum()
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<_> = self.entries.iter().filter(|(_, entry)| entry.count > 0).collect();
        rows.sort_by_key(|(kind, entry)| (std::cmp::Reverse(entry.nanos), (*kind).clone()));
        writeln!(
            f,
            "{:<16} {:>9} {:>10} {:>6} {:>9} {:>11}",
            "kernel", "launches", "ms", "share", "GFLOP/s", "ns/element"
        )?;
        for (kind, entry) in rows {
            let (nanos, whole) = (entry.nanos.max(1) as f64, self.nanos().max(1) as f64);
            let rate = if entry.flops > 0 { format!("{:.1}", entry.flops as f64 / nanos) } else { String::new() };
            let (ms, share) = (nanos / 1e6, 100.0 * nanos / whole);
            let each = nanos / entry.elements.max(1) as f64;
            writeln!(f, "{kind:<16} {:>9} {ms:>10.2} {share:>5.1}% {rate:>9} {each:>11.3}", entry.count)?;
        }
        Ok(())
    }
}
