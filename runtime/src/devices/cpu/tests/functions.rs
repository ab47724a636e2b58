//! Element-wise functions: accuracy, special numbers, and equal bits in vector and scalar code.

use super::Case;
use pipe_ir::graph::{TensorType, Unary};
use pipe_ir::kernels::Fusion;

/// A function of many numbers.
fn apply(unary: Unary, numbers: Vec<f32>) -> Vec<f32> {
    let mut case = Case::new("functions");
    let x = case.operand(TensorType::f32(&[numbers.len() as u64]), numbers);
    let y = case.unary(unary, x);
    case.store(y);
    case.run(Fusion::On).swap_remove(1)
}

fn check_accuracy(unary: Unary, range: (f32, f32), exact: impl Fn(f64) -> f64) {
    let numbers: Vec<f32> = (0..20_001).map(|i| range.0 + (range.1 - range.0) * i as f32 / 20_000.0).collect();
    let results = apply(unary, numbers.clone());
    for (x, y) in numbers.iter().zip(&results) {
        let exact = exact(f64::from(*x));
        let error = (f64::from(*y) - exact).abs() / exact.abs().max(1e-30);
        assert!(error < 1e-6 || (exact - f64::from(*y)).abs() < 1e-9, "{unary:?}({x}) = {y} instead of {exact}");
    }
}

#[test]
fn exponentials_are_accurate() {
    check_accuracy(Unary::Exp, (-87.0, 88.5), f64::exp);
    check_accuracy(Unary::Exp, (-1.0, 1.0), f64::exp);
    let special = apply(Unary::Exp, vec![f32::NEG_INFINITY, -200.0, 0.0, 89.0, f32::INFINITY, f32::NAN]);
    assert_eq!(special[..5], [0.0, 0.0, 1.0, f32::INFINITY, f32::INFINITY]);
    assert!(special[5].is_nan());
}

#[test]
fn tangents_are_accurate() {
    check_accuracy(Unary::Tanh, (-12.0, 12.0), f64::tanh);
    check_accuracy(Unary::Tanh, (-0.01, 0.01), f64::tanh);
    let special = apply(Unary::Tanh, vec![f32::NEG_INFINITY, 0.0, f32::INFINITY, f32::NAN]);
    assert!((special[0] + 1.0).abs() < 1e-6 && special[1] == 0.0 && (special[2] - 1.0).abs() < 1e-6);
    assert!(special[3].is_nan());
}

#[test]
fn logarithms_are_accurate() {
    check_accuracy(Unary::Log, (1e-3, 0.999), f64::ln);
    check_accuracy(Unary::Log, (1.001, 1e6), f64::ln);
    check_accuracy(Unary::Log, (1e-40, 1e-38), f64::ln);
    let special = apply(Unary::Log, vec![0.0, -1.0, f32::INFINITY, f32::NAN, 1.0]);
    assert_eq!((special[0], special[2], special[4]), (f32::NEG_INFINITY, f32::INFINITY, 0.0));
    assert!(special[1].is_nan() && special[3].is_nan());
}

#[test]
fn the_other_functions_are_exact() {
    let numbers = vec![-2.0, -0.0, 0.0, 4.0, 0.25];
    assert_eq!(apply(Unary::Neg, numbers.clone()), [2.0, 0.0, -0.0, -4.0, -0.25]);
    assert_eq!(apply(Unary::Sqrt, numbers.clone())[2..], [0.0, 2.0, 0.5]);
    assert_eq!(apply(Unary::Reciprocal, numbers.clone())[3..], [0.25, 4.0]);
    assert_eq!(apply(Unary::Relu, numbers.clone()), [0.0, -0.0, 0.0, 4.0, 0.25]);
    assert_eq!(apply(Unary::Step, numbers), [0.0, 0.0, 0.0, 1.0, 1.0]);
}

/// The same number at every place of a run: in vectors of eight and four, and among the single ones at the end.
#[test]
fn an_element_does_not_depend_on_its_place() {
    for unary in [Unary::Exp, Unary::Log, Unary::Tanh, Unary::Sqrt, Unary::Reciprocal] {
        for x in [0.1_f32, 0.731, 1.9, 7.77] {
            let results = apply(unary, vec![x; 15]);
            assert!(results.iter().all(|y| y.to_bits() == results[0].to_bits()), "{unary:?}({x}) = {results:?}");
        }
    }
}
