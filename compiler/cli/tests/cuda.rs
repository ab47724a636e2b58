//! Runs on GPUs that are not there: the whole way from the command line to kernels, which an
//! emulator runs under a strict fake of the driver.

mod card;
mod fakes;
mod graphs;
mod libraries;
mod machine;
mod mixed;
mod process;
mod sums;

use fakes::pipec_with;
use machine::Machine;
use process::{folder, pipec};
use serde_json::Value;
use std::fs;

/// A small GPT with `{}` for what is said of its layout.
fn source(precision: &str, devices: u32, microbatches: u32, line: &str) -> String {
    format!(
        "import std.models.gpt
        pipeline tiny {{
            model gpt(vocab = 17, hidden = 16, heads = 2, blocks = 2, sequence = 5, rows = 2)
            precision {precision}
            devices {devices}
            microbatches {microbatches}
            schedule {line}
            train {{
                data synthetic
                steps 20
                seed 7
                optimizer adamw(learning_rate = 0.001, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1)
                warmup 5
                minimum 0.0001
                checkpoint \"saved\"
            }}
        }}"
    )
}

fn losses(report: &Value) -> Vec<f64> {
    report["losses"].as_array().expect("losses").iter().map(|loss| loss.as_f64().expect("a number")).collect()
}

/// Losses of as many steps, no further from each other than that, relative to their size; peaks are the compiled ones.
#[track_caller]
fn assert_agree(name: &str, expected: &Value, found: &Value, tolerance: f64) {
    assert_eq!((&found["backend"], &found["ok"]), (&"cuda".into(), &true.into()), "{name}");
    let (expected, found) = (losses(expected), losses(found));
    assert!(expected.len() == found.len() && expected.first() != expected.last(), "{name}");
    for (step, (expected, found)) in expected.iter().zip(&found).enumerate() {
        let error = (expected - found).abs() / expected.abs();
        assert!(error <= tolerance, "{name}, step {step}: {found} instead of {expected}");
    }
}

/// What some steps teach on the CPU and on fake GPUs.
#[track_caller]
fn check(name: &str, text: &str, (steps, tolerance): (u32, f64), gpus: &[&str]) {
    let Some(machine) = Machine::new(name, text) else { return };
    // Of a schedule that does not flush, windows of two steps.
    let line =
        format!("--no-checkpoint --steps {steps} {}", if name.ends_with("cyclic") { "--set steps=2" } else { "" });
    let expected = machine.run(&format!("--backend cpu {line}"), &[]);
    for gpus in gpus {
        let found = machine.run(&format!("--backend cuda {line}"), &[("PIPEC_FAKE_DEVICES", gpus)]);
        assert_agree(&format!("{name} on {gpus}"), &expected, &found, tolerance);
    }
}

const SINGLE: f64 = 1e-5;
const DOUBLE: f64 = 1e-12;

#[test]
fn schedules_learn_what_they_learn_on_the_cpu() {
    let all = ["v_half", "dualpipe_v", "zb_h1", "interleaved_1f1b"];
    let takes_all = std::env::var("PIPEC_ALL").is_ok_and(|all| all != "0");
    for schedule in &all[..if takes_all { 4 } else { 1 }] {
        check(schedule, &source("f32", 2, 4, schedule), (3, SINGLE), &["1", "2"]);
    }
}

#[test]
fn twenty_steps_agree_to_rounding() {
    check("twenty", &source("f32", 2, 4, "1f1b"), (20, SINGLE), &["1"]);
}

/// Factors of products are rounded to 11 and to 8 bits.
#[test]
fn products_of_less_precision_are_near() {
    let Some(machine) = Machine::new("products", &source("f32", 2, 4, "1f1b")) else { return };
    let run = |arguments: &str| machine.run(&format!("--no-checkpoint --steps 3 {arguments}"), &[]);
    let (expected, usual) = (run("--backend cpu"), losses(&run("--backend cuda")));
    for (products, tolerance) in [("fp32", SINGLE), ("tf32", 2e-3), ("bf16", 2e-2)] {
        let found = run(&format!("--backend cuda --products {products}"));
        assert_agree(products, &expected, &found, tolerance);
        assert_eq!(losses(&found) == usual, products == "fp32", "{products}");
    }
}

