//! Functions of element-wise kernels: special numbers as on the CPU, and the same bits for the four operations.

use super::cases::Planned;
use super::module::Module;
use crate::kernels::Sources;
use pipe_ir::graph::{Binary, DType, TensorType, Unary};
use pipe_ir::kernels::Fusion;
use pipe_kernel_cases::Case;

const NUMBERS: [f64; 11] =
    [f64::NEG_INFINITY, -800.0, -2.0, -0.0, 0.0, 1e-30, 0.25, 1.0, 710.0, f64::INFINITY, f64::NAN];
/// All functions of the numbers, and the four operations with a constant that is no short binary fraction.
fn case() -> Case {
    let mut case = Case::new("functions");
    let x = case.operand(TensorType::f32(&[11]), NUMBERS.to_vec());
    let third = case.constant(1.0 / 3.0);
    for function in Unary::ALL.iter().copied() {
        let y = case.unary(function, x);
        case.store(y);
    }
    for operation in Binary::ALL.iter().copied() {
        let y = case.binary(operation, x, third);
        case.store(y);
    }
    case
}

#[test]
fn special_numbers_are_those_of_the_cpu() {
    let mut sources = Sources::default();
    let both = [DType::F32, DType::F64].map(|dtype| {
        let case = case().in_precision(dtype);
        let planned = Planned::new(&case, Fusion::On, &mut sources);
        (case, planned)
    });
    let Some(module) = Module::new(sources) else { return };
    for (case, planned) in &both {
        let (found, expected) = (planned.run(&module).0, case.run(Fusion::On));
        for (operand, (found, expected)) in found.iter().zip(&expected).enumerate() {
            for (x, (found, expected)) in NUMBERS.iter().zip(found.iter().zip(expected)) {
                let is_close = (found - expected).abs() <= 1e-6 * expected.abs().min(1e30) || found == expected;
                assert!(
                    is_close || found.is_nan() && expected.is_nan(),
                    "operand {operand} of {x}: {found} instead of {expected}"
                );
            }
        }
    }
}
