//! Launches of copies: rows of neighbours by an element-wise kernel, and tiles where rows become columns.

use super::{Sources, blocks, word};
use crate::launch::{Argument, Launch};
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Elementwise, Expression, Load, Location, Output, Step, Strided, View};
use pipe_ir::units::Bytes;
use pipe_runtime::axes::{Axis, NO_AXIS, axes_of, simplified, take_densest};

/// Rows and columns of a tile.
const TILE: usize = 32;
/// Axes that a kernel of tiles walks outside of a tile.
const MOST_OUTER: usize = 3;

impl Sources {
    pub(super) fn copy(&mut self, from: &View, to: &View) -> Vec<Launch> {
        let mut axes = simplified(axes_of(&from.dims, &to.dims));
        match axes.last() {
            Some(inner) if inner.to != 1 || inner.from > 1 => {
                let columns = axes.pop().unwrap_or(NO_AXIS);
                let rows = take_densest(&mut axes);
                self.tiles(to.dtype, (from.at, to.at), &axes, (rows, columns))
            }
            _ => vec![self.elementwise(&moved(to.dtype, (from.at, to.at), &axes))],
        }
    }

    /// A launch for each index of the axes that one launch cannot walk.
    fn tiles(&mut self, dtype: DType, at: (Location, Location), outer: &[Axis], inner: (Axis, Axis)) -> Vec<Launch> {
        if outer.len() > MOST_OUTER {
            let (first, rest) = (outer[0], &outer[1..]);
            let moved = |at: Location, elements: usize| Location {
                offset: at.offset + Bytes(elements as u64 * dtype.bytes().0),
                ..at
            };
            let places = (0..first.size).map(|index| (moved(at.0, index * first.from), moved(at.1, index * first.to)));
            return places.flat_map(|at| self.tiles(dtype, at, rest, inner)).collect();
        }
        let mut walked = [NO_AXIS; MOST_OUTER];
        walked[MOST_OUTER - outer.len()..].copy_from_slice(outer);
        let (rows, columns) = inner;
        let count: usize = walked.iter().map(|axis| axis.size).product();
        let n_tiles = rows.size.div_ceil(TILE) * columns.size.div_ceil(TILE) * count;
        let sizes =
            [rows.size, columns.size, rows.from, columns.from, rows.to, columns.to, walked[1].size, walked[2].size];
        let strides = walked.iter().map(|axis| axis.from).chain(walked.iter().map(|axis| axis.to));
        let numbers = sizes.into_iter().chain(strides).map(|number| Argument::U64(number as u64));
        let arguments = [Argument::Address(at.0), Argument::Address(at.1)].into_iter().chain(numbers).collect();
        let function = self.function("copy_tiles_REAL", &[("REAL", word(dtype))]);
        vec![Launch {
            function,
            grid: [blocks(n_tiles as u64), 1, 1],
            block: [TILE as u32, 8, 1],
            shared: 0,
            arguments,
        }]
    }
}

/// The expression that changes nothing, over axes of which the last is dense in the target.
fn moved(dtype: DType, (from, to): (Location, Location), axes: &[Axis]) -> Elementwise {
    let axes = if axes.is_empty() { &[Axis { size: 1, from: 1, to: 1 }] } else { axes };
    let strided = |at, strides: Vec<u64>| Strided { at, strides };
    // Indices are moved as words of their size.
    let dtype = if dtype == DType::I32 { DType::F32 } else { dtype };
    let splat = axes.last().is_some_and(|axis| axis.from == 0);
    Elementwise {
        sizes: axes.iter().map(|axis| axis.size as u64).collect(),
        expression: Expression {
            dtype: dtype.arithmetic(),
            inputs: vec![Load { dtype, splat }],
            steps: vec![Step::Load(0)],
            outputs: vec![Output { dtype, step: 0, accumulate: false }],
        },
        inputs: vec![strided(from, axes.iter().map(|axis| axis.from as u64).collect())],
        outputs: vec![strided(to, axes.iter().map(|axis| axis.to as u64).collect())],
    }
}
