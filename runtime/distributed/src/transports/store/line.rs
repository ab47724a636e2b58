//! Lines: connections to a store on which a question waits for its answer.

use super::requests::Requests;
use super::{Address, Keeper};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

/// How long one host may take to answer for the first time.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// Between two tries to reach a store.
const PAUSE: Duration = Duration::from_millis(100);
/// How often one who waits looks up.
pub(super) const TICK: Duration = Duration::from_millis(200);
/// The longest value: stores refuse those of more than 8 MiB.
pub(super) const LONGEST: usize = 8 << 20;
/// Nobody starts a job as often.
const MOST_ROUNDS: i64 = 1 << 32;

/// One connection.
pub(super) struct Line {
    reader: BufReader<TcpStream>,
    /// What is asked next.
    pub(super) requests: Requests,
}

impl Line {
    /// Connects by a name of the store's host, and looks whether a store answers, which may come so late. Of a name
    /// with several addresses the first one with a store is taken. An error says in one line what is there instead.
    pub(super) fn open(address: &Address, host: &str, late: Duration, until: Instant) -> Result<Self, String> {
        let began = Instant::now();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let addresses = || (host, address.port).to_socket_addrs();
        let mut addresses: Vec<SocketAddr> = addresses()
            .map_err(|error| format!("{address} (MASTER_ADDR) cannot be used: the host {host} is not found: {error}"))?
            .collect();
        addresses.dedup();
        loop {
            let mut errors = Vec::new();
            for one in &addresses {
                match Self::try_open(one) {
                    Ok(line) => return Ok(line),
                    Err(error) => errors.push((*one, error)),
                }
            }
            if began.elapsed() > late || Instant::now() > until {
                return Err(unreached(address, &errors, began.elapsed()));
            }
            thread::sleep(PAUSE);
        }
    }

    fn try_open(address: &SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(address, FIRST_ANSWER)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TICK))?;
        let mut line = Self { reader: BufReader::with_capacity(64 << 10, stream), requests: Requests::default() };
        line.requests.greet();
        // A store has counted few; what anything else answers is no such number.
        line.requests.add("pipec/greetings", 0);
        line.ask()?;
        let strange = || io::Error::new(ErrorKind::InvalidData, "what answers there is not a PyTorch store");
        let mut number = [0; 8];
        match line.fill(&mut number, Some(FIRST_ANSWER)) {
            Ok(true) if (0..MOST_ROUNDS).contains(&i64::from_le_bytes(number)) => Ok(line),
            Ok(true) => Err(strange()),
            Ok(false) => Err(io::Error::other(format!("nothing answers there within {}s", FIRST_ANSWER.as_secs()))),
            Err(error) if [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset].contains(&error.kind()) => {
                Err(strange())
            }
            Err(error) => Err(error),
        }
    }

    /// Writes all requests.
    pub(super) fn ask(&mut self) -> io::Result<()> {
        self.reader.get_mut().write_all(&self.requests.0)?;
        self.requests.0.clear();
        Ok(())
    }

    /// A byte.
    pub(super) fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.fill(&mut byte, None)?;
        Ok(byte[0])
    }

    /// A byte, if it comes before the next tick.
    pub(super) fn byte_soon(&mut self) -> io::Result<Option<u8>> {
        let mut byte = [0];
        Ok(self.fill(&mut byte, Some(Duration::ZERO))?.then_some(byte[0]))
    }

    /// A number.
    pub(super) fn number(&mut self) -> io::Result<i64> {
        let mut number = [0; 8];
        self.fill(&mut number, None)?;
        Ok(i64::from_le_bytes(number))
    }

    /// A value.
    pub(super) fn value(&mut self) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.number()?).ok().filter(|length| *length <= LONGEST);
        let length = length.ok_or_else(|| io::Error::other("it answers with a value that is too long"))?;
        let mut value = vec![0; length];
        self.fill(&mut value, None)?;
        Ok(value)
    }

    /// The bare connection, when everything was answered.
    pub(super) fn into_stream(self) -> TcpStream {
        self.reader.into_inner()
    }

    /// Another handle of the connection.
    pub(super) fn handle(&self) -> io::Result<TcpStream> {
        self.reader.get_ref().try_clone()
    }

    /// Fills all of this, unless nothing of it comes for so long.
    fn fill(&mut self, bytes: &mut [u8], most: Option<Duration>) -> io::Result<bool> {
        let began = Instant::now();
        let mut filled = 0;
        while filled < bytes.len() {
            match self.reader.read(&mut bytes[filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => filled += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                    if filled == 0 && most.is_some_and(|most| began.elapsed() >= most) {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Says that no store was reached at any of its host's addresses for so long.
fn unreached(address: &Address, errors: &[(SocketAddr, io::Error)], waited: Duration) -> String {
    let is_strange = errors.iter().any(|(_, error)| error.kind() == ErrorKind::InvalidData);
    let why = |(one, error): &(SocketAddr, io::Error)| {
        if errors.len() > 1 { format!("{one}: {error}") } else { error.to_string() }
    };
    let why = errors.iter().map(why).collect::<Vec<_>>().join("; ");
    if address.keeper == Keeper::FirstRank && !is_strange {
        let (place, seconds) = (address.place(), waited.as_secs_f64());
        return format!(
            "rank 0 does not answer at {place} within {seconds:.0}s ({why}): it keeps the store by which the others find each other, and may have ended or not started"
        );
    }
    format!("{address} (MASTER_ADDR and MASTER_PORT) cannot be used: {why}")
}
