//! Every operation of graphs, on shapes that do not fit into vectors.

use super::Case;
use pipe_ir::graph::{Binary, DType, Double, Node, Op, TensorType, Unary};
use pipe_ir::ids::NodeId;
use pipe_ir::reference::{Tensor, evaluate};

cases! {
    element_wise_operations_broadcast,
    matrix_products_take_any_layout,
    columns_that_are_far_apart_are_copied_next_to_each_other,
    batches_are_folded_or_kept,
    sums_run_over_any_axis,
    layouts_move_without_changing_elements,
    layer_normalisation_and_its_derivatives,
    normalisation_by_the_root_mean_square,
    series,
    the_largest_elements_and_elements_by_columns,
    rows_that_another_member_has,
    routed_products_and_their_derivatives,
    attention_whose_queries_share_keys,
    softmax_and_its_derivative,
    causal_softmax_with_more_columns_than_rows,
    cross_entropy_and_its_derivative,
    embeddings_and_their_derivative,
    attention_and_its_derivatives,
    attention_of_windows_and_documents,
}

const WIDTHS: [u64; 6] = [1, 3, 16, 17, 33, 100];

fn element_wise_operations_broadcast() {
    let shapes: [(&[u64], &[u64]); 9] = [
        (&[7], &[7]),
        (&[3, 5], &[5]),
        (&[3, 5], &[3, 1]),
        (&[3, 5], &[]),
        (&[2, 3, 5], &[3, 1]),
        (&[2, 3, 5], &[2, 1, 5]),
        (&[2, 1, 4], &[3, 1]),
        (&[4, 33], &[33]),
        (&[1, 1], &[6, 1, 9]),
    ];
    for (a, b) in shapes {
        for binary in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Hash] {
            let mut case = Case::new("broadcast");
            let (a, b) = (case.input(a), case.input(b));
            let c = case.binary(binary, a, b);
            let d = case.binary(binary, b, c);
            case.store(c);
            case.accumulate(d);
            case.check();
        }
    }
}

fn matrix_products_take_any_layout() {
    for (m, n, k) in [(1, 1, 1), (5, 7, 3), (16, 33, 20), (40, 1, 17), (70, 65, 300)] {
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut case = Case::new("matmul");
            let a = if ta { case.input(&[k, m]) } else { case.input(&[m, k]) };
            let b = if tb { case.input(&[n, k]) } else { case.input(&[k, n]) };
            let c = case.matmul(a, b, ta, tb, &[m, n]);
            case.store(c);
            case.check();
            let mut case = Case::new("accumulated");
            let a = if ta { case.input(&[k, m]) } else { case.input(&[m, k]) };
            let b = if tb { case.input(&[n, k]) } else { case.input(&[k, n]) };
            let c = case.matmul(a, b, ta, tb, &[m, n]);
            case.accumulate(c);
            case.check();
            assert_eq!((case.count("gemm"), case.count("elementwise"), case.plan().scratch.0), (1, 0, 0));
        }
    }
}

fn columns_that_are_far_apart_are_copied_next_to_each_other() {
    let mut case = Case::new("far apart");
    let (dy, w) = (case.input(&[2, 65, 1024]), case.input(&[5, 1024]));
    let dx = case.matmul(dy, w, false, true, &[2, 65, 5]);
    case.store(dx);
    case.check();
    assert_eq!((case.count("copy"), case.count("gemm")), (1, 1));
}

fn batches_are_folded_or_kept() {
    let mut case = Case::new("shared weights");
    let (x, w) = (case.input(&[2, 3, 5]), case.input(&[5, 7]));
    let y = case.matmul(x, w, false, false, &[2, 3, 7]);
    case.store(y);
    case.check();
    let mut case = Case::new("batches");
    let (a, b) = (case.input(&[2, 3, 4, 5]), case.input(&[2, 3, 6, 5]));
    let c = case.matmul(a, b, false, true, &[2, 3, 4, 6]);
    case.store(c);
    case.check();
    let mut case = Case::new("sum over batches");
    let (x, dy) = (case.input(&[2, 3, 5]), case.input(&[2, 3, 7]));
    let dw = case.matmul(x, dy, true, false, &[5, 7]);
    case.accumulate(dw);
    case.check();
    assert_eq!(case.plan().kernels.len(), 1);
}

