//! Rules about shapes: what every operation takes and makes.

use crate::graph::{Class, DType, Op, TensorType, broadcast};

/// Checks the inputs and the result of an operation.
pub(super) fn check(op: &Op, inputs: &[&TensorType], ty: &TensorType) -> Result<(), String> {
    let word = op.word();
    if let Op::Constant(number) | Op::NormStatistics { epsilon: number, .. } = op
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
    let is_of_one_type = match op.class() {
        Class::Elementwise => *op != Op::Convert,
        Class::Sum | Class::Rows => true,
        Class::Source | Class::Product | Class::View | Class::Join | Class::Indexed | Class::Exchange => false,
    };
    let fits = |input: &&TensorType| !is_of_one_type || input.dtype.is_float() && input.dtype == ty.dtype;
    if !op.takes(inputs.len()) || !inputs.iter().all(fits) {
        return None;
    }
    let input = |position: usize| inputs[position];
    match op {
        Op::Input { .. } | Op::Constant(_) => Some(ty.clone()),
        Op::Positions => (ty.dtype.is_float() && ty.shape.len() == 1).then(|| ty.clone()),
        Op::Powers { base } => (ty.dtype.is_float() && ty.shape.len() == 1 && base.0.is_finite()).then(|| ty.clone()),
        Op::Unary(_) => Some(input(0).clone()),
        Op::Convert => {
            let to = match input(0).dtype {
                DType::F32 => DType::BF16,
                DType::BF16 => DType::F32,
                DType::F64 | DType::I32 => return None,
            };
            Some(TensorType { dtype: to, shape: input(0).shape.clone() })
        }
        Op::Binary(_) => Some(TensorType { dtype: ty.dtype, shape: broadcast(&input(0).shape, &input(1).shape)? }),
        Op::MatMul { transpose_a, transpose_b } => product(input(0), input(1), *transpose_a, *transpose_b),
        Op::RoutedMatMul { transpose } => {
            let ([matrices, rows, columns], [leading @ .., width]) = (&input(1).shape[..], &input(0).shape[..]) else {
                return None;
            };
            let (inner, to) = if *transpose { (columns, rows) } else { (rows, columns) };
            let fits = width == inner && *matrices > 0 && is_routed(leading, input(2));
            let dtype = of_factors(&inputs[..2])?;
            fits.then(|| TensorType::new(dtype, &[leading, &[*to]].concat()))
        }
        Op::RoutedMatMulGrad => {
            let ([leading @ .., inner], [other @ .., width]) = (&input(0).shape[..], &input(1).shape[..]) else {
                return None;
            };
            let [matrices, ..] = ty.shape[..] else { return None };
            let fits = leading == other && is_routed(leading, input(2));
            let dtype = of_factors(&inputs[..2])?;
            fits.then(|| TensorType::new(dtype, &[matrices, *inner, *width]))
        }
        Op::Sum { axis } => resized(input(0), *axis, |_| Some(1)),
        Op::Reshape => (input(0).elements() == ty.elements() && input(0).dtype == ty.dtype).then(|| ty.clone()),
        Op::Transpose { permutation } => transposed(input(0), permutation),
        Op::Slice { axis, start } => {
            let size = *ty.shape.get(*axis as usize)?;
            resized(input(0), *axis, |whole| (start.checked_add(size)? <= whole).then_some(size))
        }
        Op::Concat { axis } => joined(input(0), &inputs[1..], *axis),
        Op::NormStatistics { .. } => {
            let (_, leading) = input(0).shape.split_last()?;
            Some(TensorType::new(input(0).dtype, &[leading, &[2]].concat()))
        }
        Op::Normalize if inputs.len() > 4 => None,
        Op::Normalize => normalized(input(0), input(1), &inputs[2..]),
        Op::NormalizeGradInput { .. } => normalized(input(0), input(1), &inputs[2..3]).filter(|x| x == input(3)),
        Op::NormalizeGradGain => {
            let x = normalized(input(0), input(1), &[]).filter(|x| x == input(2))?;
            Some(TensorType::new(x.dtype, &[*x.shape.last()?]))
        }
        Op::Softmax { causal } => (input(0).shape.len() > usize::from(*causal)).then(|| input(0).clone()),
        Op::SoftmaxGrad => (input(0) == input(1) && !input(0).shape.is_empty()).then(|| input(0).clone()),
        Op::Attention { causal, window } => {
            is_sight(*causal, *window, input(0), input(1), &inputs[3..]).then_some(())?;
            attention(input(0), input(1), input(2), *causal)
        }
        Op::AttentionGrad { causal, window } => {
            is_sight(*causal, *window, input(0), input(1), &inputs[4..]).then_some(())?;
            let ((leading, m, w), (_, n, _)) = (matrix(input(0), false)?, matrix(input(1), false)?);
            let rows = n.checked_mul(2)?.checked_add(m)?;
            let result = attention(input(0), input(1), input(2), *causal)?;
            (input(0) == input(3)).then(|| TensorType::new(result.dtype, &[leading, &[rows, w]].concat()))
        }
        Op::Gather => {
            let [_, row] = input(0).shape[..] else { return None };
            (input(0).dtype.is_float() && input(1).dtype == DType::I32).then_some(())?;
            Some(TensorType::new(input(0).dtype, &[&input(1).shape[..], &[row]].concat()))
        }
        Op::ScatterAdd => {
            let [_, row] = ty.shape[..] else { return None };
            let is_row = input(1).shape.last() == Some(&row);
            (is_row && is_indexed(input(1), input(0)) && ty.dtype == input(1).dtype).then(|| ty.clone())
        }
        Op::TopK => {
            let ([leading @ .., n], [rows @ .., k]) = (&input(0).shape[..], &ty.shape[..]) else { return None };
            let fits = input(0).dtype.is_float() && leading == rows && k <= n;
            fits.then(|| TensorType::new(DType::I32, &ty.shape))
        }
        Op::TakeAlong => {
            let ([leading @ .., _], [rows @ .., _]) = (&input(0).shape[..], &input(1).shape[..]) else { return None };
            let fits = input(0).dtype.is_float() && input(1).dtype == DType::I32 && leading == rows;
            fits.then(|| TensorType::new(input(0).dtype, &input(1).shape))
        }
        Op::AddAlong => {
            let ([leading @ .., _], [rows @ .., _]) = (&ty.shape[..], &input(0).shape[..]) else { return None };
            let is_alike = input(0).shape == input(1).shape && input(0).dtype == DType::I32;
            let fits = is_alike && leading == rows && ty.dtype.is_float() && ty.dtype == input(1).dtype;
            fits.then(|| ty.clone())
        }
        Op::OwnPart => resized(input(0), 0, |_| Some(1)),
        Op::OwnIndices { size, all, members, member } => {
            let fits = input(0).dtype == DType::I32 && *size > 0 && member < members;
            let places = size.checked_mul(*members).filter(|places| *places <= 1 << 31);
            (fits && places.is_some_and(|places| all <= &places && places - all < *members)).then(|| input(0).clone())
        }
        Op::Vary | Op::AllReduce | Op::AllGather { .. } | Op::ReduceScatter | Op::AllToAll => None,
        Op::CrossEntropy => {
            let fits = is_indexed(input(0), input(1)) && weighs(input(0), input(1), &inputs[2..]);
            fits.then(|| TensorType::new(input(0).dtype, &[]))
        }
        Op::CrossEntropyGrad => {
            let is_scalar = *input(2) == TensorType::new(input(0).dtype, &[]);
            let fits = is_indexed(input(0), input(1)) && weighs(input(0), input(1), &inputs[3..]);
            (fits && is_scalar).then(|| input(0).clone())
        }
    }
}

