//! Matrix products with random sizes, strides and batches, in every precision.

use super::arena::{Arena, run};
use super::card::Card;
use super::module::{Address, Module};
use crate::kernels::Sources;
use crate::launch::Launch;
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Gemm, Location, Matrix, Storage};
use pipe_ir::units::Bytes;
use pipe_kernel_cases::Operand;
use pipe_runtime::Precision;
use pipe_runtime::random::Counter;

/// A product with its operands.
struct Product {
    gemm: Gemm,
    operands: Vec<Operand>,
    precision: Precision,
    launches: Vec<Launch>,
}

/// Sizes and strides at random, from a stream of numbers.
struct Draw(Counter);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    fn of(&mut self, choices: &[u64]) -> u64 {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A matrix in rows or in columns, with or without room between them; batches outside, in any
    /// order of axes. Returns its number of elements.
    fn matrix(&mut self, operand: u32, (rows, columns): (u64, u64), batch: &[u64], dtype: DType) -> (Matrix, u64) {
        let start = self.of(&[0, 0, 1, 4]);
        let room = self.of(&[0, 0, 3, 4]);
        let by_rows = self.below(2) == 0;
        let long = if by_rows { columns } else { rows } + room;
        let (row, column) = if by_rows { (long, 1) } else { (1, long) };
        let mut size = long * if by_rows { rows } else { columns } + self.of(&[0, 4]);
        let mut strides = vec![0; batch.len()];
        for axis in (0..batch.len()).rev() {
            strides[axis] = size;
            size *= batch[axis];
        }
        let at = Location { place: Storage::Operand(operand), offset: Bytes(start * dtype.bytes().0) };
        (Matrix { at, row, column, batch: strides }, start + size)
    }

    fn product(
        &mut self,
        precision: Precision,
        [dtype, factors, result]: [DType; 3],
        sources: &mut Sources,
    ) -> Product {
        let sizes = [1, 2, 7, 16, 31, 64, 65, 96, 128, 130];
        let (m, n, k) = (self.of(&sizes), self.of(&sizes), self.of(&[1, 3, 8, 15, 16, 17, 33, 64, 100]));
        let batch: Vec<u64> = (0..self.below(5)).map(|_| self.of(&[1, 2, 3])).collect();
        let ((a, size_a), (b, size_b), (c, size_c)) = (
            self.matrix(0, (m, k), &batch, factors),
            self.matrix(1, (k, n), &batch, factors),
            self.matrix(2, (m, n), &batch, result),
        );
        let mut operand = |size: u64, dtype: DType| {
            let numbers = (0..size).map(|_| dtype.nearest(self.0.normal())).collect();
            Operand { dtype, numbers }
        };
        let operands = vec![operand(size_a, factors), operand(size_b, factors), operand(size_c, result)];
        let accumulate = self.below(2) == 0 && result != DType::BF16;
        let gemm = Gemm { dtype, factors, result, batch, m, n, k, a, b, c, accumulate };
        sources.precision = precision;
        let launches = sources.gemm(&gemm);
        Product { gemm, operands, precision, launches }
    }
}

/// How far a result may be from the exact one of rounded factors, by kernels of our own.
fn tolerance(gemm: &Gemm) -> f64 {
    match (gemm.dtype, gemm.result) {
        (DType::F64, _) => 1e-13,
        (_, DType::BF16) => 2.0_f64.powi(-8),
        _ => 1e-5,
    }
}

/// The same by the vendor's library, relative to the sum of the magnitudes of all terms: it may cut the digits of
/// factors off (which moves each by one unit of its last digit), or keep all of them where it has no tensor core kernel
/// for a shape, as cuBLASLt 13.0 did on an H100 with a result that was aligned to 4 bytes.
fn tolerance_of_library(Product { gemm, precision, .. }: &Product) -> f64 {
    match (gemm.dtype, gemm.factors, precision) {
        (DType::F32, DType::F32, Precision::Tf32) => 2.0_f64.powi(-9),
        (DType::F32, DType::F32, Precision::Bf16) => 2.0_f64.powi(-6),
        _ => tolerance(gemm),
    }
}