fn sums_run_over_any_axis() {
    for shape in [[4, 5, 6], [1, 70, 130], [33, 2, 1], [3, 100, 17]] {
        for axis in 0..3_u32 {
            for accumulate in [false, true] {
                let mut case = Case::new("sum");
                let x = case.input(&shape);
                let mut result = shape;
                result[axis as usize] = 1;
                let y = case.push(Op::Sum { axis }, &[x], &result);
                if accumulate {
                    case.accumulate(y)
                } else {
                    case.store(y)
                }
                case.check();
            }
        }
    }
}

fn layouts_move_without_changing_elements() {
    let mut case = Case::new("movement");
    let x = case.input(&[2, 17, 4, 5]);
    let transposed = case.transpose(x, &[0, 2, 3, 1]);
    let flat = case.reshape(transposed, &[8, 85]);
    let sliced = case.slice(flat, 1, 3, 70);
    let other = case.slice(flat, 1, 80, 5);
    let joined = case.push(Op::Concat { axis: 1 }, &[other, sliced, other], &[8, 80]);
    let negated = case.unary(Unary::Neg, sliced);
    for node in [transposed, flat, sliced, joined, negated] {
        case.store(node);
    }
    let again = case.slice(x, 3, 1, 2);
    case.accumulate(again);
    case.check();
}

fn layer_normalisation_and_its_derivatives() {
    for width in WIDTHS.into_iter().skip(1) {
        let mut case = Case::new("norm");
        let (x, gain, bias) = (case.input(&[2, 3, width]), case.input(&[width]), case.input(&[width]));
        let dy = case.input(&[2, 3, width]);
        let statistics = case.push(Op::NormStatistics { epsilon: 1e-5, rms: false }, &[x], &[2, 3, 2]);
        let y = case.push(Op::Normalize, &[x, statistics, gain, bias], &[2, 3, width]);
        let dx = case.push(Op::NormalizeGradInput { rms: false }, &[x, statistics, gain, dy], &[2, 3, width]);
        let dgain = case.push(Op::NormalizeGradGain, &[x, statistics, dy], &[width]);
        for node in [statistics, y, dx, dgain] {
            case.store(node);
        }
        case.check();
        let mut case = Case::new("accumulated gain");
        let (x, dy) = (case.input(&[4, width]), case.input(&[4, width]));
        let statistics = case.push(Op::NormStatistics { epsilon: 1e-5, rms: false }, &[x], &[4, 2]);
        let dgain = case.push(Op::NormalizeGradGain, &[x, statistics, dy], &[width]);
        case.accumulate(dgain);
        case.check();
    }
}

fn softmax_and_its_derivative() {
    for width in WIDTHS {
        for causal in [false, true] {
            let mut case = Case::new("softmax");
            let (x, dy) = (case.input(&[3, width, width]), case.input(&[3, width, width]));
            let y = case.push(Op::Softmax { causal }, &[x], &[3, width, width]);
            let dx = case.push(Op::SoftmaxGrad, &[y, dy], &[3, width, width]);
            case.store(y);
            case.store(dx);
            case.check();
        }
    }
}

/// Slices see all columns before them: with more columns than rows, the rows are the last positions.
fn causal_softmax_with_more_columns_than_rows() {
    for (rows, columns) in [(1, 1), (1, 9), (2, 5), (3, 64), (7, 8), (5, 70)] {
        let mut case = Case::new("softmax");
        let (x, dy) = (case.input(&[3, rows, columns]), case.input(&[3, rows, columns]));
        let y = case.push(Op::Softmax { causal: true }, &[x], &[3, rows, columns]);
        let dx = case.push(Op::SoftmaxGrad, &[y, dy], &[3, rows, columns]);
        case.store(y);
        case.store(dx);
        case.check();
    }
    let ty = TensorType { dtype: DType::F32, shape: vec![2, 4] };
    let node = Node { op: Op::Softmax { causal: true }, inputs: vec![NodeId(0)], ty };
    let third = 1.0 / 3.0;
    let found = evaluate(&node, &[&Tensor::new(&[2, 4], vec![0.0; 8])]);
    let expected = [third, third, third, 0.0, 0.25, 0.25, 0.25, 0.25];
    assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-15), "{found:?}");
}

