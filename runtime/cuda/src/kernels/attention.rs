//! Launches of attention: blocks of queries, or of keys, that walk the others tile by tile. No
//! score is ever in memory; derivatives begin with two numbers for each query.

use super::gemm::{MOST_AXES, matrix_of, padded};
use super::{Sources, TensorMode, blocks, real, some_blocks, word};
use crate::launch::{Argument, Launch};
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Attention, Derivatives, Matrix};

/// Rows of a block.
const ROWS: u64 = 64;

/// Columns of a group of which a block has one or two.
const COLUMNS: u64 = 64;

impl Sources {
    /// Launches for each index of the batch axes that one launch cannot walk.
    pub(super) fn attention(&mut self, kernel: &Attention) -> Vec<Launch> {
        if kernel.batch.len() <= MOST_AXES {
            return match &kernel.derivatives {
                None => vec![self.attention_forward(kernel)],
                Some(derivatives) => self.attention_gradients(kernel, derivatives),
            };
        }
        let of = |index| {
            let factor = |matrix: &Matrix| matrix_of(matrix, index, kernel.factors);
            let result = |matrix: &Matrix| matrix_of(matrix, index, kernel.result);
            let derivatives = |more: &Derivatives| Derivatives {
                dy: factor(&more.dy),
                by_keys: result(&more.by_keys),
                by_values: result(&more.by_values),
            };
            Attention {
                batch: kernel.batch[1..].to_vec(),
                queries: factor(&kernel.queries),
                keys: factor(&kernel.keys),
                values: factor(&kernel.values),
                out: result(&kernel.out),
                starts: kernel.starts.as_ref().map(|starts| matrix_of(starts, index, DType::I32)),
                derivatives: kernel.derivatives.as_deref().map(derivatives).map(Box::new),
                ..kernel.clone()
            }
        };
        (0..kernel.batch[0]).flat_map(|index| self.attention(&of(index))).collect()
    }

    fn attention_forward(&mut self, kernel: &Attention) -> Launch {
        let matrices = [&kernel.queries, &kernel.keys, &kernel.values, &kernel.out];
        let launch = self.walk(kernel, "forward", kernel.rows, given(&matrices));
        let accumulate = Argument::U32(u32::from(kernel.accumulate));
        Launch { arguments: [launch.arguments, vec![accumulate]].concat(), ..launch }
    }

    /// First two numbers of each query, which the others need.
    fn attention_gradients(&mut self, kernel: &Attention, derivatives: &Derivatives) -> Vec<Launch> {
        let Attention { rows, columns, out, .. } = kernel;
        let Derivatives { dy, by_keys, by_values } = derivatives;
        let inputs = given(&[&kernel.queries, &kernel.keys, &kernel.values, dy]);
        let with = |more: Vec<Argument>| [inputs.clone(), vec![Argument::Address(kernel.room)], more].concat();
        vec![
            self.walk(kernel, "statistics", *rows, with(vec![])),
            self.walk(kernel, "grad_queries", *rows, with(given(&[out]))),
            self.walk(kernel, "grad_keys", *columns, with(given(&[by_keys, by_values]))),
        ]
    }

    /// A launch whose blocks have some of so many rows, and some of their columns where they make any.
    fn walk(&mut self, kernel: &Attention, part: &'static str, rows: u64, arguments: Vec<Argument>) -> Launch {
        let Attention { dtype, batch, width, .. } = kernel;
        let mode = self.tensor_mode(kernel.factors);
        let tiles =
            mode.and_then(|mode| tensor_tiles(mode, *width, part)).unwrap_or_else(|| tiles(*dtype, *width, part));
        let file = format!("attention_{part}_{}", tiles.suffix);
        let own = tiles.words.iter().map(|(word, meaning)| (*word, meaning.as_str()));
        let stored = [("STORED", word(kernel.factors)), ("RESULT", word(kernel.result))];
        let function = self.function(&file, &own.chain(stored).collect::<Vec<_>>());
        let batches: u64 = batch.iter().product();
        let [_, size1, size2] = padded(batch, 1);
        let numbers = [kernel.rows, kernel.columns, *width, batches, size1, size2].map(Argument::U64);
        let flag = |is_set: bool| Argument::U32(u32::from(is_set));
        // Where there are no starts, nobody looks at what is given for them.
        let starts = given(&[kernel.starts.as_ref().unwrap_or(&kernel.queries)]);
        let sight = [flag(kernel.causal), Argument::U64(kernel.window.unwrap_or(0)), flag(kernel.starts.is_some())];
        let by_vectors = tiles.is_tensor.then(|| flag(lies_in_vectors(kernel)));
        let n_parts = tiles.columns.map_or(1, |columns| width.div_ceil(columns));
        // At most 64 batch indices run at once, so that blocks of the same index share the cache.
        let beside = batches.clamp(1, 64);
        let grid =
            [blocks(rows.div_ceil(ROWS) * beside), some_blocks(batches.div_ceil(beside), 65535), blocks(n_parts)];
        // A warp of tensor cores has 16 rows.
        let threads = if tiles.is_tensor { 128 } else { 256 };
        let arguments = arguments.into_iter().chain(numbers).chain(sight).chain(starts).chain(by_vectors).collect();
        Launch { function, grid, block: [threads, 1, 1], shared: 0, arguments }
    }
}

