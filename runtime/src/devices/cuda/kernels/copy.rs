//! Launches of copies: rows of neighbours by an element-wise kernel, and tiles where rows become columns.

use super::{Sources, blocks, real};
use crate::devices::cuda::launch::{Argument, Launch};
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Elementwise, Expression, Location, Output, Step, Strided, View};
use pipe_ir::units::Bytes;

/// Rows and columns of a tile.
const TILE: u64 = 32;
/// Axes that a kernel of tiles walks outside of a tile.
const MOST_OUTER: usize = 3;

/// One dimension of both tensors.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Axis {
    size: u64,
    from: u64,
    to: u64,
}

/// A single index.
const NO_AXIS: Axis = Axis { size: 1, from: 0, to: 0 };

impl Sources {
    pub(super) fn copy(&mut self, from: &View, to: &View) -> Vec<Launch> {
        let sizes = from.dims.iter().zip(&to.dims);
        let axes = sizes.map(|(from, to)| Axis { size: to.size, from: from.stride, to: to.stride }).collect();
        let mut axes = simplified(axes);
        match axes.last() {
            Some(inner) if inner.to != 1 || inner.from > 1 => {
                let (columns, _) = (axes.pop().unwrap_or(NO_AXIS), ());
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
            let moved =
                |at: Location, elements: u64| Location { offset: at.offset + Bytes(elements * dtype.bytes().0), ..at };
            let places = (0..first.size).map(|index| (moved(at.0, index * first.from), moved(at.1, index * first.to)));
            return places.flat_map(|at| self.tiles(dtype, at, rest, inner)).collect();
        }
        let mut walked = [NO_AXIS; MOST_OUTER];
        walked[MOST_OUTER - outer.len()..].copy_from_slice(outer);
        let (rows, columns) = inner;
        let count: u64 = walked.iter().map(|axis| axis.size).product();
        let n_tiles = rows.size.div_ceil(TILE) * columns.size.div_ceil(TILE) * count;
        let sizes =
            [rows.size, columns.size, rows.from, columns.from, rows.to, columns.to, walked[1].size, walked[2].size];
        let strides = walked.iter().map(|axis| axis.from).chain(walked.iter().map(|axis| axis.to));
        let numbers = sizes.into_iter().chain(strides).map(Argument::U64);
        let arguments = [Argument::Address(at.0), Argument::Address(at.1)].into_iter().chain(numbers).collect();
        let function = self.function("copy_tiles_REAL", &[("REAL", real(dtype))]);
        vec![Launch { function, grid: [blocks(n_tiles), 1, 1], block: [TILE as u32, 8, 1], shared: 0, arguments }]
    }
}

/// The expression that changes nothing, over axes of which the last is dense in the target.
fn moved(dtype: DType, (from, to): (Location, Location), axes: &[Axis]) -> Elementwise {
    let axes = if axes.is_empty() { &[Axis { size: 1, from: 1, to: 1 }] } else { axes };
    let strided = |at, strides: Vec<u64>| Strided { at, strides };
    Elementwise {
        sizes: axes.iter().map(|axis| axis.size).collect(),
        expression: Expression {
            dtype: if dtype == DType::I32 { DType::F32 } else { dtype },
            splat: vec![axes.last().is_some_and(|axis| axis.from == 0)],
            steps: vec![Step::Load(0)],
            outputs: vec![Output { step: 0, accumulate: false }],
        },
        inputs: vec![strided(from, axes.iter().map(|axis| axis.from).collect())],
        outputs: vec![strided(to, axes.iter().map(|axis| axis.to).collect())],
    }
}

/// The fewest axes that describe the same copy, by falling stride in the target.
fn simplified(mut axes: Vec<Axis>) -> Vec<Axis> {
    axes.retain(|axis| axis.size > 1);
    axes.sort_by_key(|axis| std::cmp::Reverse(axis.to));
    let mut merged: Vec<Axis> = Vec::with_capacity(axes.len());
    for axis in axes {
        match merged.last_mut() {
            Some(outer) if outer.from == axis.from * axis.size && outer.to == axis.to * axis.size => {
                *outer = Axis { size: outer.size * axis.size, ..axis };
            }
            _ => merged.push(axis),
        }
    }
    merged
}

/// Removes the axis whose neighbours are closest to each other in the source.
fn take_densest(axes: &mut Vec<Axis>) -> Axis {
    let densest = (0..axes.len()).filter(|&at| axes[at].from > 0).min_by_key(|&at| axes[at].from);
    densest.map_or(NO_AXIS, |at| axes.remove(at))
}
