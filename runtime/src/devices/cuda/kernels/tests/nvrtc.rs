//! All kernels through NVIDIA's compiler, for three generations of devices. It needs no GPU.

use super::emulated::Compiler;
use super::texts::sources_of_cases;
use crate::devices::cuda::kernels::{Precision, Sources, Update};
use pipe_ir::graph::DType;
use pipe_ir::instruction::Collective;
use pipe_ir::kernels::{Attention, Gemm, Kernel, Location, Matrix, Place};
use pipe_ir::training::Optimizer;
use pipe_ir::units::Bytes;
use std::path::{Path, PathBuf};

/// The library in the folder that `PIPEC_NVRTC` names, or where the loader looks for libraries.
fn library() -> Option<PathBuf> {
    let folder = std::env::var_os("PIPEC_NVRTC").into_iter();
    let folders = folder.chain(std::env::var_os("LD_LIBRARY_PATH"));
    let folders: Vec<PathBuf> = folders.flat_map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>()).collect();
    let versions = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
    let mut files = folders.iter().flat_map(|folder| versions.map(|file| folder.join(file)));
    files.find(|file: &PathBuf| Path::exists(file))
}

/// Elements of a query, below and beyond what one group of columns has.
const WIDTHS: [u64; 2] = [64, 128];

/// Products of small and of large results, whose factors lie in rows or in columns.
fn products(dtype: DType, factors: DType, result: DType) -> Vec<Gemm> {
    let matrix = |by_rows: bool| {
        let at = Location { place: Place::Operand(0), offset: Bytes::ZERO };
        let (row, column) = if by_rows { (2048, 1) } else { (1, 2048) };
        Matrix { at, row, column, batch: vec![] }
    };
    let layouts = [(true, true), (true, false), (false, true), (false, false)];
    let all = [64, 2048].into_iter().flat_map(|size| layouts.map(|layout| (size, layout)));
    let product = |(size, (a, b))| Gemm {
        dtype,
        factors,
        result,
        batch: vec![],
        m: size,
        n: size,
        k: size,
        a: matrix(a),
        b: matrix(b),
        c: matrix(true),
        accumulate: false,
    };
    all.map(product).collect()
}

/// Attention and its derivatives, of heads of this width.
fn attention(dtype: DType, width: u64) -> [Attention; 2] {
    let matrix = || Matrix {
        at: Location { place: Place::Operand(0), offset: Bytes::ZERO },
        row: width,
        column: 1,
        batch: vec![1024 * width],
    };
    let of = |dy| Attention {
        dtype,
        causal: true,
        batch: vec![24],
        rows: 1024,
        columns: 1024,
        width,
        queries: matrix(),
        keys: matrix(),
        values: matrix(),
        dy,
        out: matrix(),
        accumulate: false,
        room: Location { place: Place::Scratch, offset: Bytes::ZERO },
    };
    [of(None), of(Some(matrix()))]
}

/// Every kernel there is, in every type.
fn everything() -> Sources {
    let mut sources = sources_of_cases(Precision::Fp32);
    for dtype in [DType::F32, DType::F64] {
        for case in crate::devices::cpu::tests::cases().iter().filter(|case| case.precisions().contains(&dtype)) {
            let case = case.in_precision(dtype);
            for kernel in case.plan().kernels.iter().filter(|kernel| !matches!(kernel, Kernel::Elementwise(_))) {
                sources.launches(kernel);
            }
        }
        for precision in [Precision::Fp32, Precision::Tf32, Precision::Bf16] {
            sources.precision = precision;
            for product in products(dtype, dtype, dtype) {
                sources.gemm(&product);
            }
            for kernel in WIDTHS.into_iter().flat_map(|width| attention(dtype, width)) {
                sources.attention(&kernel);
            }
        }
        let update = Update { dtype, part: 0..64, from: 0, is_beside: false };
        sources.optimizer(&Optimizer::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 }, &update);
        for momentum in [0.0, 0.9] {
            sources.optimizer(&Optimizer::Sgd { momentum, weight_decay: 0.1 }, &update);
        }
        for collective in [Collective::AllReduce, Collective::ReduceScatter] {
            sources.together(collective, dtype, Bytes(4096), 4);
        }
    }
    for product in [DType::F32, DType::BF16].into_iter().flat_map(|result| products(DType::F32, DType::BF16, result)) {
        sources.gemm(&product);
    }
    let count = |part: &str| sources.names().filter(|name| name.starts_with(part)).count();
    let counts = ["gemm_f32", "gemm_f64", "gemm_tf32_f32", "gemm_bf16_f32", "gemm_bf16_bf16"].map(count);
    assert_eq!(counts, [8, 4, 8, 8, 16]);
    let attention = ["attention", "attention_forward_f", "attention_forward_tf32", "attention_forward_bf16"];
    assert_eq!(attention.map(count), [23, 3, 1, 2]);
    sources
}

#[test]
fn all_kernels_compile_for_three_generations_of_devices() {
    let Some(path) = library() else {
        eprintln!(
            "kernels are not compiled for devices: NVRTC is missing (pip install nvidia-cuda-nvrtc, and PIPEC_NVRTC=its folder lib)"
        );
        return;
    };
    let compiler = Compiler::at(&path).expect("a library that loads");
    let text = everything().text();
    std::thread::scope(|threads| {
        for device in ["sm_80", "sm_90", "sm_100"] {
            let (compiler, text) = (&compiler, &text);
            threads.spawn(move || {
                let options = [format!("--gpu-architecture={device}"), "--ptxas-options=-v".into()];
                let (code, log) = compiler
                    .compile(text, &options.each_ref().map(String::as_str))
                    .unwrap_or_else(|log| panic!("{log}"));
                assert!(code.starts_with(b"\x7fELF"), "{device}: no code");
                // A register or two that another version of the compiler keeps elsewhere is no fault of ours.
                let spilled = |line: &&str| bytes_spilled(line).is_some_and(|bytes| bytes > 16);
                let spills: Vec<&str> = log.lines().filter(spilled).collect();
                assert!(spills.is_empty(), "{device}: registers do not suffice: {spills:?}\n{log}");
                assert!(!log.contains("warning"), "{device}: {log}");
            });
        }
    });
}

/// What a line of the assembler's log says about registers that are kept in memory.
fn bytes_spilled(line: &str) -> Option<u32> {
    let (before, _) = line.split_once(" bytes spill stores")?;
    before.rsplit(' ').next()?.parse().ok()
}
