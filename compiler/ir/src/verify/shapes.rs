//! Rules about shapes: what every operation takes and makes.

use crate::graph::{DType, Op, TensorType};

/// Checks the inputs and the result of an operation.
pub(super) fn check(op: &Op, inputs: &[&TensorType], ty: &TensorType) -> Result<(), String> {
    let word = crate::text::word(op);
    if let Op::Constant(number) | Op::NormStatistics { epsilon: number } = op
        && !ty.dtype.holds(*number)
    {
        return Err(format!("`{word}` holds {number:?}, which is not a finite number of type {}", ty.dtype));
    }
    let shapes = || inputs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match result(op, inputs, ty) {
        Some(expected) if expected == *ty => Ok(()),
        Some(expected) => Err(format!("`{word}` of ({}) is {expected}, not {ty}", shapes())),
        None => Err(format!("`{word}` does not take ({}) to {ty}", shapes())),
    }
}

/// What the operation makes of its inputs; `ty` where the inputs leave it open. `None` where they do not fit.
fn result(op: &Op, inputs: &[&TensorType], ty: &TensorType) -> Option<TensorType> {
    let of_any_type = matches!(
        op,
        Op::Input { .. }
            | Op::Convert
            | Op::MatMul { .. }
            | Op::Attention { .. }
            | Op::AttentionGrad { .. }
            | Op::Gather
            | Op::ScatterAdd
            | Op::CrossEntropy
            | Op::CrossEntropyGrad
            | Op::Reshape
            | Op::Transpose { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
    );
    if !of_any_type && inputs.iter().any(|input| !input.dtype.is_float() || input.dtype != ty.dtype) {
        return None;
    }
    match (op, inputs) {
        (Op::Input { .. }, []) => Some(ty.clone()),
        (Op::Constant(_), []) => Some(ty.clone()),
        (Op::Unary(_), [x]) => Some((*x).clone()),
        (Op::Convert, [x]) => {
            let to = match x.dtype {
                DType::F32 => DType::BF16,
                DType::BF16 => DType::F32,
                DType::F64 | DType::I32 => return None,
            };
            Some(TensorType { dtype: to, shape: x.shape.clone() })
        }
        (Op::Binary(_), [a, b]) => broadcast(a, b),
        (Op::MatMul { transpose_a, transpose_b }, [a, b]) => product(a, b, *transpose_a, *transpose_b),
        (Op::Sum { axis }, [x]) => resized(x, *axis, |_| Some(1)),
        (Op::Reshape, [x]) => (x.elements() == ty.elements() && x.dtype == ty.dtype).then(|| ty.clone()),
        (Op::Transpose { permutation }, [x]) => transposed(x, permutation),
        (Op::Slice { axis, start }, [x]) => {
            let size = *ty.shape.get(*axis as usize)?;
            resized(x, *axis, |whole| (start.checked_add(size)? <= whole).then_some(size))
        }
        (Op::Concat { axis }, [first, others @ ..]) => joined(first, others, *axis),
        (Op::NormStatistics { .. }, [x]) => {
            let (_, leading) = x.shape.split_last()?;
            Some(TensorType::new(x.dtype, &[leading, &[2]].concat()))
        }
        (Op::Normalize, [x, statistics, gain, bias]) => normalized(x, statistics, &[gain, bias]),
        (Op::NormalizeGradInput, [x, statistics, gain, dy]) if x == dy => normalized(x, statistics, &[gain]),
        (Op::NormalizeGradGain, [x, statistics, dy]) if x == dy => {
            normalized(x, statistics, &[])?;
            Some(TensorType::new(x.dtype, &[*x.shape.last()?]))
        }
        (Op::Softmax { causal }, [x]) => (x.shape.len() > usize::from(*causal)).then(|| (*x).clone()),
        (Op::SoftmaxGrad, [y, dy]) => (y == dy && !y.shape.is_empty()).then(|| (*y).clone()),
        (Op::Attention { causal }, [q, k, v]) => attention(q, k, v, *causal),
        (Op::AttentionGrad { causal }, [q, k, v, dy]) => {
            let ((leading, m, w), (_, n, _)) = (matrix(q, false)?, matrix(k, false)?);
            let rows = n.checked_mul(2)?.checked_add(m)?;
            let result = attention(q, k, v, *causal)?;
            (q == dy).then(|| TensorType::new(result.dtype, &[leading, &[rows, w]].concat()))
        }
        _ => indices(op, inputs, ty),
    }
}

fn attention(q: &TensorType, k: &TensorType, v: &TensorType, causal: bool) -> Option<TensorType> {
    let ((leading, m, w), (of_keys, n, also_w)) = (matrix(q, false)?, matrix(k, false)?);
    let fits = k == v && leading == of_keys && w == also_w && (!causal || n >= m);
    let dtype = of_factors(&[q, k, v])?;
    fits.then(|| TensorType { dtype, shape: q.shape.clone() })
}

/// The type of what is added up of products of these.
fn of_factors(factors: &[&TensorType]) -> Option<DType> {
    let dtype = factors.first()?.dtype;
    (dtype.is_number() && factors.iter().all(|factor| factor.dtype == dtype)).then(|| dtype.arithmetic())
}

/// The operations that take indices.
fn indices(op: &Op, inputs: &[&TensorType], ty: &TensorType) -> Option<TensorType> {
    match (op, inputs) {
        (Op::Gather, [table, indices]) => {
            let [_, row] = table.shape[..] else { return None };
            (table.dtype.is_float() && indices.dtype == DType::I32).then_some(())?;
            Some(TensorType::new(table.dtype, &[&indices.shape[..], &[row]].concat()))
        }
        (Op::ScatterAdd, [indices, dy]) => {
            let (row, leading) = dy.shape.split_last()?;
            let [_, to_row] = ty.shape[..] else { return None };
            let fits = dy.dtype.is_float() && indices.dtype == DType::I32 && indices.shape == leading;
            (fits && *row == to_row && ty.dtype == dy.dtype).then(|| ty.clone())
        }
        (Op::CrossEntropy, [logits, targets]) => {
            classified(logits, targets)?;
            Some(TensorType::new(logits.dtype, &[]))
        }
        (Op::CrossEntropyGrad, [logits, targets, loss]) => {
            classified(logits, targets)?;
            (**loss == TensorType::new(logits.dtype, &[])).then(|| (*logits).clone())
        }
        _ => None,
    }
}

fn classified(logits: &TensorType, targets: &TensorType) -> Option<()> {
    let (_, leading) = logits.shape.split_last()?;
    let fits = logits.dtype.is_float() && targets.dtype == DType::I32 && targets.shape == leading;
    fits.then_some(())
}

fn broadcast(a: &TensorType, b: &TensorType) -> Option<TensorType> {
    let rank = a.shape.len().max(b.shape.len());
    let size = |ty: &TensorType, dimension: usize| {
        let missing = rank - ty.shape.len();
        if dimension < missing { 1 } else { ty.shape[dimension - missing] }
    };
    let join = |dimension| match (size(a, dimension), size(b, dimension)) {
        (x, y) if x == y => Some(x),
        (1, other) | (other, 1) => Some(other),
        _ => None,
    };
    Some(TensorType { dtype: a.dtype, shape: (0..rank).map(join).collect::<Option<_>>()? })
}

/// The last two dimensions, swapped if they are stored so, and the leading ones.
fn matrix(ty: &TensorType, transposed: bool) -> Option<(&[u64], u64, u64)> {
    match &ty.shape[..] {
        [leading @ .., rows, columns] if transposed => Some((leading, *columns, *rows)),
        [leading @ .., rows, columns] => Some((leading, *rows, *columns)),
        _ => None,
    }
}

fn product(a: &TensorType, b: &TensorType, transpose_a: bool, transpose_b: bool) -> Option<TensorType> {
    let (leading, m, k) = matrix(a, transpose_a)?;
    let (shared, k_of_b, n) = matrix(b, transpose_b)?;
    let fits = k == k_of_b && (shared == leading || shared.is_empty());
    let dtype = of_factors(&[a, b])?;
    fits.then(|| TensorType::new(dtype, &[leading, &[m, n]].concat()))
}

/// The same shape with another size of one axis.
fn resized(x: &TensorType, axis: u32, size: impl Fn(u64) -> Option<u64>) -> Option<TensorType> {
    let mut shape = x.shape.clone();
    let dimension = shape.get_mut(axis as usize)?;
    *dimension = size(*dimension)?;
    Some(TensorType { dtype: x.dtype, shape })
}

fn transposed(x: &TensorType, permutation: &[u32]) -> Option<TensorType> {
    let mut sorted = permutation.to_vec();
    sorted.sort_unstable();
    let complete = sorted.len() == x.shape.len() && sorted.iter().enumerate().all(|(i, entry)| *entry as usize == i);
    complete.then(|| TensorType {
        dtype: x.dtype,
        shape: permutation.iter().map(|dimension| x.shape[*dimension as usize]).collect(),
    })
}

fn joined(first: &TensorType, others: &[&TensorType], axis: u32) -> Option<TensorType> {
    let mut total = *first.shape.get(axis as usize)?;
    for other in others {
        let size = *other.shape.get(axis as usize)?;
        (resized(other, axis, |_| Some(1)) == resized(first, axis, |_| Some(1))).then_some(())?;
        total = total.checked_add(size)?;
    }
    resized(first, axis, |_| Some(total))
}

fn normalized(x: &TensorType, statistics: &TensorType, rows: &[&&TensorType]) -> Option<TensorType> {
    let (row, leading) = x.shape.split_last()?;
    let fits = statistics.shape == [leading, &[2]].concat() && rows.iter().all(|other| other.shape == [*row]);
    fits.then(|| x.clone())
}
