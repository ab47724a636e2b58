//! The library, loaded when it is first asked for, and the few of its calls that are used.
//!
//! Safety. The signatures are those of `nccl.h`, the same since version 2.7. The library stays
//! loaded until the process ends. A communicator is a handle that the library made, used by one
//! thread at a time, and destroyed or aborted once. Areas that are sent and received lie in memory
//! of the GPU that lives until the machine has waited for its streams, or until the process ends.

use super::super::driver::{Area, Stream};
use super::super::found::find;
use libloading::Library as Loaded;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::sync::OnceLock;

/// A name for a communicator, by which its members find each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Id(pub(crate) [u8; Id::BYTES]);

impl Id {
    /// Its size.
    pub(crate) const BYTES: usize = 128;
}

type Handle = *mut c_void;
type Answer = c_int;

const SUCCESS: Answer = 0;
/// A call that goes on; of communicators that block there is none.
const IN_PROGRESS: Answer = 7;
/// `ncclInt8`: what is moved is bytes.
const BYTE: c_int = 0;

/// How a communicator works: `ncclConfig_t` as of version 2.17, which later ones take as it is.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster_size: c_int,
    least_blocks: c_int,
    most_blocks: c_int,
    network: *const c_char,
}

impl Config {
    /// The version whose fields these are.
    const VERSION: c_int = 21_700;
    /// What is left to the library.
    const OPEN: c_int = c_int::MIN;

    fn new(most_blocks: u32) -> Self {
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: Self::VERSION.unsigned_abs(),
            blocking: Self::OPEN,
            cluster_size: Self::OPEN,
            least_blocks: Self::OPEN,
            most_blocks: c_int::try_from(most_blocks).unwrap_or(Self::OPEN),
            network: std::ptr::null(),
        }
    }
}

/// What the library answered to a call that it refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NcclError {
    call: &'static str,
    words: String,
}

impl fmt::Display for NcclError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.words)
    }
}

/// Its calls.
pub(crate) struct Library {
    get_version: unsafe extern "C" fn(*mut c_int) -> Answer,
    get_unique_id: unsafe extern "C" fn(*mut Id) -> Answer,
    comm_init_rank: unsafe extern "C" fn(*mut Handle, c_int, Id, c_int) -> Answer,
    /// Since version 2.14.
    comm_init_rank_config: Option<unsafe extern "C" fn(*mut Handle, c_int, Id, c_int, *mut Config) -> Answer>,
    comm_abort: unsafe extern "C" fn(Handle) -> Answer,
    comm_destroy: unsafe extern "C" fn(Handle) -> Answer,
    comm_get_async_error: unsafe extern "C" fn(Handle, *mut Answer) -> Answer,
    get_error_string: unsafe extern "C" fn(Answer) -> *const c_char,
    group_start: unsafe extern "C" fn() -> Answer,
    group_end: unsafe extern "C" fn() -> Answer,
    send: unsafe extern "C" fn(u64, usize, c_int, c_int, Handle, *mut c_void) -> Answer,
    receive: unsafe extern "C" fn(u64, usize, c_int, c_int, Handle, *mut c_void) -> Answer,
    _loaded: Loaded,
}

/// One rank's part of a communicator.
pub(crate) struct Communicator {
    library: &'static Library,
    handle: Handle,
}

// SAFETY: the library lets any thread use it, one at a time; here it is the one that owns it.
unsafe impl Send for Communicator {}

/// Bytes that go to another member of a communicator, or come from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    /// Its place among the members.
    pub(crate) peer: usize,
    /// What is read, or written.
    pub(crate) area: Area,
    /// Whether they go.
    pub(crate) sends: bool,
}

impl Library {
    /// The library, once for the process. An error says in one line why there is none.
    pub(crate) fn open() -> Result<&'static Self, String> {
        static OPENED: OnceLock<Result<Library, String>> = OnceLock::new();
        OPENED.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, String> {
        let names = ["libnccl.so.2", "libnccl.so"];
        // SAFETY: loading it runs what it does when it is loaded, as for every program that uses it.
        let loaded = find("libnccl.so.", || names.iter().find_map(|name| unsafe { Loaded::new(*name) }.ok()));
        let loaded = loaded.ok_or(
            "no NCCL here (libnccl.so.2 was not found), through which GPUs of several processes exchange bytes: \
             the PyPI wheel nvidia-nccl-cu12 has it, and LD_LIBRARY_PATH says where it is",
        )?;
        macro_rules! call {
            ($name:literal) => {
                // SAFETY: the type of the field is that of the function (head of this file), which
                // stays as long as the library does.
                *unsafe { loaded.get($name) }
                    .map_err(|_| "the NCCL here is too old: it has no sends and receives (2.7 has)".to_owned())?
            };
        }
        Ok(Self {
            get_version: call!(b"ncclGetVersion"),
            get_unique_id: call!(b"ncclGetUniqueId"),
            comm_init_rank: call!(b"ncclCommInitRank"),
            // SAFETY: the type of the field is that of the function, as above.
            comm_init_rank_config: unsafe { loaded.get(b"ncclCommInitRankConfig") }.ok().map(|found| *found),
            comm_abort: call!(b"ncclCommAbort"),
            comm_destroy: call!(b"ncclCommDestroy"),
            comm_get_async_error: call!(b"ncclCommGetAsyncError"),
            get_error_string: call!(b"ncclGetErrorString"),
            group_start: call!(b"ncclGroupStart"),
            group_end: call!(b"ncclGroupEnd"),
            send: call!(b"ncclSend"),
            receive: call!(b"ncclRecv"),
            _loaded: loaded,
        })
    }

