//! From strides to layouts of the library.

use super::{MatrixLayout, Product, Shape};
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Gemm, Location, Matrix};
use pipe_ir::units::{ALIGNMENT, Bytes};

/// Calls for one kernel beyond which our own product, a single launch, is the better one.
const MANY_CALLS: u64 = 16;

/// A factor or the result as rows and columns of the product.
#[derive(Clone, Copy)]
struct Plane {
    at: Location,
    rows: u64,
    columns: u64,
    /// From one row to the next, and from one column to the next.
    strides: (u64, u64),
    /// From one matrix of the batch to the next.
    step: u64,
}

impl Plane {
    const fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, strides: (self.strides.1, self.strides.0), ..self }
    }

    /// From one column to the next, if neighbours in a column are neighbours in memory.
    fn leading(&self) -> Option<u64> {
        let leading = if self.columns == 1 { self.rows } else { self.strides.1 };
        ((self.strides.0 == 1 || self.rows == 1) && leading >= self.rows).then_some(leading)
    }

    fn layout(&self, element: Bytes) -> Option<MatrixLayout> {
        let plain = self.leading().map(|leading| (leading, false));
        let (leading, transposed) = plain.or_else(|| Some((self.transposed().leading()?, true)))?;
        let step = self.step.saturating_mul(element.0);
        let alignment = [ALIGNMENT.0, self.at.offset.0, step].into_iter().map(u64::trailing_zeros).min()?;
        Some(MatrixLayout { leading, transposed, step: self.step, alignment: 1 << alignment })
    }
}

/// The calls that compute a kernel; `None` where its layout is none of the library's, or takes too many of them.
pub(crate) fn products(gemm: &Gemm) -> Option<Vec<Product>> {
    let widest = (0..gemm.batch.len()).max_by_key(|dim| gemm.batch[*dim]);
    let count = widest.map_or(1, |dim| gemm.batch[dim]);
    let others: Vec<usize> = (0..gemm.batch.len()).filter(|dim| Some(*dim) != widest).collect();
    let calls: u64 = others.iter().map(|dim| gemm.batch[*dim]).product();
    if calls > MANY_CALLS || i32::try_from(count).is_err() {
        return None;
    }
    (0..calls)
        .map(|call| {
            let plane = |matrix: &Matrix, rows, columns, dtype: DType| {
                let (mut rest, mut elements) = (call, 0);
                for dim in others.iter().rev() {
                    elements += rest % gemm.batch[*dim] * matrix.batch[*dim];
                    rest /= gemm.batch[*dim];
                }
                let offset = matrix.at.offset + Bytes(elements * dtype.bytes().0);
                let step = widest.filter(|_| count > 1).map_or(0, |dim| matrix.batch[dim]);
                let at = Location { offset, ..matrix.at };
                Plane { at, rows, columns, strides: (matrix.row, matrix.column), step }
            };
            let (a, b) = (plane(&gemm.a, gemm.m, gemm.k, gemm.factors), plane(&gemm.b, gemm.k, gemm.n, gemm.factors));
            product(gemm, count, a, b, plane(&gemm.c, gemm.m, gemm.n, gemm.result))
        })
        .collect()
}

fn product(gemm: &Gemm, count: u64, a: Plane, b: Plane, c: Plane) -> Option<Product> {
    let row_major = (b.transposed(), a.transposed(), c.transposed());
    let (left, right, result) = if c.transposed().leading().is_some() { row_major } else { (a, b, c) };
    let (element, element_of_factors) = (gemm.result.bytes(), gemm.factors.bytes());
    let shape = Shape {
        dtype: gemm.dtype,
        factors: gemm.factors,
        stored: gemm.result,
        rows: result.rows,
        columns: result.columns,
        inner: gemm.k,
        count,
        left: left.layout(element_of_factors)?,
        right: right.layout(element_of_factors)?,
        result: result.layout(element).filter(|layout| !layout.transposed)?,
        accumulate: gemm.accumulate,
    };
    Some(Product { shape, left: left.at, right: right.at, result: result.at })
}
