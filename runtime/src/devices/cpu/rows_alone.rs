//! What is made of the places in a row: series, the largest elements, elements by their columns.

use super::gather::check_indices;
use super::number::Number;
use pipe_distributed::Fault;

/// 0, 1, 2, ..
pub(super) fn positions<T: Number>(out: &mut [T]) {
    out.iter_mut().enumerate().for_each(|(position, out)| *out = T::of(position as f64));
}

/// 1, base, base^2, ..
pub(super) fn powers<T: Number>(base: f64, out: &mut [T]) {
    out.iter_mut().enumerate().for_each(|(position, out)| *out = T::of(base.powf(position as f64)));
}

/// The columns of the k largest elements of each row, the largest first; of equal ones, the first column first. What is
/// no number is below all others.
pub(super) fn top_k<T: Number>(x: &[T], width: usize, k: usize, out: &mut [i32]) {
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
pub(super) fn take_along<T: Number>(
    x: &[T],
    columns: &[i32],
    width: usize,
    k: usize,
    out: &mut [T],
) -> Result<(), Fault> {
    check_indices(columns, width)?;
    for ((x, columns), out) in x.chunks_exact(width).zip(columns.chunks_exact(k)).zip(out.chunks_exact_mut(k)) {
        columns.iter().zip(out).for_each(|(column, out)| *out = x[*column as usize]);
    }
    Ok(())
}

/// Adds each element in its column, in order.
pub(super) fn add_along<T: Number>(
    columns: &[i32],
    dy: &[T],
    width: usize,
    k: usize,
    out: &mut [T],
) -> Result<(), Fault> {
    check_indices(columns, width)?;
    for ((columns, dy), out) in columns.chunks_exact(k).zip(dy.chunks_exact(k)).zip(out.chunks_exact_mut(width)) {
        columns.iter().zip(dy).for_each(|(column, dy)| out[*column as usize] += *dy);
    }
    Ok(())
}
