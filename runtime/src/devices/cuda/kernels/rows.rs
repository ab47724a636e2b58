//! Launches of kernels over rows: a team of threads for each row, or strips of columns.

use super::{Sources, blocks, number, real, some_blocks, word};
use crate::devices::cuda::launch::{Argument, Launch, WORKING_BYTES};
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Location, RowKernel, RowOp, Sum};

/// Threads of a block of several teams.
const THREADS: u64 = 256;
/// Threads of a warp.
const WARP: u64 = 32;
/// Threads of a block that sums columns.
const STRIP_THREADS: u64 = 512;
/// Strips of columns from which all of a device is busy.
const MANY_STRIPS: u64 = 128;
/// Sums that the working memory has room for, after two counters.
const MOST_SUMS: u64 = WORKING_BYTES.0 / 8 - 1;

/// Blocks of teams: a warp has a narrow row, a block a wide one, of which each thread has some eight elements.
fn teams(rows: u64, width: u64) -> ([u32; 3], [u32; 3]) {
    let team = width.div_ceil(8).next_power_of_two().clamp(WARP, 512);
    let n_teams = if team == WARP { THREADS / WARP } else { 1 };
    ([blocks(rows.div_ceil(n_teams)), 1, 1], [team as u32, n_teams as u32, 1])
}

/// Strips of columns, narrow where there are few, and blocks of them.
fn strips(outer: u64, columns: u64) -> (u64, [u32; 3], [u32; 3]) {
    let is_wide = outer * columns.div_ceil(WARP) >= MANY_STRIPS;
    let width = if is_wide { WARP } else { WARP / 4 };
    let n_strips = columns.div_ceil(width);
    (n_strips, [blocks(outer * n_strips), 1, 1], [width as u32, (STRIP_THREADS / width) as u32, 1])
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
        let (n_strips, grid, block) = strips(sum.outer, sum.inner);
        let sizes = [sum.reduced, sum.inner, n_strips].map(Argument::U64);
        arguments.extend(sizes.into_iter().chain([accumulate]));
        Launch { function: self.function("sum_columns_REAL_STORED", &words), grid, block, shared: 0, arguments }
    }

    pub(super) fn rows(&mut self, kernel: &RowKernel) -> Vec<Launch> {
        let RowKernel { op, rows, width, .. } = kernel;
        let sizes = || [Argument::U64(*rows), Argument::U64(*width)].to_vec();
        let by_teams = teams(*rows, *width);
        let (_, grid, block) = strips(1, *width);
        let by_strips = (grid, block);
        // Every row has its block, or blocks take several rows.
        let by_blocks = |most: u32| ([some_blocks(*rows, most), 1, 1], [by_teams.1[0], 1, 1]);
        let (file, shape, between, last) = match op {
            RowOp::NormStatistics { epsilon } => {
                ("norm_statistics_REAL_STORED", by_teams, vec![], vec![number(kernel.dtype, *epsilon)])
            }
            RowOp::Normalize => ("normalize_REAL_STORED", by_teams, vec![], vec![]),
            RowOp::NormalizeGradInput => ("normalize_grad_input_REAL_STORED", by_teams, vec![], vec![]),
            RowOp::NormalizeGradGain => {
                let accumulate = Argument::U32(u32::from(kernel.accumulate));
                ("normalize_grad_gain_REAL_STORED", by_strips, vec![], vec![accumulate])
            }
            RowOp::Softmax { causal } => {
                ("softmax_REAL_STORED", by_teams, vec![], vec![Argument::U64(causal.unwrap_or_default())])
            }
            RowOp::SoftmaxGrad => ("softmax_grad_REAL_STORED", by_teams, vec![], vec![]),
            RowOp::CrossEntropy => {
                let between = vec![Argument::Working, Argument::Error];
                ("cross_entropy_REAL_STORED", by_blocks(MOST_SUMS as u32), between, vec![])
            }
            RowOp::CrossEntropyGrad => {
                ("cross_entropy_grad_REAL_STORED", by_blocks(i32::MAX as u32), vec![Argument::Error], vec![])
            }
            RowOp::Gather { table } => ("gather_REAL", by_teams, vec![Argument::Error], vec![Argument::U64(*table)]),
            RowOp::ScatterAdd { table } => return self.scatter_add(kernel, *table),
        };
        let tensors = kernel.inputs.iter().chain([&kernel.out]).map(|at| Argument::Address(*at));
        let arguments = tensors.chain(between).chain(sizes()).chain(last).collect();
        let function = self.function(file, &[("REAL", real(kernel.dtype)), ("STORED", word(kernel.stored))]);
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

    fn zero(&mut self, dtype: DType, out: Location, count: u64) -> Launch {
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
