//! Every place that a kernel touches, for passes that do not care what kernel it is.

use super::{Attention, Gemm, Kernel, Location, Routed};

impl Kernel {
    /// All places that it reads or writes.
    pub(super) fn locations(&mut self) -> Vec<&mut Location> {
        match self {
            Self::Gemm(Gemm { a, b, c, .. }) => vec![&mut a.at, &mut b.at, &mut c.at],
            Self::Elementwise(kernel) => {
                kernel.inputs.iter_mut().chain(&mut kernel.outputs).map(|tensor| &mut tensor.at).collect()
            }
            Self::Copy { from, to } => vec![&mut from.at, &mut to.at],
            Self::Sum(sum) => vec![&mut sum.x, &mut sum.out],
            Self::Attention(attention) => {
                let Attention { queries, keys, values, starts, out, derivatives, .. } = attention;
                let more =
                    derivatives.iter_mut().flat_map(|more| [&mut more.dy, &mut more.by_keys, &mut more.by_values]);
                [queries, keys, values, out]
                    .into_iter()
                    .chain(more)
                    .chain(starts)
                    .map(|matrix| &mut matrix.at)
                    .chain([&mut attention.room])
                    .collect()
            }
            Self::Routed(Routed { x, other, routes, out, room, .. }) => vec![x, other, routes, out, room],
            Self::Rows(rows) => rows.inputs.iter_mut().chain([&mut rows.out]).collect(),
        }
    }
}
