//! Weights across steps, executed: the numbers of Cyclic Data Parallelism (arXiv 2403.08837), and
//! windows that follow on each other.

use pipe_ir::ids::{MicrobatchId, ValueId};
use pipe_ir::value::{TensorSlot, ValueKind};
use pipe_ir::verify::Verified;
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run, checkpoint};
use pipe_tests::blocks::request;
use pipe_tests::cases::compiled;
use pipe_tests::slice::slice;
use std::path::Path;
use std::sync::Arc;

/// A chain of weights: the loss is half the square of their product times x, less y.
const CHAIN: &str = "
layer first { data x: f32[1]  weight w: [1] = ones  output x * w }
layer next { input h  weight w: [1] = ones  output h * w }
layer last { input h  data y: f32[1]  weight w: [1] = ones  loss reshape(0.5 * (h * w - y) * (h * w - y), []) }
model chain(stages) { first()  repeat stages - 2 { next() }  last() }
pipeline train {
    model chain(stages = STAGES)
    precision f64
    devices DEVICES
    microbatches MICROBATCHES
    schedule run
    train { data synthetic  steps 4  optimizer sgd(learning_rate = 0.1) }
}
";

/// The cycle of N workers: each on a device of its own, or each stage...
const WORKERS: &str = "
schedule run {
    stages STAGES
    place s, m on m % D
    weights WEIGHTS
    slots F = 1, BW = 1
    block every 2 {
        F[s]  at s
        BW[s] at 2 * S - 1 - s
    }
}
";
const CYCLE: &str = "
schedule run {
    stages STAGES
    place s on s
    weights WEIGHTS
    slots F = 1, BW = 1
    block every 2 {
        F[s]  at s
        BW[s] at 2 * S - 1 - s
    }
}
";

/// Workers side by side, each with all stages, in the same slots; pipelines in both directions.
/// Sums of several stages share a way.
const TOGETHER: &str = "
schedule run {
    stages STAGES
    place s, m on m % D
    weights WEIGHTS
    slots F = 1, BW = 1
    block of D every 2 * S {
        F[s, m]  at s
        BW[s, m] at 2 * S - 1 - s
    }
}
";
const BOTH_WAYS: &str = "
schedule run {
    stages STAGES
    place s, m on if m % 2 == 0 then s % D else D - 1 - s % D
    weights WEIGHTS
    slots F = 1, BW = 1
    block of 2 every 4 * S {
        F[s, m]  at s + 2 * m * S
        BW[s, m] at 2 * S - 1 - s + 2 * m * S
    }
}
";

/// 1F1B that runs on, fused or split.
const PIPEDREAM: &str = "
schedule run {
    stages STAGES
    place s on s % D
    weights WEIGHTS
    block every 3 {
        F[s]  at s
        BW[s] at D + 2 * (D - 1 - s)
    }
}
";
const SPLIT: &str = "
schedule run {
    stages STAGES
    place s on s
    weights WEIGHTS
    block every 3 {
        F[s] at s
        B[s] at D + 2 * (D - 1 - s)
        W[s] fill
    }
}
";

struct Case {
    schedule: &'static str,
    weights: &'static str,
    stages: u32,
    devices: u32,
    microbatches: u32,
    window: i64,
}

impl Case {
    fn compile(&self) -> (Arc<Verified>, Vec<Vec<u32>>) {
        let numbers = [("STAGES", self.stages), ("DEVICES", self.devices), ("MICROBATCHES", self.microbatches)];
        let mut text = format!("{CHAIN}{}", self.schedule).replace("WEIGHTS", self.weights);
        if self.schedule == CYCLE && self.devices == 1 {
            // The schedule of the standard library.
            let fresh = u32::from(self.weights == "newest");
            let call = format!("schedule cyclic_dp(workers = STAGES, fresh = {fresh})");
            text = text.replace("schedule run\n", &format!("{call}\n"));
        }
        if self.weights == "previous" {
            text = text.replace("    stages STAGES", "    require M >= STAGES\n    stages STAGES");
        }
        for (word, number) in numbers {
            text = text.replace(word, &number.to_string());
        }
        let steps = [("steps", self.window)];
        let compilation = compiled("test.pipe", &text, &request(if self.weights == "flush" { &[] } else { &steps }));
        let lags = compilation.report.weights.iter().flat_map(|weights| &weights.stages);
        let lags = lags.map(|stage| stage.behind.clone()).collect();
        let program = compilation.program;
        let program =
            program.unwrap_or_else(|| panic!("{:#?} {:#?}", compilation.diagnostics, compilation.our_mistakes));
        (Arc::new(program), lags)
    }
}

