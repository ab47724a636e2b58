//! The kernels of a program: what each task launches, with its operations and the bytes that it
//! must read and write. Text, on any machine.

use crate::devices::cpu::{UpdatedPart, updated};
use pipe_distributed::Amount;
use pipe_ir::ids::ExecId;
use pipe_ir::instruction::Instruction;
use pipe_ir::kernels::plan;
use pipe_ir::muon::Matrices;
use pipe_ir::program::{Body, Exec, Program};
use std::collections::BTreeMap;

/// Some kernels.
#[derive(Clone, Copy, Default)]
struct Work {
    kernels: u64,
    flops: u64,
    bytes: u64,
}

impl Work {
    const fn of(amount: Amount) -> Self {
        Self { kernels: 1, flops: amount.flops, bytes: amount.bytes }
    }

    const fn add(&mut self, other: Self, times: u64) {
        self.kernels += times * other.kernels;
        self.flops += times * other.flops;
        self.bytes += times * other.bytes;
    }

    /// A line about them.
    fn line(self, kind: &str, what: &str) -> String {
        let flops = if self.flops > 0 { format!("{:.3} GFLOP", self.flops as f64 / 1e9) } else { String::new() };
        format!("  {kind:<16}{flops:>18} {:>14.3} MB  {what}", self.bytes as f64 / 1e6)
    }

    /// A line about all of them.
    fn sum(self, kind: &str) -> String {
        self.line(kind, &format!("in {} kernel{}", self.kernels, if self.kernels == 1 { "" } else { "s" }))
    }
}

/// The executables that a step runs, in their order, each with its kernels; then all kernels of a step by kind.
pub fn lines(program: &Program) -> Vec<String> {
    let (mut lines, mut kinds) = (Vec::new(), BTreeMap::<&str, Work>::new());
    for (id, times) in runs(program) {
        let exec = program.exec(id);
        let mut all = Work::default();
        lines.push(format!("@{}: {times} in a step", exec.name()));
        for (kind, what, work) in kernels(program, exec) {
            lines.push(work.line(kind, &what));
            all.add(work, 1);
            kinds.entry(kind).or_default().add(work, times);
        }
        lines.push(all.sum("all"));
    }
    if kinds.is_empty() {
        return vec!["; tasks of a schedule without a model have no kernels".to_owned()];
    }
    let mut all = Work::default();
    lines.push("all devices: a step".to_owned());
    for (kind, work) in kinds {
        lines.push(work.sum(kind));
        all.add(work, 1);
    }
    lines.push(all.sum("all"));
    lines
}

/// How often a step runs each executable, on all devices.
fn runs(program: &Program) -> BTreeMap<ExecId, u64> {
    let mut runs = BTreeMap::new();
    for instruction in program.devices.iter().flat_map(|device| &device.step) {
        if let Instruction::Run { exec, .. } = instruction {
            *runs.entry(*exec).or_insert(0) += 1;
        }
    }
    runs
}

/// Kind, sizes and work of each kernel of an executable.
fn kernels(program: &Program, exec: &Exec) -> Vec<(&'static str, String, Work)> {
    match (&exec.body, &program.training) {
        (Body::Graph(graph), _) => {
            let kernels = plan(graph).kernels.into_iter();
            kernels.map(|kernel| (kernel.kind(), kernel.to_string(), Work::of(Amount::of(&kernel)))).collect()
        }
        (Body::Optimizer, Some(training)) => {
            let part = updated(program, exec);
            let (elements, bytes) = (part.by_number() / part.dtype.bytes().0, part.by_number());
            let amount = Amount::of_update(&training.optimizer, elements, bytes);
            let by_number = ("optimizer", format!("{elements} of {}", part.dtype), Work::of(amount));
            let by_number = Some(by_number).filter(|_| bytes > 0 || part.pieces.is_empty());
            by_number.into_iter().chain(part.matrices().flat_map(of_matrices)).collect()
        }
        (Body::Squares, _) => {
            let UpdatedPart { bytes, dtype, .. } = updated(program, exec);
            let elements = bytes.len() as u64 / dtype.bytes().0;
            let amount = Amount { flops: 0, bytes: bytes.len() as u64, elements };
            vec![("norm of gradients", format!("{elements} of {dtype}"), Work::of(amount))]
        }
        (Body::Optimizer, None) | (Body::Abstract, _) => Vec::new(),
    }
}

/// The kernels that update matrices as a whole.
fn of_matrices(matrices: Matrices) -> Vec<(&'static str, String, Work)> {
    let Matrices { dtype, count, rows, columns } = matrices;
    let what = |does: &str| format!("{does} of {count} x {rows} x {columns} of {dtype}");
    let kernels = matrices.orthogonalization(0).kernels.into_iter();
    let kernels = kernels.map(|kernel| (kernel.kind(), kernel.to_string(), Work::of(Amount::of(&kernel))));
    let first = ("optimizer", what("momentum"), Work::of(Amount::of_muon_momentum(matrices)));
    let last = ("optimizer", what("step"), Work::of(Amount::of_muon_step(matrices)));
    std::iter::once(first).chain(kernels).chain([last]).collect()
}
