//! LoRA (arXiv 2106.09685): updates of low rank, which the models of `stdlib/models/` train beside frozen weights.

use crate::checkpoint::NamedTensor;
use crate::values::numbers::{decode, encode};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// What the names of both factors of an update end in.
const FACTORS: [&str; 2] = ["_lora_a", "_lora_b"];
/// How often the layers of `stdlib/models/` add an update.
const TIMES: f64 = 2.0;

/// Whether a tensor is a factor of an update, which published files do not have.
pub(super) fn is_factor(name: &str) -> bool {
    FACTORS.iter().any(|end| name.ends_with(end))
}

/// Weights with their updates added to them.
pub(super) fn merged<'s>(weights: impl Iterator<Item = &'s NamedTensor>) -> Vec<Cow<'s, NamedTensor>> {
    let (factors, weights): (Vec<&NamedTensor>, Vec<_>) = weights.partition(|tensor| is_factor(&tensor.name));
    let factors: BTreeMap<&str, &NamedTensor> =
        factors.into_iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    let with_update = |weight: &'s NamedTensor| {
        let [a, b] = FACTORS.map(|end| factors.get(format!("{}{end}", weight.name).as_str()));
        match (a, b) {
            // A joint matrix is stored as [from, to], the others the other way round.
            (Some(a), Some(b)) if weight.name.ends_with(".qkv") => Cow::Owned(added(weight, a, b)),
            (Some(a), Some(b)) => Cow::Owned(added(weight, b, a)),
            _ => Cow::Borrowed(weight),
        }
    };
    weights.into_iter().map(with_update).collect()
}

/// A matrix and the product of two others: `[m, n]`, `[m, rank]` and `[rank, n]`.
fn added(weight: &NamedTensor, left: &NamedTensor, right: &NamedTensor) -> NamedTensor {
    let of = |tensor: &NamedTensor| decode(tensor.ty.dtype, &tensor.data);
    let (mut sum, left, right) = (of(weight), of(left), of(right));
    let columns = weight.ty.shape.last().map_or(1, |size| *size as usize).max(1);
    let rank = right.len() / columns;
    for (row, own) in sum.chunks_exact_mut(columns).enumerate() {
        for (factor, numbers) in left[row * rank..].iter().zip(right.chunks_exact(columns)).take(rank) {
            own.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += TIMES * factor * number);
        }
    }
    NamedTensor { data: encode(weight.ty.dtype, sum.into_iter()), ..weight.clone() }
}
