//! The cases of the CPU device on the emulator: the same graphs and operands, fused and unfused,
//! compared with plain arithmetic.

use super::arena::run;
use super::module::Module;
use crate::kernels::Sources;
use crate::launch::Launch;
use pipe_ir::graph::{DType, Op, Unary};
use pipe_ir::kernels::{Fusion, plan_with};
use pipe_ir::units::Bytes;
use pipe_kernel_cases::{Case, cases, interpreter};
use pipe_runtime::Precision;

/// A case with what to launch for it.
pub(super) struct Planned {
    pub(super) case: Case,
    pub(super) launches: Vec<Launch>,
    scratch: Bytes,
}

impl Planned {
    pub(super) fn new(case: &Case, fusion: Fusion, sources: &mut Sources) -> Self {
        let plan = plan_with(&case.graph, fusion);
        let launches = plan.kernels.iter().flat_map(|kernel| sources.launches(kernel)).collect();
        Self { case: case.clone(), launches, scratch: plan.scratch }
    }

    /// The operands after the kernels, and the error word.
    pub(super) fn run(&self, module: &Module) -> (Vec<Vec<f64>>, u64) {
        run(module, &self.launches, &self.case.operands, self.scratch)
    }

    /// Runs it, finds no error, and compares with plain arithmetic to a tolerance.
    pub(super) fn check(&self, module: &Module, tolerance: f64) -> Vec<Vec<f64>> {
        let (found, error) = self.run(module);
        assert_eq!(error, 0, "error word");
        let expected = interpreter::run(&self.case.graph, &self.case.operands);
        for (operand, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let Some(expected) = expected else { continue };
            let tolerance = self.case.tolerance(operand, tolerance);
            let scale = expected.iter().fold(1e-3_f64, |scale, x| scale.max(x.abs()));
            for (element, (found, expected)) in found.iter().zip(expected).enumerate() {
                assert!(
                    (found - expected).abs() <= tolerance * scale.max(expected.abs()),
                    "operand {operand} element {element}: {found} instead of {expected}\n{:#?}",
                    self.launches
                );
            }
        }
        found
    }
}

/// As [`check_each`], all in one way to multiply and to the same tolerances.
pub(super) fn check_all(cases: &[Case], precision: Precision, tolerances: (f64, f64)) {
    check_each(&cases.iter().map(|case| (case.clone(), precision, tolerances)).collect::<Vec<_>>());
}

/// Fused and unfused kernels of all cases give the same bits, and agree with plain arithmetic to
/// tolerances, those of single and of double precision; a second run gives the same bits.
pub(super) fn check_each(cases: &[(Case, Precision, (f64, f64))]) {
    let mut sources = Sources::default();
    let mut planned = Vec::new();
    for (case, precision, (single, double)) in cases {
        sources.precision = *precision;
        for dtype in case.precisions() {
            let tolerance = if *dtype == DType::F64 { *double } else { *single };
            let case = case.in_precision(*dtype);
            let mut plan = |fusion| Planned::new(&case, fusion, &mut sources);
            planned.push((plan(Fusion::On), plan(Fusion::Off), tolerance));
        }
    }
    let Some(module) = Module::new(sources) else { return };
    for (fused, unfused, tolerance) in &planned {
        let bits = |numbers: Vec<Vec<f64>>| -> Vec<Vec<u64>> {
            numbers.iter().map(|numbers| numbers.iter().map(|x| x.to_bits()).collect()).collect()
        };
        let first = bits(fused.check(&module, *tolerance));
        // The same launches serve for another order of threads.
        let is_same = fused.launches == unfused.launches;
        assert_eq!(
            first,
            bits(unfused.run(&module).0),
            "{}",
            if is_same { "another order of threads" } else { "fusion" }
        );
        if !is_same {
            assert_eq!(first, bits(fused.run(&module).0), "another order of threads");
        }
    }
}

#[test]
fn the_cases_of_the_cpu_pass_on_the_emulator() {
    // As in other long tests, a slice of them; `.ci/full` takes all.
    let one_in = if std::env::var("PIPEC_ALL").is_ok_and(|all| all != "0") { 1 } else { 3 };
    let cases: Vec<Case> = cases().into_iter().step_by(one_in).collect();
    check_all(&cases, Precision::Fp32, (1e-5, 1e-13));
}