/// Whether each row goes to a matrix.
fn is_routed(leading: &[u64], routes: &TensorType) -> bool {
    routes.dtype == DType::I32 && routes.shape == leading
}

/// Whether there is an index for each row of a tensor of numbers.
fn is_indexed(rows: &TensorType, indices: &TensorType) -> bool {
    let leading = rows.shape.split_last().map(|(_, leading)| leading);
    rows.dtype.is_float() && indices.dtype == DType::I32 && leading == Some(&indices.shape)
}

/// Whether there are no weights, or one for each row.
fn weighs(rows: &TensorType, indices: &TensorType, weights: &[&TensorType]) -> bool {
    match weights {
        [] => true,
        [weights] => weights.dtype == rows.dtype && weights.shape == indices.shape,
        _ => false,
    }
}

/// Whether rows can see so: only with a mask a window, and starts, one for each query, as keys are repeated.
fn is_sight(causal: bool, window: Option<u64>, q: &TensorType, k: &TensorType, starts: &[&TensorType]) -> bool {
    let (Some((of_q, rows, _)), Some((of_k, ..))) = (matrix(q, false), matrix(k, false)) else { return false };
    let is_start = |starts: &TensorType| {
        let Some((m, leading)) = starts.shape.split_last() else { return false };
        let is_repeated = |((own, q), k): ((&u64, &u64), &u64)| *own == 1 || own == q || own == k;
        let fits = leading.len() == of_q.len() && leading.iter().zip(of_q).zip(of_k).all(is_repeated);
        starts.dtype == DType::I32 && *m == rows && fits
    };
    match starts {
        [] => window.is_none_or(|window| causal && window > 0),
        [starts] => causal && window != Some(0) && is_start(starts),
        _ => false,
    }
}

fn attention(q: &TensorType, k: &TensorType, v: &TensorType, causal: bool) -> Option<TensorType> {
    let ((leading, m, w), (of_keys, n, also_w)) = (matrix(q, false)?, matrix(k, false)?);
    let repeats = |(own, of_keys): (&u64, &u64)| own == of_keys || *of_keys == 1;
    let is_repeated = leading.len() == of_keys.len() && leading.iter().zip(of_keys).all(repeats);
    let fits = k == v && is_repeated && w == also_w && (!causal || n >= m);
    let dtype = of_factors(&[q, k, v])?;
    fits.then(|| TensorType { dtype, shape: q.shape.clone() })
}

/// The type of what is added up of products of these.
fn of_factors(factors: &[&TensorType]) -> Option<DType> {
    let dtype = factors.first()?.dtype;
    (dtype.is_number() && factors.iter().all(|factor| factor.dtype == dtype)).then(|| dtype.arithmetic())
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

fn normalized(x: &TensorType, statistics: &TensorType, rows: &[&TensorType]) -> Option<TensorType> {
    let (row, leading) = x.shape.split_last()?;
    let fits = statistics.shape == [leading, &[2]].concat() && rows.iter().all(|other| other.shape == [*row]);
    fits.then(|| x.clone())
}
