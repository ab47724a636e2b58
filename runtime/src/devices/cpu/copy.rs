//! Copies between layouts, in tiles where rows become columns.

use crate::memory::Region;
use pipe_ir::kernels::Dim;

/// Sides of a tile: 16 words are a cache line.
const TILE: usize = 16;

/// Moves words between two layouts of the same sizes, whose last two dimensions may be in any order.
pub(super) fn copy(from: Region, from_dims: &[Dim], to: Region, to_dims: &[Dim]) {
    let (Some((from_last, from_outer)), Some((to_last, to_outer))) = (from_dims.split_last(), to_dims.split_last())
    else {
        to.f32s_mut()[0] = from.f32s()[0];
        return;
    };
    match (from_outer, to_outer) {
        ([], []) => matrix(from.f32s(), (ONE, *from_last), to.f32s_mut(), (ONE, *to_last)),
        ([from_row], [to_row]) => matrix(from.f32s(), (*from_row, *from_last), to.f32s_mut(), (*to_row, *to_last)),
        _ => {
            for index in 0..from_dims[0].size {
                let part = |region: Region, dim: Dim| {
                    let start = (index * dim.stride) as usize * 4;
                    region.part(start, region.len() - start)
                };
                copy(part(from, from_dims[0]), &from_dims[1..], part(to, to_dims[0]), &to_dims[1..]);
            }
        }
    }
}

const ONE: Dim = Dim { size: 1, stride: 0 };

/// One matrix: (rows, columns) of both sides.
fn matrix(from: &[f32], from_dims: (Dim, Dim), to: &mut [f32], to_dims: (Dim, Dim)) {
    let (rows, columns) = (from_dims.0.size as usize, from_dims.1.size as usize);
    let place =
        |dims: (Dim, Dim), row: usize, column: usize| row * dims.0.stride as usize + column * dims.1.stride as usize;
    if from_dims.1.stride == 1 && to_dims.1.stride == 1 {
        for row in 0..rows {
            let (source, target) = (place(from_dims, row, 0), place(to_dims, row, 0));
            to[target..target + columns].copy_from_slice(&from[source..source + columns]);
        }
        return;
    }
    for tile_row in (0..rows).step_by(TILE) {
        for tile_column in (0..columns).step_by(TILE) {
            for row in tile_row..(tile_row + TILE).min(rows) {
                for column in tile_column..(tile_column + TILE).min(columns) {
                    to[place(to_dims, row, column)] = from[place(from_dims, row, column)];
                }
            }
        }
    }
}
