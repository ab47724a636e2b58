//! `benches/gpu_check`, which compares all that a GPU computes with the processor: here with a fake one.

use crate::fakes::fakes;
use crate::process::folder;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of the repository.
fn home(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(part)
}

/// What the script says of some cases, and its exit code.
fn checked(libraries: &Path, cache: &Path, arguments: &str, variables: &[(&str, &str)]) -> (String, Option<i32>) {
    let mut command = Command::new("python3");
    command.arg(home("benches/gpu_check")).args(["--pipec", env!("CARGO_BIN_EXE_pipec"), "--size", "tiny"]);
    command.env("LD_LIBRARY_PATH", libraries).env("PIPEC_EMULATOR_CACHE", libraries.join("kernels"));
    command.env("XDG_CACHE_HOME", cache).env("PYTHONDONTWRITEBYTECODE", "1").envs(variables.iter().copied());
    let output = command.args(arguments.split_whitespace()).output().expect("python3 was there");
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (text, output.status.code())
}

#[test]
fn a_card_is_compared_with_the_processor() {
    let Some(libraries) = fakes() else { return };
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: benches/gpu_check needs python3");
        return;
    }
    let cache = folder("cuda-card", &[]);
    let check = |arguments: &str, variables: &[(&str, &str)]| checked(libraries, &cache, arguments, variables);
    let (listed, code) = check("--list", &[]);
    assert_eq!(code, Some(0), "{listed}");
    for path in home("stdlib/schedules").read_dir().expect("the standard library") {
        let path = path.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name of words");
        assert!(listed.lines().any(|line| line.starts_with(name)), "{name}: {listed}");
    }
    let few = "--steps 2 --only eager_1f1b --only table --jobs 2";
    let (text, code) = check(few, &[]);
    assert!(code == Some(0) && text.contains("\n2 of 2 ok") && text.contains("driver for CUDA 13.0"), "{text}");
    let (text, code) = check(&format!("{few} --format json"), &[("PIPEC_FAKE_FAILS", "cuModuleLoadData")]);
    let said = "cuModuleLoadData answers CUDA_ERROR_INVALID_IMAGE";
    assert!(code == Some(1) && text.contains(said) && text.contains("\"ok\": false"), "{text}");
    let (text, code) = check(&format!("{few} --limit-seconds 0.5"), &[]);
    assert!(code == Some(3) && text.contains("2 not run within 0.5 s: "), "{text}");
}