    fn check(&self, call: &'static str, answer: Answer) -> Result<(), NcclError> {
        if answer == SUCCESS {
            return Ok(());
        }
        // SAFETY: gives a text of the library that ends with a zero and stays.
        let text = unsafe { CStr::from_ptr((self.get_error_string)(answer)) };
        Err(NcclError { call, words: text.to_string_lossy().into_owned() })
    }

    /// A name for a new communicator. Whoever makes it has to live until all members have joined.
    pub(crate) fn new_id(&self) -> Result<Id, NcclError> {
        let mut id = Id([0; Id::BYTES]);
        // SAFETY: writes one id.
        self.check("ncclGetUniqueId", unsafe { (self.get_unique_id)(&raw mut id) })?;
        Ok(id)
    }

    /// Joins a communicator with so many members as this one of them, with the GPU that is current.
    /// Waits for the others. An exchange has so many blocks at most, which all members name alike;
    /// a library before version 2.17 cannot be told.
    pub(crate) fn join(
        &'static self,
        id: Id,
        (members, own): (usize, usize),
        most_blocks: u32,
    ) -> Result<Communicator, NcclError> {
        let (mut handle, mut config) = (std::ptr::null_mut(), Config::new(most_blocks));
        let (members, own) = (number(members), number(own));
        let with_config = self.comm_init_rank_config.filter(|_| self.version().is_ok_and(|own| own >= Config::VERSION));
        let (call, answer) = match with_config {
            // SAFETY: writes one handle, and reads the config before it returns.
            Some(join) => {
                ("ncclCommInitRankConfig", unsafe { join(&raw mut handle, members, id, own, &raw mut config) })
            }
            // SAFETY: writes one handle.
            None => ("ncclCommInitRank", unsafe { (self.comm_init_rank)(&raw mut handle, members, id, own) }),
        };
        self.check(call, answer)?;
        Ok(Communicator { library: self, handle })
    }

    /// 22703 is version 2.27.3.
    fn version(&self) -> Result<c_int, NcclError> {
        let mut version = 0;
        // SAFETY: writes one number.
        self.check("ncclGetVersion", unsafe { (self.get_version)(&raw mut version) })?;
        Ok(version)
    }
}

/// Major, minor and patch version of the library. An error says in one line why there is none.
pub(crate) fn version() -> Result<String, String> {
    let version = Library::open()?.version().map_err(|error| error.to_string())?;
    Ok(format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100))
}

impl Communicator {
    /// Queues moves on a stream, all at once: none waits for another. Every member asks for its ends in one order.
    pub(crate) fn exchange(&self, moves: &[Move], stream: &Stream) -> Result<(), NcclError> {
        let library = self.library;
        // SAFETY: takes nothing.
        library.check("ncclGroupStart", unsafe { (library.group_start)() })?;
        let asked = moves.iter().try_for_each(|one| {
            let (call, name) = if one.sends { (library.send, "ncclSend") } else { (library.receive, "ncclRecv") };
            let (address, bytes, peer) = (one.area.address, one.area.bytes, number(one.peer));
            // SAFETY: the area lies in memory that lives longer (head of this file), and so does the stream.
            library.check(name, unsafe { call(address, bytes, BYTE, peer, self.handle, stream.raw()) })
        });
        // SAFETY: ends what was begun.
        let ended = library.check("ncclGroupEnd", unsafe { (library.group_end)() });
        asked.and(ended)
    }

    /// What went wrong since it was joined, on other ranks or between them.
    pub(crate) fn health(&self) -> Result<(), NcclError> {
        let mut error = SUCCESS;
        // SAFETY: writes one number.
        let answer = unsafe { (self.library.comm_get_async_error)(self.handle, &raw mut error) };
        self.library.check("ncclCommGetAsyncError", answer)?;
        if error == IN_PROGRESS { Ok(()) } else { self.library.check("an exchange", error) }
    }

    /// Leaves it, when nothing is under way.
    pub(crate) fn close(self) {
        // SAFETY: made once, and destroyed once.
        let _ = unsafe { (self.library.comm_destroy)(self.handle) };
    }

    /// Leaves it where others may be lost: what is under way ends. Waits for all that the GPU does,
    /// exchanges of other communicators too.
    pub(crate) fn abort(self) {
        // SAFETY: made once, and aborted once.
        let _ = unsafe { (self.library.comm_abort)(self.handle) };
    }
}

fn number(count: usize) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}