/// What is left of a factor.
fn rounded(number: f64, precision: Precision, dtype: DType) -> f64 {
    let bits = match (precision, dtype) {
        (Precision::Bf16, DType::F32) => 16,
        (Precision::Tf32, DType::F32) => 13,
        _ => return number,
    };
    let word = (number as f32).to_bits();
    let half = 1_u32 << (bits - 1);
    // Halves go to the even neighbour in bf16, away from zero in tf32.
    let even = if bits == 16 { (word >> bits & 1) + half - 1 } else { half };
    f64::from(f32::from_bits((word + even) >> bits << bits))
}

impl Product {
    /// Element by element, from the definition; with the sum of the magnitudes of all terms.
    fn expected(&self) -> Vec<(f64, f64)> {
        let Gemm { m, n, k, a, b, c, .. } = &self.gemm;
        let first = |matrix: &Matrix, dtype: DType| matrix.at.offset.0 / dtype.bytes().0;
        let factor = |operand: usize, at: u64| {
            rounded(self.operands[operand].numbers[at as usize], self.precision, self.gemm.dtype)
        };
        let mut result: Vec<_> = self.operands[2].numbers.iter().map(|number| (*number, number.abs())).collect();
        for index in 0..self.gemm.batch.iter().product() {
            let offset = |matrix: &Matrix, dtype: DType| {
                let mut rest = index;
                let axes = self.gemm.batch.iter().zip(&matrix.batch).rev();
                axes.fold(first(matrix, dtype), |offset, (size, stride)| {
                    let own = rest % size;
                    rest /= size;
                    offset + own * stride
                })
            };
            let Gemm { factors, result: stored, .. } = self.gemm;
            let (at_a, at_b, at_c) = (offset(a, factors), offset(b, factors), offset(c, stored));
            for row in 0..*m {
                for column in 0..*n {
                    let terms = (0..*k).map(|depth| {
                        factor(0, at_a + row * a.row + depth * a.column)
                            * factor(1, at_b + depth * b.row + column * b.column)
                    });
                    let to = &mut result[(at_c + row * c.row + column * c.column) as usize];
                    let before = if self.gemm.accumulate { *to } else { (0.0, 0.0) };
                    *to = terms.fold(before, |(sum, size), term| (sum + term, size + term.abs()));
                }
            }
        }
        result
    }

    /// Fails if a result is not the expected one; `allowed` says how far it may be, from an expected number and the sum
    /// of the magnitudes of its terms.
    fn check(&self, found: &[f64], by: &str, allowed: impl Fn(f64, f64) -> f64) {
        for (element, (found, (expected, size))) in found.iter().zip(self.expected()).enumerate() {
            assert!(
                (found - expected).abs() <= allowed(expected, size),
                "element {element} by {by}: {found} instead of {expected}: {:#?} {:?}",
                self.gemm,
                self.precision
            );
        }
    }

    /// Checks the result of a kernel of our own.
    fn check_own(&self, found: &[f64]) {
        let scale = (self.gemm.k as f64).sqrt();
        self.check(found, "our own kernel", |expected, _| tolerance(&self.gemm) * expected.abs().max(scale));
    }

    /// Checks the result of the vendor's library.
    fn check_librarys(&self, found: &[f64]) {
        self.check(found, "cuBLASLt", |_, size| tolerance_of_library(self) * size);
    }

