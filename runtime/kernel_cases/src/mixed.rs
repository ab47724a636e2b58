//! Numbers that are stored as bfloat16: conversions bit by bit, products and attention of such
//! factors, and what moves them.

use super::Case;
use pipe_ir::graph::{Binary, DType, Op, TensorType, Unary};
use pipe_ir::ids::NodeId;

cases! {
    conversions_in_chains_round_whether_they_are_stored_or_not,
    broadcast_tensors_are_widened,
    products_of_rounded_factors_take_any_layout,
    products_are_rounded_where_they_are_stored,
    kernels_over_rows_widen_what_they_read,
    kernels_over_rows_round_what_they_store,
    sums_with_derivatives_of_norms_are_one_kernel,
    layouts_move_halves,
}

/// A narrow image of random numbers.
fn narrow(case: &mut Case, shape: &[u64]) -> NodeId {
    let x = case.input(shape);
    case.converted(x, DType::BF16)
}

#[test]
fn conversions_give_the_bits_of_the_reference() {
    use pipe_ir::graph::rounded;
    use pipe_ir::kernels::Fusion;
    let ties = [0x3f80_8000, 0x3f81_8000, 0x3f80_8001, 0x3f80_7fff, 0xbf81_8000];
    let ends = [0x0000_0001, 0x8000_8000, 0x7f7f_ffff, 0x7f80_0000, 0xff80_0000, 0x7f80_0001, 0xffff_ffff, 0x7fc0_0000];
    let numbers: Vec<f32> = ties.into_iter().chain(ends).map(f32::from_bits).collect();
    // Whole registers, two at a time, and single elements.
    let numbers: Vec<f32> = numbers.iter().copied().cycle().take(3 * numbers.len()).collect();
    let mut case = Case::new("specials");
    let x = case.operand(TensorType::f32(&[numbers.len() as u64]), numbers.iter().map(|x| f64::from(*x)).collect());
    let half = case.converted(x, DType::BF16);
    let wide = case.converted(half, DType::F32);
    case.store(half);
    case.store(wide);
    for fusion in [Fusion::On, Fusion::Off] {
        let found = case.run(fusion);
        for (position, x) in numbers.iter().enumerate() {
            for found in [found[1][position], found[2][position]] {
                let expected = rounded(*x);
                assert_eq!(found.is_nan(), x.is_nan(), "{:08x}", x.to_bits());
                assert!(
                    x.is_nan() || (found as f32).to_bits() == expected.to_bits(),
                    "{x:e}: {found:e}, not {expected:e}"
                );
            }
        }
    }
}

fn conversions_in_chains_round_whether_they_are_stored_or_not() {
    for shape in [&[1_u64][..], &[3, 5], &[2, 33], &[4, 64]] {
        for stored in [false, true] {
            let mut case = Case::new("chain");
            let (x, y) = (case.input(shape), narrow(&mut case, shape));
            let (half, y) = (case.converted(x, DType::BF16), case.converted(y, DType::F32));
            let wide = case.converted(half, DType::F32);
            let sum = case.binary(Binary::Add, wide, y);
            let lost = case.binary(Binary::Sub, x, wide);
            let active = case.unary(Unary::Tanh, sum);
            case.store(lost);
            case.accumulate(active);
            if stored {
                case.store(half);
            }
            case.check();
        }
    }
}

fn broadcast_tensors_are_widened() {
    let mut case = Case::new("broadcast");
    let (x, row, column) = (case.input(&[3, 7]), narrow(&mut case, &[7]), narrow(&mut case, &[3, 1]));
    let (row, column) = (case.converted(row, DType::F32), case.converted(column, DType::F32));
    let sum = case.binary(Binary::Add, x, row);
    let product = case.binary(Binary::Mul, sum, column);
    case.store(product);
    case.check();
}

fn products_of_rounded_factors_take_any_layout() {
    for (m, n, k) in [(1, 1, 1), (5, 7, 3), (16, 33, 20), (70, 65, 300)] {
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut case = Case::new("matmul");
            let a = narrow(&mut case, &if ta { [3, k, m] } else { [3, m, k] });
            let b = narrow(&mut case, &if tb { [3, n, k] } else { [3, k, n] });
            let c = case.matmul(a, b, ta, tb, &[3, m, n]);
            case.accumulate(c);
            case.check();
        }
    }
    let mut case = Case::new("shared weights");
    let (x, w) = (narrow(&mut case, &[2, 3, 5]), narrow(&mut case, &[5, 7]));
    let y = case.matmul(x, w, false, false, &[2, 3, 7]);
    case.store(y);
    case.check();
}

