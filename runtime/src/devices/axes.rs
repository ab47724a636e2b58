//! Axes of copies: what a copy between two layouts walks, in as few loops as there can be.

use pipe_ir::kernels::Dim;

/// One dimension of both tensors.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Axis {
    /// How many.
    pub size: usize,
    /// Elements from one index to the next in the source.
    pub from: usize,
    /// The same in the target.
    pub to: usize,
}

/// A single index.
pub const NO_AXIS: Axis = Axis { size: 1, from: 0, to: 0 };

/// The dimensions of two layouts of the same sizes.
pub fn axes_of(from: &[Dim], to: &[Dim]) -> Vec<Axis> {
    let axis =
        |(from, to): (&Dim, &Dim)| Axis { size: to.size as usize, from: from.stride as usize, to: to.stride as usize };
    from.iter().zip(to).map(axis).collect()
}

/// The fewest axes that describe the same copy, by falling stride in the target.
pub fn simplified(mut axes: Vec<Axis>) -> Vec<Axis> {
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
pub fn take_densest(axes: &mut Vec<Axis>) -> Axis {
    let densest = (0..axes.len()).filter(|&at| axes[at].from > 0).min_by_key(|&at| axes[at].from);
    densest.map_or(NO_AXIS, |at| axes.remove(at))
}