/// With cuBLASLt beside the driver, its products take the place of our own where their layouts
/// allow it; also in a captured graph.
#[test]
fn products_of_the_library_agree() {
    let cases = [("f32", "1f1b", SINGLE), ("f64", "zb_v", DOUBLE), ("f32", "dp_1f1b(replicas = 2)", SINGLE)];
    for (precision, schedule, tolerance) in cases {
        let name = format!("library-{precision}-{}", &schedule[..2]);
        let Some(machine) = Machine::new(&name, &source(precision, 2, 4, schedule)) else { return };
        let expected = machine.run("--backend cpu --no-checkpoint --steps 3", &[]);
        let folder = machine.libraries.display();
        let (path, log) = (format!("{folder}:{folder}/products"), machine.folder.join("log"));
        let variables =
            [("LD_LIBRARY_PATH", path.as_str()), ("PIPEC_FAKE_LOG", log.to_str().expect("a path of words"))];
        for arguments in ["", "--no-capture"] {
            let line = format!("--backend cuda --no-checkpoint --steps 3 {arguments}");
            assert_agree(&name, &expected, &machine.run(&line, &variables), tolerance);
            let calls = fs::read_to_string(&log).expect("a log");
            assert!(calls.contains("pipec_fake_enqueue"), "{name}: no product is the library's");
            fs::remove_file(&log).expect("the log was there");
        }
    }
}

#[test]
fn double_precision_agrees_to_its_last_digits() {
    check("double", &source("f64", 2, 4, "zb_v"), (8, DOUBLE), &["1"]);
}

#[test]
fn replicas_and_their_shares_agree() {
    for zero in ["", "zero 1", "zero 2", "zero 3"] {
        let text = source("f32", 4, 4, &format!("dp_1f1b(replicas = 2) {zero}"));
        check(&format!("replicas-{zero}"), &text, (3, SINGLE), &["1", "2"]);
    }
    check("chimera", &source("f32", 2, 4, "chimera"), (3, SINGLE), &["2"]);
}

/// The norm of gradients, over replicas and members; masks of dropout; and the z-loss, over parts of the logits.
#[test]
fn clipped_gradients_and_masks_agree() {
    for (name, line) in [("clip-shares", "dp_1f1b(replicas = 2) zero 1"), ("clip-members", "1f1b tensor 2")] {
        let text = source("f64", 2, 4, line).replace("steps 20", "steps 20 clip_norm 0.05");
        let text = text.replace("vocab = 17", "dropout = 0.2, z_loss = 0.01, vocab = 18");
        check(name, &text, (3, DOUBLE), &["1", "2"]);
    }
}

/// Muon learns on GPUs what it learns on the processor: with replicas, with clipped gradients, and with two versions of
/// the weights.
#[test]
fn orthogonal_steps_agree() {
    let of = |devices: u32, line: &str| {
        let text = source("f64", devices, devices, line);
        text.replace("adamw(learning_rate = 0.001, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1)", "muon(0.01)")
    };
    let clipped = of(4, "dp_1f1b(replicas = 2)").replace("steps 20", "steps 20 clip_norm 0.05");
    check("muon-replicas", &clipped, (3, 1e-9), &["1", "2"]);
    check("muon-cyclic", &of(2, "cyclic_dp"), (4, 1e-9), &["2"]);
}

/// Members give each other parts of the sequence, and tokens to their experts.
#[test]
fn what_goes_from_each_to_all_agrees() {
    let text = include_str!("../../../examples/expert_parallel.pipe")
        .replace("data \"data/shakespeare.txt\"", "data synthetic");
    let sizes = "mixture(hidden = 16, heads = 2, experts = 4, blocks = 1, sequence = 16, rows = 1)";
    let text = text.replace("model mixture()", &format!("model {sizes}")).replace("microbatches 8", "microbatches 2");
    check("each-to-all", &text, (3, SINGLE), &["1", "4"]);
}

