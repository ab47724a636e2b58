//! Launches of kernels over rows: a team of threads for each row, or strips of columns.

use super::{Sources, blocks, number, real, some_blocks, vector_bytes, word};
use crate::launch::{Argument, COLUMN_BLOCKS, LOSS_BLOCKS, Launch, STRIP};
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Extent, Location, RowKernel, RowOp, Signature, Sum};

/// Threads of a block of several teams.
const THREADS: u64 = 256;
/// Threads of a warp.
const WARP: u64 = 32;
/// Elements of a row that a thread has at most, before a row gets more threads.
const MOST_ELEMENTS: u64 = 32;
/// Rows of a part of columns at least: each of a block's warps then has some.
const PART_ROWS: u64 = 32;

/// Blocks of teams: a warp has a narrow row, a block a wide one.
fn teams(rows: u64, width: u64) -> ([u32; 3], [u32; 3]) {
    let team = width.div_ceil(MOST_ELEMENTS).next_power_of_two().clamp(WARP, 512);
    let n_teams = if team == WARP { THREADS / WARP } else { 1 };
    ([blocks(rows.div_ceil(n_teams)), 1, 1], [team as u32, n_teams as u32, 1])
}

/// Blocks that sum columns: strips of them, and as many parts of the rows as fill a device.
fn strips(outer: u64, rows: u64, columns: u64) -> (u64, [u32; 3], [u32; 3]) {
    let n_strips = columns.div_ceil(STRIP);
    let n_parts = (COLUMN_BLOCKS / (outer * n_strips)).min(rows.div_ceil(PART_ROWS)).max(1);
    (n_strips, [blocks(outer * n_strips), n_parts as u32, 1], [WARP as u32, 8, 1])
}

/// Columns that are loaded at once: 4 if each group of four in rows of this width lies where
/// vectors may be, in all of these tensors, else 1.
fn lanes<'a>(width: u64, tensors: impl IntoIterator<Item = (&'a Location, DType)>) -> &'static str {
    let is_aligned = |(at, dtype): (&Location, DType)| at.offset.0.is_multiple_of(vector_bytes(dtype, 4));
    if width.is_multiple_of(4) && tensors.into_iter().all(is_aligned) { "4" } else { "1" }
}

impl Sources {
    pub(super) fn sum(&mut self, sum: &Sum) -> Launch {
        let words = [("REAL", real(sum.dtype)), ("STORED", word(sum.stored))];
        let mut arguments = vec![Argument::Address(sum.x), Argument::Address(sum.out)];
        let accumulate = Argument::U32(u32::from(sum.accumulate));
        if sum.inner == 1 {
            let (grid, block) = teams(sum.outer, sum.reduced);
            arguments.extend([Argument::U64(sum.outer), Argument::U64(sum.reduced), accumulate]);
            return Launch {
                function: self.function("sum_rows_REAL_STORED", &words),
                grid,
                block,
                shared: 0,
                arguments,
            };
        }
        let (n_strips, grid, block) = strips(sum.outer, sum.reduced, sum.inner);
        let sizes = [sum.reduced, sum.inner, n_strips].map(Argument::U64);
        arguments.extend([Argument::Working].into_iter().chain(sizes).chain([accumulate]));
        let words = [words[0], words[1], ("LANES", lanes(sum.inner, [(&sum.x, sum.stored)]))];
        Launch { function: self.function("sum_columns_REAL_STORED_xLANES", &words), grid, block, shared: 0, arguments }
    }

