//! Kernels on the emulator: sources compiled by the fake NVRTC, or by a real one. One of the files with `unsafe` code.
//!
//! Safety. The libraries are NVRTC's, or ours with the same interface
//! (`tests/cuda/fake/nvrtc.cpp`); the functions are called with the types that its documentation
//! gives them. A kernel is called with as many arguments as it has parameters, each of its size,
//! which the library itself states. The addresses among them point into memory that outlives the
//! call, with room on both sides of every operand; a kernel that leaves that room is what the tests
//! look for.

use super::module::{Address, word};
use crate::kernels::Sources;
use crate::launch::{Argument, Launch};
use libloading::{Library, Symbol};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// An NVRTC.
pub(super) struct Compiler(Library);

type Program = *mut c_void;

impl Compiler {
    pub(super) fn at(path: &Path) -> Result<Self, String> {
        // SAFETY: see the head of this file.
        unsafe { Library::new(path) }.map(Self).map_err(|error| error.to_string())
    }

    /// The fake one, which is built here once; `None`, with a line that says so, where g++ is missing.
    pub(super) fn fake() -> Option<&'static Self> {
        static FAKE: OnceLock<Option<Compiler>> = OnceLock::new();
        FAKE.get_or_init(|| {
            if Command::new("g++").arg("--version").output().is_err() {
                eprintln!("kernels are not emulated: g++ is missing");
                return None;
            }
            let home = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cuda"));
            let emulator = home.join("emulator").canonicalize().expect("the emulator is in the repository");
            let library = folder().join(format!("libnvrtc-{}.so", std::process::id()));
            let built = Command::new("g++")
                .args(["-O1", "-std=c++17", "-fPIC", "-shared", "-o"])
                .arg(&library)
                .arg(format!("-DPIPEC_EMULATOR=\"{}\"", emulator.display()))
                .arg(home.join("fake/nvrtc.cpp"))
                .output()
                .expect("g++ starts");
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            let compiler = Self::at(&library).expect("a library that was just built");
            std::fs::remove_file(&library).expect("a file of our own");
            Some(compiler)
        })
        .as_ref()
    }

    /// The code of a source, and the compiler's log.
    pub(super) fn compile(&self, source: &str, options: &[&str]) -> Result<(Vec<u8>, String), String> {
        let source = CString::new(source).expect("a text without zeros");
        let options: Vec<CString> = options.iter().map(|option| CString::new(*option).expect("no zeros")).collect();
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let none = std::ptr::null::<*const c_char>();
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: see the head of this file; all strings live until the end.
        unsafe {
            type Create = unsafe extern "C" fn(
                *mut Program,
                *const c_char,
                *const c_char,
                c_int,
                *const *const c_char,
                *const *const c_char,
            ) -> c_int;
            let create: Symbol<'_, Create> = self.symbol("nvrtcCreateProgram");
            assert_eq!(create(&raw mut program, source.as_ptr(), c"kernels.cu".as_ptr(), 0, none, none), 0);
            type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
            let compile: Symbol<'_, Compile> = self.symbol("nvrtcCompileProgram");
            let result = compile(program, options.len() as c_int, options.as_ptr());
            let log = self.bytes(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
            let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
            let code = (result == 0).then(|| self.bytes(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN"));
            let destroy: Symbol<'_, unsafe extern "C" fn(*mut Program) -> c_int> = self.symbol("nvrtcDestroyProgram");
            destroy(&raw mut program);
            code.map(|code| (code, log.clone())).ok_or(log)
        }
    }

    /// What a pair of functions gives: the number of bytes, and the bytes.
    fn bytes(&self, program: Program, size: &str, get: &str) -> Vec<u8> {
        let mut count = 0_usize;
        // SAFETY: see the head of this file; there is room for as many bytes as the library asked for.
        unsafe {
            let size: Symbol<'_, unsafe extern "C" fn(Program, *mut usize) -> c_int> = self.symbol(size);
            size(program, &raw mut count);
            let mut bytes = vec![0; count];
            let get: Symbol<'_, unsafe extern "C" fn(Program, *mut u8) -> c_int> = self.symbol(get);
            get(program, bytes.as_mut_ptr());
            bytes
        }
    }

    /// SAFETY: the function has that type.
    unsafe fn symbol<T>(&self, name: &str) -> Symbol<'_, T> {
        // SAFETY: as the caller says.
        unsafe { self.0.get(name.as_bytes()) }.expect("a function of NVRTC")
    }
}

/// Where libraries are written before they are loaded.
fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let folder = test.parent().expect("a file is in a folder").join("cuda");
    std::fs::create_dir_all(&folder).expect("a folder beside the tests");
    folder
}