/// How a kernel cuts its work.
struct Tiles {
    is_tensor: bool,
    /// Of its file's name.
    suffix: &'static str,
    words: Vec<(&'static str, String)>,
    /// Columns of the result that a block has, where not all.
    columns: Option<u64>,
}

/// Without tensor cores. In double precision a tile of 64 others would take too much shared memory,
/// and a second group of columns, or block at a time, too many registers.
fn tiles(dtype: DType, width: u64, part: &str) -> Tiles {
    let has_columns = part != "statistics";
    let is_double = dtype == DType::F64;
    let n_groups = if is_double || width <= COLUMNS || !has_columns { 1 } else { 2 };
    let words = vec![
        ("REAL", real(dtype).to_owned()),
        ("OTHERS", if is_double { 16 } else { 64 }.to_string()),
        ("GROUPS", n_groups.to_string()),
        ("BLOCKS", if n_groups == 1 && !is_double { 2 } else { 1 }.to_string()),
    ];
    let suffix = if has_columns { "REAL_STORED_RESULT_GROUPS" } else { "REAL_STORED" };
    Tiles { is_tensor: false, suffix, words, columns: has_columns.then_some(n_groups * COLUMNS) }
}

/// By tensor cores, if all columns of a row fit in registers.
fn tensor_tiles(mode: TensorMode, width: u64, part: &str) -> Option<Tiles> {
    let depth = mode.numbers();
    if width > 64 * depth {
        return None;
    }
    let padded = width.next_power_of_two().max(32);
    let span = padded.min(COLUMNS);
    // Rows of a shared tile, and blocks per multiprocessor (registers are limited accordingly): the fastest on an H200.
    let (others, n_blocks) = match (part, padded / depth <= 32) {
        ("forward", true) => (64, 3),
        ("statistics", true) => (32, 4),
        ("grad_queries", true) => (32, 3),
        ("grad_keys", true) => (64, 2),
        ("grad_keys", false) => (16, 2),
        (_, _) => (32, 2),
    };
    let words = vec![
        ("MODE", mode.word().to_owned()),
        ("DEPTH", depth.to_string()),
        ("WIDTH", padded.to_string()),
        ("SPAN", span.to_string()),
        ("OTHERS", others.to_string()),
        ("BLOCKS", n_blocks.to_string()),
    ];
    let has_parts = part.starts_with("grad");
    let suffix = match part {
        "statistics" => "MODE_STORED_WIDTH",
        "forward" => "MODE_STORED_RESULT_WIDTH",
        _ => "MODE_STORED_RESULT_WIDTH_SPAN",
    };
    Some(Tiles { is_tensor: true, suffix, words, columns: has_parts.then_some(span) })
}

/// Whether all rows of all matrices can be read as aligned vectors of 16 bytes.
fn lies_in_vectors(kernel: &Attention) -> bool {
    let fits = |matrix: &Matrix, dtype: DType| {
        let elements = matrix.batch.iter().chain([&matrix.row, &kernel.width]);
        let mut places = elements.map(|count| count * dtype.bytes().0).chain([matrix.at.offset.0]);
        matrix.column == 1 && places.all(|bytes| bytes.is_multiple_of(16))
    };
    let more = kernel.derivatives.as_ref();
    let factors = [&kernel.queries, &kernel.keys, &kernel.values].into_iter().chain(more.map(|more| &more.dy));
    let results = [&kernel.out].into_iter().chain(more.into_iter().flat_map(|more| [&more.by_keys, &more.by_values]));
    let mut all = factors.map(|one| (one, kernel.factors)).chain(results.map(|one| (one, kernel.result)));
    all.all(|(matrix, dtype)| fits(matrix, dtype))
}

/// Matrices as arguments: an address, and strides.
fn given(matrices: &[&Matrix]) -> Vec<Argument> {
    let of_one = |matrix: &&Matrix| {
        let [first, second, third] = padded(&matrix.batch, 0);
        let strides = [matrix.row, matrix.column, first, second, third].map(Argument::U64);
        [vec![Argument::Address(matrix.at)], strides.to_vec()].concat()
    };
    matrices.iter().flat_map(of_one).collect()
}
