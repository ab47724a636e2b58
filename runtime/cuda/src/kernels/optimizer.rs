//! Launches of the optimizer, and the numbers that are new in each step.
//!
//! A launch is the same in every step, so that steps can be captured once: what changes with the
//! step lies in the device's memory.

use super::{Sources, number, real, some_blocks};
use crate::launch::{Argument, Launch};
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Location, Storage};
use pipe_ir::muon::Matrices;
use pipe_ir::training::{NORM_NUMBERS, Optimizer, Training};
use pipe_ir::units::Bytes;
use pipe_runtime::{Piece, SquaredPart, UpdatedPart, learning_rate};

/// What a step's updates are computed with; the struct of the same name in `cu/step.cu`. Kernels
/// round each to their precision.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct StepNumbers {
    /// The learning rate.
    rate: f64,
    /// What weight decay leaves of a parameter.
    keep: f64,
    /// Minus the learning rate, corrected for the bias of the first moment.
    corrected_rate: f64,
    /// Corrects the bias of the second moment's root.
    root: f64,
}

impl StepNumbers {
    /// Bytes that they take on a device.
    pub(crate) const BYTES: Bytes = Bytes(32);

    /// Those of a step, counted from 0.
    pub(crate) fn new(training: &Training, step: u64) -> Self {
        let rate = learning_rate(&training.learning_rate, step, training.steps);
        match training.optimizer {
            Optimizer::Sgd { .. } => Self { rate, keep: 1.0, corrected_rate: -rate, root: 1.0 },
            Optimizer::AdamW { beta1, beta2, weight_decay, .. }
            | Optimizer::Muon { beta1, beta2, weight_decay, .. } => {
                let t = (step + 1) as f64;
                Self {
                    rate,
                    keep: 1.0 - rate * weight_decay,
                    corrected_rate: -rate / (1.0 - beta1.powf(t)),
                    root: 1.0 / (1.0 - beta2.powf(t)).sqrt(),
                }
            }
            Optimizer::Lion { weight_decay, .. } => {
                Self { rate, keep: 1.0 - rate * weight_decay, corrected_rate: -rate, root: 1.0 }
            }
        }
    }

    /// As they lie in memory.
    pub(crate) const fn numbers(self) -> [f64; 4] {
        [self.rate, self.keep, self.corrected_rate, self.root]
    }
}

/// Elements of a block that adds up squares, before there are as many blocks as may be.
const SQUARES_OF_BLOCK: u64 = 4096;

impl Sources {
    /// Adds the functions of an optimizer, and returns a launch for each piece that is updated element by element.
    /// Operands are parameters, gradients and, where the optimizer has any, its state, which fills its buffer. With
    /// `is_beside`, new parameters are written to a second operand, and the first one does not change. If gradients are
    /// clipped, `clip` is the operand with the squared norm, and the largest norm.
    pub(crate) fn optimizer(
        &mut self,
        optimizer: &Optimizer,
        part: &UpdatedPart,
        (is_beside, clip): (bool, Option<(u32, f64)>),
    ) -> Vec<Launch> {
        let by_number = part.pieces.iter().filter(|piece| piece.matrices.is_none());
        by_number.map(|piece| self.piece(optimizer, (part, piece), (is_beside, clip))).collect()
    }

    /// Says what to launch to add the squares of gradients, the first operand, to their sum, the second.
    pub(crate) fn squares(&mut self, part: &SquaredPart) -> Vec<Launch> {
        let place = |operand: u32, offset: usize| {
            Argument::Address(Location { place: Storage::Operand(operand), offset: Bytes(offset as u64) })
        };
        let mut launches = Vec::new();
        for range in &part.bytes {
            let count = range.len() as u64 / part.dtype.bytes().0;
            let blocks = some_blocks(count.div_ceil(SQUARES_OF_BLOCK), NORM_NUMBERS as u32 - 1);
            let [sums, add] = [
                ("squares_REAL", blocks, vec![place(1, 0), place(0, range.start), Argument::U64(count)]),
                ("add_sums", 1, vec![place(1, 0), Argument::U32(blocks)]),
            ]
            .map(|(file, blocks, arguments)| Launch {
                function: self.function(file, &[("REAL", real(part.dtype))]),
                grid: [blocks, 1, 1],
                block: [256, 1, 1],
                shared: 0,
                arguments,
            });
            launches.extend([sums, add]);
        }
        launches
    }

