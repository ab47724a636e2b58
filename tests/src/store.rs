//! A store such as `torchrun` keeps for its processes, in this one. It is strict: what the older of
//! PyTorch's two servers would hang up on, and answers that could be taken for each other, are
//! remembered as mistakes of the client.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What PyTorch's server takes at most.
const LONGEST_KEY: u64 = 8 << 10;
const LONGEST_VALUE: u64 = 8 << 20;

/// A server on a port of its own.
pub struct Store {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    /// Whether it takes requests, and answers none.
    is_mute: AtomicBool,
    has_ended: AtomicBool,
}

#[derive(Default)]
struct Table {
    values: BTreeMap<String, Vec<u8>>,
    /// By key: the connections that wait for it.
    waiting: BTreeMap<String, BTreeSet<usize>>,
    connections: Vec<TcpStream>,
    mistakes: Vec<String>,
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Starts one.
    ///
    /// # Panics
    /// If this machine has no port for it.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if own.has_ended.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&own);
                thread::spawn(move || serve(&shared, stream));
            }
        });
        Self { port, shared }
    }

    /// Its port, on this host.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What clients did wrong.
    #[must_use]
    pub fn mistakes(&self) -> Vec<String> {
        self.shared.table().mistakes.clone()
    }

    /// The keys that it holds.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.shared.table().values.keys().cloned().collect()
    }

    /// Adds to a counter, as a client that dies before it does anything else.
    pub fn add(&self, key: &str) {
        add(&mut self.shared.table(), key, 1);
    }

    /// Goes on, but says nothing any more, as one that was stopped.
    pub fn fall_silent(&self) {
        self.shared.is_mute.store(true, Ordering::SeqCst);
    }

    /// Ends, as a process that was killed.
    pub fn end(&self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        let table = self.shared.table();
        table.connections.iter().for_each(|connection| drop(connection.shutdown(Shutdown::Both)));
        // Lets the listener see it.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.end();
    }
}

fn serve(shared: &Shared, stream: TcpStream) {
    let number = {
        let mut table = shared.table();
        table.connections.push(stream.try_clone().expect("it is open"));
        table.connections.len() - 1
    };
    drop(stream.set_nodelay(true));
    let mut client = Client { shared, number, reader: BufReader::new(stream), is_greeted: false };
    let ended = loop {
        if let Err(error) = client.answer() {
            break error;
        }
    };
    let mut table = shared.table();
    if ended.kind() == io::ErrorKind::InvalidData {
        table.mistakes.push(ended.to_string());
    }
    for waiting in table.waiting.values_mut() {
        waiting.remove(&number);
    }
    drop(table.connections[number].shutdown(Shutdown::Both));
}

fn mistake(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn add(table: &mut Table, key: &str, number: i64) -> Option<i64> {
    let before = table.values.get(key).map_or(Some(0), |value| std::str::from_utf8(value).ok()?.parse().ok());
    let sum = before? + number;
    table.values.insert(key.to_owned(), sum.to_string().into_bytes());
    wake(table, key);
    Some(sum)
}

/// Ends all waits for a key.
fn wake(table: &mut Table, key: &str) {
    for number in table.waiting.remove(key).unwrap_or_default() {
        // Who has gone does not wait any more.
        drop((&table.connections[number]).write_all(&[0]));
    }
}

struct Client<'a> {
    shared: &'a Shared,
    number: usize,
    reader: BufReader<TcpStream>,
    is_greeted: bool,
}

impl Client<'_> {
    fn answer(&mut self) -> io::Result<()> {
        let mut query = [0];
        self.reader.read_exact(&mut query)?;
        if !self.is_greeted {
            let mut magic = [0; 4];
            self.reader.read_exact(&mut magic)?;
            self.is_greeted = query == [0] && magic == [0xCE, 0xF7, 0x85, 0x3C];
            return if self.is_greeted { Ok(()) } else { Err(mistake("it does not greet")) };
        }
        let waits = self.shared.table().waiting.values().any(|waiting| waiting.contains(&self.number));
        let is_answered = ![1, 9].contains(&query[0]);
        if waits && is_answered && query != [12] {
            return Err(mistake("a question while it waits: nobody can tell the answers apart"));
        }
        let answer = self.respond(query[0])?;
        if !self.shared.is_mute.load(Ordering::SeqCst) {
            self.reader.get_mut().write_all(&answer)?;
        }
        Ok(())
    }

    fn respond(&mut self, query: u8) -> io::Result<Vec<u8>> {
        match query {
            1 => {
                let (key, value) = (self.key()?, self.value()?);
                let mut table = self.shared.table();
                table.values.insert(key.clone(), value);
                wake(&mut table, &key);
                Ok(Vec::new())
            }
            3 => {
                let key = self.key()?;
                self.read(&key)
            }
            4 => {
                let (key, number) = (self.key()?, self.number()?.cast_signed());
                let sum = add(&mut self.shared.table(), &key, number);
                Ok(sum.ok_or_else(|| mistake("it adds to what is no number"))?.to_le_bytes().to_vec())
            }
            5 => {
                let keys = self.keys()?;
                let table = self.shared.table();
                Ok(vec![u8::from(!keys.iter().all(|key| table.values.contains_key(key)))])
            }
            6 => {
                let keys = self.keys()?;
                let [key] = keys.as_slice() else { return Err(mistake("it waits for several keys")) };
                let mut table = self.shared.table();
                if table.values.contains_key(key) {
                    return Ok(vec![0]);
                }
                table.waiting.entry(key.clone()).or_default().insert(self.number);
                Ok(Vec::new())
            }
            8 => {
                let key = self.key()?;
                let n_deleted = i64::from(self.shared.table().values.remove(&key).is_some());
                Ok(n_deleted.to_le_bytes().to_vec())
            }
            9 => {
                let (key, value) = (self.key()?, self.value()?);
                let mut table = self.shared.table();
                table.values.entry(key.clone()).or_default().extend(value);
                wake(&mut table, &key);
                Ok(Vec::new())
            }
            10 => {
                let keys = self.keys()?;
                Ok(keys.iter().map(|key| self.read(key)).collect::<io::Result<Vec<_>>>()?.concat())
            }
            12 => {
                let mut table = self.shared.table();
                for waiting in table.waiting.values_mut() {
                    waiting.remove(&self.number);
                }
                Ok(vec![1])
            }
            other => Err(mistake(&format!("there is no request {other}"))),
        }
    }

    /// A value, behind its length.
    fn read(&self, key: &str) -> io::Result<Vec<u8>> {
        let table = self.shared.table();
        let value = table.values.get(key).ok_or_else(|| mistake(&format!("it reads `{key}`, which is not there")))?;
        Ok([&(value.len() as u64).to_le_bytes()[..], value].concat())
    }

    fn number(&mut self) -> io::Result<u64> {
        let mut number = [0; 8];
        self.reader.read_exact(&mut number)?;
        Ok(u64::from_le_bytes(number))
    }

    fn bytes(&mut self, most: u64) -> io::Result<Vec<u8>> {
        let length = self.number()?;
        if length > most {
            return Err(mistake(&format!("{length} bytes, which is too long")));
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn key(&mut self) -> io::Result<String> {
        String::from_utf8(self.bytes(LONGEST_KEY)?).map_err(|_| mistake("a key that is no text"))
    }

    fn value(&mut self) -> io::Result<Vec<u8>> {
        self.bytes(LONGEST_VALUE)
    }

    fn keys(&mut self) -> io::Result<Vec<String>> {
        let n_keys = self.number()?;
        (0..n_keys).map(|_| self.key()).collect()
    }
}