/// Inputs and targets of the published example, and more of the same for longer steps.
const X: [f64; 3] = [1.0, 0.5, -1.0];
const Y: [f64; 3] = [2.0, 1.0, 0.0];
const W: [f64; 3] = [1.0, 0.5, 2.0];

fn fill(_: u64, microbatch: MicrobatchId, slot: &TensorSlot, out: &mut [u8]) {
    let index = microbatch.0 as usize;
    let number = if slot.name == "x" { X[index % 3] } else { Y[index % 3] * (1 + index / 3) as f64 };
    out.copy_from_slice(&number.to_ne_bytes());
}

/// Starts a run with the weights of the published example.
fn start(program: &Arc<Verified>, stress: Option<u64>) -> Run {
    let data = Data::from_fn(program.program(), Box::new(fill));
    let options = Options { stress, ..Options::new(Backend::Cpu, 1) };
    let mut run = Run::start(Arc::clone(program), &options, Arc::new(data)).expect("it starts");
    for (stage, value) in parameters(&run).into_iter().enumerate() {
        assert!(run.write(value, 0, &[W[stage % 3]]), "every stage has a weight");
    }
    run
}

fn parameters(run: &Run) -> Vec<ValueId> {
    let values = run.program().values.iter().enumerate();
    let mut own: Vec<_> = values.filter(|(_, value)| value.kind == ValueKind::Parameters).collect();
    own.sort_by_key(|(_, value)| value.stage);
    own.into_iter().map(|(index, _)| ValueId::from_index(index)).collect()
}

fn weights(run: &Run) -> Vec<f64> {
    parameters(run).into_iter().map(|value| run.read(value, 0).expect("a weight")[0]).collect()
}

/// Weights after each window of a run of `steps`, and the losses of all steps.
fn trained(case: &Case, steps: u64, stress: Option<u64>) -> (Vec<Vec<f64>>, Vec<f64>) {
    let (program, _) = case.compile();
    let mut run = start(&program, stress);
    let stride = u64::from(program.program().n_steps);
    let (mut all, mut losses) = (Vec::new(), Vec::new());
    for step in (0..steps).step_by(stride as usize) {
        let report = run.step(step).unwrap_or_else(|error| panic!("{error}"));
        for (device, compiled) in report.devices.iter().zip(&program.program().devices) {
            assert_eq!(device.peak, compiled.peak, "the measured peak is the compiled one");
        }
        losses.extend(report.step_losses(program.program()));
        all.push(weights(&run));
    }
    (all, losses)
}

/// The same by the definition: every gradient from the version that its stage reads, in 64 bits.
fn by_definition(case: &Case, lags: &[Vec<u32>], steps: usize) -> Vec<Vec<f64>> {
    let (n, m) = (case.stages as usize, case.microbatches as usize);
    let mut versions: Vec<Vec<f64>> = vec![(0..n).map(|stage| W[stage % 3]).collect()];
    for step in 0..steps {
        let mut next = versions[step].clone();
        for microbatch in 0..m {
            let w: Vec<f64> = (0..n)
                .map(|stage| {
                    let lag = lags.get(stage).map_or(0, |lags| lags[microbatch] as usize);
                    versions[step.saturating_sub(lag)][stage]
                })
                .collect();
            let (x, y) = (X[microbatch % 3], Y[microbatch % 3] * (1 + microbatch / 3) as f64);
            let product = w.iter().product::<f64>() * x;
            for (stage, next) in next.iter_mut().enumerate() {
                let others: f64 = w.iter().enumerate().filter(|(other, _)| *other != stage).map(|(_, w)| w).product();
                *next -= 0.1 * (product - y) * x * others / m as f64;
            }
        }
        versions.push(next);
    }
    versions.split_off(1)
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12 * expected.abs().max(1.0), "{what}: {found} {expected}");
    }
}

