//! Launching: finds the bytes of every operand and calls the kernel.

use super::compile::{KINDS, Launch};
use super::{copy, foreign, norm, optimizer, softmax, sums, table};
use crate::fault::Fault;
use crate::memory::Region;
use crate::profile::{Entry, Profile};
use pipe_ir::kernels::{Kernel, Location, Place, RowKernel, RowOp, Sum};
use pipe_ir::training::Training;
use pulp::Arch;
use std::time::Instant;

/// The state that launches share.
pub(crate) struct Launcher {
    arch: Arch,
    /// The operands of the run, then scratch.
    bases: Bases,
    profile: Option<[Entry; KINDS.len()]>,
}

/// Where an executable's places are in this run.
#[derive(Default)]
struct Bases {
    operands: Vec<Region>,
    scratch: Option<usize>,
}

impl Bases {
    /// From a location to the end of its place.
    fn from(&self, location: Location) -> Region {
        let base = match location.place {
            Place::Operand(operand) => self.operands[operand as usize],
            Place::Scratch => self.scratch.map_or(Region::EMPTY, |scratch| self.operands[scratch]),
        };
        let offset = location.offset.to_usize();
        base.part(offset, base.len().saturating_sub(offset))
    }

    /// That many elements from a location.
    fn elements(&self, location: Location, count: u64) -> Region {
        self.from(location).part(0, count as usize * size_of::<f32>())
    }
}

impl Launcher {
    pub(super) fn new(profile: bool) -> Self {
        Self { arch: Arch::new(), bases: Bases::default(), profile: profile.then_some([Entry::default(); KINDS.len()]) }
    }

    /// Runs the kernels of a graph on its operands.
    pub(super) fn graph(
        &mut self,
        launches: &mut [Launch],
        scratch: Option<usize>,
        operands: impl Iterator<Item = Region>,
    ) -> Result<(), Fault> {
        self.bases.operands.clear();
        self.bases.operands.extend(operands);
        self.bases.scratch = scratch;
        for launch in launches {
            let started = self.profile.is_some().then(Instant::now);
            self.kernel(launch)?;
            if let Some(started) = started {
                self.record(launch.entry, started, launch.kernel.flops(), launch.kernel.elements());
            }
        }
        Ok(())
    }

    /// Updates parameters of that many bytes.
    pub(super) fn optimizer(
        &mut self,
        training: &Training,
        step: u64,
        parameters: usize,
        mut operands: impl Iterator<Item = Region>,
    ) -> Result<(), Fault> {
        let started = Instant::now();
        let (Some(p), Some(g)) = (operands.next(), operands.next()) else {
            return Err(Fault::new("an update needs parameters and gradients"));
        };
        let state_bytes = parameters * training.optimizer.state_per_parameter() as usize;
        let state = operands.next().unwrap_or(Region::EMPTY).part(0, state_bytes);
        let (p, g) = (p.part(0, parameters), g.part(0, parameters));
        optimizer::update(self.arch, training, step, p.f32s_mut(), g.f32s(), state.f32s_mut());
        if self.profile.is_some() {
            self.record(KINDS.len() - 1, started, 0, (parameters / size_of::<f32>()) as u64);
        }
        Ok(())
    }

    pub(super) fn profile(&self) -> Profile {
        let entries = self.profile.iter().flatten();
        Profile { entries: KINDS.into_iter().zip(entries.copied()).collect() }
    }

    fn record(&mut self, entry: usize, started: Instant, flops: u64, elements: u64) {
        if let Some(profile) = &mut self.profile {
            let entry = &mut profile[entry];
            entry.count += 1;
            entry.nanos += u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            entry.flops += flops;
            entry.elements += elements;
        }
    }

