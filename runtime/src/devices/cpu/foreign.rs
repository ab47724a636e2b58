//! Calls to code that takes raw pointers: the matrix product library and compiled expressions. One
//! of the two files with `unsafe` code. Every call checks first that all elements which it will
//! touch lie inside the regions that it was given.

use super::number::Number;
use pipe_distributed::memory::Region;
use pipe_ir::kernels::{Elementwise, Gemm, Matrix};

/// Elements from the first to one past the last of a batch of matrices.
pub(super) fn extent(matrix: &Matrix, batch: &[u64], rows: u64, columns: u64) -> usize {
    let batch: u64 = matrix.batch.iter().zip(batch).map(|(stride, size)| stride * (size - 1)).sum();
    (batch + matrix.row * (rows - 1) + matrix.column * (columns - 1) + 1) as usize
}

/// Runs all products of a kernel on numbers of its type; the regions start at the first elements of a, b and c.
pub(crate) fn gemm<T: Number>(gemm: &Gemm, a: Region, b: Region, c: Region) {
    let (m, n, k) = (gemm.m, gemm.n, gemm.k);
    let a = a.part(0, extent(&gemm.a, &gemm.batch, m, k) * size_of::<T>());
    let b = b.part(0, extent(&gemm.b, &gemm.batch, k, n) * size_of::<T>());
    let c = c.part(0, extent(&gemm.c, &gemm.batch, m, n) * size_of::<T>());
    let count: u64 = gemm.batch.iter().product();
    for index in 0..count {
        let offset = |matrix: &Matrix| {
            let mut rest = index;
            let dims = gemm.batch.iter().zip(&matrix.batch).rev();
            dims.fold(0, |offset, (size, stride)| {
                let own = rest % size;
                rest /= size;
                offset + own * stride
            }) as usize
        };
        let (a_at, b_at, c_at) = (offset(&gemm.a), offset(&gemm.b), offset(&gemm.c));
        // SAFETY: offsets and strides stay below the extents, to which the regions were cut above. The regions hold Ts
        // (aligned, initialised), and c shares no byte with a or b: kernel plans never compute in place.
        unsafe {
            gemm::gemm(
                m as usize,
                n as usize,
                k as usize,
                c.as_ptr().cast::<T>().add(c_at),
                gemm.c.column as isize,
                gemm.c.row as isize,
                gemm.accumulate,
                a.as_ptr().cast::<T>().add(a_at),
                gemm.a.column as isize,
                gemm.a.row as isize,
                b.as_ptr().cast::<T>().add(b_at),
                gemm.b.column as isize,
                gemm.b.row as isize,
                T::ONE,
                T::ONE,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
}

/// Machine code of an expression: takes the addresses of all inputs, then of all outputs, and a
/// number of elements. Made by [`super::jit`] only, for one expression and valid as long as the
/// module that it was compiled in.
#[derive(Clone, Copy)]
pub(super) struct Code(unsafe extern "C" fn(*const usize, usize));

impl Code {
    /// The function at this address.
    pub(super) fn new(address: *const u8) -> Self {
        // SAFETY: `jit` passes the address of a finished function that it declared with this signature.
        Self(unsafe { std::mem::transmute::<*const u8, unsafe extern "C" fn(*const usize, usize)>(address) })
    }
}

/// A compiled element-wise kernel with its counters, so that a launch allocates nothing.
pub(super) struct Loops {
    code: Code,
    kernel: Elementwise,
    /// Bytes of an element of each input, then of each output.
    elements: Vec<usize>,
    counters: Vec<u64>,
    addresses: Vec<usize>,
}

impl Loops {
    /// `code` is that of the kernel's expression.
    pub(super) fn new(kernel: Elementwise, code: Code) -> Self {
        let outer = kernel.sizes.len().saturating_sub(1);
        let tensors = kernel.inputs.len() + kernel.outputs.len();
        let (inputs, outputs) = (kernel.expression.inputs.iter(), kernel.expression.outputs.iter());
        let dtypes = inputs.map(|input| input.dtype).chain(outputs.map(|output| output.dtype));
        let elements = dtypes.map(|dtype| dtype.bytes().to_usize()).collect();
        Self { code, elements, counters: vec![0; outer], addresses: vec![0; tensors], kernel }
    }

    /// Runs the expression for every element; `region` finds the region that starts at a location.
    pub(super) fn launch(&mut self, region: impl Fn(pipe_ir::kernels::Location) -> Region) {
        let Self { code, kernel, elements, counters, addresses } = self;
        let (inner, outer) = kernel.sizes.split_last().map_or((1, &[][..]), |(inner, outer)| (*inner as usize, outer));
        let tensors = || kernel.inputs.iter().chain(&kernel.outputs).zip(elements.iter());
        for (address, (tensor, element)) in addresses.iter_mut().zip(tensors()) {
            let last: u64 = tensor.strides.iter().zip(&kernel.sizes).map(|(stride, size)| stride * (size - 1)).sum();
            *address = region(tensor.at).part(0, (last as usize + 1) * element).as_ptr() as usize;
        }
        counters.fill(0);
        for _ in 0..outer.iter().product() {
            // SAFETY: the code reads and writes `inner` elements from each address (one element where the input is
            // repeated); together with the strides of the outer dimensions that stays inside the regions cut above.
            unsafe { (code.0)(addresses.as_ptr(), inner) };
            for dim in (0..outer.len()).rev() {
                counters[dim] += 1;
                let wraps = counters[dim] == outer[dim];
                for (address, (tensor, element)) in addresses.iter_mut().zip(tensors()) {
                    let stride = tensor.strides[dim] as usize * element;
                    *address = if wraps { *address - stride * (outer[dim] as usize - 1) } else { *address + stride };
                }
                if !wraps {
                    break;
                }
                counters[dim] = 0;
            }
        }
    }
}
