//! Series: the positions of a row, and the powers of a number.

use crate::devices::cpu::number::Number;

/// 0, 1, 2, ..
pub(in crate::devices::cpu) fn positions<T: Number>(out: &mut [T]) {
    out.iter_mut().enumerate().for_each(|(position, out)| *out = T::of(position as f64));
}

/// 1, base, base^2, ..
pub(in crate::devices::cpu) fn powers<T: Number>(base: f64, out: &mut [T]) {
    out.iter_mut().enumerate().for_each(|(position, out)| *out = T::of(base.powf(position as f64)));
}