#[test]
fn state_and_activations_with_the_host_agree() {
    for what in ["optimizer, parameters", "activations"] {
        check(
            &format!("offload-{}", &what[..3]),
            &source("f32", 2, 4, &format!("1f1b offload {what}")),
            (3, SINGLE),
            &["1", "2"],
        );
    }
}

#[test]
fn windows_versions_and_slices_agree() {
    check("cyclic", &source("f32", 2, 2, "cyclic_dp"), (4, SINGLE), &["1", "2"]);
    check("slices", &source("f32", 2, 2, "seq_1f1b(slices = 5)"), (3, SINGLE), &["1"]);
}

/// Streams work in another order under every seed; a graph is captured, or not; kernels pause under stress.
#[test]
fn the_same_bits_whatever_the_order_of_streams() {
    let Some(machine) = Machine::new("orders", &source("f32", 4, 4, "dp_1f1b(replicas = 2) offload optimizer")) else {
        return;
    };
    let learn = |name: &str, arguments: &str, variables: &[(&str, &str)]| {
        let report = machine.run(&format!("--backend cuda --steps 2 --checkpoint {name} {arguments}"), variables);
        (losses(&report), machine.learned(name))
    };
    let expected = learn("first", "", &[("PIPEC_FAKE_SEED", "1")]);
    for seed in ["2", "3"] {
        assert!(learn(seed, "", &[("PIPEC_FAKE_SEED", seed)]) == expected, "seed {seed}");
        let gpus = if seed == "2" { "2" } else { "4" };
        let apart = [("PIPEC_FAKE_SEED", seed), ("PIPEC_FAKE_DEVICES", gpus)];
        assert!(learn("apart", "", &apart) == expected, "seed {seed}, a graph of {gpus} GPUs");
        assert!(learn("calls", "--no-capture", &apart) == expected, "seed {seed} on {gpus} GPUs without a graph");
        assert!(
            learn("stress", &format!("--stress {seed}"), &[("PIPEC_FAKE_SEED", seed)]) == expected,
            "stress {seed}"
        );
    }
}

/// Each lane has a stream, and streams work in another order under every seed.
#[test]
fn lanes_learn_the_same_bits_in_any_order() {
    let text = include_str!("../../../tests/data/lanes/experts.pipe");
    let Some(machine) = Machine::new("lanes", text) else { return };
    let expected = machine.run("--backend cpu --no-checkpoint --steps 2", &[]);
    let learn = |arguments: &str, seed: &str| {
        let line = format!("--backend cuda --steps 2 --checkpoint {seed} {arguments}");
        let report = machine.run(&line, &[("PIPEC_FAKE_SEED", seed)]);
        assert_agree("lanes", &expected, &report, SINGLE);
        (losses(&report), machine.learned(seed))
    };
    let first = learn("", "1");
    for (arguments, seed) in [("", "2"), ("--no-capture", "3"), ("--stress 4", "4")] {
        assert!(learn(arguments, seed) == first, "{arguments} {seed}");
    }
}

#[test]
fn checkpoints_go_from_the_cpu_to_gpus_and_back() {
    let Some(machine) = Machine::new("checkpoints", &source("f32", 2, 4, "zb_v")) else { return };
    let whole = machine.run("--backend cuda --steps 4 --checkpoint whole", &[]);
    machine.run("--backend cuda --steps 2 --checkpoint half", &[]);
    let rest = machine.run("--backend cuda --steps 4 --checkpoint half --resume", &[]);
    assert_eq!(losses(&whole)[2..], losses(&rest));
    assert!(machine.learned("whole") == machine.learned("half"));
    machine.run("--backend cpu --steps 2 --checkpoint cpu", &[]);
    let there = machine.run("--backend cuda --steps 4 --no-checkpoint --resume cpu", &[]);
    machine.run("--backend cuda --steps 2 --checkpoint gpu", &[]);
    let back = machine.run("--backend cpu --steps 4 --no-checkpoint --resume gpu", &[]);
    for (there, back) in losses(&there).iter().zip(losses(&back)) {
        assert!((there - back).abs() / back <= SINGLE, "{there} {back}");
    }
    // Another layout of the same model.
    fs::write(machine.folder.join("tiny.pipe"), source("f32", 4, 4, "1f1b")).expect("a file of ours");
    let other = machine.run("--backend cuda --resume gpu --steps 4 --no-checkpoint", &[]);
    assert_eq!(losses(&other).len(), 2);
}

