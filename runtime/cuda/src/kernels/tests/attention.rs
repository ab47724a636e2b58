//! Attention and its derivatives: sizes inside of a tile, at its edges and beyond, with and without
//! a mask, in every precision.

use super::cases::check_each;
use pipe_ir::graph::{DType, Op};
use pipe_ir::ids::NodeId;
use pipe_kernel_cases::Case;
use pipe_runtime::Precision;

/// Queries, keys, and the width of both.
const SIZES: [(u64, u64, u64); 8] =
    [(1, 1, 1), (7, 31, 16), (64, 64, 40), (33, 65, 64), (130, 70, 32), (65, 129, 128), (20, 20, 160), (3, 70, 300)];
/// The same, of what is stored as bfloat16: rows of whole vectors and not, and heads that are too
/// wide for tensor cores.
const HALVES: [(u64, u64, u64); 6] =
    [(1, 1, 40), (65, 70, 42), (130, 70, 40), (33, 40, 100), (20, 40, 104), (20, 21, 160)];

/// Attention of heads that lie beside each other, as a model cuts them out of one product, and its
/// derivatives; weights are neither even nor all one. Fibers are slow: large heads are few.
fn graph((rows, columns, width): (u64, u64, u64), causal: bool) -> (Case, NodeId, NodeId) {
    masked((rows, columns, width), (causal, None, false))
}

/// The same with a window, and with starts.
fn masked(
    (rows, columns, width): (u64, u64, u64),
    (causal, window, has_starts): (bool, Option<u64>, bool),
) -> (Case, NodeId, NodeId) {
    let mut case = Case::new("attention");
    let (n_outer, n_heads) = if rows * columns * width < 20_000 { (2, 3) } else { (1, 2) };
    let heads = |case: &mut Case, rows: u64| {
        let x = case.input(&[n_outer, rows, n_heads, width]);
        case.transpose(x, &[0, 2, 1, 3])
    };
    let (q, k, v, dy) =
        (heads(&mut case, rows), heads(&mut case, columns), heads(&mut case, columns), heads(&mut case, rows));
    let scale = (width as f64).powf(-0.5);
    case.operands[0].numbers.iter_mut().for_each(|number| *number = DType::F32.nearest(*number * scale));
    let starts = has_starts.then(|| case.indices(&[n_outer, 1, rows], columns));
    let with = |factors: &[NodeId]| factors.iter().copied().chain(starts).collect::<Vec<_>>();
    let y = case.push(Op::Attention { causal, window }, &with(&[q, k, v]), &[n_outer, n_heads, rows, width]);
    let shape = [n_outer, n_heads, rows + 2 * columns, width];
    let gradients = case.push(Op::AttentionGrad { causal, window }, &with(&[q, k, v, dy]), &shape);
    (case, y, gradients)
}

/// Of single or of double precision.
fn case(size: (u64, u64, u64), causal: bool) -> Case {
    stored(graph(size, causal))
}

fn stored((mut case, y, gradients): (Case, NodeId, NodeId)) -> Case {
    let beside = case.transpose(y, &[0, 2, 1, 3]);
    case.store(beside);
    case.store(gradients);
    case
}

/// Of what is stored as bfloat16, and stored so.
fn half(size: (u64, u64, u64), causal: bool) -> Case {
    stored_in_halves(graph(size, causal))
}

fn stored_in_halves((case, y, gradients): (Case, NodeId, NodeId)) -> Case {
    let mut case = case.in_halves();
    let [y, gradients] = [y, gradients].map(|node| case.converted(node, DType::BF16));
    let beside = case.transpose(y, &[0, 2, 1, 3]);
    case.store(beside);
    case.store(gradients);
    case
}

/// Unmasked and masked; with a mask there are at least as many keys as queries.
fn both(sizes: impl IntoIterator<Item = (u64, u64, u64)>, case: fn((u64, u64, u64), bool) -> Case) -> Vec<Case> {
    let both = sizes.into_iter().flat_map(|size| [(size, false), (size, true)]);
    let possible = both.filter(|((rows, columns, _), causal)| !causal || columns >= rows);
    possible.map(|(size, causal)| case(size, causal)).collect()
}

