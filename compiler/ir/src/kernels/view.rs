//! Views: tensors in memory as a place and strides. Every operation here moves no bytes.

use crate::graph::{DType, TensorType};
use crate::units::Bytes;

/// Which memory an executable's kernel means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Storage {
    /// The buffer of this operand.
    Operand(u32),
    /// The scratch buffer.
    Scratch,
}

/// A place and a number of bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Location {
    /// Where to count from.
    pub place: Storage,
    /// How far; a multiple of the size of an element.
    pub offset: Bytes,
}

/// One dimension of a view.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Dim {
    /// Number of indices.
    pub size: u64,
    /// Elements from one index to the next; 0 where one element is repeated.
    pub stride: u64,
}

/// A tensor in memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct View {
    /// Type of its elements.
    pub dtype: DType,
    /// Its first element.
    pub at: Location,
    /// Its dimensions, outermost first.
    pub dims: Vec<Dim>,
}

impl View {
    /// Row-major and without gaps.
    pub(super) fn contiguous(at: Location, dtype: DType, shape: &[u64]) -> Self {
        let mut stride = 1;
        let mut dims: Vec<Dim> = Vec::with_capacity(shape.len());
        for &size in shape.iter().rev() {
            dims.push(Dim { size, stride });
            stride *= size;
        }
        dims.reverse();
        Self { dtype, at, dims }
    }

    /// The same place with other dimensions.
    pub(super) fn with_dims(&self, dims: Vec<Dim>) -> Self {
        Self { dims, ..*self }
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().map(|dim| dim.size).product()
    }

    /// Whether it is row-major and without gaps.
    pub(super) fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.dims.iter().rev().all(|dim| {
            let fits = dim.size == 1 || dim.stride == expected;
            expected *= dim.size;
            fits
        })
    }

    /// Whether every element has the same place in both. (The stride of a single index says nothing.)
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        let dims = self.dims.iter().zip(&other.dims);
        let mut same = dims.map(|(a, b)| a.size == b.size && (a.size == 1 || a.stride == b.stride));
        self.at == other.at && self.dims.len() == other.dims.len() && same.all(|same| same)
    }

    /// Whether neighbours in the innermost dimension that has several elements are neighbours in memory.
    pub(super) fn has_unit_rows(&self) -> bool {
        self.dims.iter().rev().find(|dim| dim.size > 1).is_none_or(|dim| dim.stride == 1)
    }

    /// Dimension i of the result is dimension `permutation[i]`.
    pub(super) fn permuted(&self, permutation: &[u32]) -> Self {
        self.with_dims(permutation.iter().map(|&axis| self.dims[axis as usize]).collect())
    }

    /// The view of which this one is the permutation.
    pub(super) fn unpermuted(&self, permutation: &[u32]) -> Self {
        let mut dims = self.dims.clone();
        for (dim, &axis) in self.dims.iter().zip(permutation) {
            dims[axis as usize] = *dim;
        }
        self.with_dims(dims)
    }

    /// `size` indices of one axis, from `start`.
    pub(super) fn sliced(&self, axis: u32, start: u64, size: u64) -> Self {
        let mut view = self.clone();
        let dim = &mut view.dims[axis as usize];
        view.at.offset += Bytes(start * dim.stride * self.dtype.bytes().0);
        dim.size = size;
        view
    }

    /// Repeated to a shape, by the rules of broadcasting.
    pub(super) fn broadcast(&self, shape: &[u64]) -> Self {
        let missing = shape.len() - self.dims.len();
        let dims = shape.iter().enumerate().map(|(position, &size)| {
            let own = position.checked_sub(missing).map(|axis| self.dims[axis]);
            let stride = own.filter(|dim| dim.size == size && size > 1).map_or(0, |dim| dim.stride);
            Dim { size, stride }
        });
        self.with_dims(dims.collect())
    }

    /// The same elements, in row-major order, under another shape; `None` if that takes a copy.
    pub(super) fn reshaped(&self, shape: &[u64]) -> Option<Self> {
        let runs = collapse(&[&self.dims]);
        let mut runs = runs.iter().map(|run| run[0]).rev();
        let mut run = runs.next().unwrap_or(Dim { size: 1, stride: 1 });
        let mut dims = Vec::with_capacity(shape.len());
        for &size in shape.iter().rev() {
            if size == 1 {
                dims.push(Dim { size, stride: run.stride });
                continue;
            }
            if run.size == 1 {
                run = runs.next()?;
            }
            if run.size % size != 0 {
                return None;
            }
            dims.push(Dim { size, stride: run.stride });
            run = Dim { size: run.size / size, stride: run.stride * size };
        }
        dims.reverse();
        Some(self.with_dims(dims))
    }

    /// The stride and size of the dimensions as one, or `None` where they are not evenly spaced.
    pub(super) fn as_one(dims: &[Dim]) -> Option<Dim> {
        let runs = collapse(&[dims]);
        match runs.as_slice() {
            [] => Some(Dim { size: 1, stride: 1 }),
            [run] => Some(run[0]),
            _ => None,
        }
    }

    /// The tensor of an operand.
    pub(super) fn of_operand(operand: u32, offset: Bytes, ty: &TensorType) -> Self {
        Self::contiguous(Location { place: Storage::Operand(operand), offset }, ty.dtype, &ty.shape)
    }
}

