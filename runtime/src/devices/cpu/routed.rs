//! Routed products: rows are gathered route by route, and each route is one product of matrices.

use super::foreign;
use super::number::Number;
use super::rows::gather::check_indices;
use crate::devices::cpu::bf16::Wide;
use pipe_distributed::Fault;
use pipe_distributed::memory::Region;
use pipe_ir::graph::{DType, NOWHERE};
use pipe_ir::kernels::{Gemm, Location, Matrix, Routed, RoutedProduct, Storage};
use pipe_ir::units::Bytes;
use std::marker::PhantomData;
use std::ops::Range;

/// Runs a kernel; `locate` gives the bytes from a location to the end of its place.
pub(super) fn routed<T: Number>(
    kernel: &Routed,
    locate: &dyn Fn(Location) -> Region,
    wide: &mut Wide,
) -> Result<(), Fault> {
    let words = |at: Location, count: u64| locate(at).part(0, count as usize * size_of::<i32>());
    let routes = words(kernel.routes, kernel.rows);
    let routes = routes.numbers::<i32>();
    check_indices(routes, kernel.matrices as usize)?;
    let room = words(kernel.room, kernel.matrices + 1 + kernel.rows);
    let (starts, order) = room.numbers_mut::<u32>().split_at_mut(kernel.matrices as usize + 1);
    sort(routes, starts, order);
    let x_elements = kernel.rows * kernel.inner;
    let x = wide.of_input(0, locate(kernel.x), (kernel.factors, x_elements))?;
    let x = x.unwrap_or_else(|| locate(kernel.x));
    let other = wide.of_input(1, locate(kernel.other), (kernel.factors, kernel.others()))?;
    let product = Product::<T> {
        _numbers: PhantomData,
        kernel,
        starts,
        order,
        x: x.part(0, x_elements as usize * size_of::<T>()),
        other: other.unwrap_or_else(|| locate(kernel.other)).part(0, kernel.others() as usize * size_of::<T>()),
        out: locate(kernel.out).part(0, kernel.made() as usize * size_of::<T>()),
        rows: wide.numbers::<T>(2, x_elements)?,
        results: wide.numbers::<T>(3, kernel.rows * kernel.width)?,
    };
    match kernel.product {
        RoutedProduct::Rows { transpose } => product.rows(transpose),
        RoutedProduct::ByMatrices => product.by_matrices(),
    }
    Ok(())
}

/// Sorts rows by route; `starts` gets the first place of each route, and the end of all.
fn sort(routes: &[i32], starts: &mut [u32], order: &mut [u32]) {
    starts.fill(0);
    let somewhere = || routes.iter().enumerate().filter(|(_, route)| **route != NOWHERE);
    somewhere().for_each(|(_, route)| starts[*route as usize + 1] += 1);
    for route in 1..starts.len() {
        starts[route] += starts[route - 1];
    }
    for (row, route) in somewhere() {
        let next = &mut starts[*route as usize];
        order[*next as usize] = row as u32;
        *next += 1;
    }
    // Each start has become the end of its route, which is the next start.
    starts.rotate_right(1);
    starts[0] = 0;
}

struct Product<'k, T> {
    _numbers: PhantomData<T>,
    kernel: &'k Routed,
    starts: &'k [u32],
    order: &'k [u32],
    x: Region,
    other: Region,
    out: Region,
    /// The rows of a route side by side, and what becomes of them.
    rows: Region,
    results: Region,
}

impl<T: Number> Product<'_, T> {
    /// The rows of a route.
    fn of_route(&self, route: u64) -> Range<usize> {
        self.starts[route as usize] as usize..self.starts[route as usize + 1] as usize
    }

    fn rows(&self, transpose: bool) {
        let (inner, width) = (self.kernel.inner, self.kernel.width);
        if u64::from(self.starts[self.kernel.matrices as usize]) < self.kernel.rows {
            // What goes nowhere becomes 0.
            self.out.numbers_mut::<T>().fill(T::ZERO);
        }
        for route in 0..self.kernel.matrices {
            let rows = self.of_route(route);
            if rows.is_empty() {
                continue;
            }
            let order = &self.order[rows.clone()];
            let a = gathered::<T>(order, self.x, inner as usize, self.rows);
            let c = self.results.part(0, rows.len() * width as usize * size_of::<T>());
            let elements = (inner * width) as usize * size_of::<T>();
            let matrix = self.other.part(route as usize * elements, elements);
            let strides = if transpose { (1, inner) } else { (width, 1) };
            let sizes = (rows.len() as u64, width, inner);
            product::<T>(sizes, (a, (inner, 1)), (matrix, strides), (c, width), false);
            let out = self.out.numbers_mut::<T>();
            for (row, result) in order.iter().zip(c.numbers::<T>().chunks_exact(width as usize)) {
                out[*row as usize * width as usize..][..width as usize].copy_from_slice(result);
            }
        }
    }

    fn by_matrices(&self) {
        let (inner, width, accumulate) = (self.kernel.inner, self.kernel.width, self.kernel.accumulate);
        for route in 0..self.kernel.matrices {
            let rows = self.of_route(route);
            let elements = (inner * width) as usize * size_of::<T>();
            let matrix = self.out.part(route as usize * elements, elements);
            if rows.is_empty() {
                if !accumulate {
                    matrix.numbers_mut::<T>().fill(T::ZERO);
                }
                continue;
            }
            let order = &self.order[rows.clone()];
            let a = gathered::<T>(order, self.x, inner as usize, self.rows);
            let b = gathered::<T>(order, self.other, width as usize, self.results);
            let sizes = (inner, width, rows.len() as u64);
            product::<T>(sizes, (a, (1, inner)), (b, (width, 1)), (matrix, width), accumulate);
        }
    }
}

/// The rows of a tensor that are named, side by side in some room.
fn gathered<T: Number>(order: &[u32], x: Region, width: usize, room: Region) -> Region {
    let rows = room.part(0, order.len() * width * size_of::<T>());
    for (row, to) in order.iter().zip(rows.numbers_mut::<T>().chunks_exact_mut(width)) {
        to.copy_from_slice(&x.numbers::<T>()[*row as usize * width..][..width]);
    }
    rows
}

/// A product of matrices with the given strides of rows and columns. The result is dense.
fn product<T: Number>(
    (m, n, k): (u64, u64, u64),
    (a, of_a): (Region, (u64, u64)),
    (b, of_b): (Region, (u64, u64)),
    (c, row): (Region, u64),
    accumulate: bool,
) {
    let at = Location { place: Storage::Scratch, offset: Bytes::ZERO };
    let matrix = |(row, column): (u64, u64)| Matrix { at, row, column, batch: Vec::new() };
    let dtype = if size_of::<T>() == size_of::<f64>() { DType::F64 } else { DType::F32 };
    let gemm = Gemm {
        dtype,
        factors: dtype,
        result: dtype,
        batch: Vec::new(),
        m,
        n,
        k,
        a: matrix(of_a),
        b: matrix(of_b),
        c: matrix((row, 1)),
        accumulate,
    };
    foreign::gemm::<T>(&gemm, a, b, c);
}
