//! Rows of tables: gather and its derivative.

use crate::devices::cpu::lanes::{LANES, add, kernel, load, store};
use crate::devices::cpu::number::Number;
use bytemuck::Pod;
use pipe_distributed::Fault;
use pipe_ir::graph::NOWHERE;
use pulp::Arch;

/// Copies the rows that the indices name.
pub(in crate::devices::cpu) fn gather<T: Pod>(
    table: &[T],
    indices: &[i32],
    width: usize,
    out: &mut [T],
) -> Result<(), Fault> {
    check_indices(indices, table.len() / width)?;
    for (index, out) in indices.iter().zip(out.chunks_exact_mut(width)) {
        if *index == NOWHERE {
            out.fill(T::zeroed());
            continue;
        }
        let start = *index as usize * width;
        out.copy_from_slice(&table[start..start + width]);
    }
    Ok(())
}

/// Adds each row of dy to the row of `out` that its index names, in the order of the indices.
pub(in crate::devices::cpu) fn scatter_add<T: Number>(
    arch: Arch,
    indices: &[i32],
    dy: &[T],
    width: usize,
    out: &mut [T],
) -> Result<(), Fault> {
    check_indices(indices, out.len() / width)?;
    add_rows(arch, indices, dy, width, out);
    Ok(())
}

kernel! {
    /// As above, for indices that were checked.
    fn add_rows<'a, T>(s; indices: &'a [i32], dy: &'a [T], width: usize, out: &'a mut [T]) {
        for (index, dy) in indices.iter().zip(dy.chunks_exact(width)).filter(|(index, _)| **index != NOWHERE) {
            let out = &mut out[*index as usize * width..][..width];
            for at in (0..width).step_by(LANES) {
                let total = add(s, load(s, out, at, T::ZERO), load(s, dy, at, T::ZERO));
                store(s, out, at, total);
            }
        }
    }
}

/// Indices, counted from the first of the `size` that a member has.
pub(in crate::devices::cpu) fn own_indices(
    indices: &[i32],
    (size, members, member): (u64, u64, u64),
    out: &mut [i32],
) -> Result<(), Fault> {
    check_indices(indices, (size * members) as usize)?;
    let own = member * size..(member + 1) * size;
    let counted = |index: i32| own.contains(&(index as u64)).then(|| (index as u64 - own.start) as i32);
    out.iter_mut().zip(indices).for_each(|(out, index)| *out = counted(*index).unwrap_or(NOWHERE));
    Ok(())
}

/// Whether every index names a row, or nothing.
pub(in crate::devices::cpu) fn check_indices(indices: &[i32], rows: usize) -> Result<(), Fault> {
    let is_beyond = |index: i32| index != NOWHERE && usize::try_from(index).map_or(true, |index| index >= rows);
    match indices.iter().find(|index| is_beyond(**index)) {
        None => Ok(()),
        Some(index) => Err(Fault::new(format!("the data holds index {index}, but the table has {rows} rows"))),
    }
}