    /// The result by the vendor's library, if it is on this machine and has a way to compute it.
    fn by_library(&self, card: &Card) -> Option<Vec<f64>> {
        let arena = Arena::new(self.operands.iter().map(Operand::bytes).collect());
        self.operands.iter().enumerate().for_each(|(position, operand)| operand.write(arena.region(position)));
        let address = |address| match address {
            Address::Place(Location { place: Storage::Operand(operand), offset }) => {
                arena.address(operand as usize, offset.0)
            }
            _ => panic!("{address:?} in a product"),
        };
        card.multiply((&self.gemm, self.precision), arena.all(), &address).then(|| {
            arena.check_gaps(&[]);
            self.operands[2].read(arena.region(2))
        })
    }
}

#[test]
fn products_of_any_sizes_and_strides() {
    let mut draw = Draw(Counter::new(6, "products"));
    let mut sources = Sources::default();
    let mut products = Vec::new();
    for _ in 0..24 {
        for precision in [Precision::Fp32, Precision::Tf32, Precision::Bf16] {
            products.push(draw.product(precision, [DType::F32; 3], &mut sources));
        }
        products.push(draw.product(Precision::Bf16, [DType::F64; 3], &mut sources));
        products.push(draw.product(Precision::Tf32, [DType::F32, DType::BF16, DType::F32], &mut sources));
        products.push(draw.product(Precision::Fp32, [DType::F32, DType::BF16, DType::BF16], &mut sources));
    }
    let Some(module) = Module::new(sources) else { return };
    for product in &products {
        let (found, error) = run(&module, &product.launches, &product.operands, Bytes::ZERO);
        assert_eq!(error, 0);
        product.check_own(&found[2]);
    }
    let Module::Card(card) = &module else { return };
    let by_library = products.iter().filter_map(|product| Some((product, product.by_library(card)?)));
    let checked = by_library.map(|(product, found)| product.check_librarys(&found));
    eprintln!("{} of {} products by cuBLASLt", checked.count(), products.len());
}

/// Enough tiles for the large ones, with edges.
#[test]
fn large_tiles() {
    let mut sources = Sources::default();
    let mut draw = Draw(Counter::new(6, "large tiles"));
    let at = |operand| Location { place: Storage::Operand(operand), offset: Bytes::ZERO };
    let mut products = Vec::new();
    let layouts = [(false, false), (true, false), (false, true), (true, true)];
    let precisions = [Precision::Fp32, Precision::Tf32, Precision::Bf16].map(|precision| (precision, DType::F32));
    let all = precisions.into_iter().chain([(Precision::Fp32, DType::BF16)]);
    for ((precision, factors), (along_a, along_b)) in all.flat_map(|one| layouts.map(|layout| (one, layout))) {
        let (m, n, k, batch) = (130, 132, 18, 24);
        let matrix = |operand, (rows, columns), by_rows| {
            let (row, column) = if by_rows { (columns, 1) } else { (1, rows) };
            Matrix { at: at(operand), row, column, batch: vec![rows * columns] }
        };
        let (a, b, c) = (matrix(0, (m, k), along_a), matrix(1, (k, n), !along_b), matrix(2, (m, n), true));
        let operands = [(m * k, factors), (k * n, factors), (m * n, DType::F32)].map(|(size, dtype)| {
            let numbers = (0..size * batch).map(|_| dtype.nearest(draw.0.normal())).collect();
            Operand { dtype, numbers }
        });
        let gemm = Gemm {
            dtype: DType::F32,
            factors,
            result: DType::F32,
            batch: vec![batch],
            m,
            n,
            k,
            a,
            b,
            c,
            accumulate: along_a,
        };
        sources.precision = precision;
        let launches = sources.gemm(&gemm);
        products.push(Product { gemm, operands: operands.to_vec(), precision, launches });
    }
    let names: Vec<&str> = sources.names().collect();
    assert!(names.len() == 16 && names.iter().all(|name| name.contains("_128_")), "{names:?}");
    let Some(module) = Module::new(sources) else { return };
    for product in &products {
        let (found, _) = run(&module, &product.launches, &product.operands, Bytes::ZERO);
        product.check_own(&found[2]);
    }
}