/// Few rows and many strips of them, single columns, more columns than rows, factors that lie transposed.
fn attention_and_its_derivatives() {
    for (rows, columns, width) in
        [(1, 1, 1), (3, 3, 4), (5, 9, 3), (64, 64, 8), (65, 65, 5), (130, 150, 9), (70, 300, 4)]
    {
        for causal in [false, true] {
            let mut case = Case::new("attention");
            // Some on each axis where they are small.
            let (a, b) = if rows > 5 { (1, 2) } else { (2, 3) };
            let (q, k) = (case.input(&[a, rows, b, width]), case.input(&[a, b, columns, width]));
            let (v, dy) = (case.input(&[a, b, width, columns]), case.input(&[a, b, rows, width]));
            let (q, v) = (case.transpose(q, &[0, 2, 1, 3]), case.transpose(v, &[0, 1, 3, 2]));
            let y = case.push(Op::Attention { causal, window: None }, &[q, k, v], &[a, b, rows, width]);
            let gradients = case.push(
                Op::AttentionGrad { causal, window: None },
                &[q, k, v, dy],
                &[a, b, rows + 2 * columns, width],
            );
            let turned = case.transpose(gradients, &[2, 0, 1, 3]);
            for node in [y, turned] {
                case.store(node);
                case.accumulate(node);
            }
            case.check();
        }
    }
}

/// Windows of one key, of some and of more than there are, keys that no query sees, and starts anywhere.
fn attention_of_windows_and_documents() {
    for (rows, columns, width) in [(1, 1, 1), (5, 9, 3), (64, 64, 8), (70, 70, 5), (130, 150, 9), (70, 300, 4)] {
        for (window, has_starts) in
            [(Some(1), false), (Some(3), false), (Some(70), false), (Some(500), false), (None, true), (Some(40), true)]
        {
            let mut case = Case::new("windows");
            let (q, dy) = (case.input(&[2, 3, rows, width]), case.input(&[2, 3, rows, width]));
            let (k, v) = (case.input(&[2, 1, columns, width]), case.input(&[2, 1, columns, width]));
            // Some of them are after their row.
            let starts = has_starts.then(|| case.indices(&[2, 1, rows], columns));
            let (forward, backward) =
                (Op::Attention { causal: true, window }, Op::AttentionGrad { causal: true, window });
            let with = |factors: &[NodeId]| factors.iter().copied().chain(starts).collect::<Vec<_>>();
            let y = case.push(forward, &with(&[q, k, v]), &[2, 3, rows, width]);
            let gradients = case.push(backward, &with(&[q, k, v, dy]), &[2, 3, rows + 2 * columns, width]);
            for node in [y, gradients] {
                case.store(node);
            }
            case.check();
        }
    }
}

fn cross_entropy_and_its_derivative() {
    for classes in WIDTHS {
        let mut case = Case::new("weighted loss");
        let (x, targets, dloss) = (case.input(&[2, 5, classes]), case.indices(&[2, 5], classes), case.input(&[]));
        let weights = case.input(&[2, 5]);
        let loss = case.push(Op::CrossEntropy, &[x, targets, weights], &[]);
        let dx = case.push(Op::CrossEntropyGrad, &[x, targets, dloss, weights], &[2, 5, classes]);
        case.store(loss);
        case.store(dx);
        case.check();
        let mut case = Case::new("loss");
        let (x, targets, dloss) = (case.input(&[2, 5, classes]), case.indices(&[2, 5], classes), case.input(&[]));
        let loss = case.push(Op::CrossEntropy, &[x, targets], &[]);
        let dx = case.push(Op::CrossEntropyGrad, &[x, targets, dloss], &[2, 5, classes]);
        case.store(loss);
        case.store(dx);
        case.check();
    }
}

