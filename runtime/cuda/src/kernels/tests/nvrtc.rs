//! All kernels through NVIDIA's compiler, for three generations of devices. It needs no GPU.
//!
//! Every kind of kernel, in every type, is compiled for each device. What differs in strides,
//! widths or expressions only is as easy for one as for another: devices share it.

use super::emulated::Compiler;
use crate::kernels::{MemberSum, Sources};
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Attention, Derivatives, Gemm, Kernel, Location, Matrix, Storage};
use pipe_ir::muon::Matrices;
use pipe_ir::units::Bytes;
use pipe_runtime::{Piece, Precision, SquaredPart, UpdatedPart};
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

/// Whether rows of the left factor, and of the right one, have neighbours.
type Layout = (bool, bool);

/// Products of small and of large results.
fn products(layouts: &[Layout], dtype: DType, factors: DType, result: DType) -> Vec<Gemm> {
    let matrix = |by_rows: bool| {
        let at = Location { place: Storage::Operand(0), offset: Bytes::ZERO };
        let (row, column) = if by_rows { (2048, 1) } else { (1, 2048) };
        Matrix { at, row, column, batch: vec![] }
    };
    let all = [64, 2048].into_iter().flat_map(|size| layouts.iter().map(move |layout| (size, *layout)));
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

/// Attention and its derivatives, of heads of this width, whose numbers are stored so.
fn attention(stored: DType, width: u64) -> [Attention; 2] {
    let matrix = || Matrix {
        at: Location { place: Storage::Operand(0), offset: Bytes::ZERO },
        row: width,
        column: 1,
        batch: vec![1024 * width],
    };
    let of = |derivatives| Attention {
        dtype: stored.arithmetic(),
        factors: stored,
        result: stored,
        causal: true,
        window: None,
        starts: None,
        batch: vec![24],
        rows: 1024,
        columns: 1024,
        width,
        queries: matrix(),
        keys: matrix(),
        values: matrix(),
        out: matrix(),
        derivatives,
        accumulate: false,
        room: Location { place: Storage::Scratch, offset: Bytes::ZERO },
    };
    [of(None), of(Some(Box::new(Derivatives { dy: matrix(), by_keys: matrix(), by_values: matrix() })))]
}

/// How products are asked for, how heads are stored, and elements of a query: the most that each
/// way of multiplying has registers for.
type Heads = (Precision, DType, u64);
const WIDEST: [Heads; 4] = [
    (Precision::Fp32, DType::F32, 128),
    (Precision::Fp32, DType::F64, 128),
    (Precision::Tf32, DType::F32, 64),
    (Precision::Fp32, DType::BF16, 128),
];
/// For one device each: narrower heads, those that are rounded on their way, and those that are too
/// wide for tensor cores.
const OTHERS: [&[Heads]; 3] = [
    &[(Precision::Fp32, DType::F32, 64)],
    &[(Precision::Bf16, DType::F32, 128), (Precision::Fp32, DType::BF16, 64)],
    &[(Precision::Fp32, DType::BF16, 160)],
];

fn add_attention(sources: &mut Sources, heads: &[Heads]) {
    for (precision, stored, width) in heads {
        sources.precision = *precision;
        for kernel in attention(*stored, *width) {
            sources.attention(&kernel);
        }
    }
}

/// Every kernel but chains, in every type: products of factors that lie so, and attention of the widest heads.
fn every_kind(layouts: &[Layout]) -> Sources {
    let mut sources = Sources::default();
    for dtype in [DType::F32, DType::F64] {
        for case in pipe_kernel_cases::cases().iter().filter(|case| case.precisions().contains(&dtype)) {
            let case = case.in_precision(dtype);
            let is_simple =
                |kernel: &&Kernel| !matches!(kernel, Kernel::Elementwise(_) | Kernel::Gemm(_) | Kernel::Attention(_));
            case.plan().kernels.iter().filter(is_simple).for_each(|kernel| {
                sources.launches(kernel);
            });
        }
        for precision in [Precision::Fp32, Precision::Tf32, Precision::Bf16] {
            sources.precision = precision;
            for product in products(layouts, dtype, dtype, dtype) {
                sources.gemm(&product);
            }
        }
        let piece = Piece { bytes: 0..64, decays: true, second: 64, matrices: None };
        let part = UpdatedPart { bytes: 0..64, from: 0, dtype, pieces: vec![piece.clone()] };
        let matrices = Matrices { dtype, count: 1, rows: 2, columns: 4 };
        let place = Location { place: Storage::Scratch, offset: Bytes::ZERO };
        for optimizer in pipe_kernel_cases::optimizers() {
            sources.optimizer(&optimizer, &part, (false, None));
            if optimizer.state_of_matrices().is_some() {
                sources.matrices(&optimizer, (&part, &piece, matrices), (false, None), [place; 2]);
            }
        }
        sources.squares(&SquaredPart { dtype, bytes: std::iter::once(0..64).collect() });
        for to_one in [false, true] {
            sources.member_sum(MemberSum { dtype, members: 4, to_one, bytes: 4096 });
        }
    }
    add_attention(&mut sources, &WIDEST);
    for result in [DType::F32, DType::BF16] {
        for product in products(layouts, DType::F32, DType::BF16, result) {
            sources.gemm(&product);
        }
    }
    let count = |part: &str| sources.names().filter(|name| name.starts_with(part)).count();
    let kinds = ["gemm_f32", "gemm_f64", "gemm_tf32_f32", "gemm_bf16_f32", "gemm_bf16_bf16"];
    assert_eq!(kinds.map(count), [2, 1, 2, 2, 4].map(|of_one| of_one * layouts.len()));
    for part in ["attention_forward", "attention_statistics", "attention_grad_queries", "attention_grad_keys"] {
        let modes = ["f32_f32", "f64_f64", "tf32_f32", "bf16_bf16"];
        assert_eq!(modes.map(|mode| count(&format!("{part}_{mode}"))), [1; 4], "{part}");
    }
    sources
}

/// Chains of element-wise operations.
fn add_chains(sources: &mut Sources) {
    for case in pipe_kernel_cases::cases() {
        for kernel in case.plan().kernels.iter().filter(|kernel| matches!(kernel, Kernel::Elementwise(_))) {
            sources.launches(kernel);
        }
    }
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
    let layouts: [&[Layout]; 3] = [&[(true, true)], &[(true, false)], &[(false, true), (false, false)]];
    let mut sources = layouts.map(every_kind);
    add_chains(&mut sources[0]);
    sources.iter_mut().zip(OTHERS).for_each(|(sources, heads)| add_attention(sources, heads));
    std::thread::scope(|threads| {
        // Each takes a third of the kernels. As in other long tests, a slice: `.ci/full` compiles for all devices.
        let takes_all = std::env::var("PIPEC_ALL").is_ok_and(|all| all != "0");
        let devices = ["sm_80", "sm_90", "sm_100"].into_iter().zip(&sources);
        for (device, sources) in devices.filter(|(device, _)| takes_all || *device == "sm_90") {
            let compiler = &compiler;
            threads.spawn(move || compile(compiler, device, &sources.text()));
        }
    });
}

/// Compiles a source for a device: registers suffice, and the compiler has nothing to remark.
fn compile(compiler: &Compiler, device: &str, text: &str) {
    let options = [format!("--gpu-architecture={device}"), "--ptxas-options=-v".into()];
    let (code, log) =
        compiler.compile(text, &options.each_ref().map(String::as_str)).unwrap_or_else(|log| panic!("{log}"));
    assert!(code.starts_with(b"\x7fELF"), "{device}: no code");
    // A register or two that another version of the compiler keeps elsewhere is no fault of ours.
    let spilled = |line: &&str| bytes_spilled(line).is_some_and(|bytes| bytes > 16);
    let spills: Vec<&str> = log.lines().filter(spilled).collect();
    assert!(spills.is_empty(), "{device}: registers do not suffice: {spills:?}\n{log}");
    assert!(!log.contains("warning"), "{device}: {log}");
}

/// What a line of the assembler's log says about registers that are kept in memory.
fn bytes_spilled(line: &str) -> Option<u32> {
    let (before, _) = line.split_once(" bytes spill stores")?;
    before.rsplit(' ').next()?.parse().ok()
}