/// Rows of a warp and of a block, that end inside of a step, between them and after several of them; masked and not.
#[test]
fn rows_of_every_width() {
    let mut all = Vec::new();
    for (rows, width) in [(3, 255), (9, 256), (2, 257), (3, 1000), (1, 4100), (2, 5003)] {
        let mut case = Case::new("wide rows");
        let (x, dy, gain, bias) =
            (case.input(&[rows, width]), case.input(&[rows, width]), case.input(&[width]), case.input(&[width]));
        let statistics = case.push(Op::NormStatistics { epsilon: 1e-5, rms: false }, &[x], &[rows, 2]);
        let y = case.push(Op::Normalize, &[x, statistics, gain, bias], &[rows, width]);
        let dx = case.push(Op::NormalizeGradInput { rms: false }, &[x, statistics, gain, dy], &[rows, width]);
        let p = case.push(Op::Softmax { causal: false }, &[x], &[rows, width]);
        let masked = case.push(Op::Softmax { causal: true }, &[x], &[rows, width]);
        let ds = case.push(Op::SoftmaxGrad, &[p, dy], &[rows, width]);
        let sum = case.push(Op::Sum { axis: 1 }, &[x], &[rows, 1]);
        let (targets, dloss) = (case.indices(&[rows], width), case.input(&[]));
        let loss = case.push(Op::CrossEntropy, &[x, targets], &[]);
        let dlogits = case.push(Op::CrossEntropyGrad, &[x, targets, dloss], &[rows, width]);
        for node in [statistics, y, dx, p, masked, ds, sum, loss, dlogits] {
            case.store(node);
        }
        all.push(case);
    }
    check_all(&all, Precision::Fp32, (1e-5, 1e-13));
}

/// Many rows: several blocks of them, more rows than blocks have sums, strips of columns of both
/// widths, repeated indices.
#[test]
fn many_rows() {
    let mut all = Vec::new();
    for (rows, width) in [(1100, 3), (300, 40), (33, 130), (5, 4200)] {
        let mut case = Case::new("many rows");
        let (x, dy) = (case.input(&[rows, width]), case.input(&[rows, width]));
        let statistics = case.push(Op::NormStatistics { epsilon: 1e-5, rms: false }, &[x], &[rows, 2]);
        let dgain = case.push(Op::NormalizeGradGain, &[x, statistics, dy], &[width]);
        let sum = case.push(Op::Sum { axis: 0 }, &[x], &[1, width]);
        let (targets, tokens) = (case.indices(&[rows], width), case.indices(&[rows], 7));
        let loss = case.push(Op::CrossEntropy, &[x, targets], &[]);
        let table = case.push(Op::ScatterAdd, &[tokens, dy], &[7, width]);
        for node in [dgain, sum, loss, table] {
            case.store(node);
        }
        case.accumulate(dgain);
        case.accumulate(table);
        all.push(case);
    }
    check_all(&all, Precision::Fp32, (1e-5, 1e-12));
}

/// Views that begin at an element that is no multiple of a vector, and copies with many axes.
#[test]
fn views_that_are_not_aligned() {
    let mut all = Vec::new();
    for start in 0..5 {
        let mut case = Case::new("unaligned");
        let (x, y) = (case.input(&[3, 20]), case.input(&[3, 16]));
        let part = case.slice(x, 1, start, 16);
        let sum = case.binary(pipe_ir::graph::Binary::Add, part, y);
        let root = case.unary(Unary::Exp, part);
        case.store(sum);
        case.accumulate(root);
        let z = case.input(&[2, 3, 4, 5, 3, 2]);
        for permutation in [[5, 3, 1, 0, 2, 4], [1, 0, 3, 2, 5, 4], [5, 4, 3, 2, 1, 0], [0, 2, 1, 4, 3, 5]] {
            let moved = case.transpose(z, &permutation);
            case.store(moved);
        }
        let large = case.input(&[70, 3, 45]);
        let moved = case.transpose(large, &[2, 1, 0]);
        case.store(moved);
        all.push(case);
    }
    check_all(&all, Precision::Fp32, (1e-5, 1e-13));
}
