//! Indices that name no row: the error word names the first of them, whatever the order of threads,
//! and nothing is written that should not be.

use super::cases::Planned;
use super::module::Module;
use crate::kernels::{Sources, fault};
use pipe_ir::graph::{DType, Op, TensorType};
use pipe_ir::kernels::Fusion;
use pipe_kernel_cases::Case;

/// A case that looks rows up, one that adds to them, and both directions of a loss, with these indices into 9 rows.
fn cases(indices: &[f64]) -> Vec<Case> {
    let rows = indices.len() as u64;
    let tokens = |case: &mut Case| case.operand(TensorType::new(DType::I32, &[rows]), indices.to_vec());
    let mut gather = Case::new("gather");
    let (table, named) = (gather.input(&[9, 5]), tokens(&mut gather));
    let y = gather.push(Op::Gather, &[table, named], &[rows, 5]);
    gather.store(y);
    let mut scatter = Case::new("scatter");
    let (named, dy) = (tokens(&mut scatter), scatter.input(&[rows, 5]));
    let table = scatter.push(Op::ScatterAdd, &[named, dy], &[9, 5]);
    scatter.store(table);
    let mut loss = Case::new("loss");
    let (x, named) = (loss.input(&[rows, 9]), tokens(&mut loss));
    let y = loss.push(Op::CrossEntropy, &[x, named], &[]);
    loss.store(y);
    let mut grad = Case::new("grad");
    let (x, named, dloss) = (grad.input(&[rows, 9]), tokens(&mut grad), grad.input(&[]));
    let dx = grad.push(Op::CrossEntropyGrad, &[x, named, dloss], &[rows, 9]);
    grad.store(dx);
    vec![gather, scatter, loss, grad]
}

#[test]
fn an_index_that_names_no_row_is_noted() {
    let mut sources = Sources::default();
    let mut all = Vec::new();
    for (indices, first) in [
        (vec![0.0, 8.0, 3.0], None),
        (vec![0.0, 9.0, 3.0, -1.0], Some(9)),
        (vec![-7.0, 100.0], Some(-7)),
        ((0..300).map(|index| f64::from(index % 11)).collect(), Some(9)),
    ] {
        for case in cases(&indices) {
            all.push((Planned::new(&case, Fusion::On, &mut sources), first));
        }
    }
    let Some(module) = Module::new(sources) else { return };
    for (planned, first) in &all {
        for _ in 0..3 {
            let expected = first.map(|index| format!("the data holds index {index}, but the table has 9 rows"));
            assert_eq!(fault(planned.run(&module).1), expected);
        }
    }
}