#[test]
fn reports_say_what_the_gpu_did() {
    let Some(machine) = Machine::new("reports", &source("f32", 4, 4, "dp_1f1b(replicas = 2)")) else { return };
    let report =
        machine.run("--backend cuda --steps 3 --no-checkpoint --trace trace.json", &[("PIPEC_FAKE_DEVICES", "2")]);
    for (gpu, name) in report["gpus"].as_array().expect("GPUs").iter().zip(["Fake GPU 0", "Fake GPU 1"]) {
        assert_eq!((&gpu["name"], &gpu["devices"]), (&name.into(), &2.into()));
        assert!(gpu["idle"].as_f64().is_some_and(|idle| (0.0..1.0).contains(&idle)), "{gpu}");
    }
    assert!(report["measured_bubble"].as_f64().is_some_and(|bubble| (0.0..1.0).contains(&bubble)), "{report}");
    for device in report["per_device"].as_array().expect("devices") {
        assert!(device["busy"].as_f64().is_some_and(|busy| busy > 0.0 && busy <= 1.0), "{device}");
    }
    let trace = fs::read_to_string(machine.folder.join("trace.json")).expect("it was written");
    let trace: Value = serde_json::from_str(&trace).expect("JSON");
    let slices = |word: &str| {
        let events = trace["traceEvents"].as_array().expect("events").iter();
        events
            .filter(|event| event["ph"] == "X" && event["name"].as_str().is_some_and(|name| name.contains(word)))
            .count()
    };
    assert!(slices("F") > 0 && slices("reduce") > 0, "{} {}", slices("F"), slices("reduce"));
    let line = "run tiny.pipe --backend cuda --steps 2 --no-checkpoint --profile";
    let table = pipec_with(machine.libraries, &machine.folder, line, &[]).with(0).out;
    for kind in ["gemm", "elementwise", "optimizer", "cross_entropy"] {
        assert!(table.lines().any(|line| line.starts_with(kind)), "{kind}: {table}");
    }
}

/// Compiled kernels are kept; a damaged file is made again.
#[test]
fn kernels_are_compiled_once() {
    let Some(machine) = Machine::new("cache", &source("f32", 2, 4, "1f1b")) else { return };
    let run = || losses(&machine.run("--backend cuda --steps 2 --no-checkpoint", &[]));
    let expected = run();
    let kept: Vec<_> = machine.folder.join("cache/pipec").read_dir().expect("the cache").collect();
    assert_eq!(kept.len(), 1);
    let path = kept[0].as_ref().expect("an entry").path();
    let whole = fs::read(&path).expect("a file");
    fs::write(&path, &whole[..whole.len() / 2]).expect("a file of ours");
    assert_eq!(run(), expected);
    assert!(fs::read(&path).expect("a file") == whole);
}