/// Merges neighbouring dimensions that are evenly spaced in all tensors, and drops those of size 1.
/// Every tensor has the same sizes; the result has one entry per remaining dimension, with one
/// [`Dim`] per tensor.
pub(super) fn collapse(tensors: &[&[Dim]]) -> Vec<Vec<Dim>> {
    let rank = tensors.first().map_or(0, |dims| dims.len());
    let mut merged: Vec<Vec<Dim>> = Vec::new();
    for axis in 0..rank {
        let dims: Vec<Dim> = tensors.iter().map(|tensor| tensor[axis]).collect();
        if dims.iter().all(|dim| dim.size == 1) {
            continue;
        }
        match merged.last_mut() {
            Some(last) if last.iter().zip(&dims).all(|(outer, dim)| outer.stride == dim.stride * dim.size) => {
                for (outer, dim) in last.iter_mut().zip(&dims) {
                    *outer = Dim { size: outer.size * dim.size, stride: dim.stride };
                }
            }
            _ => merged.push(dims),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(dims: &[(u64, u64)]) -> View {
        let dims = dims.iter().map(|&(size, stride)| Dim { size, stride }).collect();
        View { dtype: DType::F32, at: Location { place: Storage::Scratch, offset: Bytes(0) }, dims }
    }

    #[test]
    fn reshaping_splits_and_merges_evenly_spaced_dimensions() {
        let slice_of_qkv = view(&[(2, 384), (4, 96), (32, 1)]);
        let heads = slice_of_qkv.reshaped(&[2, 4, 8, 4]);
        assert_eq!(heads, Some(view(&[(2, 384), (4, 96), (8, 4), (4, 1)])));
        assert_eq!(slice_of_qkv.reshaped(&[8, 32]), Some(view(&[(8, 96), (32, 1)])));
        assert_eq!(slice_of_qkv.reshaped(&[2, 128]), None);
    }

    #[test]
    fn a_transposed_view_cannot_be_flattened() {
        let transposed = view(&[(3, 1), (2, 3)]);
        assert_eq!(transposed.reshaped(&[6]), None);
        assert_eq!(transposed.reshaped(&[3, 1, 2]).map(|v| v.dims.len()), Some(3));
    }

    #[test]
    fn broadcasting_repeats_missing_and_single_dimensions() {
        let bias = view(&[(5, 1)]);
        assert_eq!(bias.broadcast(&[2, 5]), view(&[(2, 0), (5, 1)]));
        let column = view(&[(2, 1), (1, 1)]);
        assert_eq!(column.broadcast(&[2, 5]), view(&[(2, 1), (5, 0)]));
    }

    #[test]
    fn a_permutation_is_undone() {
        let x = view(&[(2, 60), (3, 20), (4, 5), (5, 1)]);
        assert_eq!(x.permuted(&[2, 0, 3, 1]).unpermuted(&[2, 0, 3, 1]), x);
    }
}
