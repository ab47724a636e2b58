//! Copies between layouts: contiguous runs where there are any, and tiles where rows become columns.

use crate::devices::axes::{Axis, NO_AXIS, axes_of, simplified, take_densest};
use bytemuck::Pod;
use pipe_distributed::memory::Region;
use pipe_ir::kernels::Dim;

/// Rows and columns of a tile: one cache line of each.
const TILE: usize = 16;

/// Elements from the first to the last of a view, both included.
fn extent(dims: &[Dim]) -> usize {
    if dims.iter().any(|dim| dim.size == 0) {
        return 0;
    }
    1 + dims.iter().map(|dim| ((dim.size - 1) * dim.stride) as usize).sum::<usize>()
}

/// Moves elements between two layouts of the same sizes; both regions begin at the first element of their view.
pub(super) fn copy<T: Pod>(from: Region, from_dims: &[Dim], to: Region, to_dims: &[Dim]) {
    let (from, to) = (from.part(0, extent(from_dims) * size_of::<T>()), to.part(0, extent(to_dims) * size_of::<T>()));
    copy_elements::<T>(from.numbers(), from_dims, to.numbers_mut(), to_dims);
}

fn copy_elements<T: Pod>(from: &[T], from_dims: &[Dim], to: &mut [T], to_dims: &[Dim]) {
    let axes = axes_of(from_dims, to_dims);
    if axes.iter().any(|axis| axis.size == 0) {
        return;
    }
    let mut axes = simplified(axes);
    let inner = axes.pop().unwrap_or(Axis { size: 1, from: 1, to: 1 });
    if inner.from == 1 && inner.to == 1 {
        let row = axes.pop().unwrap_or(NO_AXIS);
        walk(&axes, 0, 0, &mut |source, target| {
            for index in 0..row.size {
                let (source, target) = (source + index * row.from, target + index * row.to);
                to[target..target + inner.size].copy_from_slice(&from[source..source + inner.size]);
            }
        });
        return;
    }
    let row = take_densest(&mut axes);
    walk(&axes, 0, 0, &mut |source, target| transpose(&from[source..], &mut to[target..], row, inner));
}

/// Calls with the offsets of every index of the axes, outermost first.
fn walk(axes: &[Axis], source: usize, target: usize, visit: &mut impl FnMut(usize, usize)) {
    let Some((axis, inner)) = axes.split_first() else { return visit(source, target) };
    for index in 0..axis.size {
        walk(inner, source + index * axis.from, target + index * axis.to, visit);
    }
}

/// Copies two axes, tile by tile.
fn transpose<T: Pod>(from: &[T], to: &mut [T], row: Axis, column: Axis) {
    let dense = row.from == 1 && column.to == 1;
    for r in (0..row.size).step_by(TILE) {
        let n_rows = TILE.min(row.size - r);
        for c in (0..column.size).step_by(TILE) {
            let n_columns = TILE.min(column.size - c);
            let from = &from[r * row.from + c * column.from..];
            let to = &mut to[r * row.to + c * column.to..];
            if dense && n_rows == TILE && n_columns == TILE {
                full_tile(from, to, row.to, column.from);
                continue;
            }
            for r in 0..n_rows {
                for c in 0..n_columns {
                    to[r * row.to + c * column.to] = from[r * row.from + c * column.from];
                }
            }
        }
    }
}

/// Transposes a whole tile: its columns are contiguous in the source, its rows in the target.
fn full_tile<T: Pod>(from: &[T], to: &mut [T], row_to: usize, column_from: usize) {
    let mut tile = [[T::zeroed(); TILE]; TILE];
    for (c, column) in tile.iter_mut().enumerate() {
        column.copy_from_slice(&from[c * column_from..][..TILE]);
    }
    for r in 0..TILE {
        let row = &mut to[r * row_to..][..TILE];
        for (element, column) in row.iter_mut().zip(&tile) {
            *element = column[r];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes, with strides of the source and of the target.
    fn check(axes: &[(u64, u64, u64)]) {
        let from_dims: Vec<Dim> = axes.iter().map(|&(size, stride, _)| Dim { size, stride }).collect();
        let to_dims: Vec<Dim> = axes.iter().map(|&(size, _, stride)| Dim { size, stride }).collect();
        let from: Vec<f32> = (0..extent(&from_dims)).map(|at| at as f32).collect();
        let mut to = vec![9.0; extent(&to_dims)];
        let mut expected = to.clone();
        let n: u64 = axes.iter().map(|axis| axis.0).product();
        for element in 0..n {
            let (mut rest, mut source, mut target) = (element, 0, 0);
            for &(size, from, to) in axes.iter().rev() {
                source += rest % size * from;
                target += rest % size * to;
                rest /= size;
            }
            expected[target as usize] = from[source as usize];
        }
        copy_elements(&from, &from_dims, &mut to, &to_dims);
        assert_eq!(to, expected, "{axes:?}");
    }

    #[test]
    fn runs_and_gaps() {
        check(&[(7, 1, 1)]);
        check(&[(3, 17, 17), (17, 1, 1)]);
        check(&[(3, 40, 17), (17, 1, 1)]);
        check(&[(2, 7, 30), (3, 2, 9), (1, 0, 5), (2, 1, 1)]);
        check(&[]);
    }

    #[test]
    fn transposes() {
        for rows in [1, 3, 16, 17, 40] {
            for columns in [1, 5, 16, 33, 48] {
                check(&[(rows, 1, columns), (columns, rows, 1)]);
            }
        }
    }

    #[test]
    fn heads() {
        let (batch, length, heads, width) = (2, 5, 3, 4);
        let row = heads * width;
        check(&[
            (batch, length * row, length * row),
            (heads, width, length * width),
            (length, row, width),
            (width, 1, 1),
        ]);
        check(&[
            (batch, length * row, length * row),
            (heads, width, length * width),
            (width, 1, length),
            (length, row, 1),
        ]);
    }

    #[test]
    fn repeated_and_strided_elements() {
        check(&[(5, 1, 7), (7, 0, 1)]);
        check(&[(5, 0, 7), (7, 1, 1)]);
        check(&[(4, 20, 9), (3, 3, 2)]);
        check(&[(1, 0, 0), (6, 0, 1)]);
    }

    #[test]
    fn nothing() {
        copy_elements::<f32>(&[], &[Dim { size: 0, stride: 1 }], &mut [], &[Dim { size: 0, stride: 1 }]);
        assert_eq!(extent(&[Dim { size: 0, stride: 1 }]), 0);
    }
}