#[test]
fn auto_takes_a_gpu_where_there_is_one() {
    let Some(machine) = Machine::new("auto", &source("f32", 2, 4, "1f1b")) else { return };
    let run = |more: &str, variables: &[(&str, &str)]| {
        let line = format!("run tiny.pipe --steps 2 --no-checkpoint {more}");
        pipec_with(machine.libraries, &machine.folder, &line, variables).with(0)
    };
    let ended = run("", &[]);
    assert!(ended.out.starts_with("tiny 2 steps on 2 cuda devices"), "{}", ended.out);
    // A GPU that cannot be used is no reason to stop.
    let ended = run("", &[("PIPEC_FAKE_MEMORY", "50000")]);
    assert!(ended.out.starts_with("tiny 2 steps on 2 cpu devices"), "{}", ended.out);
    let note = "not on the GPU: d0 and d1 do not fit on GPU 0 (Fake GPU 0): their arenas and what is beside them need ";
    assert!(ended.error.contains(note) && ended.error.contains("; the processor runs it instead"), "{}", ended.error);
    let ended = run("", &[("PIPEC_FAKE_DEVICES", "0")]);
    assert!(ended.out.starts_with("tiny 2 steps on 2 cpu devices") && !ended.error.contains("GPU"), "{}", ended.error);
    let counted = pipec_with(machine.libraries, &machine.folder, "run std:1f1b", &[]).with(0).out;
    assert!(counted.contains("null device"), "{counted}");
    let version = pipec_with(machine.libraries, &machine.folder, "--version", &[]).with(0).out;
    assert!(version.contains("\ncuda: driver for CUDA 13.0, NVRTC 13.0, "), "{version}");
    assert!(version.contains(", NCCL 2.27.3\n"), "{version}");
}

/// What was learned cannot be fetched: the run says so and leaves no half of a checkpoint, nor takes one away.
#[test]
fn a_gpu_that_is_lost_leaves_the_last_checkpoint() {
    let Some(machine) = Machine::new("lost", &source("f32", 2, 4, "1f1b")) else { return };
    machine.run("--backend cuda --steps 2", &[]);
    let saved = machine.learned("saved");
    let error = machine.refused("--backend cuda --steps 4 --resume", &[("PIPEC_FAKE_FAILS", "cuMemcpyDtoH_v2")]);
    assert!(error.contains("cuMemcpyDtoH_v2 answers CUDA_ERROR_LAUNCH_FAILED"), "{error}");
    assert_eq!(machine.learned("saved"), saved);
}

#[test]
fn what_is_for_gpus_alone_is_said_where_none_runs() {
    let folder = folder("cuda-no-products", &[("tiny.pipe", &source("f32", 2, 4, "1f1b"))]);
    for (option, is_said) in [("--products bf16", true), ("--no-capture", true), ("--no-cublas", true), ("", false)] {
        let line = format!("run tiny.pipe --backend cpu --steps 1 --no-checkpoint {option}");
        assert_eq!(pipec(&folder, &line, "").with(0).error.contains("warning: `--products`"), is_said, "{option}");
    }
}

