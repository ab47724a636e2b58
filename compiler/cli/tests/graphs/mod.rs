//! Steps as graphs of all GPUs of a process: what they ask the driver for, and what is said and
//! done where it refuses them.

use crate::fakes::pipec_with;
use crate::machine::Machine;
use crate::source;
use std::fs;

/// Wherever the driver refuses a graph of two GPUs, it is asked for every call: that is said once,
/// and what is learned is the same.
#[test]
fn a_driver_that_refuses_a_graph_is_asked_for_every_call() {
    let Some(machine) = Machine::new("uncaptured", &source("f32", 2, 4, "1f1b")) else { return };
    let run = |variable: (&str, &str)| {
        let line = "run tiny.pipe --backend cuda --steps 2 --no-checkpoint --no-cublas";
        pipec_with(machine.libraries, &machine.folder, line, &[("PIPEC_FAKE_DEVICES", "2"), variable]).with(0)
    };
    let loss = |out: &str| out.lines().find(|line| line.starts_with("  loss")).map(str::to_owned);
    let captured = run(("PIPEC_FAKE_SEED", "1"));
    assert!(!captured.error.contains("warning"), "{}", captured.error);
    for (name, value, why) in [
        ("PIPEC_FAKE_CAPTURE", "0", "cuStreamBeginCapture_v2 answers CUDA_ERROR_NOT_SUPPORTED"),
        ("PIPEC_FAKE_CAPTURE", "1", "cuStreamWaitEvent answers CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
        (
            "PIPEC_FAKE_FAILS",
            "cuGraphInstantiateWithFlags",
            "cuGraphInstantiateWithFlags answers CUDA_ERROR_NOT_SUPPORTED",
        ),
        ("PIPEC_FAKE_FAILS", "cuGraphLaunch", "cuGraphLaunch answers CUDA_ERROR_NOT_SUPPORTED"),
        (
            "PIPEC_FAKE_PEERS",
            "0",
            "copies from GPU 0 to GPU 1 go through the host, because they do not reach each other's memory",
        ),
    ] {
        let ended = run((name, value));
        let note =
            format!("steps are not captured as a graph ({why}): the driver is asked for every call of every step");
        let warnings = ended.error.matches("warning: ").count();
        assert!(warnings == 1 && ended.error.contains(&note), "{why}\n{}", ended.error);
        assert_eq!(loss(&ended.out), loss(&captured.out), "{why}");
        assert!(ended.out.contains("\n  gpu      Fake GPU 0: 1 device, products by pipec, idle "), "{}", ended.out);
    }
}

/// Inside a step nothing is allocated, and the host waits once; on two GPUs, too.
#[test]
fn steps_are_one_launch_and_one_wait() {
    let Some(machine) = Machine::new("calls", &source("f32", 2, 4, "1f1b")) else { return };
    let calls = |name: &str, arguments: &str| {
        let log = machine.folder.join(name);
        let variables = [("PIPEC_FAKE_LOG", log.to_str().expect("a path of words")), ("PIPEC_FAKE_DEVICES", "2")];
        machine.run(&format!("--backend cuda --steps 4 --no-checkpoint {arguments}"), &variables);
        fs::read_to_string(log).expect("a log")
    };
    let captured = calls("captured", "");
    let steps: Vec<&str> = captured.split("cuGraphLaunch\n").skip(1).collect();
    assert_eq!(steps.len(), 4);
    for step in &steps[..3] {
        assert!(step.starts_with("cuStreamSynchronize\n"), "{step}");
        let rest: Vec<&str> =
            step.lines().skip(1).filter(|call| !["cuCtxSetCurrent", "cuEventElapsedTime_v2"].contains(call)).collect();
        assert!(rest.is_empty(), "{rest:?}");
    }
    let plain = calls("plain", "--no-capture");
    let waits: Vec<&str> = plain.split("cuStreamSynchronize\n").collect();
    let asked =
        ["cuCtxSetCurrent", "cuEventElapsedTime_v2", "cuEventRecord", "cuEventRecordWithFlags", "cuLaunchKernel"];
    let work = [
        "cuMemcpyAsync",
        "cuMemcpyDtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemsetD32Async",
        "cuStreamWaitEvent",
    ];
    for step in &waits[waits.len() - 4..waits.len() - 1] {
        let other: Vec<&str> = step.lines().filter(|call| !asked.contains(call) && !work.contains(call)).collect();
        assert!(other.is_empty() && step.contains("cuLaunchKernel"), "{other:?}");
    }
}

/// What others wait for comes before what computes: transfers, copies and sums have streams of the greatest priority.
#[test]
fn transfers_come_before_computing() {
    let Some(machine) = Machine::new("urgent", &source("f32", 4, 4, "dp_1f1b(replicas = 2) offload optimizer")) else {
        return;
    };
    let log = machine.folder.join("log");
    machine.run("--backend cuda --steps 1 --no-checkpoint", &[("PIPEC_FAKE_LOG", log.to_str().expect("words"))]);
    let calls = fs::read_to_string(log).expect("a log");
    let plain = calls.lines().filter(|call| *call == "cuStreamCreateWithPriority").count();
    let urgent = calls.lines().filter(|call| *call == "cuStreamCreateWithPriority: greatest").count();
    // Of the set-up and of the step: the main stream and four for computing, each.
    assert!(plain == 10 && urgent > 8, "{plain} {urgent}");
}

/// Of many steps the driver is asked for the times of a few, unless a trace wants all.
#[test]
fn times_are_read_of_few_steps() {
    let Some(machine) = Machine::new("times", &source("f32", 2, 2, "1f1b")) else { return };
    let times = |steps: u32, more: &str| {
        let log = machine.folder.join(format!("log-{steps}{}", more.len()));
        let line = format!("--backend cuda --steps {steps} --no-checkpoint {more}");
        let report = machine.run(&line, &[("PIPEC_FAKE_LOG", log.to_str().expect("a path of words"))]);
        for figure in [&report["measured_bubble"], &report["gpus"][0]["idle"], &report["per_device"][1]["busy"]] {
            assert!(figure.as_f64().is_some_and(|share| share > 0.0 && share < 1.0), "{report}");
        }
        fs::read_to_string(log).expect("a log").matches("cuEventElapsedTime_v2\n").count()
    };
    let of_one = times(1, "");
    // The first 16, the 17th and the 33rd.
    assert_eq!((times(16, ""), times(40, "")), (16 * of_one, 18 * of_one));
    assert_eq!(times(20, "--trace trace.json"), 20 * times(1, "--trace trace.json"));
}

/// The state of an optimizer begins at zero: the GPU fills it, and no byte of it comes from the host.
#[test]
fn zeros_are_not_copied() {
    let text = source("f32", 2, 4, "1f1b");
    let adamw = "adamw(learning_rate = 0.001, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1)";
    let copies = |name: &str, optimizer: &str| {
        let machine = Machine::new(name, &text.replace(adamw, optimizer))?;
        let log = machine.folder.join("log");
        machine.run("--backend cuda --steps 1 --no-checkpoint", &[("PIPEC_FAKE_LOG", log.to_str().expect("words"))]);
        Some(fs::read_to_string(log).expect("a log").matches("cuMemcpyHtoD_v2\n").count())
    };
    let Some(with_state) = copies("zeros-adamw", adamw) else { return };
    assert_eq!(copies("zeros-sgd", "sgd(learning_rate = 0.1)"), Some(with_state));
}

/// A graph of a hundred thousand nodes takes long to make: nobody tries.
#[test]
fn a_step_of_too_many_calls_is_not_captured() {
    let text = source("f32", 1, 1500, "1f1b").replace("hidden = 16, heads = 2", "hidden = 2, heads = 1");
    let text = text.replace("sequence = 5, rows = 2", "sequence = 1, rows = 1").replace("vocab = 17", "vocab = 3");
    let Some(machine) = Machine::new("nodes", &text) else { return };
    let line = "run tiny.pipe --backend cuda --steps 1 --no-checkpoint --no-cublas";
    let ended = pipec_with(machine.libraries, &machine.folder, line, &[]).with(0);
    assert!(ended.error.contains("warning: steps are not captured as a graph"), "{}", ended.error);
    assert!(ended.error.contains("and a graph of more than 100000 takes long to make"), "{}", ended.error);
}

/// A kernel that uses an illegal address is told by whatever call comes next. Where each is waited for, it has its
/// instruction, its task and the line that asks for it.
#[test]
fn a_kernel_that_breaks_a_rule_is_named() {
    let Some(machine) = Machine::new("illegal", &source("f32", 2, 4, "1f1b")) else { return };
    let run = |blocks: &str, more: &str| {
        let line = format!("run tiny.pipe --backend cuda --steps 2 --no-checkpoint --no-cublas {more}");
        let variables = [("PIPEC_FAKE_ILLEGAL", "gemm:20"), ("CUDA_LAUNCH_BLOCKING", blocks)];
        pipec_with(machine.libraries, &machine.folder, &line, &variables).with(1).error
    };
    for more in ["", "--no-capture"] {
        let error = run("0", more);
        assert!(
            error.contains("cuStreamSynchronize answers CUDA_ERROR_ILLEGAL_ADDRESS, because of a kernel"),
            "{error}"
        );
        assert!(error.contains("with CUDA_LAUNCH_BLOCKING=1 each is waited for"), "{error}");
        assert!(!error.contains("fake cuda:") && !error.contains("in the first step that was launched"), "{error}");
    }
    let error = run("1", "");
    assert!(error.contains("error: d1 stopped at instruction 16 of its step, `Run "), "{error}");
    let why = "the GPU stopped at kernel 21 of it: cuStreamSynchronize answers CUDA_ERROR_ILLEGAL_ADDRESS";
    assert!(error.contains(&format!("{why}, in BW s1 m0 (std:1f1b:10:9)\n")), "{error}");
}
