//! Element-wise functions: accuracy, special numbers, and equal bits in vector and scalar code, in both precisions.

use super::Case;
use pipe_ir::graph::{DType, TensorType, Unary};
use pipe_ir::kernels::Fusion;

const PRECISIONS: [DType; 2] = [DType::F32, DType::F64];

/// A function of many numbers.
fn apply(dtype: DType, unary: Unary, numbers: &[f64]) -> Vec<f64> {
    let mut case = Case::new("functions");
    let x = case.operand(TensorType::f32(&[numbers.len() as u64]), numbers.to_vec());
    let y = case.unary(unary, x);
    case.store(y);
    case.in_precision(dtype).run(Fusion::On).swap_remove(1)
}

/// Compares with the standard library on 20,001 numbers, to this relative error or to `close`.
fn check_accuracy(dtype: DType, unary: Unary, range: (f64, f64), exact: impl Fn(f64) -> f64) {
    let (relative, close) = if dtype == DType::F64 { (1e-15, 1e-300) } else { (1e-6, 1e-9) };
    let number = |i: u32| dtype.nearest(range.0 + (range.1 - range.0) * f64::from(i) / 20_000.0);
    let numbers: Vec<f64> = (0..20_001).map(number).collect();
    for (x, y) in numbers.iter().zip(apply(dtype, unary, &numbers)) {
        let exact = exact(*x);
        let error = (y - exact).abs();
        assert!(error <= relative * exact.abs() || error < close, "{dtype} {unary:?}({x}) = {y} instead of {exact}");
    }
}

#[test]
fn exponentials_are_accurate() {
    check_accuracy(DType::F32, Unary::Exp, (-87.0, 88.5), f64::exp);
    check_accuracy(DType::F64, Unary::Exp, (-708.3, 709.7), f64::exp);
    for dtype in PRECISIONS {
        check_accuracy(dtype, Unary::Exp, (-1.0, 1.0), f64::exp);
        let special = apply(dtype, Unary::Exp, &[f64::NEG_INFINITY, -800.0, 0.0, 710.0, f64::INFINITY, f64::NAN]);
        assert_eq!(special[..5], [0.0, 0.0, 1.0, f64::INFINITY, f64::INFINITY]);
        assert!(special[5].is_nan());
    }
}

#[test]
fn tangents_are_accurate() {
    for dtype in PRECISIONS {
        check_accuracy(dtype, Unary::Tanh, (-30.0, 30.0), f64::tanh);
        check_accuracy(dtype, Unary::Tanh, (-1.0, 1.0), f64::tanh);
        check_accuracy(dtype, Unary::Tanh, (-0.01, 0.01), f64::tanh);
        let special = apply(dtype, Unary::Tanh, &[f64::NEG_INFINITY, 0.0, f64::INFINITY, f64::NAN]);
        assert!((special[0] + 1.0).abs() < 1e-6 && special[1] == 0.0 && (special[2] - 1.0).abs() < 1e-6);
        assert!(special[3].is_nan());
    }
}

#[test]
fn logarithms_are_accurate() {
    check_accuracy(DType::F64, Unary::Log, (1e-310, 1e-306), f64::ln);
    for dtype in PRECISIONS {
        check_accuracy(dtype, Unary::Log, (1e-3, 0.999), f64::ln);
        check_accuracy(dtype, Unary::Log, (1.001, 1e6), f64::ln);
        check_accuracy(dtype, Unary::Log, (1e-40, 1e-38), f64::ln);
        let special = apply(dtype, Unary::Log, &[0.0, -1.0, f64::INFINITY, f64::NAN, 1.0]);
        assert_eq!((special[0], special[2], special[4]), (f64::NEG_INFINITY, f64::INFINITY, 0.0));
        assert!(special[1].is_nan() && special[3].is_nan());
    }
}

#[test]
fn sines_are_accurate() {
    for (unary, exact) in [(Unary::Sin, f64::sin as fn(f64) -> f64), (Unary::Cos, f64::cos)] {
        for dtype in PRECISIONS {
            let close = if dtype == DType::F64 { 2e-15 } else { 2e-7 };
            for range in [(-0.01, 0.01), (-1.0, 1.0), (-30.0, 30.0), (-10_000.0, 10_000.0)] {
                let number = |i: u32| dtype.nearest(range.0 + (range.1 - range.0) * f64::from(i) / 20_000.0);
                let numbers: Vec<f64> = (0..20_001).map(number).collect();
                for (x, y) in numbers.iter().zip(apply(dtype, unary, &numbers)) {
                    assert!((y - exact(*x)).abs() <= close, "{dtype} {unary:?}({x}) = {y} instead of {}", exact(*x));
                }
            }
            let special = apply(dtype, unary, &[f64::NEG_INFINITY, f64::INFINITY, f64::NAN, 0.0, -0.0]);
            assert!(special[..3].iter().all(|y| y.is_nan()));
            assert_eq!(special[3..], [exact(0.0), exact(0.0)]);
        }
    }
}

#[test]
fn the_other_functions_are_exact() {
    let numbers = [-2.0, -0.0, 0.0, 4.0, 0.25];
    for dtype in PRECISIONS {
        assert_eq!(apply(dtype, Unary::Neg, &numbers), [2.0, 0.0, -0.0, -4.0, -0.25]);
        assert_eq!(apply(dtype, Unary::Sqrt, &numbers)[2..], [0.0, 2.0, 0.5]);
        assert_eq!(apply(dtype, Unary::Reciprocal, &numbers)[3..], [0.25, 4.0]);
        assert_eq!(apply(dtype, Unary::Relu, &numbers), [0.0, -0.0, 0.0, 4.0, 0.25]);
        assert_eq!(apply(dtype, Unary::Step, &numbers), [0.0, 0.0, 0.0, 1.0, 1.0]);
    }
}

/// The same number at every place of a run: in two registers, in one, and among the single ones at the end.
#[test]
fn an_element_does_not_depend_on_its_place() {
    for dtype in PRECISIONS {
        for unary in Unary::ALL.iter().copied() {
            for x in [0.1, 0.731, 1.9, 7.77] {
                let results = apply(dtype, unary, &[x; 15]);
                assert!(results.iter().all(|y| y.to_bits() == results[0].to_bits()), "{unary:?}({x}) = {results:?}");
            }
        }
    }
}