#[test]
fn attention_of_any_size() {
    let mut all: Vec<_> = both(SIZES, case).into_iter().map(|case| (case, Precision::Fp32, (1e-5, 1e-13))).collect();
    all.push((layouts(), Precision::Fp32, (1e-5, 1e-13)));
    all.push((large_scores(), Precision::Fp32, (1e-3, 1e-12)));
    check_each(&all);
}

/// Double precision, and the widest heads, do without them. (Not the largest case.)
#[test]
fn attention_by_tensor_cores() {
    let small = SIZES.into_iter().filter(|(rows, columns, width)| rows * columns * width < 300_000);
    let (all, few): (Vec<_>, Vec<_>) =
        (both(small.clone(), case), both(small.filter(|(_, _, width)| *width <= 32), case));
    let of =
        |cases: Vec<Case>, precision, single| cases.into_iter().map(move |case| (case, precision, (single, 1e-13)));
    let singles = of(all, Precision::Tf32, 2e-3).chain(of(few, Precision::Bf16, 2e-2));
    // What is stored as bfloat16 is multiplied by them whatever is asked for.
    let halves = of(both(HALVES, half), Precision::Fp32, 2e-2);
    let layouts =
        [(layouts(), Precision::Tf32, (2e-3, 1e-13)), (layouts().in_halves(), Precision::Tf32, (2e-2, 1e-13))];
    check_each(&singles.chain(halves).chain(layouts).collect::<Vec<_>>());
}

/// Windows of one key, inside of a tile and across tiles; starts anywhere, also after their query.
const MASKS: [(Option<u64>, bool); 5] =
    [(Some(1), false), (Some(17), false), (Some(90), false), (None, true), (Some(40), true)];

#[test]
fn attention_of_windows_and_documents() {
    let sizes = [(7, 31, 16), (65, 129, 32), (130, 200, 32)];
    let all = || sizes.into_iter().flat_map(|size| MASKS.map(|(window, starts)| (size, (true, window, starts))));
    let mut cases: Vec<_> =
        all().map(|(size, mask)| (stored(masked(size, mask)), Precision::Fp32, (1e-5, 1e-13))).collect();
    cases.extend(all().map(|(size, mask)| (stored(masked(size, mask)), Precision::Tf32, (2e-3, 1e-13))));
    cases.extend(all().map(|(size, mask)| (stored_in_halves(masked(size, mask)), Precision::Fp32, (2e-2, 1e-13))));
    check_each(&cases);
}

/// More batch axes than one launch walks, and factors that lie in columns.
fn layouts() -> Case {
    let mut case = Case::new("layouts");
    let (q, k) = (case.input(&[2, 2, 2, 2, 5, 8]), case.input(&[2, 2, 2, 2, 8, 6]));
    let (v, dy) = (case.input(&[2, 6, 2, 2, 2, 8]), case.input(&[2, 2, 8, 2, 2, 5]));
    let (q, k) = (case.transpose(q, &[0, 2, 1, 3, 4, 5]), case.transpose(k, &[3, 1, 2, 0, 5, 4]));
    let (v, dy) = (case.transpose(v, &[0, 2, 4, 3, 1, 5]), case.transpose(dy, &[0, 1, 4, 3, 5, 2]));
    let y = case.push(Op::Attention { causal: true, window: None }, &[q, k, v], &[2, 2, 2, 2, 5, 8]);
    let gradients = case.push(Op::AttentionGrad { causal: true, window: None }, &[q, k, v, dy], &[2, 2, 2, 2, 17, 8]);
    let turned = case.transpose(gradients, &[5, 1, 4, 0, 2, 3]);
    case.accumulate(y);
    case.store(turned);
    case
}

/// Weights of scores that are far apart, and so large that e^score is no number.
fn large_scores() -> Case {
    let mut case = case((40, 80, 64), true);
    for operand in &mut case.operands {
        operand.numbers.iter_mut().for_each(|number| *number *= 10.0);
    }
    case
}
