//! Calls of cuBLASLt, loaded where it is. One of the files with `unsafe` code.
//!
//! Safety. Descriptors are made here, live as long as the library that made them, and are given to
//! no one else; attributes are written with the sizes that the library's reference states for them.
//! Addresses are those of the device: that they hold what a [`Shape`] says is for the caller to see
//! to, who resolves the places of a verified program; no memory of the host is touched through
//! them. What the host must keep until a call returns, the two scalars, it keeps: the library reads
//! them while it queues the call.

use super::{MatrixLayout, Shape};
use crate::found::find;
use cudarc::cublaslt::{result, sys};
use pipe_ir::graph::DType;
use pipe_runtime::Precision;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;

/// Bytes that each queue has for what algorithms leave between their parts: what the library's
/// reference advises for Hopper.
pub(crate) const WORKSPACE: usize = pipe_ir::gpu::room::WORKSPACE.to_usize();

/// Whether this machine has the library. It is not started.
pub(crate) fn is_here() -> bool {
    // SAFETY: only looks for a file with the library's name.
    find("libcublasLt.so.", || unsafe { sys::is_culib_present() }.then_some(())).is_some()
}

/// The library on one GPU. It belongs to the context that was current when it was opened.
pub(crate) struct Library {
    handle: sys::cublasLtHandle_t,
    precision: Precision,
    /// `None` where the library has no algorithm.
    plans: BTreeMap<Shape, Option<Plan>>,
}

// SAFETY: handles of the library, which any thread may use, one at a time; the caller makes the context current.
unsafe impl Send for Library {}

/// All that a call needs beside its addresses.
struct Plan {
    operation: sys::cublasLtMatmulDesc_t,
    left: sys::cublasLtMatrixLayout_t,
    right: sys::cublasLtMatrixLayout_t,
    result: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// Where the matrices of a call are, on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) left: u64,
    pub(crate) right: u64,
    pub(crate) result: u64,
    /// [`WORKSPACE`] bytes that only the queue of the call uses.
    pub(crate) workspace: u64,
}

impl Library {
    /// The library on the GPU whose context is current. An error says in one line why there is none.
    pub(crate) fn open(precision: Precision) -> Result<Self, String> {
        if !is_here() {
            return Err("no cuBLASLt here (libcublasLt.so was not found): the CUDA toolkit and `pip install \
                        nvidia-cublas` have it, and LD_LIBRARY_PATH says where it is"
                .to_owned());
        }
        let handle = result::create_handle().map_err(|error| format!("cuBLASLt does not start: {error}"))?;
        Ok(Self { handle, precision, plans: BTreeMap::new() })
    }

    /// Chooses an algorithm for products of a shape; whether there is one.
    pub(crate) fn prepare(&mut self, shape: &Shape) -> bool {
        if !self.plans.contains_key(shape) {
            let plan = self.plan(shape).ok();
            self.plans.insert(*shape, plan);
        }
        self.plans[shape].is_some()
    }

    /// Queues a product of a shape that was prepared.
    pub(crate) fn queue(
        &self,
        shape: &Shape,
        at: Addresses,
        stream: sys::cudaStream_t,
    ) -> Result<(), result::CublasError> {
        let unknown = result::CublasError(sys::cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE);
        let plan = self.plans.get(shape).and_then(Option::as_ref).ok_or(unknown)?;
        let beta = if shape.accumulate { 1.0 } else { 0.0 };
        let (single, double) = ([1.0_f32, beta as f32], [1.0_f64, beta]);
        let [alpha, beta]: [*const c_void; 2] = match shape.dtype {
            DType::F64 => double.each_ref().map(|number| ptr::from_ref(number).cast()),
            DType::F32 | DType::BF16 | DType::I32 => single.each_ref().map(|number| ptr::from_ref(number).cast()),
        };
        let device = |address: u64| address as *const c_void;
        let result = device(at.result);
        // SAFETY: see the head of this file.
        unsafe {
            result::matmul(
                self.handle,
                plan.operation,
                alpha,
                beta,
                device(at.left),
                plan.left,
                device(at.right),
                plan.right,
                result,
                plan.result,
                result.cast_mut(),
                plan.result,
                &raw const plan.algorithm,
                device(at.workspace).cast_mut(),
                WORKSPACE,
                stream,
            )
        }
    }