fn embeddings_and_their_derivative() {
    for width in WIDTHS {
        let mut case = Case::new("embedding");
        let (table, tokens, dy) = (case.input(&[9, width]), case.indices(&[2, 7], 9), case.input(&[2, 7, width]));
        let y = case.push(Op::Gather, &[table, tokens], &[2, 7, width]);
        let dtable = case.push(Op::ScatterAdd, &[tokens, dy], &[9, width]);
        case.store(y);
        case.accumulate(dtable);
        case.check();
    }
}

/// Without a mean, and without a bias.
fn normalisation_by_the_root_mean_square() {
    for width in WIDTHS.into_iter().skip(1) {
        let mut case = Case::new("rms");
        let (x, gain) = (case.input(&[2, 3, width]), case.input(&[width]));
        let (dy, past) = (case.input(&[2, 3, width]), case.input(&[2, 3, width]));
        let statistics = case.push(Op::NormStatistics { epsilon: 1e-6, rms: true }, &[x], &[2, 3, 2]);
        let y = case.push(Op::Normalize, &[x, statistics, gain], &[2, 3, width]);
        let dx = case.push(Op::NormalizeGradInput { rms: true }, &[x, statistics, gain, dy], &[2, 3, width]);
        let dgain = case.push(Op::NormalizeGradGain, &[x, statistics, dy], &[width]);
        // What goes past a norm has a gradient of its own, which its kernel adds.
        let joined = case.binary(Binary::Add, dx, past);
        for node in [statistics, y, joined, dgain] {
            case.store(node);
        }
        case.check();
    }
}

fn series() {
    for n in [1, 2, 7, 64, 130] {
        let mut case = Case::new("series");
        let positions = case.push(Op::Positions, &[], &[n]);
        let powers = case.push(Op::Powers { base: Double(0.917) }, &[], &[n]);
        let x = case.input(&[n]);
        let sum = case.binary(Binary::Add, positions, x);
        for node in [positions, powers, sum] {
            case.store(node);
        }
        case.check();
    }
}

/// With equal elements, which come in the order of their columns.
fn the_largest_elements_and_elements_by_columns() {
    for (width, k) in [(1, 1), (2, 1), (5, 5), (9, 3), (64, 8), (130, 2), (1100, 3)] {
        let mut case = Case::new("largest");
        let numbers = (0..6 * width).map(|_| (case.random.normal() * 2.0).round()).collect();
        let x = case.operand(TensorType::f32(&[2, 3, width]), numbers);
        let dy = case.input(&[2, 3, k]);
        let columns = case.graph.push(Op::TopK, vec![x], TensorType::new(DType::I32, &[2, 3, k]));
        let top = case.push(Op::TakeAlong, &[x, columns], &[2, 3, k]);
        let dx = case.push(Op::AddAlong, &[columns, dy], &[2, 3, width]);
        for node in [columns, top, dx] {
            case.store(node);
        }
        case.check();
        let mut case = Case::new("columns");
        let (columns, dy) = (case.indices(&[4, k], width), case.input(&[4, k]));
        let sums = case.push(Op::AddAlong, &[columns, dy], &[4, width]);
        let wide = case.input(&[4, width]);
        let taken = case.push(Op::TakeAlong, &[wide, columns], &[4, k]);
        let sum = case.binary(Binary::Add, sums, wide);
        for node in [sum, taken] {
            case.store(node);
        }
        case.check();
    }
}