    fn piece(
        &mut self,
        optimizer: &Optimizer,
        (part, piece): (&UpdatedPart, &Piece),
        (is_beside, clip): (bool, Option<(u32, f64)>),
    ) -> Launch {
        let UpdatedPart { dtype, bytes, from, .. } = part;
        let optimizer = if piece.decays { *optimizer } else { optimizer.without_decay() };
        let count = piece.bytes.len() as u64 / dtype.bytes().0;
        let place = |operand: u32, offset: usize| {
            let offset = Bytes((offset + piece.bytes.start) as u64);
            Argument::Address(Location { place: Storage::Operand(operand), offset })
        };
        let new = u32::from(is_beside);
        let (gradients, state) = (new + 1, new + 2);
        let mut arguments = vec![place(0, *from), place(new, *from), place(gradients, bytes.start)];
        // What weight decay leaves changes with the rate: kernels that need it find it among the numbers of the step.
        let decays = Some(Argument::U32(u32::from(piece.decays)));
        let (file, decays, numbers) = match optimizer {
            Optimizer::Sgd { momentum: 0.0, weight_decay } => ("plain_sgd_REAL", None, vec![weight_decay]),
            Optimizer::Sgd { momentum, weight_decay } => {
                arguments.push(place(state, 0));
                ("momentum_sgd_REAL", None, vec![momentum, weight_decay])
            }
            Optimizer::AdamW { beta1, beta2, epsilon, .. } | Optimizer::Muon { beta1, beta2, epsilon, .. } => {
                let second = Location { place: Storage::Operand(state), offset: Bytes(piece.second as u64) };
                arguments.extend([place(state, 0), Argument::Address(second)]);
                ("adamw_REAL", decays, vec![beta1, 1.0 - beta1, beta2, 1.0 - beta2, epsilon])
            }
            Optimizer::Lion { beta1, beta2, .. } => {
                arguments.push(place(state, 0));
                ("lion_REAL", decays, vec![beta1, 1.0 - beta1, beta2, 1.0 - beta2])
            }
        };
        arguments.push(Argument::Step);
        arguments.extend(clipped(clip));
        arguments.push(Argument::U64(count));
        arguments.extend(decays);
        arguments.extend(numbers.into_iter().map(|own| number(*dtype, own)));
        self.over(file, *dtype, count, arguments)
    }

    /// The launches before and after the orthogonalization of matrices. `update` and `orthogonal` are the locations of
    /// its input and output in the scratch buffer. All other arguments are those of [`Self::optimizer`].
    pub(crate) fn matrices(
        &mut self,
        optimizer: &Optimizer,
        (part, piece, matrices): (&UpdatedPart, &Piece, Matrices),
        (is_beside, clip): (bool, Option<(u32, f64)>),
        [update, orthogonal]: [Location; 2],
    ) -> [Launch; 2] {
        let (dtype, count) = (part.dtype, matrices.elements());
        let place = |operand: u32, offset: usize| {
            let offset = Bytes((offset + piece.bytes.start) as u64);
            Argument::Address(Location { place: Storage::Operand(operand), offset })
        };
        let new = u32::from(is_beside);
        let momentum = match optimizer {
            Optimizer::Muon { momentum, .. } => *momentum,
            Optimizer::Sgd { .. } | Optimizer::AdamW { .. } | Optimizer::Lion { .. } => 0.0,
        };
        let mut momentum_arguments =
            vec![place(new + 1, part.bytes.start), place(new + 2, 0), Argument::Address(update)];
        momentum_arguments.extend(clipped(clip));
        momentum_arguments.push(Argument::U64(count));
        momentum_arguments.extend([momentum, 1.0 - momentum].map(|own| number(dtype, own)));
        let step_arguments = vec![
            place(0, part.from),
            place(new, part.from),
            Argument::Address(orthogonal),
            Argument::Step,
            Argument::U64(count),
            Argument::U32(u32::from(piece.decays)),
            Argument::F64(matrices.factor()),
        ];
        [("muon_momentum_REAL", momentum_arguments), ("muon_step_REAL", step_arguments)]
            .map(|(file, arguments)| self.over(file, dtype, count, arguments))
    }

    /// A launch over `count` elements, in a grid-stride loop.
    fn over(&mut self, file: &'static str, dtype: DType, count: u64, arguments: Vec<Argument>) -> Launch {
        let grid = [some_blocks(count.div_ceil(256), 65535), 1, 1];
        let function = self.function(file, &[("REAL", real(dtype))]);
        Launch { function, grid, block: [256, 1, 1], shared: 0, arguments }
    }
}

/// The arguments for clipping: the address of the squared norm, which is null if gradients are not clipped, and the
/// largest norm.
fn clipped(clip: Option<(u32, f64)>) -> [Argument; 2] {
    let squares = clip.map_or(Argument::U64(0), |(operand, _)| {
        Argument::Address(Location { place: Storage::Operand(operand), offset: Bytes::ZERO })
    });
    [squares, Argument::F64(clip.map_or(0.0, |(_, most)| most))]
}
