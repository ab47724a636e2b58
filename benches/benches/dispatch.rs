//! What the runtime itself costs: the null device runs instructions that compute nothing.

use pipe_benches::{median, program};
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run};
use pipe_syntax::stdlib;
use std::sync::Arc;
use std::time::Instant;

const CASES: [(&str, i64, i64); 4] =
    [("1f1b", 4, 256), ("interleaved_1f1b", 8, 256), ("v_half", 4, 256), ("zb_v", 8, 256)];
const STEPS: usize = 11;

fn main() {
    println!("null device, time of one step, median of {STEPS} steps\n");
    println!(
        "{:<18} {:>7} {:>13} {:>13} {:>9} {:>31}",
        "schedule", "devices", "microbatches", "instructions", "ms", "ns per instruction and device"
    );
    for (name, devices, microbatches) in CASES {
        let text = stdlib::schedule(name).unwrap_or_else(|| panic!("no schedule `{name}`"));
        let program = Arc::new(program(name, text, &[("devices", devices), ("microbatches", microbatches)]));
        let instructions = program.program().n_instructions();
        let data = Arc::new(Data::synthetic(program.program()));
        let mut run =
            Run::start(program, &Options::new(Backend::Null, 0), data).expect("the null device runs anything");
        let times = (0..STEPS as u64).map(|step| {
            let start = Instant::now();
            run.step(step).expect("the null device runs anything");
            start.elapsed().as_secs_f64()
        });
        let seconds = median(times.collect());
        let each = seconds * 1e9 * devices as f64 / instructions as f64;
        println!("{name:<18} {devices:>7} {microbatches:>13} {instructions:>13} {:>9.3} {each:>31.0}", seconds * 1e3);
    }
}
