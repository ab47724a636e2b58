//! A machine with GPUs that are not there: the libraries of CUDA as fakes, built from `tests/cuda`,
//! and the command that finds them.

use crate::process::{Ended, run};
use pipe_ir::digest::Digest;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of the fakes; nothing where there is no C++ compiler, which is said once.
pub(crate) fn fakes() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let found = Command::new("g++").arg("--version").output().is_ok_and(|output| output.status.success());
        if !found {
            eprintln!("skipped: fake GPUs are built by g++, which is not here");
            return None;
        }
        Some(build())
    });
    built.as_deref()
}

fn build() -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cuda");
    let sources = sources.canonicalize().expect("the repository has it");
    let emulator = format!("-DPIPEC_EMULATOR=\"{}\"", sources.join("emulator").display());
    let built_by = Digest::default().and(include_bytes!("mod.rs"));
    let digest = texts(&sources.join("fake")).iter().fold(built_by, |digest, text| digest.and(text));
    // Equal sources are built once, and every test process may do it: whoever renames first has made it.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fakes-{digest}"));
    if folder.exists() {
        return folder;
    }
    let beside = folder.with_extension(std::process::id().to_string());
    fs::create_dir_all(beside.join("kernels")).expect("the folder for temporary files can be written");
    let compile = |source: &str, library: &str, more: &[&str]| {
        let mut command = Command::new("g++");
        command.args(["-std=c++17", "-O1", "-fPIC", "-shared"]).args(more);
        let output = command.arg("-o").arg(beside.join(library)).arg(sources.join("fake").join(source)).output();
        let output = output.expect("g++ was there");
        assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
    };
    compile("cuda.cpp", "libcuda.so.1", &["-Wall", "-Wextra", "-Werror", "-Wl,-soname,libcuda.so.1"]);
    compile("nvrtc.cpp", "libnvrtc.so", &[&emulator, "-Wl,-soname,libnvrtc.so.13"]);
    let driver = format!("-L{}", beside.display());
    compile(
        "nccl.cpp",
        "libnccl.so.2",
        &["-Wall", "-Wextra", "-Werror", "-Wl,--no-as-needed", &driver, "-l:libcuda.so.1"],
    );
    fs::create_dir(beside.join("products")).expect("the folder was just made");
    compile(
        "cublaslt.cpp",
        "products/libcublasLt.so",
        &[
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wl,-soname,libcublasLt.so.13",
            "-Wl,--no-as-needed",
            &driver,
            "-l:libcuda.so.1",
        ],
    );
    if fs::rename(&beside, &folder).is_err() {
        drop(fs::remove_dir_all(&beside));
    }
    folder
}

/// The contents of a folder's files, by name.
fn texts(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = folder.read_dir().expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a file")).collect()
}

/// Runs the command in a folder, on a machine with such libraries; names and values of variables beside.
pub(crate) fn pipec_with(libraries: &Path, folder: &Path, arguments: &str, variables: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pipec"));
    command.env("LD_LIBRARY_PATH", libraries).env("PIPEC_EMULATOR_CACHE", libraries.join("kernels"));
    command.env("XDG_CACHE_HOME", folder.join("cache")).envs(variables.iter().copied());
    let ended = run(command, folder, arguments, "");
    assert!(!ended.error.contains("fake cuda:"), "{arguments} {variables:?}\n{}", ended.error);
    ended
}