    pub(super) fn rows(&mut self, kernel: &RowKernel) -> Vec<Launch> {
        let RowKernel { op, rows, width, .. } = kernel;
        let sizes = || [Argument::U64(*rows), Argument::U64(*width)].to_vec();
        let by_teams = teams(*rows, *width);
        // Every row has its block, or blocks take several rows.
        let by_blocks = |most: u32| ([some_blocks(*rows, most), 1, 1], [by_teams.1[0], 1, 1]);
        let (file, shape, between, last) = match op {
            RowOp::Positions => ("positions_REAL", by_blocks(1), vec![], vec![]),
            RowOp::Powers { base } => ("powers_REAL", by_blocks(1), vec![], vec![Argument::F64(*base)]),
            RowOp::TopK { k } => ("top_k_REAL_STORED", by_teams, vec![], vec![Argument::U64(*k)]),
            RowOp::TakeAlong { k } => {
                ("take_along_REAL_STORED", by_teams, vec![Argument::Error], vec![Argument::U64(*k)])
            }
            RowOp::AddAlong { k } => {
                ("add_along_REAL_RESULT", by_teams, vec![Argument::Error], vec![Argument::U64(*k)])
            }
            RowOp::NormStatistics { epsilon, rms } => {
                let last = vec![number(kernel.dtype, *epsilon), flag(*rms)];
                ("norm_statistics_REAL_STORED_xLANES", by_teams, vec![], last)
            }
            RowOp::Normalize { biased } => {
                ("normalize_REAL_STORED_RESULT_xLANES", by_teams, vec![], vec![flag(*biased)])
            }
            RowOp::NormalizeGradInput { joined, rms } => {
                let last = vec![flag(*joined), flag(*rms)];
                ("normalize_grad_input_REAL_STORED_RESULT_xLANES", by_teams, vec![], last)
            }
            RowOp::NormalizeGradGain => {
                let (_, grid, block) = strips(1, *rows, *width);
                let accumulate = Argument::U32(u32::from(kernel.accumulate));
                ("normalize_grad_gain_REAL_STORED_xLANES", (grid, block), vec![Argument::Working], vec![accumulate])
            }
            RowOp::Softmax { causal } => {
                ("softmax_REAL_STORED_RESULT", by_teams, vec![], vec![Argument::U64(causal.unwrap_or_default())])
            }
            RowOp::SoftmaxGrad => ("softmax_grad_REAL_STORED_RESULT", by_teams, vec![], vec![]),
            RowOp::CrossEntropy { weighted } => {
                let between = vec![Argument::Working, Argument::Error];
                ("cross_entropy_REAL_STORED_xLANES", by_blocks(LOSS_BLOCKS), between, vec![flag(*weighted)])
            }
            RowOp::CrossEntropyGrad { weighted } => {
                let (shape, last) = (by_blocks(i32::MAX as u32), vec![flag(*weighted)]);
                ("cross_entropy_grad_REAL_STORED_RESULT_xLANES", shape, vec![Argument::Error], last)
            }
            RowOp::Gather { table } => ("gather_REAL", by_teams, vec![Argument::Error], vec![Argument::U64(*table)]),
            RowOp::ScatterAdd { table } => return self.scatter_add(kernel, *table),
            RowOp::OwnIndices { k, size, members, member } => {
                let count = rows * k;
                let tensors = [&kernel.inputs[0], &kernel.out].map(|at| Argument::Address(*at));
                let numbers = [count, *size, *members, *member].map(Argument::U64);
                let arguments = tensors.into_iter().chain([Argument::Error]).chain(numbers).collect();
                let (function, grid) = (self.function("own_indices", &[]), [blocks(count.div_ceil(256)), 1, 1]);
                return vec![Launch { function, grid, block: [256, 1, 1], shared: 0, arguments }];
            }
        };
        // What nothing is added to has an input as what is added, which nobody looks at.
        let is_missing = matches!(
            op,
            RowOp::NormalizeGradInput { joined: false, .. }
                | RowOp::Normalize { biased: false }
                | RowOp::CrossEntropy { weighted: false }
                | RowOp::CrossEntropyGrad { weighted: false }
        );
        let unread = kernel.inputs.last().filter(|_| is_missing);
        let tensors = kernel.inputs.iter().chain(unread).chain([&kernel.out]).map(|at| Argument::Address(*at));
        let arguments = tensors.chain(between).chain(sizes()).chain(last).collect();
        let words = [
            ("REAL", real(kernel.dtype)),
            ("STORED", word(kernel.stored)),
            ("RESULT", word(kernel.result)),
            ("LANES", lanes_of(kernel)),
        ];
        let function = self.function(file, &words);
        vec![Launch { function, grid: shape.0, block: shape.1, shared: 0, arguments }]
    }

    /// A table of zeros first, unless rows are added to one.
    fn scatter_add(&mut self, kernel: &RowKernel, table: u64) -> Vec<Launch> {
        let RowKernel { rows, width, inputs, out, dtype, .. } = kernel;
        let zero = (!kernel.accumulate).then(|| self.zero(*dtype, *out, table * width));
        let words = [("REAL", real(*dtype)), ("STORED", word(kernel.stored))];
        let function = self.function("scatter_add_REAL_STORED", &words);
        let tensors = inputs.iter().chain([out]).map(|at| Argument::Address(*at));
        let sizes = [*rows, *width, table].map(Argument::U64);
        let arguments = tensors.chain([Argument::Error]).chain(sizes).collect();
        let grid = [blocks(*rows), blocks(width.div_ceil(1024)), 1];
        zero.into_iter().chain([Launch { function, grid, block: [256, 1, 1], shared: 0, arguments }]).collect()
    }

    pub(super) fn zero(&mut self, dtype: DType, out: Location, count: u64) -> Launch {
        let function = self.function("zero_REAL", &[("REAL", real(dtype))]);
        let arguments = vec![Argument::Address(out), Argument::U64(count)];
        Launch {
            function,
            grid: [some_blocks(count.div_ceil(1024), 65535), 1, 1],
            block: [256, 1, 1],
            shared: 0,
            arguments,
        }
    }
}

fn flag(is_set: bool) -> Argument {
    Argument::U32(u32::from(is_set))
}

/// Of the tensors that are walked by groups: those with a row of elements for each row, gains and biases.
fn lanes_of(kernel: &RowKernel) -> &'static str {
    let Signature { inputs, result, .. } = kernel.op.signature();
    let walked = inputs.iter().zip(&kernel.inputs).filter_map(|(extent, at)| match extent {
        Extent::Rows => Some((at, kernel.stored)),
        Extent::Row => Some((at, kernel.dtype)),
        Extent::Pairs | Extent::Indices | Extent::Weights | Extent::One | Extent::Table | Extent::Named => None,
        Extent::Columns | Extent::Chosen => None,
    });
    lanes(kernel.width, walked.chain((result == Extent::Rows).then_some((&kernel.out, kernel.result))))
}
