//! What the library is asked for, computed by its own rules, against the product of the kernel's strides.

use super::{MatrixLayout, products};
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Gemm, Location, Matrix, Storage};
use pipe_ir::units::Bytes;
use pipe_runtime::random::Counter;

const ELEMENTS: usize = 4096;

/// Memory of three operands.
type Memory = [Vec<f64>; 3];

/// By the kernel's strides.
fn expected(gemm: &Gemm, memory: &mut Memory) {
    let n_batches: u64 = gemm.batch.iter().product();
    for batch in 0..n_batches {
        let at = |matrix: &Matrix, row: u64, column: u64| {
            let (mut rest, mut at) = (batch, row * matrix.row + column * matrix.column);
            for (size, stride) in gemm.batch.iter().zip(&matrix.batch).rev() {
                at += rest % size * stride;
                rest /= size;
            }
            at as usize + matrix.at.offset.to_usize() / 8
        };
        for (row, column) in (0..gemm.m).flat_map(|row| (0..gemm.n).map(move |column| (row, column))) {
            let of = |k| memory[0][at(&gemm.a, row, k)] * memory[1][at(&gemm.b, k, column)];
            let sum: f64 = (0..gemm.k).map(of).sum();
            let c = &mut memory[2][at(&gemm.c, row, column)];
            *c = if gemm.accumulate { *c + sum } else { sum };
        }
    }
}

/// By the rules of the library: column-major order, leading dimensions, one stride of the batch.
fn computed(gemm: &Gemm, memory: &mut Memory) -> Option<usize> {
    let calls = products(gemm)?;
    for call in &calls {
        let of = |location: Location| match location.place {
            Storage::Operand(operand) => (operand as usize, location.offset.to_usize() / 8),
            Storage::Scratch => unreachable!("these products have operands only"),
        };
        let ((left, l), (right, r), (result, d)) = (of(call.left), of(call.right), of(call.result));
        let shape = &call.shape;
        let at = |layout: &MatrixLayout, start: usize, batch: u64, row: u64, column: u64| {
            let (row, column) = if layout.transposed { (column, row) } else { (row, column) };
            start + (batch * layout.step + column * layout.leading + row) as usize
        };
        for (offset, layout) in [(l, &shape.left), (r, &shape.right), (d, &shape.result)] {
            assert_eq!((8 * offset) % layout.alignment as usize, 0, "addresses are as aligned as was said");
            assert_eq!((8 * layout.step) % u64::from(layout.alignment), 0);
        }
        assert!(!shape.result.transposed && shape.result.leading >= shape.rows);
        for batch in 0..shape.count {
            for (row, column) in (0..shape.rows).flat_map(|row| (0..shape.columns).map(move |column| (row, column))) {
                let product = |k| {
                    memory[left][at(&shape.left, l, batch, row, k)]
                        * memory[right][at(&shape.right, r, batch, k, column)]
                };
                let sum: f64 = (0..shape.inner).map(product).sum();
                let c = &mut memory[result][at(&shape.result, d, batch, row, column)];
                *c = if shape.accumulate { *c + sum } else { sum };
            }
        }
    }
    Some(calls.len())
}

/// Whether the library gets the product right; in how many calls.
fn check(gemm: &Gemm) -> Option<usize> {
    let mut random = Counter::new(7, "products");
    let mut numbers = || (0..ELEMENTS).map(|_| random.normal()).collect::<Vec<f64>>();
    let mut ours: Memory = [numbers(), numbers(), numbers()];
    let mut theirs = ours.clone();
    let calls = computed(gemm, &mut theirs)?;
    expected(gemm, &mut ours);
    for (ours, theirs) in ours[2].iter().zip(&theirs[2]) {
        assert!((ours - theirs).abs() < 1e-9, "{gemm:?}: {theirs} instead of {ours}");
    }
    Some(calls)
}

fn matrix(operand: u32, offset: u64, (row, column): (u64, u64), batch: &[u64]) -> Matrix {
    let at = Location { place: Storage::Operand(operand), offset: Bytes(8 * offset) };
    Matrix { at, row, column, batch: batch.to_vec() }
}

fn single(strides: [(u64, u64); 3]) -> Gemm {
    let [a, b, c] = strides;
    let (a, b, c) = (matrix(0, 8, a, &[]), matrix(1, 3, b, &[]), matrix(2, 16, c, &[]));
    Gemm {
        dtype: DType::F64,
        factors: DType::F64,
        result: DType::F64,
        batch: vec![],
        m: 5,
        n: 7,
        k: 6,
        a,
        b,
        c,
        accumulate: false,
    }
}

