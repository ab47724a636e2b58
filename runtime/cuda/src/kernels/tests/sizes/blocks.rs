//! Which blocks of a launch make some elements of its result.

use crate::launch::{Argument, Launch};
use std::collections::BTreeSet;

/// Elements of a tensor: all combinations of some places along each axis.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) sizes: Vec<u64>,
    pub(super) along: Vec<Vec<u64>>,
}

impl Places {
    /// The elements by their number, or the rows of these, the last axis left out.
    fn numbers(&self, axes: usize) -> Vec<u64> {
        let grown = |numbers: Vec<u64>, axis: usize| -> Vec<u64> {
            let (size, along) = (self.sizes[axis], &self.along[axis]);
            numbers.iter().flat_map(|number| along.iter().map(move |place| number * size + place)).collect()
        };
        (0..axes).fold(vec![0], grown)
    }

    pub(super) fn elements(&self) -> Vec<u64> {
        self.numbers(self.sizes.len())
    }

    fn rows(&self) -> Vec<u64> {
        self.numbers(self.sizes.len().saturating_sub(1))
    }

    fn columns(&self) -> &[u64] {
        self.along.last().map_or(&[0], Vec::as_slice)
    }
}

/// Kernels with a thread for each element, which go on by as many elements as a grid has threads.
const EACH: [&str; 7] = ["zero_", "adamw_", "lion_", "plain_", "momentum_", "muon_", "add_3_to_"];

