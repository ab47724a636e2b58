//! The emulator is judged: a kernel without one of its barriers must give wrong numbers on it.

use super::cases::Planned;
use super::module::{Module, is_on_gpu};
use crate::kernels::Sources;
use pipe_ir::graph::Op;
use pipe_ir::kernels::Fusion;
use pipe_kernel_cases::{Case, interpreter};
use pipe_runtime::Precision;
use std::ops::Range;

const BARRIER: &str = "__syncthreads();";

/// Rows of several warps, columns, rows that become columns, a product of several steps, and
/// attention over several tiles. (Rows that are added to a table are not here: without its barriers
/// that kernel leaves its shared array, at which the emulator ends the process.)
fn cases() -> Vec<(Case, Precision)> {
    let mut rows = Case::new("rows");
    let (x, dy) = (rows.input(&[5, 3000]), rows.input(&[5, 3000]));
    let p = rows.push(Op::Softmax { causal: false }, &[x], &[5, 3000]);
    let dx = rows.push(Op::SoftmaxGrad, &[p, dy], &[5, 3000]);
    let statistics = rows.push(Op::NormStatistics { epsilon: 1e-5, rms: false }, &[x], &[5, 2]);
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
    let [q, k, v, dy] = [70, 140, 140, 70].map(|rows| attention.input(&[2, rows, 24]));
    let y = attention.push(Op::Attention { causal: true, window: None }, &[q, k, v], &[2, 70, 24]);
    let gradients = attention.push(Op::AttentionGrad { causal: true, window: None }, &[q, k, v, dy], &[2, 350, 24]);
    attention.store(y);
    attention.store(gradients);
    let mut all = [rows, columns, product].map(|case| (case, Precision::Fp32)).to_vec();
    all.extend([Precision::Fp32, Precision::Tf32].map(|precision| (attention.clone(), precision)));
    all.push((attention.in_halves(), Precision::Bf16));
    all
}

/// A case whose kernels have these texts, the first to need them.
struct Analysis {
    planned: Planned,
    tolerance: f64,
    texts: Range<usize>,
}

/// All cases in one source.
fn analysis(sources: &mut Sources) -> Vec<Analysis> {
    let mut all = Vec::new();
    for (case, precision) in cases() {
        let first = sources.texts.len();
        sources.precision = precision;
        let mut planned = Planned::new(&case, Fusion::On, sources);
        for launch in &mut planned.launches {
            // Few blocks for several rows and matrices, so that they go on from one to the next.
            match sources.name(launch.function) {
                name if name.starts_with("gemm") => launch.grid[1] = 1,
                name if name.starts_with("attention") => launch.grid[0] /= 2,
                name if name.starts_with("cross_entropy") => launch.grid[0] = 2,
                _ => {}
            }
        }
        let tolerance = if precision == Precision::Fp32 { 1e-4 } else { 0.5 };
        all.push(Analysis { planned, tolerance, texts: first..sources.texts.len() });
    }
    all
}

/// The lines of all barriers, with the positions of their texts.
fn barriers(sources: &Sources) -> Vec<(usize, u32)> {
    let whole = sources.text();
    let mut found = Vec::new();
    let mut from = 0;
    for (position, text) in sources.texts.iter().enumerate() {
        // Not the sum in double precision, which is used once here and needs one barrier less; nor
        // the barrier before a block asks whether it is the last one, without which the lanes of a
        // warp part: the emulator ends the process then.
        let is_judged = !text.contains("team_sum_f64(f64") && !text.contains("is_last");
        let start = from + whole[from..].find(text.as_str()).expect("a text is in the source, after those before it");
        let before = whole[..start].lines().count() as u32;
        let lines = text.lines().zip(before + 1..).filter(|(line, _)| is_judged && line.contains(BARRIER));
        found.extend(lines.map(|(_, line)| (position, line)));
        from = start + text.len();
    }
    found
}

/// Whether some result is off by more than a tolerance, in one of so many orders of threads.
fn is_noticed(Analysis { planned, tolerance, .. }: &Analysis, module: &Module, orders: usize) -> bool {
    let expected = interpreter::run(&planned.case.graph, &planned.case.operands);
    (0..orders).any(|_| {
        let found = planned.run(module).0;
        let pairs = found.iter().zip(&expected).filter_map(|(found, expected)| Some((found, expected.as_ref()?)));
        let mut numbers = pairs.flat_map(|(found, expected)| found.iter().zip(expected));
        numbers
            .any(|(found, expected)| found.is_nan() || (found - expected).abs() > tolerance * expected.abs().max(1.0))
    })
}

#[test]
fn a_kernel_without_one_of_its_barriers_gives_wrong_numbers() {
    let mut sources = Sources::default();
    let analysis = analysis(&mut sources);
    let barriers = barriers(&sources);
    let text = sources.text();
    if is_on_gpu() {
        eprintln!("no barrier is left out on a GPU");
        return;
    }
    let Some(module) = Module::new(sources) else { return };
    let Module::Emulated(emulated) = &module else { panic!("not on a GPU") };
    for one in &analysis {
        assert!(!is_noticed(one, &module, 2), "with all barriers the numbers are right");
        for (_, line) in barriers.iter().filter(|(text, _)| one.texts.contains(text)) {
            emulated.leave_out(Some(*line));
            let until = text.lines().take(*line as usize);
            let around: Vec<&str> = until.skip(*line as usize - 4).collect();
            assert!(is_noticed(one, &module, 60), "nobody notices that a barrier is missing:\n{}", around.join("\n"));
        }
        emulated.leave_out(None);
    }
    assert_eq!(barriers.len(), 13);
}