#[test]
fn what_cannot_run_is_said_in_one_line() {
    let Some(machine) = Machine::new("refused", &source("f32", 4, 4, "dp_1f1b(replicas = 2)")) else { return };
    let help = ": `--backend cpu` runs on the processor\n";
    for (variables, message) in [
        (&[("PIPEC_FAKE_DEVICES", "0")][..], format!("error: the CUDA driver finds no GPU here{help}")),
        (&[("PIPEC_FAKE_MEMORY", "50000")], "d0, d1, d2 and d3 do not fit on GPU 0 (Fake GPU 0): ".to_owned()),
        (
            &[("PIPEC_FAKE_DEVICES", "2"), ("PIPEC_FAKE_PEERS", "0")],
            "d1, d3 work together, but GPU 0 does not reach the memory of GPU 1".to_owned(),
        ),
        (
            &[("PIPEC_FAKE_VERSION", "12080"), ("PIPEC_FAKE_FAILS", "cuModuleLoadData")],
            "NVRTC 13.0 has compiled the kernels, and the driver is that of CUDA 12.8, which is older".to_owned(),
        ),
    ] {
        let error = machine.refused("--backend cuda --no-checkpoint", variables);
        assert!(error.contains(&message) && error.trim_end().lines().count() == 1, "{message}\n{error}");
    }
    // Without peer access, transfers go through the host.
    let apart = [("PIPEC_FAKE_DEVICES", "2"), ("PIPEC_FAKE_PEERS", "0")];
    fs::write(machine.folder.join("tiny.pipe"), source("f32", 2, 4, "1f1b")).expect("a file of ours");
    machine.run("--backend cuda --steps 2 --no-checkpoint", &apart);
    // No compiler; and one that the loader does not find, among the packages of an environment.
    let driver = folder("cuda-driver-only", &[]);
    fs::copy(machine.libraries.join("libcuda.so.1"), driver.join("libcuda.so.1")).expect("a library");
    let run = |line: &str| {
        let environment = driver.to_str().expect("a path of words");
        let variables = [("VIRTUAL_ENV", environment), ("CONDA_PREFIX", ""), ("CUDA_HOME", ""), ("CUDA_PATH", "")];
        pipec_with(&driver, &machine.folder, line, &[&variables[..], &[("PATH", "/nowhere")]].concat())
    };
    let step = "run tiny.pipe --backend cuda --steps 1 --no-checkpoint";
    let error = run(step).with(1).error;
    assert!(error.contains("NVRTC") && error.contains("pip install nvidia-cuda-nvrtc"), "{error}");
    let packages = driver.join("lib/python3.12/site-packages/nvidia/cu13/lib");
    fs::create_dir_all(&packages).expect("a folder of ours");
    fs::copy(machine.libraries.join("libnvrtc.so"), packages.join("libnvrtc.so.13")).expect("a library");
    run(step).with(0);
    // Each library is looked for by itself, also where the loader finds the compiler.
    fs::rename(packages.join("libnvrtc.so.13"), driver.join("libnvrtc.so")).expect("it is there");
    let products = machine.libraries.join("products/libcublasLt.so");
    fs::copy(products, packages.join("libcublasLt.so.13")).expect("a library");
    let version = run("--version").with(0).out;
    assert!(version.contains("NVRTC 13.0, cuBLASLt, NCCL not found"), "{version}");
}

/// On a machine with a driver this says nothing.
#[test]
fn without_a_driver_the_processor_runs() {
    let folder = folder("cuda-none", &[("tiny.pipe", &source("f32", 2, 4, "1f1b"))]);
    if !pipec(&folder, "--version", "").with(0).out.contains("no CUDA driver here") {
        eprintln!("skipped: there is a CUDA driver here");
        return;
    }
    let error = pipec(&folder, "run tiny.pipe --backend cuda", "").with(1).error;
    let message = "no CUDA driver here (libcuda.so.1 was not found): `--backend cpu` runs on the processor";
    assert!(error.contains(message), "{error}");
    let ended = pipec(&folder, "run tiny.pipe --steps 2 --no-checkpoint", "").with(0);
    assert!(ended.out.contains("2 cpu devices") && !ended.error.contains("CUDA"), "{}", ended.error);
    // A schedule without a model has nothing to compute.
    let error = pipec(&folder, "run std:1f1b --backend cuda", "").with(1).error;
    assert!(error.contains("compiled without a model"), "{error}");
}

/// Indices that no table has: the message of the CPU, at the same instruction.
#[test]
fn bad_data_end_a_run_with_the_message_of_the_cpu() {
    let text = source("f32", 2, 4, "1f1b").replace(
        "import std.models.gpt",
        "import std.models.gpt\nmodel wild() { lookup() }\nlayer lookup() {
        data tokens: i32[2, 3]
        data targets: i32[2, 3]
        weight table: [5, 4] = normal(0.1)
        loss cross_entropy(reshape(gather(table, reshape(tokens, [6])), [2, 3, 4]), targets)
    }",
    );
    let text = text
        .replace("gpt(vocab = 17, hidden = 16, heads = 2, blocks = 2, sequence = 5, rows = 2)", "wild()")
        .replace("devices 2", "devices 1");
    let Some(machine) = Machine::new("bad-data", &text) else { return };
    let [cpu, gpu] =
        ["cpu", "cuda"].map(|backend| machine.refused(&format!("--backend {backend} --no-checkpoint"), &[]));
    assert!(cpu.contains("the data holds index") && cpu.contains("but the table has 5 rows"), "{cpu}");
    assert_eq!(cpu, gpu);
}
