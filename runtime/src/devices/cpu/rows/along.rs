//! Elements of a row by their columns, and the columns of its largest elements.

use super::gather::check_indices;
use crate::devices::cpu::number::Number;
use pipe_distributed::Fault;
use pipe_ir::graph::NOWHERE;

/// The columns of the k largest elements of each row, the largest first. Equal elements keep the order
/// of their columns, and NaN is below all numbers.
pub(in crate::devices::cpu) fn top_k<T: Number>(x: &[T], width: usize, k: usize, out: &mut [i32]) {
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(k)) {
        let mut n = 0;
        for (column, number) in x.iter().enumerate() {
            let is_above = |other: &i32| {
                let other = x[*other as usize];
                *number > other || other.partial_cmp(&other).is_none() && number.partial_cmp(number).is_some()
            };
            let place = out[..n].iter().position(is_above).unwrap_or(n);
            if place < k {
                n = (n + 1).min(k);
                out[place..n].rotate_right(1);
                out[place] = column as i32;
            }
        }
    }
}

/// Elements of each row, by their columns.
pub(in crate::devices::cpu) fn take_along<T: Number>(
    x: &[T],
    columns: &[i32],
    width: usize,
    k: usize,
    out: &mut [T],
) -> Result<(), Fault> {
    check_indices(columns, width)?;
    for ((x, columns), out) in x.chunks_exact(width).zip(columns.chunks_exact(k)).zip(out.chunks_exact_mut(k)) {
        let at = |column: i32| if column == NOWHERE { T::ZERO } else { x[column as usize] };
        columns.iter().zip(out).for_each(|(column, out)| *out = at(*column));
    }
    Ok(())
}

/// Adds each element in its column, in order.
pub(in crate::devices::cpu) fn add_along<T: Number>(
    columns: &[i32],
    dy: &[T],
    width: usize,
    k: usize,
    out: &mut [T],
) -> Result<(), Fault> {
    check_indices(columns, width)?;
    for ((columns, dy), out) in columns.chunks_exact(k).zip(dy.chunks_exact(k)).zip(out.chunks_exact_mut(width)) {
        let some = columns.iter().zip(dy).filter(|(column, _)| **column != NOWHERE);
        some.for_each(|(column, dy)| out[*column as usize] += *dy);
    }
    Ok(())
}
