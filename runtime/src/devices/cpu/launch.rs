//! Launching: finds the bytes of every operand and calls the kernel.

use super::compile::{Launch, Orthogonal, SquaredPart, UpdatedPart, launch};
use super::jit::Jit;
use super::number::{Number, with_numbers};
use super::optimizer::{Own, Update};
use super::rows::{along, gather, norm, series, softmax, sums};
use super::{attention, copy, foreign, optimizer, routed};
use crate::devices::cpu::bf16;
use crate::devices::cpu::bf16::{INPUTS, Wide};
use pipe_distributed::memory::Region;
use pipe_distributed::{Amount, Fault, Profile, RunError};
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Extent, Kernel, KernelPlan, Location, RowKernel, RowOp, Storage, Sum};
use pipe_ir::training::{Training, clip_scale};
use pipe_ir::units::Bytes;
use pulp::Arch;
use std::ops::Range;
use std::time::Instant;

/// The state that launches share.
pub(crate) struct Launcher {
    arch: Arch,
    /// The operands of the run, then scratch.
    bases: Bases,
    wide: Wide,
    profile: Option<Profile>,
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
            Storage::Operand(operand) => self.operands[operand as usize],
            Storage::Scratch => self.scratch.map_or(Region::EMPTY, |scratch| self.operands[scratch]),
        };
        let offset = location.offset.to_usize();
        base.part(offset, base.len().saturating_sub(offset))
    }

    /// That many elements from a location.
    fn elements<T>(&self, location: Location, count: u64) -> Region {
        self.from(location).part(0, count as usize * size_of::<T>())
    }
}

/// Runs the kernels of a plan once, on its operands and, behind them, its scratch.
///
/// # Errors
/// If a kernel cannot be compiled, or finds a fault in its operands.
pub fn run_plan(plan: KernelPlan, operands: &[Region]) -> Result<(), RunError> {
    let mut jit = Jit::new()?;
    let launches = plan.kernels.into_iter().map(|kernel| launch(kernel, &mut jit));
    let (mut launches, scratch) = (launches.collect::<Result<Vec<_>, _>>()?, operands.len().checked_sub(1));
    let done = Launcher::new(false).graph(&mut launches, scratch, operands.iter().copied());
    done.map_err(|fault| RunError::Unsupported(fault.to_string()))
}

/// Updates a part of parameters once from gradients, the state of the optimizer and scratch, in this order. The
/// training may have the sum of the squares of all gradients beside it.
///
/// # Errors
/// If a kernel cannot be compiled.
pub fn run_update(
    part: &UpdatedPart,
    training: (&Training, Option<f64>),
    step: u64,
    operands: [Region; 4],
) -> Result<(), RunError> {
    let mut orthogonal = Orthogonal::new(&part.pieces, Some(operands.len() - 1), &mut Jit::new()?)?;
    let part = (part, &mut orthogonal);
    let mut launcher = Launcher::new(false);
    let done = with_numbers!(part.0.dtype, N => launcher.optimizer::<N>(training, step, part, &operands));
    done.map_err(|fault| RunError::Unsupported(fault.to_string()))
}

/// Adds the squares of gradients to the first number of a sum.
pub fn run_squares(part: &SquaredPart, gradients: Region, sum: Region) {
    Launcher::new(false).squares(part, gradients, sum);
}

impl Launcher {
    pub(crate) fn new(profile: bool) -> Self {
        let profile = profile.then(Profile::default);
        Self { arch: Arch::new(), bases: Bases::default(), wide: Wide::default(), profile }
    }