/// Kernels that can be launched here.
pub(super) struct Emulated {
    library: Library,
    sources: Sources,
    /// Of what the sources call `u64`: 8, or 4 in a mutant.
    word: u32,
}

type Kernel = unsafe extern "C" fn(*const u32, *const u32, u32, *mut *mut c_void);

impl Emulated {
    /// Compiles all functions of some sources, or `None` where there is no compiler.
    pub(super) fn new(sources: Sources) -> Option<Self> {
        let text = sources.text();
        Self::of_text(sources, &text, 8)
    }

    /// A mutant: all counts, sizes, strides and indices of kernels have 32 bits, as numbers of this type.
    pub(super) fn narrow(sources: Sources, index: &str) -> Option<Self> {
        let wide = "typedef unsigned long long u64;";
        let text = sources.text();
        assert!(text.contains(wide), "the prelude says what a `u64` is");
        Self::of_text(sources, &text.replace(wide, &format!("typedef {index} u64;")), 4)
    }

    fn of_text(sources: Sources, text: &str, word: u32) -> Option<Self> {
        let (code, log) = Compiler::fake()?.compile(text, &[]).unwrap_or_else(|log| panic!("{log}\n{text}"));
        assert_eq!(log, "", "the compiler has nothing to remark");
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = folder().join(format!("kernels-{}-{number}.so", std::process::id()));
        std::fs::write(&path, code).expect("a file of our own");
        // SAFETY: see the head of this file.
        let library = unsafe { Library::new(&path) }.expect("a library that was just built");
        std::fs::remove_file(&path).expect("a file of our own");
        Some(Self { library, sources, word })
    }

    /// From now on threads do not wait at the barrier of this line.
    pub(super) fn leave_out(&self, line: Option<u32>) {
        // SAFETY: see the head of this file.
        unsafe {
            let leave_out: Symbol<'_, unsafe extern "C" fn(u32)> =
                self.library.get(b"emulate_leave_out").expect("the emulator has it");
            leave_out(line.unwrap_or(0));
        }
    }

    /// The function of a launch.
    pub(super) fn name(&self, launch: &Launch) -> &str {
        self.sources.name(launch.function)
    }

    /// From now on only these blocks of a grid run, by their places in it, x before y before z.
    fn only(&self, blocks: Option<&[u64]>) {
        // SAFETY: see the head of this file; whoever calls this takes the blocks back while they are there.
        unsafe {
            let only: Symbol<'_, unsafe extern "C" fn(*const u64, u64)> =
                self.library.get(b"emulate_blocks").expect("the emulator has it");
            match blocks {
                Some(blocks) => only(blocks.as_ptr(), blocks.len() as u64),
                None => only(std::ptr::null(), 0),
            }
        }
    }

    /// Launches some blocks of a kernel, by their places in the grid.
    pub(super) fn launch_some(&self, launch: &Launch, blocks: &[u64], address: &dyn Fn(Address) -> u64) {
        self.only(Some(blocks));
        self.launch(launch, address);
        self.only(None);
    }

    /// Launches a kernel; `address` says where a place, a part of a member, or memory of the device is.
    pub(super) fn launch(&self, launch: &Launch, address: &dyn Fn(Address) -> u64) {
        let name = self.sources.name(launch.function);
        let mut words: Vec<u64> = launch.arguments.iter().map(|argument| word(*argument, address)).collect();
        let sizes = launch.arguments.iter().map(|argument| match argument {
            Argument::U32(_) | Argument::F32(_) => 4_u32,
            _ => 8,
        });
        let mut arguments: Vec<*mut c_void> = words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect();
        // SAFETY: see the head of this file; the sizes end with a 0, before which there are no more
        // than there are arguments.
        unsafe {
            let stated: Symbol<'_, *const u32> =
                self.library.get(format!("emulate_{name}_sizes").as_bytes()).expect(name);
            for (position, size) in sizes.chain([0]).enumerate() {
                let stated = *stated.add(position);
                let is_word = matches!(launch.arguments.get(position), Some(Argument::U64(_))) && stated == self.word;
                assert!(stated == size || is_word, "{name}: parameter {position} has {stated} bytes, not {size}");
            }
            let kernel: Symbol<'_, Kernel> = self.library.get(format!("emulate_{name}").as_bytes()).expect(name);
            kernel(launch.grid.as_ptr(), launch.block.as_ptr(), launch.shared, arguments.as_mut_ptr());
        }
    }
}
