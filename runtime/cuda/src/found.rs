//! Libraries that the loader does not find: those of a CUDA toolkit, and those among the packages
//! of a Python, to which PyTorch brings them. One of the files with `unsafe` code.
//!
//! What was loaded from its file is found by its name from then on. Each library is looked for only
//! if the loader does not find it: one may be in `LD_LIBRARY_PATH`, and the next in PyTorch's packages.
//!
//! Safety. Loading a library runs what it does when it is loaded, as for every program that uses
//! it; it stays until the process ends.

use libloading::Library;
use std::env::{split_paths, var_os};
use std::fs::read_dir;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What `load` makes of a library: of the one that the loader finds, else of one whose name begins so
/// (`libnvrtc.so.`, then a number), in the first folder that has it.
pub(crate) fn find<T>(name: &str, load: impl Fn() -> Option<T>) -> Option<T> {
    static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    load().or_else(|| {
        let mut files = FOLDERS.get_or_init(folders).iter().flat_map(|folder| versions(folder, name));
        // SAFETY: see the head of this file.
        let library = files.find_map(|path| unsafe { Library::new(path) }.ok())?;
        std::mem::forget(library);
        load()
    })
}

/// Where libraries may be: in toolkits, then beside the Pythons of environments, and beside the one
/// that is called by its name.
fn folders() -> Vec<PathBuf> {
    let of = |name: &str| var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let toolkits = [of("CUDA_HOME"), of("CUDA_PATH"), Some(PathBuf::from("/usr/local/cuda"))];
    let toolkits = toolkits.into_iter().flatten().map(|home| home.join("lib64"));
    let path = var_os("PATH").unwrap_or_default();
    let called = split_paths(&path).find(|folder| folder.join("python3").exists());
    let called = called.and_then(|folder| folder.parent().map(Path::to_path_buf));
    let environments = [of("VIRTUAL_ENV"), of("CONDA_PREFIX"), called];
    toolkits.chain(environments.iter().flatten().flat_map(|home| of_packages(home))).collect()
}

/// `lib/python3.12/site-packages/nvidia/cu13/lib`, and its like.
fn of_packages(home: &Path) -> Vec<PathBuf> {
    let pythons = entries(&home.join("lib"), "python3");
    let packages = pythons.iter().flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)));
    packages.flat_map(|packages| entries(&packages.join("nvidia"), "")).map(|part| part.join("lib")).collect()
}

/// Files of a library whose names end with one number: those of its major versions, the newest first.
fn versions(folder: &Path, name: &str) -> Vec<PathBuf> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix(name)?.parse::<u32>().ok();
    let mut found: Vec<_> = entries(folder, name).into_iter().filter_map(|path| Some((number(&path)?, path))).collect();
    found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    found.into_iter().map(|(_, path)| path).collect()
}

/// What a folder has under names that begin so, in their order.
fn entries(folder: &Path, start: &str) -> Vec<PathBuf> {
    let found = read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start));
    let mut found: Vec<PathBuf> = found.filter(is_named).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::{of_packages, versions};
    use std::fs;

    #[test]
    fn wheels_are_found_beside_a_python_the_newest_version_first() {
        let home = std::env::temp_dir().join(format!("pipec-found-{}", std::process::id()));
        let folder = home.join("lib/python3.12/site-packages/nvidia/cu13/lib");
        fs::create_dir_all(&folder).expect("a folder for temporary files");
        for file in
            ["libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so.13.0.88", "libnvrtc-builtins.so.13.0", "libnvrtc.so"]
        {
            fs::write(folder.join(file), "").expect("the folder was just made");
        }
        assert_eq!(of_packages(&home), std::slice::from_ref(&folder));
        let names = ["libnvrtc.so.13", "libnvrtc.so.12"].map(|name| folder.join(name));
        assert_eq!(versions(&folder, "libnvrtc.so."), names);
        assert!(versions(&folder, "libcublasLt.so.").is_empty() && of_packages(&folder).is_empty());
        fs::remove_dir_all(&home).expect("made above");
    }
}