    /// Runs the kernels of a graph on its operands.
    pub(crate) fn graph(
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
                self.record(launch.kernel.kind(), started, Amount::of(&launch.kernel));
            }
        }
        Ok(())
    }

    /// Updates a part of the parameters; its state is all that the buffer of the state holds.
    pub(super) fn optimizer<T: Number>(
        &mut self,
        (training, squares): (&Training, Option<f64>),
        step: u64,
        (part, orthogonal): (&UpdatedPart, &mut Orthogonal),
        operands: &[Region],
    ) -> Result<(), Fault> {
        let [p, g, others @ ..] = operands else {
            return Err(Fault::new("an update needs parameters and gradients"));
        };
        let UpdatedPart { bytes: Range { start, end }, from, pieces, .. } = part;
        let bytes = end - start;
        let has_state = training.optimizer.state_per_parameter() > 0;
        let state = others.first().copied().filter(|_| has_state).unwrap_or(Region::EMPTY);
        let (p, g) = (p.part(*from, bytes), g.part(*start, bytes));
        let scale = training.clip_norm.zip(squares).map_or(1.0, |(most, squares)| clip_scale(squares, most));
        let update = Update { training, step, scale };
        let own = |piece| Own::<T>::new(piece, p.numbers_mut(), g.numbers(), state.numbers_mut());
        let started = Instant::now();
        for piece in pieces.iter().filter(|piece| piece.matrices.is_none()) {
            optimizer::by_number(self.arch, update, piece.decays, own(piece));
        }
        let by_number = part.by_number();
        if by_number > 0 {
            let amount = Amount::of_update(&training.optimizer, by_number / size_of::<T>() as u64, by_number);
            self.record("optimizer", started, amount);
        }
        for (piece, matrices) in pieces.iter().filter_map(|piece| Some((piece, piece.matrices?))) {
            let started = Instant::now();
            let (scratch, places) = (orthogonal.scratch, orthogonal.launches.get_mut(&matrices));
            let Some((scratch, (places, launches))) = scratch.zip(places) else {
                return Err(Fault::new("an update of whole matrices needs scratch, and kernels for them"));
            };
            let place = |at: Bytes| operands[scratch].part(at.to_usize(), matrices.bytes().to_usize());
            let (from, to) = (place(places.from), place(places.to));
            optimizer::muon_momentum(self.arch, update, own(piece), from.numbers_mut());
            self.record("optimizer", started, Amount::of_muon_momentum(matrices));
            self.graph(launches, Some(scratch), operands.iter().copied())?;
            let started = Instant::now();
            optimizer::muon_step(self.arch, update, (matrices, piece.decays), own(piece).p, to.numbers());
            self.record("optimizer", started, Amount::of_muon_step(matrices));
        }
        Ok(())
    }

    /// Adds the squares of gradients to the first number of a sum.
    pub(super) fn squares(&mut self, part: &SquaredPart, gradients: Region, sum: Region) {
        let started = Instant::now();
        let mut amount = Amount::default();
        for range in &part.bytes {
            let own = gradients.part(range.start, range.len());
            sum.numbers_mut::<f64>()[0] += with_numbers!(part.dtype, N => optimizer::squares(own.numbers::<N>()));
            amount.bytes += range.len() as u64;
            amount.elements += range.len() as u64 / part.dtype.bytes().0;
        }
        if self.profile.is_some() {
            self.record("norm of gradients", started, amount);
        }
    }

    pub(super) fn profile(&self) -> Profile {
        self.profile.clone().unwrap_or_default()
    }

    fn record(&mut self, kind: &'static str, started: Instant, amount: Amount) {
        if let Some(profile) = &mut self.profile {
            let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            profile.entries.entry(kind.into()).or_default().add(nanos, amount);
        }
    }

    fn kernel(&mut self, launch: &mut Launch) -> Result<(), Fault> {
        let bases = &self.bases;
        match (&launch.kernel, &mut launch.loops) {
            (Kernel::Elementwise(_), Some(loops)) => loops.launch(|location| bases.from(location)),
            (Kernel::Elementwise(_), None) => return Err(Fault::new("an expression was not compiled")),
            (Kernel::Gemm(gemm), _) => {
                let (a, b, c) = (bases.from(gemm.a.at), bases.from(gemm.b.at), bases.from(gemm.c.at));
                let (a, b, sums) = self.wide.of_product(gemm, (a, b, c))?;
                with_numbers!(gemm.dtype, N => foreign::gemm::<N>(gemm, a, b, sums));
                bf16::store_result(gemm, sums, c);
            }
            (Kernel::Copy { from, to }, _) => {
                let (source, target) = (bases.from(from.at), bases.from(to.at));
                match to.dtype {
                    DType::BF16 => copy::copy::<u16>(source, &from.dims, target, &to.dims),
                    DType::F32 | DType::I32 => copy::copy::<u32>(source, &from.dims, target, &to.dims),
                    DType::F64 => copy::copy::<u64>(source, &from.dims, target, &to.dims),
                }
            }
            (Kernel::Sum(sum), _) => return with_numbers!(sum.dtype, N => self.sum::<N>(sum)),
            (Kernel::Attention(kernel), _) => {
                let (arch, wide) = (self.arch, &mut self.wide);
                return with_numbers!(kernel.dtype, N => attention::attention::<N>(arch, kernel, &|at| bases.from(at), wide));
            }
            (Kernel::Routed(kernel), _) => {
                let (wide, bases) = (&mut self.wide, &self.bases);
                return with_numbers!(kernel.dtype, N => routed::routed::<N>(kernel, &|at| bases.from(at), wide));
            }
            (Kernel::Rows(rows), _) => return with_numbers!(rows.dtype, N => self.rows::<N>(rows)),
        }
        Ok(())
    }

    fn sum<T: Number>(&mut self, sum: &Sum) -> Result<(), Fault> {
        let elements = sum.outer * sum.reduced * sum.inner;
        let wide = self.wide.of_input(0, self.bases.from(sum.x), (sum.stored, elements))?;
        let x = wide.unwrap_or_else(|| self.bases.elements::<T>(sum.x, elements));
        let out = self.bases.elements::<T>(sum.out, sum.outer * sum.inner);
        let (x, out) = (x.numbers::<T>(), out.numbers_mut());
        let (reduced, inner) = (sum.reduced as usize, sum.inner as usize);
        if inner == 1 {
            sums::rows(self.arch, x, reduced, sum.accumulate, out);
        } else {
            sums::columns(self.arch, x, reduced, inner, sum.accumulate, out);
        }
        Ok(())
    }

    fn rows<T: Number>(&mut self, kernel: &RowKernel) -> Result<(), Fault> {
        let RowKernel { op, rows, width, inputs, .. } = kernel;
        let (signature, w, arch) = (op.signature(), *width as usize, self.arch);
        let mut wide = [None; INPUTS];
        for position in op.large_inputs() {
            let from = self.bases.from(inputs[position]);
            wide[position] = self.wide.of_input(position, from, (kernel.stored, rows * width))?;
        }
        let made = kernel.elements(signature.result);
        let rounded = self.wide.of_result(kernel.result, made)?;
        // Indices are no numbers of this type.
        let written = if kernel.result.is_number() { made } else { 0 };
        let out = rounded.unwrap_or_else(|| self.bases.elements::<T>(kernel.out, written));
        let out = out.numbers_mut::<T>();
        let x = |position: usize| {
            let count = kernel.elements(signature.inputs[position]);
            wide[position].unwrap_or_else(|| self.bases.elements::<T>(inputs[position], count))
        };
        let indices = |position: usize| self.bases.elements::<i32>(inputs[position], *rows);
        let columns = |position: usize, k: u64| self.bases.elements::<i32>(inputs[position], rows * k);
        // What rows are added to.
        let is_added_to =
            matches!(signature.result, Extent::Row | Extent::Table) || matches!(op, RowOp::AddAlong { .. });
        if is_added_to && !kernel.accumulate {
            out.fill(T::ZERO);
        }
        match op {
            RowOp::Positions => series::positions(out),
            RowOp::Powers { base } => series::powers(*base, out),
            RowOp::TopK { k } => {
                let chosen = self.bases.elements::<i32>(kernel.out, made);
                along::top_k(x(0).numbers::<T>(), w, *k as usize, chosen.numbers_mut());
            }
            RowOp::TakeAlong { k } => along::take_along(x(0).numbers(), columns(1, *k).numbers(), w, *k as usize, out)?,
            RowOp::AddAlong { k } => along::add_along(columns(0, *k).numbers(), x(1).numbers(), w, *k as usize, out)?,
            RowOp::OwnIndices { k, size, members, member } => {
                let own = self.bases.elements::<i32>(kernel.out, made);
                gather::own_indices(columns(0, *k).numbers(), (*size, *members, *member), own.numbers_mut())?;
            }
            RowOp::NormStatistics { epsilon, rms } => {
                norm::statistics(arch, x(0).numbers(), w, T::of(*epsilon), *rms, out)
            }
            RowOp::Normalize { biased: false } => {
                norm::scale(arch, x(0).numbers(), x(1).numbers(), x(2).numbers(), out)
            }
            RowOp::Normalize { biased: true } => {
                norm::normalize(arch, x(0).numbers(), x(1).numbers(), x(2).numbers(), x(3).numbers(), out)
            }
            RowOp::NormalizeGradInput { rms, joined } => {
                norm::grad_input(arch, x(0).numbers(), x(1).numbers(), x(2).numbers(), x(3).numbers(), *rms, out);
                if *joined {
                    out.iter_mut().zip(x(4).numbers()).for_each(|(sum, own)| *sum += *own);
                }
            }
            RowOp::NormalizeGradGain => norm::grad_gain(arch, x(0).numbers(), x(1).numbers(), x(2).numbers(), out),
            RowOp::Softmax { causal } => softmax::softmax(arch, x(0).numbers(), w, *causal, out),
            RowOp::SoftmaxGrad => softmax::softmax_grad(arch, x(0).numbers(), x(1).numbers(), w, out),
            RowOp::CrossEntropy { weighted } => {
                let (logits, targets, weights) = (x(0), indices(1), weighted.then(|| x(2)));
                let weights = weights.as_ref().map_or(&[][..], |weights| weights.numbers());
                softmax::cross_entropy(arch, logits.numbers(), (targets.numbers(), weights), &mut out[0])?;
            }
            RowOp::CrossEntropyGrad { weighted } => {
                let (logits, targets, dloss, weights) = (x(0), indices(1), x(2), weighted.then(|| x(3)));
                let weights = weights.as_ref().map_or(&[][..], |weights| weights.numbers());
                let targets = (targets.numbers(), weights);
                softmax::cross_entropy_grad(arch, logits.numbers(), targets, dloss.numbers()[0], out)?;
            }
            RowOp::Gather { .. } => gather::gather(x(0).numbers(), indices(1).numbers(), w, out)?,
            RowOp::ScatterAdd { .. } => gather::scatter_add(arch, indices(0).numbers(), x(1).numbers(), w, out)?,
        }
        if let Some(numbers) = rounded {
            bf16::store_rounded(numbers, self.bases.from(kernel.out));
        }
        Ok(())
    }
}