/// A narrow tensor of whole numbers, whose products and sums are exact.
fn whole(case: &mut Case, shape: &[u64]) -> NodeId {
    let elements = shape.iter().product::<u64>();
    let numbers = (0..elements).map(|at| (at * 7 % 17) as f64 - 8.0).collect();
    case.operand(TensorType::new(DType::BF16, shape), numbers)
}

fn products_are_rounded_where_they_are_stored() {
    for (m, n, k) in [(1, 1, 1), (5, 7, 40), (16, 33, 300), (130, 65, 20)] {
        let mut case = Case::new("rounded");
        let (a, b) = (whole(&mut case, &[2, m, k]), whole(&mut case, &[k, n]));
        let product = case.matmul(a, b, false, false, &[2, m, n]);
        let half = case.converted(product, DType::BF16);
        let turned = case.transpose(half, &[1, 0, 2]);
        let wide = case.converted(half, DType::F32);
        let negated = case.unary(Unary::Neg, wide);
        case.store(turned);
        case.store(negated);
        case.check();
        assert_eq!((case.count("gemm"), case.count("elementwise"), case.count("copy")), (1, 1, 0));
        // What is read in single precision too is stored in single precision.
        let mut case = Case::new("both");
        let (a, b) = (whole(&mut case, &[3, m, k]), whole(&mut case, &[3, n, k]));
        let product = case.matmul(a, b, false, true, &[3, m, n]);
        let half = case.converted(product, DType::BF16);
        case.accumulate(product);
        case.store(half);
        case.check();
    }
}

/// Norms, soft-maxima, losses, tables and sums read what is stored so where it lies.
fn kernels_over_rows_widen_what_they_read() {
    for width in [3, 17, 64] {
        let mut case = Case::new("rows");
        let halves = [narrow(&mut case, &[2, 5, width]), narrow(&mut case, &[2, 5, width])];
        let [x, dy] = halves.map(|half| case.converted(half, DType::F32));
        let (gain, bias) = (case.input(&[width]), case.input(&[width]));
        let (targets, dloss) = (case.indices(&[2, 5], width), case.input(&[]));
        let statistics = case.push(Op::NormStatistics { epsilon: 1e-5, rms: false }, &[x], &[2, 5, 2]);
        let largest = case.graph.push(Op::TopK, vec![x], TensorType::new(DType::I32, &[2, 5, 2]));
        let nodes = [
            largest,
            case.push(Op::TakeAlong, &[x, largest], &[2, 5, 2]),
            case.push(Op::Normalize, &[x, statistics, gain, bias], &[2, 5, width]),
            case.push(Op::NormalizeGradInput { rms: false }, &[x, statistics, gain, dy], &[2, 5, width]),
            case.push(Op::NormalizeGradGain, &[x, statistics, dy], &[width]),
            case.push(Op::Softmax { causal: false }, &[x], &[2, 5, width]),
            case.push(Op::SoftmaxGrad, &[x, dy], &[2, 5, width]),
            case.push(Op::CrossEntropy, &[x, targets], &[]),
            case.push(Op::CrossEntropyGrad, &[x, targets, dloss], &[2, 5, width]),
            case.push(Op::ScatterAdd, &[targets, dy], &[width, width]),
            case.push(Op::Sum { axis: 0 }, &[x], &[1, 5, width]),
            case.push(Op::Sum { axis: 2 }, &[x], &[2, 5, 1]),
        ];
        nodes.into_iter().for_each(|node| case.store(node));
        case.check();
        // The two conversions at the start; nothing is widened into memory.
        assert_eq!(case.count("elementwise"), 2, "{:#?}", case.plan());
        // One of two that is single precision: the other is widened.
        let mut case = Case::new("both");
        let (y, dy) = (narrow(&mut case, &[4, width]), case.input(&[4, width]));
        let y = case.converted(y, DType::F32);
        let dx = case.push(Op::SoftmaxGrad, &[y, dy], &[4, width]);
        case.store(dx);
        case.check();
    }
}

