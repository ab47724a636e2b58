//! Profiles: how often each kind of kernel ran, how long it took and what it computed.

use pipe_ir::kernels::Kernel;
use pipe_ir::muon::Matrices;
use pipe_ir::training::Optimizer;
use pipe_ir::units::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// What a kernel does, whatever time it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    /// Floating-point operations of matrix products.
    pub flops: u64,
    /// Bytes that it must read and write.
    pub bytes: u64,
    /// Elements of its iteration space.
    pub elements: u64,
}

impl Amount {
    /// Of a kernel.
    pub fn of(kernel: &Kernel) -> Self {
        Self { flops: kernel.flops(), bytes: kernel.traffic().0, elements: kernel.elements() }
    }

    /// Of an update of some parameters, which take so many bytes, one number at a time.
    pub fn of_update(optimizer: &Optimizer, elements: u64, bytes: u64) -> Self {
        Self { flops: 0, bytes: optimizer.traffic(Bytes(bytes)).0, elements }
    }

    /// Of Muon's momentum kernel: gradients and momentum are read, momentum and the update are written, before it is
    /// orthogonalized.
    pub fn of_muon_momentum(matrices: Matrices) -> Self {
        Self { flops: 0, bytes: 4 * matrices.bytes().0, elements: matrices.elements() }
    }

    /// Of Muon's step kernel: weights and the orthogonalized update are read, weights are written.
    pub fn of_muon_step(matrices: Matrices) -> Self {
        Self { flops: 0, bytes: 3 * matrices.bytes().0, elements: matrices.elements() }
    }
}

/// What one kind of kernel did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Entry {
    /// Number of launches.
    pub count: u64,
    /// Time of all launches, in nanoseconds.
    pub nanos: u64,
    /// Floating-point operations of matrix products.
    pub flops: u64,
    /// Bytes that the kernels must read and write, each once; 0 of what replicas do together.
    #[serde(default)]
    pub bytes: u64,
    /// Elements of the iteration spaces.
    pub elements: u64,
}

impl Entry {
    /// Adds a launch.
    pub const fn add(&mut self, nanos: u64, amount: Amount) {
        self.count += 1;
        self.nanos += nanos;
        self.flops += amount.flops;
        self.bytes += amount.bytes;
        self.elements += amount.elements;
    }
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
            own.bytes += entry.bytes;
            own.elements += entry.elements;
        }
    }

    /// Time of all launches, in nanoseconds.
    pub fn nanos(&self) -> u64 {
        self.entries.values().map(|entry| entry.nanos).sum()
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<_> = self.entries.iter().filter(|(_, entry)| entry.count > 0).collect();
        rows.sort_by_key(|(kind, entry)| (std::cmp::Reverse(entry.nanos), (*kind).clone()));
        writeln!(f, "{:<16} {:>9} {:>10} {:>6} {:>9} {:>9}", "kernel", "launches", "ms", "share", "GFLOP/s", "GB/s")?;
        for (kind, entry) in rows {
            let (nanos, whole) = (entry.nanos.max(1) as f64, self.nanos().max(1) as f64);
            let rate = |work: u64| if work > 0 { format!("{:.1}", work as f64 / nanos) } else { String::new() };
            let (flops, bytes) = (rate(entry.flops), rate(entry.bytes));
            let (ms, share) = (nanos / 1e6, 100.0 * nanos / whole);
            writeln!(f, "{kind:<16} {:>9} {ms:>10.2} {share:>5.1}% {flops:>9} {bytes:>9}", entry.count)?;
        }
        Ok(())
    }
}
