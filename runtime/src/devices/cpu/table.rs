//! Rows of tables: gather and its derivative.

use super::lanes::{LANES, add, kernel, load, store};
use crate::fault::Fault;
use pulp::Arch;

/// Copies the rows that the indices name.
pub(super) fn gather(table: &[f32], indices: &[i32], width: usize, out: &mut [f32]) -> Result<(), Fault> {
    check_indices(indices, table.len() / width)?;
    for (index, out) in indices.iter().zip(out.chunks_exact_mut(width)) {
        let start = *index as usize * width;
        out.copy_from_slice(&table[start..start + width]);
    }
    Ok(())
}

/// Adds each row of dy to the row of `out` that its index names, in the order of the indices.
pub(super) fn scatter_add(arch: Arch, indices: &[i32], dy: &[f32], width: usize, out: &mut [f32]) -> Result<(), Fault> {
    check_indices(indices, out.len() / width)?;
    add_rows(arch, indices, dy, width, out);
    Ok(())
}

kernel! {
    /// As above, for indices that were checked.
    fn add_rows<'a>(s; indices: &'a [i32], dy: &'a [f32], width: usize, out: &'a mut [f32]) {
        for (index, dy) in indices.iter().zip(dy.chunks_exact(width)) {
            let out = &mut out[*index as usize * width..][..width];
            for at in (0..width).step_by(LANES) {
                let total = add(s, load(s, out, at, 0.0), load(s, dy, at, 0.0));
                store(s, out, at, total);
            }
        }
    }
}

/// Whether every index names a row.
pub(super) fn check_indices(indices: &[i32], rows: usize) -> Result<(), Fault> {
    match indices.iter().find(|index| usize::try_from(**index).map_or(true, |index| index >= rows)) {
        None => Ok(()),
        Some(index) => Err(Fault::new(format!("the data holds index {index}, but the table has {rows} rows"))),
    }
}
