//! Libraries of CUDA that are older than ours, missing or out of order: what is said of them, and what runs all the
//! same.

use crate::fakes::pipec_with;
use crate::machine::Machine;
use crate::process::folder;
use crate::{losses, source};
use std::fs;
use std::path::{Path, PathBuf};

/// The fakes in a folder of their own, with a driver that lacks calls.
fn older(libraries: &Path, name: &str, lacking: &[&str]) -> PathBuf {
    let folder = folder(name, &[]);
    let mut driver = fs::read(libraries.join("libcuda.so.1")).expect("the fake driver");
    for call in lacking {
        // Its name, as what is loaded lists it, becomes another one.
        let listed = [b"\0", call.as_bytes(), b"\0"].concat();
        let at = driver.windows(listed.len()).position(|bytes| bytes == listed).expect("the fake driver has it");
        driver[at + 1] = b'x';
    }
    fs::write(folder.join("libcuda.so.1"), driver).expect("a folder of ours");
    for library in ["libnvrtc.so", "libnccl.so.2"] {
        fs::copy(libraries.join(library), folder.join(library)).expect("a library is copied");
    }
    std::os::unix::fs::symlink(libraries.join("kernels"), folder.join("kernels")).expect("a link");
    folder
}

#[test]
fn drivers_from_cuda_12_4_on_will_do() {
    let Some(machine) = Machine::new("older", &source("f32", 2, 4, "1f1b")) else { return };
    let step = "run tiny.pipe --backend cuda --steps 2 --no-checkpoint --format json";
    let expected = losses(&pipec_with(machine.libraries, &machine.folder, step, &[]).with(0).into());
    // That of CUDA 12.4 lacks this call alone.
    let older_one = older(machine.libraries, "cuda-12-4", &["cuEventElapsedTime_v2"]);
    let log = machine.folder.join("log");
    let variables = [("PIPEC_FAKE_LOG", log.to_str().expect("a path of words")), ("PIPEC_FAKE_VERSION", "12040")];
    let report: serde_json::Value = pipec_with(&older_one, &machine.folder, step, &variables).with(0).into();
    assert_eq!(losses(&report), expected);
    assert!(report["gpus"][0]["idle"].as_f64().is_some_and(|idle| (0.0..1.0).contains(&idle)), "{report}");
    let calls = fs::read_to_string(log).expect("a log");
    assert!(calls.contains("\ncuEventElapsedTime\n") && !calls.contains("cuEventElapsedTime_v2"), "{calls}");
    // An older one lacks more.
    let oldest = older(machine.libraries, "cuda-12-2", &["cuEventElapsedTime_v2", "cuFuncLoad"]);
    let error = pipec_with(&oldest, &machine.folder, step, &[]).with(1).error;
    let told = "the CUDA driver is too old: it lacks cuFuncLoad; pipec needs version 550 (CUDA 12.4) \
                or newer: `--backend cpu` runs on the processor";
    assert!(error.contains(told), "{error}");
}

/// Products by our own kernels take several times as long: nobody should have them without a word.
#[test]
fn whatever_multiplies_is_said() {
    let Some(machine) = Machine::new("products-said", &source("f32", 2, 4, "1f1b")) else { return };
    let folder = machine.libraries.display().to_string();
    let both = format!("{folder}:{folder}/products");
    let run = |arguments: &str, path: &str, fails: &str| {
        let line = format!("run tiny.pipe --backend cuda --steps 1 --no-checkpoint {arguments}");
        let variables = [("LD_LIBRARY_PATH", path), ("PIPEC_FAKE_FAILS", fails)];
        pipec_with(machine.libraries, &machine.folder, &line, &variables).with(0)
    };
    let slow = "; pipec's own kernels multiply instead, which take several times as long\n";
    for (arguments, path, fails, said, by) in [
        ("", &both, "", None, "products by cuBLASLt, "),
        ("--no-cublas", &both, "", None, "products by pipec, "),
        ("", &folder, "", Some("no cuBLASLt here (libcublasLt.so was not found): "), "products by pipec, "),
        ("", &both, "cublasLtCreate", Some("cuBLASLt does not start: "), "products by pipec, "),
    ] {
        let ended = run(arguments, path, fails);
        assert!(ended.out.contains(&format!("\n  gpu      Fake GPU 0: 2 devices, {by}")), "{}", ended.out);
        match said {
            None => assert!(!ended.error.contains("cuBLASLt"), "{}", ended.error),
            Some(said) => {
                let told = |error: &str| error.contains(&format!("warning: {said}")) && error.contains(slow);
                assert!(told(&ended.error.replace("\n         ", " ")), "{}", ended.error);
            }
        }
    }
    let report: serde_json::Value = run("--format json", &both, "").into();
    assert!(report["gpus"][0]["products"].as_str().is_some_and(|by| by.starts_with("cuBLASLt")), "{report}");
}
