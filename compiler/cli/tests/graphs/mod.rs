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
        let line = "run tiny.pipe --backend cuda --steps 2 --no-checkpoint";
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
        assert!(ended.out.contains("\n  gpu      Fake GPU 0: 1 device, idle "), "{}", ended.out);
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