    fn plan(&self, shape: &Shape) -> Result<Plan, result::CublasError> {
        let compute = match (shape.factors, self.precision) {
            (DType::F64, _) => sys::cublasComputeType_t::CUBLAS_COMPUTE_64F,
            (DType::BF16, _) | (_, Precision::Fp32) => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            (_, Precision::Tf32) => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            (_, Precision::Bf16) => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_16BF,
        };
        let operation = result::create_matmul_desc(compute, element(shape.dtype))?;
        use sys::cublasLtMatmulDescAttributes_t::{CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB};
        for (attribute, layout) in
            [(CUBLASLT_MATMUL_DESC_TRANSA, shape.left), (CUBLASLT_MATMUL_DESC_TRANSB, shape.right)]
        {
            // 0 takes a matrix as it is stored, 1 its transpose.
            let transposed = i32::from(layout.transposed);
            // SAFETY: an `int32_t` for a descriptor made above.
            unsafe {
                result::set_matmul_desc_attribute(
                    operation,
                    attribute,
                    (&raw const transposed).cast(),
                    size_of::<i32>(),
                )
            }?;
        }
        let (left, right) = (
            layout(shape, &shape.left, shape.factors, (shape.rows, shape.inner)),
            layout(shape, &shape.right, shape.factors, (shape.inner, shape.columns)),
        );
        let result = layout(shape, &shape.result, shape.stored, (shape.rows, shape.columns));
        let mut plan = Plan {
            operation,
            left: left?,
            right: right?,
            result: result?,
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
        };
        plan.algorithm = self.algorithm(shape, &plan)?;
        Ok(plan)
    }

    /// The library's first choice within the workspace, for the alignments at hand.
    fn algorithm(&self, shape: &Shape, plan: &Plan) -> Result<sys::cublasLtMatmulAlgo_t, result::CublasError> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let preference = result::create_matmul_pref()?;
        let (workspace, left, right, to) = (WORKSPACE as u64, &shape.left, &shape.right, &shape.result);
        let aligned = |layout: &MatrixLayout| layout.alignment;
        // SAFETY: a `uint64_t`, then `uint32_t`s, for a descriptor made above.
        let wished = unsafe {
            let set = |attribute, value: *const c_void, bytes| {
                result::set_matmul_pref_attribute(preference, attribute, value, bytes)
            };
            let all = [
                (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned(left)),
                (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned(right)),
                (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned(to)),
                (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned(to)),
            ];
            let bytes = Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            set(bytes, (&raw const workspace).cast(), size_of::<u64>()).and_then(|()| {
                all.iter()
                    .try_for_each(|(attribute, value)| set(*attribute, ptr::from_ref(value).cast(), size_of::<u32>()))
            })
        };
        // SAFETY: all descriptors were made by this library and are alive.
        let found = wished.and_then(|()| unsafe {
            result::get_matmul_algo_heuristic(
                self.handle,
                plan.operation,
                plan.left,
                plan.right,
                plan.result,
                plan.result,
                preference,
            )
        });
        // SAFETY: made above, used by no one else. What freeing it says changes nothing.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        found.map(|found| found.algo)
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: made by `Library::plan`, used by no one else.
        unsafe {
            for layout in [self.left, self.right, self.result] {
                let _ = result::destroy_matrix_layout(layout);
            }
            let _ = result::destroy_matmul_desc(self.operation);
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        self.plans.clear();
        // SAFETY: made by `open`, and nothing of it is left.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

const fn element(dtype: DType) -> sys::cudaDataType {
    match dtype {
        DType::F32 | DType::I32 => sys::cudaDataType::CUDA_R_32F,
        DType::F64 => sys::cudaDataType::CUDA_R_64F,
        DType::BF16 => sys::cudaDataType::CUDA_R_16BF,
    }
}

/// The descriptor of a matrix of the product, and of all others of its batch.
fn layout(
    shape: &Shape,
    layout: &MatrixLayout,
    dtype: DType,
    (rows, columns): (u64, u64),
) -> Result<sys::cublasLtMatrixLayout_t, result::CublasError> {
    use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
    let (rows, columns) = if layout.transposed { (columns, rows) } else { (rows, columns) };
    let (leading, count, step) = (layout.leading as i64, shape.count as i32, layout.step as i64);
    let descriptor = result::create_matrix_layout(element(dtype), rows, columns, leading)?;
    let (batch, stride) =
        (Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
    // SAFETY: an `int32_t` and an `int64_t` for a descriptor just made.
    unsafe {
        result::set_matrix_layout_attribute(descriptor, batch, (&raw const count).cast(), size_of::<i32>())?;
        result::set_matrix_layout_attribute(descriptor, stride, (&raw const step).cast(), size_of::<i64>())?;
    }
    Ok(descriptor)
}