/// Norms, soft-maxima and gradients of losses whose results are only read as bfloat16 are stored so, wherever they go.
fn kernels_over_rows_round_what_they_store() {
    for width in [3, 17, 64] {
        let mut case = Case::new("rounded rows");
        let (x, dy) = (narrow(&mut case, &[2, 5, width]), case.input(&[2, 5, width]));
        let (gain, bias) = (case.input(&[width]), case.input(&[width]));
        let (targets, dloss) = (case.indices(&[2, 5], width), case.input(&[]));
        let wide = case.converted(x, DType::F32);
        let statistics = case.push(Op::NormStatistics { epsilon: 1e-5, rms: false }, &[wide], &[2, 5, 2]);
        let nodes = [
            case.push(Op::Normalize, &[wide, statistics, gain, bias], &[2, 5, width]),
            case.push(Op::NormalizeGradInput { rms: false }, &[wide, statistics, gain, dy], &[2, 5, width]),
            case.push(Op::Softmax { causal: true }, &[wide], &[2, 5, width]),
            case.push(Op::SoftmaxGrad, &[wide, dy], &[2, 5, width]),
            case.push(Op::CrossEntropyGrad, &[wide, targets, dloss], &[2, 5, width]),
        ];
        let halves = nodes.map(|node| case.converted(node, DType::BF16));
        let [first, .., last] = halves;
        let turned = case.transpose(first, &[1, 0, 2]);
        let joined = case.push(Op::Concat { axis: 2 }, &[last, first], &[2, 5, 2 * width]);
        halves.into_iter().chain([turned, joined]).for_each(|node| case.store(node));
        case.check();
        // One conversion at the start, which also stores what kernels read widened; the results are
        // rounded by their kernels.
        assert_eq!(case.count("elementwise"), 1, "{:#?}", case.plan());
    }
}

/// What is added to the derivative of a norm is added as it is stored, from halves and from whole
/// numbers, in either order.
fn sums_with_derivatives_of_norms_are_one_kernel() {
    for (width, is_narrow) in [(3, true), (64, true), (17, false), (64, false)] {
        let mut case = Case::new("joined");
        let shape = [2, 5, width];
        let halves =
            if is_narrow { [(); 3].map(|()| narrow(&mut case, &shape)) } else { [(); 3].map(|()| case.input(&shape)) };
        let [x, dy, other] = halves.map(|half| if is_narrow { case.converted(half, DType::F32) } else { half });
        let gain = case.input(&[width]);
        let statistics = case.push(Op::NormStatistics { epsilon: 1e-5, rms: false }, &[x], &[2, 5, 2]);
        let dx = case.push(Op::NormalizeGradInput { rms: false }, &[x, statistics, gain, dy], &shape);
        let sum = case.binary(Binary::Add, other, dx);
        let kept = case.push(Op::NormalizeGradInput { rms: false }, &[x, statistics, gain, other], &shape);
        let twice = case.binary(Binary::Add, kept, dy);
        let rounded = if is_narrow { case.converted(sum, DType::BF16) } else { sum };
        for node in [rounded, twice] {
            case.store(node);
        }
        case.check();
        assert_eq!(case.count("elementwise"), if is_narrow { 3 } else { 0 }, "{:#?}", case.plan());
        // What others read too is no part of a sum, which is then element-wise; of halves, in the
        // kernel of a conversion.
        case.store(kept);
        case.check();
        assert_eq!(case.count("elementwise"), if is_narrow { 3 } else { 1 });
    }
}

#[test]
fn attention_of_rounded_factors() {
    for (rows, columns, width) in [(3, 3, 4), (65, 65, 5), (70, 150, 8)] {
        for causal in [false, true] {
            let mut case = Case::new("attention");
            let (a, b) = if rows > 5 { (1, 2) } else { (2, 3) };
            let (q, k) = (narrow(&mut case, &[a, rows, b, width]), narrow(&mut case, &[a, b, columns, width]));
            let (v, dy) = (narrow(&mut case, &[a, b, width, columns]), narrow(&mut case, &[a, b, rows, width]));
            let (q, v) = (case.transpose(q, &[0, 2, 1, 3]), case.transpose(v, &[0, 1, 3, 2]));
            let y = case.push(Op::Attention { causal, window: None }, &[q, k, v], &[a, b, rows, width]);
            let gradients = case.push(
                Op::AttentionGrad { causal, window: None },
                &[q, k, v, dy],
                &[a, b, rows + 2 * columns, width],
            );
            case.store(y);
            case.store(gradients);
            case.check();
        }
    }
    // Rounded where they are stored, each derivative where it is wanted.
    let mut case = Case::new("heads");
    let (qkv, dy) = (narrow(&mut case, &[2, 5, 96]), narrow(&mut case, &[2, 5, 32]));
    super::patterns::attention_of_heads(&mut case, qkv, dy);
    assert_eq!((case.count("copy"), case.count("elementwise")), (0, 2));
}

fn layouts_move_halves() {
    let mut case = Case::new("movement");
    let x = narrow(&mut case, &[2, 17, 4, 5]);
    let transposed = case.transpose(x, &[0, 2, 3, 1]);
    let flat = case.reshape(transposed, &[8, 85]);
    let sliced = case.slice(flat, 1, 3, 70);
    let other = case.slice(flat, 1, 80, 5);
    let joined = case.push(Op::Concat { axis: 1 }, &[other, sliced, other], &[8, 80]);
    let wide = case.converted(sliced, DType::F32);
    let negated = case.unary(Unary::Neg, wide);
    for node in [x, transposed, flat, sliced, joined, negated] {
        case.store(node);
    }
    case.check();
}
