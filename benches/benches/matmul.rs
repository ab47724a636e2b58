//! Matrix products inside a training step, against plain calls of the same library with the same shapes.
//!
//! Two devices on two cores, so that no thread waits for a core; plain calls run on two threads at once, too.

use pipe_benches::program;
use pipe_ir::kernels::{Gemm, Kernel, plan};
use pipe_ir::program::Body;
use pipe_ir::task::TaskKind;
use pipe_ir::verify::Verified;
use pipe_runtime::calibrate::matrix_product;
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Profile, Run};
use std::sync::Arc;

const PIPELINE: &str = include_str!("../gpt.pipe");
const DEVICES: i64 = 2;
const STEPS: u64 = 5;
const CALLS: u32 = 20;

/// All products that one microbatch takes.
fn products(program: &Verified) -> Vec<Gemm> {
    let execs = program.program().execs.iter().filter(|exec| exec.kind != TaskKind::Update);
    let kernels = execs.flat_map(|exec| match &exec.body {
        Body::Graph(graph) => plan(graph).kernels,
        Body::Abstract | Body::Optimizer | Body::Squares => Vec::new(),
    });
    let gemms = kernels.filter_map(|kernel| if let Kernel::Gemm(gemm) = kernel { Some(gemm) } else { None });
    gemms.collect()
}

/// GFLOP/s of plain calls of all these products, one after the other, on one of several threads.
fn plain(products: &[Gemm]) -> f64 {
    let flops: u64 = products.iter().map(|gemm| Kernel::Gemm(gemm.clone()).flops()).sum();
    let times = products.iter().map(|gemm| matrix_product(gemm, CALLS).expect("operands are small").as_secs_f64());
    flops as f64 / times.sum::<f64>() / 1e9
}

fn profile(program: Arc<Verified>) -> Profile {
    let data = Arc::new(Data::synthetic(program.program()));
    let options = Options { profile: true, ..Options::new(Backend::Cpu, 1) };
    let mut run = Run::start(program, &options, data).expect("a GPT runs on the CPU");
    for step in 0..STEPS {
        run.step(step).expect("a GPT runs on the CPU");
    }
    run.profile()
}

fn main() {
    let program = Arc::new(program("gpt.pipe", PIPELINE, &[("devices", DEVICES)]));
    let products = products(&program);
    let profile = profile(program);
    let gemm = profile.entries.get("gemm").copied().unwrap_or_default();
    let inside = gemm.flops as f64 / gemm.nanos.max(1) as f64;
    let rates: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..DEVICES).map(|_| scope.spawn(|| plain(&products))).collect();
        threads.into_iter().map(|thread| thread.join().expect("plain calls do not fail")).collect()
    });
    let plain = rates.iter().sum::<f64>() / rates.len() as f64;
    println!("GPT: 8 blocks, hidden 256, sequence 128, 2 sequences per microbatch, {DEVICES} devices\n");
    println!(
        "matrix products, GFLOP/s per thread: {inside:.1} inside a step, {plain:.1} plain, {:.0}%\n",
        100.0 * inside / plain
    );
    println!("where the time of the kernels goes:\n{profile}");
}