/// Indices that name nothing: members of a device have some rows of a table, and what others have becomes 0.
fn rows_that_another_member_has() {
    for (member, size, width) in [(0, 1, 1), (1, 3, 5), (2, 7, 33), (1, 40, 130)] {
        let mut case = Case::new("members");
        let own = Op::OwnIndices { size, all: 3 * size, members: 3, member };
        let indices = case.indices(&[4, 3], 3 * size);
        let indices = case.graph.push(own.clone(), vec![indices], TensorType::new(DType::I32, &[4, 3]));
        let (table, dy) = (case.input(&[size, width]), case.input(&[4, 3, width]));
        let rows = case.push(Op::Gather, &[table, indices], &[4, 3, width]);
        let sums = case.push(Op::ScatterAdd, &[indices, dy], &[size, width]);
        let (wide, few) = (case.input(&[4, size]), case.input(&[4, 3]));
        let taken = case.push(Op::TakeAlong, &[wide, indices], &[4, 3]);
        let added = case.push(Op::AddAlong, &[indices, few], &[4, size]);
        for node in [indices, rows, sums, taken, added] {
            case.store(node);
        }
        case.check();
        let mut case = Case::new("members' routes");
        let routes = case.indices(&[70], 3 * size);
        let routes = case.graph.push(own, vec![routes], TensorType::new(DType::I32, &[70]));
        let (x, w, dy) = (case.input(&[70, 5]), case.input(&[size, 5, width]), case.input(&[70, width]));
        let y = case.push(Op::RoutedMatMul { transpose: false }, &[x, w, routes], &[70, width]);
        let dw = case.push(Op::RoutedMatMulGrad, &[x, dy, routes], &[size, 5, width]);
        let same = case.unary(Unary::Detach, y);
        case.store(same);
        case.accumulate(dw);
        case.check();
    }
}

/// Matrices that no row goes to, one that all go to, more rows than a block has, both layouts of the matrices.
fn routed_products_and_their_derivatives() {
    for (rows, matrices, inner, width) in [(1, 1, 1, 1), (5, 3, 4, 7), (70, 2, 17, 65), (200, 5, 33, 20), (9, 40, 8, 8)]
    {
        let mut case = Case::new("routed");
        let (x, dy) = (case.input(&[rows, inner]), case.input(&[rows, width]));
        let (w, turned) = (case.input(&[matrices, inner, width]), case.input(&[matrices, width, inner]));
        let routes = case.indices(&[rows], matrices);
        let y = case.push(Op::RoutedMatMul { transpose: false }, &[x, w, routes], &[rows, width]);
        let also = case.push(Op::RoutedMatMul { transpose: true }, &[x, turned, routes], &[rows, width]);
        let dx = case.push(Op::RoutedMatMul { transpose: true }, &[dy, w, routes], &[rows, inner]);
        let dw = case.push(Op::RoutedMatMulGrad, &[x, dy, routes], &[matrices, inner, width]);
        let last = case.push(Op::RoutedMatMulGrad, &[dy, x, routes], &[matrices, width, inner]);
        for node in [y, also, dx, dw] {
            case.store(node);
        }
        case.accumulate(last);
        case.check();
    }
}

/// One head of keys and values for several heads of queries.
fn attention_whose_queries_share_keys() {
    for (rows, columns, width) in [(1, 1, 1), (3, 5, 4), (70, 70, 6), (65, 130, 8)] {
        for causal in [false, true] {
            let mut case = Case::new("shared keys");
            let (q, dy) = (case.input(&[2, 2, 3, rows, width]), case.input(&[2, 2, 3, rows, width]));
            let (k, v) = (case.input(&[2, columns, 2, width]), case.input(&[2, 2, 1, columns, width]));
            let k = case.transpose(k, &[0, 2, 1, 3]);
            let k = case.reshape(k, &[2, 2, 1, columns, width]);
            let y = case.push(Op::Attention { causal, window: None }, &[q, k, v], &[2, 2, 3, rows, width]);
            let all = rows + 2 * columns;
            let gradients =
                case.push(Op::AttentionGrad { causal, window: None }, &[q, k, v, dy], &[2, 2, 3, all, width]);
            let by_keys = case.slice(gradients, 3, rows, columns);
            let by_keys = case.push(Op::Sum { axis: 2 }, &[by_keys], &[2, 2, 1, columns, width]);
            for node in [y, gradients, by_keys] {
                case.store(node);
            }
            case.check();
        }
    }
}