#[test]
fn the_published_chain_learns_the_published_weights() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/cyclic_dp.json");
    let figures: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON");
    for (weights, key) in [("previous", "v1"), ("newest", "v2"), ("flush", "dp")] {
        let published: Vec<Vec<f64>> =
            serde_json::from_value(figures["chain3"]["theta_after"][key].clone()).expect("weights");
        for (schedule, devices) in [(CYCLE, 1), (CYCLE, 3), (WORKERS, 3)] {
            let window = if weights == "flush" { 1 } else { 2 };
            if weights == "flush" && (devices, schedule) != (3, CYCLE) {
                continue;
            }
            let case = Case { schedule, weights, stages: 3, devices, microbatches: 3, window };
            let (found, _) = trained(&case, 4, None);
            for (turn, found) in found.iter().enumerate() {
                let step = (turn + 1) * usize::try_from(window).expect("small");
                assert_close(found, &published[step - 1], &format!("{weights} on {devices} after step {step}"));
            }
            let (_, lags) = case.compile();
            let defined = by_definition(&case, &lags, 4);
            for (published, defined) in published.iter().flatten().zip(defined.iter().flatten()) {
                assert!((published - defined).abs() < 1e-12, "the definition above is that of the publication");
            }
        }
    }
}

#[test]
fn blocks_that_run_on_learn_what_their_versions_say() {
    for (schedule, weights) in [
        (PIPEDREAM, "newest"),
        (PIPEDREAM, "previous"),
        (SPLIT, "newest"),
        (CYCLE, "newest"),
        (WORKERS, "newest"),
        (WORKERS, "previous"),
        (TOGETHER, "newest"),
        (TOGETHER, "previous"),
        (BOTH_WAYS, "newest"),
    ] {
        for (stages, microbatches) in slice(3, [(2, 4), (3, 3), (3, 7), (4, 6), (4, 2), (4, 8), (3, 1)]) {
            let rounds = microbatches % stages == 0;
            let needs_rounds = [WORKERS, TOGETHER].contains(&schedule);
            let needs_pairs = schedule == BOTH_WAYS;
            if weights == "previous" && microbatches < stages
                || needs_rounds && !rounds
                || needs_pairs && microbatches % 2 == 1
            {
                continue;
            }
            let case = Case { schedule, weights, stages, devices: stages, microbatches, window: 12 };
            let (_, lags) = case.compile();
            let (found, losses) = trained(&case, 24, None);
            let expected = by_definition(&case, &lags, 24);
            let what = format!("{weights} {stages} {microbatches} {schedule}");
            assert_close(&found[0], &expected[11], &what);
            assert_close(&found[1], &expected[23], &what);
            assert_eq!(losses.len(), 24);
            assert_eq!(trained(&case, 24, Some(7)).0, found, "{what}: delays change nothing");
            let one = Case { schedule: CYCLE, devices: 1, ..case };
            if [CYCLE, WORKERS].contains(&schedule) && rounds {
                assert_eq!(trained(&one, 24, None).0, found, "{what}: one device learns the same");
            }
        }
    }
}

#[test]
fn windows_follow_on_each_other_bit_by_bit() {
    for (weights, microbatches) in [("newest", 3), ("previous", 3), ("newest", 1), ("newest", 5)] {
        let case = |window| Case { schedule: PIPEDREAM, weights, stages: 3, devices: 3, microbatches, window };
        let (long, long_losses) = trained(&case(12), 12, None);
        let (short, short_losses) = trained(&case(6), 12, None);
        assert_eq!(long.last(), short.last(), "{weights} {microbatches}");
        assert_eq!(long_losses, short_losses, "{weights} {microbatches}");
    }
}

#[test]
fn a_resumed_run_has_the_older_versions_too() {
    let case = Case { schedule: PIPEDREAM, weights: "newest", stages: 3, devices: 3, microbatches: 1, window: 6 };
    let (program, _) = case.compile();
    let mut unbroken = start(&program, None);
    unbroken.step(0).expect("a window");
    let folder = std::env::temp_dir().join(format!("pipec-versions-{}", std::process::id()));
    let file = checkpoint::save(&folder, &checkpoint::state(&unbroken, 6).expect("read")).expect("saved");
    unbroken.step(6).expect("a window");
    let mut resumed = start(&program, None);
    assert_eq!(checkpoint::resume(&mut resumed, &file).expect("fits"), 6);
    resumed.step(6).expect("a window");
    assert_eq!(weights(&resumed), weights(&unbroken));
    std::fs::remove_dir_all(folder).expect("removed");
}
