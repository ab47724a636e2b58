//! Launches of matrix products: which kernel, by the layout of the factors, the size of the result and the precision.

use super::{Sources, TensorMode, blocks, some_blocks, vector_bytes, word};
use crate::launch::{Argument, Launch};
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Gemm, Location, Matrix};
use pipe_ir::units::Bytes;

/// Batch axes that a kernel walks.
pub(super) const MOST_AXES: usize = 3;
/// Large tiles of a result from which all of a device is busy.
const MANY_TILES: u64 = 96;

impl Sources {
    /// A launch for each index of the batch axes that one launch cannot walk.
    pub(super) fn gemm(&mut self, gemm: &Gemm) -> Vec<Launch> {
        if gemm.batch.len() <= MOST_AXES {
            return vec![self.product(gemm)];
        }
        let Gemm { factors, result, .. } = *gemm;
        let of = |index| Gemm {
            batch: gemm.batch[1..].to_vec(),
            a: matrix_of(&gemm.a, index, factors),
            b: matrix_of(&gemm.b, index, factors),
            c: matrix_of(&gemm.c, index, result),
            ..gemm.clone()
        };
        (0..gemm.batch[0]).flat_map(|index| self.gemm(&of(index))).collect()
    }

    fn product(&mut self, gemm: &Gemm) -> Launch {
        let Gemm { m, n, k, a, b, c, .. } = gemm;
        let batches: u64 = gemm.batch.iter().product();
        let mode = self.tensor_mode(gemm.factors);
        let is_tensor = mode.is_some();
        let tiles = |rows: u64, columns: u64| m.div_ceil(rows) * n.div_ceil(columns) * batches;
        let is_large = gemm.dtype == DType::F32 && *n > 64 && (is_tensor || *m > 64) && tiles(128, 128) >= MANY_TILES;
        let (height, width) = (if is_large || is_tensor { 128 } else { 64 }, if is_large { 128 } else { 64 });
        // Units along k are taken by neighbouring threads where they are closer to each other than
        // rows, or columns of the right factor.
        let (a_along_k, b_along_k) = (a.column <= a.row, b.row <= b.column);
        let letter = |along_k| if along_k { 'k' } else { 'r' };
        let layout: String = [a_along_k, b_along_k].map(letter).iter().collect();
        let along = [("A_ALONG_K", a_along_k.to_string()), ("B_ALONG_K", b_along_k.to_string())];
        let along = along.each_ref().map(|(word, meaning)| (*word, meaning.as_str()));
        let (real, side) = (word(gemm.factors), if is_large { "128" } else { "64" });
        let numbers = mode.map_or(1, TensorMode::numbers).to_string();
        let (file, own) = match mode {
            Some(mode) => (
                "gemm_MODE_REAL_RESULT_COLUMNS_LAYOUT",
                vec![
                    ("MODE", mode.word()),
                    ("NUMBERS", numbers.as_str()),
                    ("REAL", real),
                    ("RESULT", word(gemm.result)),
                    ("COLUMNS", side),
                ],
            ),
            None => ("gemm_REAL_SIDE_LAYOUT", vec![("REAL", real), ("SIDE", side)]),
        };
        let words = [own.as_slice(), &along, &[("LAYOUT", layout.as_str())]].concat();
        let function = self.function(file, &words);
        let size = |axis: usize| padded(&gemm.batch, 1)[axis];
        let sizes = [*m, *n, *k, a.row, a.column, b.row, b.column, c.row, c.column, batches, size(1), size(2)];
        let strides = [a, b, c].into_iter().flat_map(|matrix| padded(&matrix.batch, 0));
        let addresses = [a.at, b.at, c.at].map(Argument::Address);
        let flags = [gemm.accumulate, lies_in_vectors(gemm)].map(|flag| Argument::U32(u32::from(flag)));
        let numbers = sizes.into_iter().chain(strides).map(Argument::U64);
        let arguments = addresses.into_iter().chain(numbers).chain(flags).collect();
        let grid = [blocks(m.div_ceil(height) * n.div_ceil(width)), some_blocks(batches, 65535), 1];
        Launch { function, grid, block: [256, 1, 1], shared: 0, arguments }
    }
}

/// The matrices of one index of the first batch axis.
pub(super) fn matrix_of(matrix: &Matrix, index: u64, dtype: DType) -> Matrix {
    let offset = matrix.at.offset + Bytes(index * matrix.batch[0] * dtype.bytes().0);
    Matrix { at: Location { offset, ..matrix.at }, batch: matrix.batch[1..].to_vec(), ..matrix.clone() }
}

/// As many numbers as a kernel takes, the last ones these.
pub(super) fn padded(numbers: &[u64], with: u64) -> [u64; MOST_AXES] {
    let mut padded = [with; MOST_AXES];
    padded[MOST_AXES - numbers.len()..].copy_from_slice(numbers);
    padded
}

/// Whether each group of four columns of the result is where vectors may be.
fn lies_in_vectors(gemm: &Gemm) -> bool {
    let (c, element) = (&gemm.c, gemm.result.bytes().0);
    let strides = c.batch.iter().chain([&c.row]).map(|stride| stride * element);
    let mut places = strides.chain([c.at.offset.0]);
    c.column == 1 && gemm.n.is_multiple_of(4) && places.all(|bytes| bytes.is_multiple_of(vector_bytes(gemm.result, 4)))
}
