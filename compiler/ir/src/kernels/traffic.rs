//! Traffic: the bytes that a kernel cannot do without reading and writing, if each is touched once.
//! At the least, its time is these through the memory's bandwidth.

use super::{Attention, Elementwise, Gemm, Kernel, Routed, Strided, Sum};
use crate::graph::DType;
use crate::units::Bytes;

impl Kernel {
    /// Bytes read and written: every element of every tensor once, those that are added to twice,
    /// those that are repeated once.
    pub fn traffic(&self) -> Bytes {
        Bytes(match self {
            Self::Gemm(gemm) => of_product(gemm),
            Self::Elementwise(kernel) => of_elementwise(kernel),
            Self::Copy { from, to } => {
                let read: u64 = from.dims.iter().filter(|dim| dim.stride > 0).map(|dim| dim.size).product();
                (read + to.elements()) * to.dtype.bytes().0
            }
            Self::Sum(sum) => of_sum(sum),
            Self::Rows(rows) => rows.traffic(),
            Self::Attention(attention) => of_attention(attention),
            Self::Routed(routed) => of_routed(routed),
        })
    }
}

/// Once, or twice if it is read before it is written.
pub(super) const fn written(bytes: u64, accumulate: bool) -> u64 {
    if accumulate { 2 * bytes } else { bytes }
}

fn of_product(gemm: &Gemm) -> u64 {
    let Gemm { m, n, k, .. } = gemm;
    let matrices = |strides: &[u64]| -> u64 {
        gemm.batch.iter().zip(strides).filter(|(_, stride)| **stride > 0).map(|(size, _)| size).product()
    };
    let factors = (matrices(&gemm.a.batch) * m * k + matrices(&gemm.b.batch) * k * n) * gemm.factors.bytes().0;
    factors + written(matrices(&gemm.c.batch) * m * n * gemm.result.bytes().0, gemm.accumulate)
}

fn of_elementwise(kernel: &Elementwise) -> u64 {
    let elements = |tensor: &Strided| -> u64 {
        kernel.sizes.iter().zip(&tensor.strides).filter(|(_, stride)| **stride > 0).map(|(size, _)| size).product()
    };
    let inputs = kernel.inputs.iter().zip(&kernel.expression.inputs);
    let outputs = kernel.outputs.iter().zip(&kernel.expression.outputs);
    let read: u64 = inputs.map(|(tensor, load)| elements(tensor) * load.dtype.bytes().0).sum();
    read + outputs.map(|(tensor, own)| written(elements(tensor) * own.dtype.bytes().0, own.accumulate)).sum::<u64>()
}

fn of_sum(sum: &Sum) -> u64 {
    let read = sum.outer * sum.reduced * sum.inner * sum.stored.bytes().0;
    read + written(sum.outer * sum.inner * sum.dtype.bytes().0, sum.accumulate)
}

fn of_attention(kernel: &Attention) -> u64 {
    let Attention { rows, columns, width, .. } = kernel;
    let batches: u64 = kernel.batch.iter().product();
    let queries = batches * rows * width;
    let all = queries + 2 * batches * columns * width;
    let (read, made) = if kernel.derivatives.is_some() { (all + queries, all) } else { (all, queries) };
    let starts = if kernel.starts.is_some() { batches * rows * DType::I32.bytes().0 } else { 0 };
    starts + read * kernel.factors.bytes().0 + written(made * kernel.result.bytes().0, kernel.accumulate)
}

fn of_routed(kernel: &Routed) -> u64 {
    let read = (kernel.rows * kernel.inner + kernel.others()) * kernel.factors.bytes().0;
    let routes = kernel.rows * DType::I32.bytes().0 + 2 * kernel.room_bytes().0;
    read + routes + written(kernel.made() * kernel.dtype.bytes().0, kernel.accumulate)
}

#[cfg(test)]
mod tests {
    use crate::graph::{Binary, DType, Graph, Op, Store, TensorType};
    use crate::ids::NodeId;
    use crate::kernels::plan;

    fn stored(graph: &mut Graph, node: NodeId, operand: u32, accumulate: bool) {
        graph.stores.push(Store {
            node,
            operand,
            offset: crate::units::Bytes::ZERO,
            accumulate,
            own: crate::units::Bytes::ZERO,
        });
    }

    #[test]
    fn what_is_repeated_counts_once_and_what_is_added_to_twice() {
        let mut graph = Graph::default();
        let mut input = |operand, ty: &TensorType| {
            graph.push(Op::Input { operand, offset: crate::units::Bytes::ZERO }, vec![], ty.clone())
        };
        let (halves, wide) = (TensorType::new(DType::BF16, &[32, 64]), TensorType::f32(&[32, 64]));
        let (a, b) = (input(0, &halves), input(1, &TensorType::new(DType::BF16, &[64, 16])));
        let (x, bias) = (input(2, &wide), input(3, &TensorType::f32(&[64])));
        let op = Op::MatMul { transpose_a: false, transpose_b: false };
        let product = graph.push(op, vec![a, b], TensorType::f32(&[32, 16]));
        let sum = graph.push(Op::Binary(Binary::Add), vec![x, bias], wide.clone());
        let rows = graph.push(Op::Sum { axis: 0 }, vec![x], TensorType::f32(&[1, 64]));
        stored(&mut graph, product, 4, true);
        stored(&mut graph, sum, 5, false);
        stored(&mut graph, rows, 6, true);
        let found = plan(&graph).kernels.iter().map(|kernel| (kernel.kind(), kernel.traffic().0)).collect::<Vec<_>>();
        let product = 2 * (32 * 64 + 64 * 16) + 2 * 4 * 32 * 16;
        let (sum, rows) = (4 * (2 * 32 * 64 + 64), 4 * (32 * 64 + 2 * 64));
        assert_eq!(found, [("gemm", product), ("elementwise", sum), ("sum", rows)]);
    }
}