/// The places in the grid of the blocks that make these elements of the result; `inputs` has those of the operands.
pub(super) fn blocks(name: &str, launch: &Launch, result: &Places, inputs: &[Places]) -> Vec<u64> {
    let Launch { grid, block, .. } = launch;
    let [across, down, deep] = grid.map(u64::from);
    let (wide, high) = (u64::from(block[0]), u64::from(block[1]));
    let number = |argument: usize| match launch.arguments[argument] {
        Argument::U64(number) => number,
        Argument::U32(number) => u64::from(number),
        other => panic!("argument {argument} of {name} is {other:?}"),
    };
    let at = |x: u64, y: u64, z: u64| x % across + across * (y % down + down * (z % deep));
    let by_rows = |rows: Vec<u64>, each: u64| rows.into_iter().map(|row| at(row / each, 0, 0)).collect();
    let found: BTreeSet<u64> = match name {
        _ if name.starts_with("elementwise") => {
            let lanes: u64 = name.split("_x").nth(1).and_then(|rest| rest.split('_').next()?.parse().ok()).expect(name);
            let columns = number(1);
            let of = |element: u64| at(element % columns / lanes / wide, element / columns / high, 0);
            result.elements().into_iter().map(of).collect()
        }
        "add_sums" | "route_rows" => (0..across).collect(),
        _ if name.starts_with("squares_") => by_rows(inputs[0].elements(), wide),
        _ if EACH.iter().any(|own| name.starts_with(own)) => by_rows(result.elements(), wide),
        _ if name.starts_with("sum_columns") || name.starts_with("normalize_grad_gain") => {
            let strips = result.sizes.last().map_or(1, |columns| columns.div_ceil(128));
            let outer = if name.starts_with("sum_columns") { result.rows() } else { vec![0] };
            let of = |row: u64| result.columns().iter().map(move |column| row * strips + column / 128);
            let across: BTreeSet<u64> = outer.into_iter().flat_map(of).collect();
            across.iter().flat_map(|x| (0..down).map(move |y| at(*x, y, 0))).collect()
        }
        _ if name.starts_with("cross_entropy_grad") => by_rows(result.rows(), 1),
        _ if name.starts_with("cross_entropy") => by_rows(inputs[0].rows(), 1),
        _ if name.starts_with("scatter_add") => {
            let of = |row: u64| result.columns().iter().map(move |column| at(row, column / 1024, 0));
            inputs[1].rows().into_iter().flat_map(of).collect()
        }
        // Of the rows of a case some route has few; all others take route 0, whose groups come first.
        _ if name.starts_with("routed_gemm_grad") => (across * down..across * down * deep).collect(),
        _ if name.starts_with("routed_gemm") => (across - number(4) - 2..across).collect(),
        _ if name.starts_with("gemm") => {
            let (m, n, size) = (number(3), number(4), if name.contains("_128_") { 128 } else { 64 });
            let tall = if name.contains("_tf32_") || name.contains("_bf16_") { 128 } else { size };
            let (row_tiles, column_tiles) = (m.div_ceil(tall), n.div_ceil(size));
            let of = |element: u64| {
                let (batch, rest) = (element / (m * n), element % (m * n));
                // Of the result one stride is 1, and the other one that of all others.
                let (row, column) = if number(11) == 1 { (rest / n, rest % n) } else { (rest % m, rest / m) };
                let (row, column) = (row / tall, column / size);
                let first = row / 8 * 8;
                let height = (row_tiles - first).min(8);
                at(first * column_tiles + column * height + row - first, batch, 0)
            };
            result.elements().into_iter().map(of).collect()
        }
        _ if name.starts_with("copy_tiles") => {
            let [rows, columns, _, _, to_row, to_column, size1, size2, _, _, _, to0, to1, to2] =
                std::array::from_fn(|argument| number(argument + 2));
            let tiles = [rows.div_ceil(32), columns.div_ceil(32)];
            let mut axes =
                [(to_row, 0, rows), (to_column, 1, columns), (to0, 2, u64::MAX), (to1, 3, size1), (to2, 4, size2)];
            axes.sort_unstable_by_key(|axis| std::cmp::Reverse(axis.0));
            let of = |element: u64| {
                let (mut rest, mut place) = (element, [0; 5]);
                for (stride, axis, _) in axes.iter().filter(|(stride, _, _)| *stride > 0) {
                    place[*axis] = rest / stride;
                    rest %= stride;
                }
                let [row, column, at0, at1, at2] = place;
                let outer = (at0 * size1 + at1) * size2 + at2;
                at((outer * tiles[0] + row / 32) * tiles[1] + column / 32, 0, 0)
            };
            result.elements().into_iter().map(of).collect()
        }
        _ if name.starts_with("attention") => {
            // Behind the matrices, and the room for statistics.
            let first = match name {
                _ if name.starts_with("attention_forward") => 24,
                _ if name.starts_with("attention_statistics") => 25,
                _ if name.starts_with("attention_grad_queries") => 31,
                _ => 37,
            };
            let [queries, keys, _, _, _, _, _, window] = std::array::from_fn(|argument| number(first + argument));
            let tiles = if name.starts_with("attention_grad_keys") { keys } else { queries }.div_ceil(64);
            let beside = across / tiles;
            let seen_by =
                |key: u64| key / 64..=if window == 0 { tiles - 1 } else { ((key + window) / 64).min(tiles - 1) };
            let all = if name.starts_with("attention_forward") { queries } else { queries + 2 * keys };
            let own = |row: u64| -> Vec<u64> {
                let key = row.checked_sub(queries).map(|key| key % keys);
                match (name, key) {
                    _ if name.starts_with("attention_forward") => vec![row / 64],
                    (_, None) if !name.starts_with("attention_grad_keys") => vec![row / 64],
                    (_, Some(key)) if name.starts_with("attention_grad_keys") => vec![key / 64],
                    (_, Some(key)) if name.starts_with("attention_statistics") => seen_by(key).collect(),
                    _ => vec![],
                }
            };
            let mut all_tiles = BTreeSet::new();
            for row in result.rows() {
                all_tiles.extend(own(row % all).into_iter().map(|tile| (row / all, tile)));
            }
            let of = |(batch, tile): &(u64, u64)| {
                // The last queries begin, and the first keys.
                let task = if name.starts_with("attention_grad_keys") { *tile } else { tiles - 1 - tile };
                let place = (task * beside + batch % beside, batch / beside);
                (0..deep).map(move |z| at(place.0, place.1, z))
            };
            all_tiles.iter().flat_map(of).collect()
        }
        // A team has a row.
        _ => by_rows(result.rows(), high),
    };
    found.into_iter().collect()
}