    fn kernel(&self, launch: &mut Launch) -> Result<(), Fault> {
        let bases = &self.bases;
        match (&launch.kernel, &mut launch.loops) {
            (Kernel::Elementwise(_), Some(loops)) => loops.launch(|location| bases.from(location)),
            (Kernel::Elementwise(_), None) => return Err(Fault::new("an expression was not compiled")),
            (Kernel::Gemm(gemm), _) => {
                foreign::gemm(gemm, bases.from(gemm.a.at), bases.from(gemm.b.at), bases.from(gemm.c.at));
            }
            (Kernel::Copy { from, to }, _) => {
                copy::copy(bases.from(from.at), &from.dims, bases.from(to.at), &to.dims);
            }
            (Kernel::Sum(sum), _) => self.sum(sum),
            (Kernel::Rows(rows), _) => return self.rows(rows),
        }
        Ok(())
    }

    fn sum(&self, sum: &Sum) {
        let x = self.bases.elements(sum.x, sum.outer * sum.reduced * sum.inner);
        let out = self.bases.elements(sum.out, sum.outer * sum.inner);
        if sum.inner == 1 {
            sums::rows(self.arch, x.f32s(), sum.reduced as usize, sum.accumulate, out.f32s_mut());
        } else {
            sums::columns(
                self.arch,
                x.f32s(),
                sum.reduced as usize,
                sum.inner as usize,
                sum.accumulate,
                out.f32s_mut(),
            );
        }
    }

    fn rows(&self, kernel: &RowKernel) -> Result<(), Fault> {
        let RowKernel { op, rows, width, inputs, out, accumulate } = kernel;
        let (rows, width, arch) = (*rows, *width, self.arch);
        let input = |position: usize, count: u64| self.bases.elements(inputs[position], count);
        let result = |count: u64| self.bases.elements(*out, count);
        let added = |count: u64| {
            let region = result(count);
            if !accumulate {
                region.f32s_mut().fill(0.0);
            }
            region
        };
        let (all, pairs, w) = (rows * width, rows * 2, width as usize);
        match op {
            RowOp::NormStatistics { epsilon } => {
                norm::statistics(arch, input(0, all).f32s(), w, *epsilon, result(pairs).f32s_mut());
            }
            RowOp::Normalize => norm::normalize(
                arch,
                input(0, all).f32s(),
                input(1, pairs).f32s(),
                input(2, width).f32s(),
                input(3, width).f32s(),
                result(all).f32s_mut(),
            ),
            RowOp::NormalizeGradInput => norm::grad_input(
                arch,
                input(0, all).f32s(),
                input(1, pairs).f32s(),
                input(2, width).f32s(),
                input(3, all).f32s(),
                result(all).f32s_mut(),
            ),
            RowOp::NormalizeGradGain => norm::grad_gain(
                arch,
                input(0, all).f32s(),
                input(1, pairs).f32s(),
                input(2, all).f32s(),
                added(width).f32s_mut(),
            ),
            RowOp::Softmax { causal } => {
                softmax::softmax(arch, input(0, all).f32s(), w, *causal, result(all).f32s_mut());
            }
            RowOp::SoftmaxGrad => {
                softmax::softmax_grad(arch, input(0, all).f32s(), input(1, all).f32s(), w, result(all).f32s_mut());
            }
            RowOp::CrossEntropy => {
                let out = result(1);
                softmax::cross_entropy(arch, input(0, all).f32s(), input(1, rows).i32s(), &mut out.f32s_mut()[0])?;
            }
            RowOp::CrossEntropyGrad => {
                let (targets, dloss) = (input(1, rows), input(2, 1).f32s()[0]);
                softmax::cross_entropy_grad(arch, input(0, all).f32s(), targets.i32s(), dloss, result(all).f32s_mut())?;
            }
            RowOp::Gather { table: n } => {
                table::gather(input(0, n * width).f32s(), input(1, rows).i32s(), w, result(all).f32s_mut())?;
            }
            RowOp::ScatterAdd { table: n } => {
                let (indices, dy) = (input(0, rows), input(1, all));
                table::scatter_add(arch, indices.i32s(), dy.f32s(), w, added(n * width).f32s_mut())?;
            }
        }
        Ok(())
    }
}
