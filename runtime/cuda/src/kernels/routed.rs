//! Launches of routed products: rows are put in the order of their routes, then multiplied.

use super::{Sources, blocks, real, some_blocks, word};
use crate::launch::{Argument, Launch};
use pipe_ir::kernels::{Routed, RoutedProduct};

/// Rows and columns of a result that a block has.
const TILE: u64 = 64;

impl Sources {
    pub(super) fn routed(&mut self, kernel: &Routed) -> Vec<Launch> {
        let Routed { product, matrices, rows, inner, width, x, other, routes, out, room, .. } = kernel;
        let [x, other, routes, out, room] = [x, other, routes, out, room].map(|at| Argument::Address(*at));
        let sort = Launch {
            function: self.function("route_rows", &[]),
            grid: [1, 1, 1],
            block: [some_blocks(matrices.next_multiple_of(32), 1024), 1, 1],
            shared: 0,
            arguments: vec![routes, room, Argument::Error, Argument::U64(*rows), Argument::U64(*matrices)],
        };
        let words = [("REAL", real(kernel.dtype)), ("STORED", word(kernel.factors))];
        let (file, grid, flag) = match product {
            RoutedProduct::Rows { transpose } => {
                // Each route may have a last group of less than all rows.
                let groups = rows.div_ceil(TILE) + matrices.min(rows);
                ("routed_gemm_REAL_STORED", [blocks(groups), blocks(width.div_ceil(TILE)), 1], *transpose)
            }
            RoutedProduct::ByMatrices => {
                let tiles = [blocks(inner.div_ceil(TILE)), blocks(width.div_ceil(TILE)), some_blocks(*matrices, 65535)];
                ("routed_gemm_grad_REAL_STORED", tiles, kernel.accumulate)
            }
        };
        let sizes = [*matrices, *inner, *width].map(Argument::U64);
        let arguments = [x, other, out, room].into_iter().chain(sizes).chain([Argument::U32(u32::from(flag))]);
        let function = self.function(file, &words);
        let arguments = arguments.collect();
        let product = Launch { function, grid, block: [256, 1, 1], shared: 0, arguments };
        // Rows that go nowhere become 0.
        let zero = matches!(kernel.product, RoutedProduct::Rows { .. })
            .then(|| self.zero(kernel.dtype, kernel.out, rows * width));
        [sort].into_iter().chain(zero).chain([product]).collect()
    }
}
