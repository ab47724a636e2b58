//! The emulator is judged: a kernel without one of its barriers must give wrong numbers on it.

use super::cases::Planned;
use super::emulated::Module;
use crate::devices::cpu::tests::{Case, interpreter};
use crate::devices::cuda::kernels::{Precision, Sources};
use pipe_ir::graph::Op;
use pipe_ir::kernels::Fusion;

const BARRIER: &str = "__syncthreads();";

/// Rows of several warps, columns, rows that become columns, a product of several steps, and attention over several tiles. (Rows that are added to a table are not here: without its barriers
/// that kernel leaves its shared array, at which the emulator ends the process.)
fn cases() -> Vec<(Case, Precision)> {
    let mut rows = Case::new("rows");
    let (x, dy) = (rows.input(&[5, 3000]), rows.input(&[5, 3000]));
    let p = rows.push(Op::Softmax { causal: false }, &[x], &[5, 3000]);
    let dx = rows.push(Op::SoftmaxGrad, &[p, dy], &[5, 3000]);
    let statistics = rows.push(Op::NormStatistics { epsilon: 1e-5 }, &[x], &[5, 2]);
    let targets = rows.indices(&[5], 3000);
    let loss = rows.push(Op::CrossEntropy, &[x, targets], &[]);
    for node in [dx, statistics, loss] {
        rows.store(node);
    }
    let mut columns = Case::new("columns");
    let x = columns.input(&[300, 40]);
    let sum = columns.push(Op::Sum { axis: 0 }, &[x], &[1, 40]);
    let moved = columns.transpose(x, &[1, 0]);
    columns.store(sum);
    columns.store(moved);
    let mut product = Case::new("product");
    let (a, b) = (product.input(&[4, 70, 100]), product.input(&[4, 100, 65]));
    let c = product.matmul(a, b, false, false, &[4, 70, 65]);
    product.store(c);
    let mut attention = Case::new("attention");
    let [q, k, v, dy] = [70, 140, 140, 70].map(|rows| attention.input(&[2, rows, 20]));
    let y = attention.push(Op::Attention { causal: true }, &[q, k, v], &[2, 70, 20]);
    let gradients = attention.push(Op::AttentionGrad { causal: true }, &[q, k, v, dy], &[2, 350, 20]);
    attention.store(y);
    attention.store(gradients);
    let mut all = [rows, columns, product].map(|case| (case, Precision::Fp32)).to_vec();
    all.extend([Precision::Fp32, Precision::Tf32, Precision::Bf16].map(|precision| (attention.clone(), precision)));
    all
}

/// Whether some result is off by more than a tolerance, in one of many orders of threads.
fn is_noticed(planned: &Planned, module: &Module, tolerance: f64) -> bool {
    let expected = interpreter::run(&planned.case.graph, &planned.case.operands);
    (0..60).any(|_| {
        let found = planned.run(module).0;
        let pairs = found.iter().zip(&expected).filter_map(|(found, expected)| Some((found, expected.as_ref()?)));
        let mut numbers = pairs.flat_map(|(found, expected)| found.iter().zip(expected));
        numbers
            .any(|(found, expected)| found.is_nan() || (found - expected).abs() > tolerance * expected.abs().max(1.0))
    })
}

#[test]
fn a_kernel_without_one_of_its_barriers_gives_wrong_numbers() {
    let mut n_barriers = 0;
    for (case, precision) in cases() {
        let mut sources = Sources::new(precision);
        let tolerance = if precision == Precision::Fp32 { 1e-4 } else { 0.5 };
        let mut planned = Planned::new(&case, Fusion::On, &mut sources);
        for launch in &mut planned.launches {
            // Few blocks for several rows and matrices, so that they go on from one to the next.
            match sources.name(launch.function) {
                name if name.starts_with("gemm") || name.starts_with("attention") => launch.grid[1] = 1,
                name if name.starts_with("cross_entropy") => launch.grid[0] = 2,
                _ => {}
            }
        }
        // Not the sum in double precision, which is used once here and needs one barrier less; nor the barrier before a block asks whether it is the last one,
        // without which the lanes of a warp part: the emulator ends the process then.
        let places: Vec<(usize, usize)> = (sources.texts.iter().enumerate())
            .filter(|(_, own)| !own.contains("team_sum_f64(f64") && !own.contains("is_last"))
            .flat_map(|(text, own)| own.match_indices(BARRIER).map(move |(at, _)| (text, at)))
            .collect();
        for (text, at) in places {
            let mut damaged = sources.clone();
            damaged.texts[text].replace_range(at..at + BARRIER.len(), "");
            let Some(module) = Module::new(damaged) else { return };
            let around = &sources.texts[text][at.saturating_sub(200)..at];
            assert!(
                is_noticed(&planned, &module, tolerance),
                "nobody notices that a barrier is missing after:\n{around}"
            );
            n_barriers += 1;
        }
    }
    assert_eq!(n_barriers, 19);
}
