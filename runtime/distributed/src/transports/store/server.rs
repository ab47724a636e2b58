//! The server of a store, which the first rank keeps for all where no launcher keeps one. It
//! answers as PyTorch's does, as far as ranks ask.
//!
//! Each connection has a thread that reads a request, does it, and writes the answer, so the
//! answers are in the order of the requests. Only the end of a wait is written by whoever fills the
//! key.

use super::requests::{GIVEN_UP, NOT_READY, READY, Request, THERE};
use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Of a thread that serves a connection, in bytes.
const STACK: usize = 256 << 10;
/// Between two looks whether others have gone.
const LOOK: Duration = Duration::from_millis(2);

/// A server at a port of this host, on all its networks. It ends when this is dropped.
pub(super) struct Server {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    has_ended: AtomicBool,
}

#[derive(Default)]
struct Table {
    values: BTreeMap<Vec<u8>, Arc<Vec<u8>>>,
    /// By key: the connections that wait for it.
    waiting: BTreeMap<Vec<u8>, Vec<u64>>,
    /// Those that are open, by their numbers, and the next number.
    open: BTreeMap<u64, TcpStream>,
    next: u64,
}

impl Server {
    /// Starts one. Fails if the port is taken.
    pub(super) fn open(port: u16) -> io::Result<Self> {
        // Hosts without IPv6 have only the other one.
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let accept = move || {
            for stream in listener.incoming() {
                if own.has_ended.load(Ordering::SeqCst) {
                    return;
                }
                // Who hangs up at once, and a machine without a thread or a file left: that rank
                // finds no store, and says so.
                drop(stream.and_then(|stream| begin(&own, stream)));
            }
        };
        thread::Builder::new().name("store".to_owned()).spawn(accept)?;
        Ok(Self { port, shared })
    }

    /// Waits until at most so many connections are open, but no longer than this.
    pub(super) fn wait_for_leave(&self, n_left: usize, most: Duration) {
        let began = Instant::now();
        while self.shared.table().open.len() > n_left && began.elapsed() < most {
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        self.shared.table().open.values().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        // The listener looks up.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread of a connection.
fn begin(shared: &Arc<Shared>, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let number = {
        let mut table = shared.table();
        table.next += 1;
        let number = table.next;
        table.open.insert(number, stream.try_clone()?);
        number
    };
    let own = Arc::clone(shared);
    let serve = move || {
        let mut reader = BufReader::with_capacity(64 << 10, stream);
        // It ends when its rank does.
        while let Ok(answer) = Request::read(&mut reader).and_then(|request| own.table().answer(request, number)) {
            if answer.write_to(reader.get_mut()).is_err() {
                break;
            }
        }
        own.table().leave(number);
    };
    let started = thread::Builder::new().name("store".to_owned()).stack_size(STACK).spawn(serve);
    started.map(drop).inspect_err(|_| shared.table().leave(number))
}

/// What is answered.
enum Answer {
    Nothing,
    Byte(u8),
    Number(i64),
    Values(Vec<Arc<Vec<u8>>>),
}

impl Answer {
    fn write_to(&self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Byte(byte) => to.write_all(&[*byte]),
            Self::Number(number) => to.write_all(&number.to_le_bytes()),
            Self::Values(values) => {
                let mut bytes = Vec::with_capacity(values.iter().map(|value| 8 + value.len()).sum());
                for value in values {
                    bytes.extend((value.len() as u64).to_le_bytes());
                    bytes.extend_from_slice(value);
                }
                to.write_all(&bytes)
            }
        }
    }
}

impl Table {
    /// Does what a connection asks. Fails if it reads what is not there, or adds to what is no number: no rank of ours
    /// does, and who does is hung up on.
    fn answer(&mut self, request: Request, number: u64) -> io::Result<Answer> {
        Ok(match request {
            Request::Greeting => Answer::Nothing,
            Request::Set { key, value } => {
                self.put(key, value);
                Answer::Nothing
            }
            Request::Append { key, value } => {
                let before = self.values.get(&key).map(|value| value.as_slice()).unwrap_or_default();
                let value = [before, &value].concat();
                self.put(key, value);
                Answer::Nothing
            }
            Request::Add { key, number } => {
                let sum = self.number(&key)?.wrapping_add(number);
                self.put(key, sum.to_string().into_bytes());
                Answer::Number(sum)
            }
            Request::Get { key } => Answer::Values(vec![self.value(&key)?]),
            Request::GetAll { keys } => {
                Answer::Values(keys.iter().map(|key| self.value(key)).collect::<io::Result<_>>()?)
            }
            Request::Check { keys } => Answer::Byte(if self.has_all(&keys) { READY } else { NOT_READY }),
            Request::Wait { keys } if self.has_all(&keys) => Answer::Byte(THERE),
            Request::Wait { keys } => {
                let [key] =
                    <[Vec<u8>; 1]>::try_from(keys).map_err(|_| io::Error::other("it waits for several keys"))?;
                self.waiting.entry(key).or_default().push(number);
                Answer::Nothing
            }
            Request::CancelWait => {
                self.forget(number);
                Answer::Byte(GIVEN_UP)
            }
            Request::Delete { key } => Answer::Number(i64::from(self.values.remove(&key).is_some())),
        })
    }

    fn has_all(&self, keys: &[Vec<u8>]) -> bool {
        keys.iter().all(|key| self.values.contains_key(key))
    }

    fn value(&self, key: &[u8]) -> io::Result<Arc<Vec<u8>>> {
        self.values.get(key).cloned().ok_or_else(|| io::Error::other("it reads what is not there"))
    }

    /// A counter, which stands as a text, as others read it.
    fn number(&self, key: &[u8]) -> io::Result<i64> {
        let Some(value) = self.values.get(key) else { return Ok(0) };
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        number.ok_or_else(|| io::Error::other("it adds to what is no number"))
    }

    /// Fills a key, and ends all waits for it.
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        for number in self.waiting.remove(&key).unwrap_or_default() {
            if let Some(stream) = self.open.get_mut(&number) {
                // Who has gone does not wait any more.
                drop(stream.write_all(&[THERE]));
            }
        }
        self.values.insert(key, Arc::new(value));
    }

    /// A connection waits for nothing any more.
    fn forget(&mut self, number: u64) {
        self.waiting.retain(|_, waiting| {
            waiting.retain(|other| *other != number);
            !waiting.is_empty()
        });
    }

    /// A connection has ended.
    fn leave(&mut self, number: u64) {
        self.forget(number);
        self.open.remove(&number);
    }
}