#[test]
fn any_mixture_of_row_and_column_major_order_is_one_call() {
    for a in [(6, 1), (1, 5), (9, 1), (1, 8)] {
        for b in [(7, 1), (1, 6), (11, 1), (1, 9)] {
            for c in [(7, 1), (1, 5), (12, 1)] {
                assert_eq!(check(&single([a, b, c])), Some(1));
                assert_eq!(check(&Gemm { accumulate: true, ..single([a, b, c]) }), Some(1));
            }
        }
    }
}

#[test]
fn single_rows_and_columns_have_any_stride() {
    for (m, n, k) in [(1, 7, 6), (5, 1, 6), (5, 7, 1), (1, 1, 6), (1, 7, 1), (1, 1, 1)] {
        let gemm = Gemm { m, n, k, ..single([(6, 1), (7, 1), (7, 1)]) };
        assert_eq!(check(&gemm), Some(1), "{gemm:?}");
    }
    // A vector of which only every third element counts, as the column of a matrix.
    assert_eq!(check(&Gemm { n: 1, ..single([(6, 1), (3, 50), (1, 50)]) }), Some(1));
}

#[test]
fn the_largest_batch_dimension_is_the_librarys() {
    // Heads of an attention: [rows, positions, heads, width], read where they lie.
    let gemm = Gemm {
        batch: vec![2, 3],
        a: matrix(0, 0, (18, 1), &[90, 6]),
        b: matrix(1, 0, (1, 18), &[126, 6]),
        c: matrix(2, 0, (7, 1), &[105, 35]),
        ..single([(0, 0); 3])
    };
    assert_eq!(check(&gemm), Some(2));
    let shared = Gemm { b: matrix(1, 0, (1, 6), &[0, 0]), ..gemm };
    assert_eq!(check(&shared), Some(2));
}

#[test]
fn other_layouts_are_not_the_librarys() {
    let plain = single([(6, 1), (7, 1), (7, 1)]);
    assert_eq!(products(&Gemm { a: matrix(0, 0, (12, 2), &[]), ..plain.clone() }), None);
    assert_eq!(products(&Gemm { c: matrix(2, 0, (14, 2), &[]), ..plain.clone() }), None);
    // One row, repeated.
    assert_eq!(products(&Gemm { a: matrix(0, 0, (0, 1), &[]), ..plain.clone() }), None);
    let many = [matrix(0, 0, (6, 1), &[0, 0]), matrix(1, 0, (7, 1), &[0, 0]), matrix(2, 0, (7, 1), &[600, 35])];
    let [a, b, c] = many;
    assert_eq!(products(&Gemm { batch: vec![17, 17], a, b, c, ..plain }), None);
}

#[test]
fn alignments_are_those_of_offsets_and_steps() {
    let aligned = |gemm: &Gemm| products(gemm).map(|calls| calls[0].shape.left.alignment);
    // The left factor of the library is b: a row-major result is transposed.
    let gemm = single([(6, 1), (7, 1), (7, 1)]);
    assert_eq!(aligned(&gemm), Some(8));
    assert_eq!(aligned(&Gemm { b: matrix(1, 0, (7, 1), &[]), ..gemm.clone() }), Some(64));
    assert_eq!(aligned(&Gemm { b: matrix(1, 4, (7, 1), &[]), ..gemm.clone() }), Some(32));
    // Factors in a quarter of the bytes, of which a step counts fewer.
    let halves = Gemm { dtype: DType::F32, factors: DType::BF16, result: DType::F32, batch: vec![3], ..gemm };
    let steps = |steps: [u64; 3]| {
        let [a, b, c] = [(0, (6, 1)), (1, (7, 1)), (2, (7, 1))]
            .map(|(operand, strides)| matrix(operand, 0, strides, &[steps[operand as usize]]));
        Gemm { a, b, c, ..halves.clone() }
    };
    assert_eq!(aligned(&steps([32, 48, 64])), Some(32));
    assert_eq!(aligned(&steps([30, 42, 35])), Some(4));
    let shape = products(&steps([32, 48, 64])).map(|calls| calls[0].shape);
    assert_eq!(shape.map(|shape| (shape.dtype, shape.factors)), Some((DType::F32, DType::BF16)));
}
