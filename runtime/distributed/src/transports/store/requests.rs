//! Requests: what can be asked of a store, byte by byte.
//!
//! A request is a byte that says what is asked, and then keys, values and numbers. A key or a value
//! stands behind its length, lengths and numbers are of 64 bits, little-endian. Requests are
//! answered in their order, but for one: the end of a wait comes when it comes.

use super::line::LONGEST;
use std::io::{self, Read};

/// The first words of a client.
const GREETING: [u8; 4] = 0x3C85_F7CE_u32.to_le_bytes();
/// The longest key, and the most keys of one request: more than there are ranks.
const LONGEST_KEY: usize = 8 << 10;
const MOST_KEYS: usize = 1 << 20;

/// What is asked.
mod query {
    pub(super) const VALIDATE: u8 = 0;
    pub(super) const SET: u8 = 1;
    pub(super) const GET: u8 = 3;
    pub(super) const ADD: u8 = 4;
    pub(super) const CHECK: u8 = 5;
    pub(super) const WAIT: u8 = 6;
    pub(super) const DELETE_KEY: u8 = 8;
    pub(super) const APPEND: u8 = 9;
    pub(super) const MULTI_GET: u8 = 10;
    pub(super) const CANCEL_WAIT: u8 = 12;
}

/// What answers a wait: that the key is there, or that the wait was given up.
pub(super) const THERE: u8 = 0;
pub(super) const GIVEN_UP: u8 = 1;
/// What answers the question whether a key is there: that it is, or not.
pub(super) const READY: u8 = 0;
pub(super) const NOT_READY: u8 = 1;

/// Requests that are still to be written.
#[derive(Default)]
pub(super) struct Requests(pub(super) Vec<u8>);

impl Requests {
    /// The first request of all; no answer.
    pub(super) fn greet(&mut self) {
        self.0.push(query::VALIDATE);
        self.0.extend(GREETING);
    }

    /// Sets a key to a value, given in parts; no answer.
    pub(super) fn set(&mut self, key: &str, parts: &[&[u8]]) {
        self.0.push(query::SET);
        self.text(key.as_bytes());
        self.number(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
    }

    /// Gives a key that is not there an empty value; no answer. Some stores hang up on who reads a
    /// key that is not there.
    pub(super) fn touch(&mut self, key: &str) {
        self.0.push(query::APPEND);
        self.text(key.as_bytes());
        self.text(&[]);
    }

    /// Reads a key that is there; its value.
    pub(super) fn get(&mut self, key: &str) {
        self.0.push(query::GET);
        self.text(key.as_bytes());
    }

    /// Reads keys that are there; their values.
    pub(super) fn get_all(&mut self, keys: impl ExactSizeIterator<Item = String>) {
        self.0.push(query::MULTI_GET);
        self.number(keys.len());
        keys.for_each(|key| self.text(key.as_bytes()));
    }

    /// Adds to a key, which begins with 0; the sum.
    pub(super) fn add(&mut self, key: &str, number: i64) {
        self.0.push(query::ADD);
        self.text(key.as_bytes());
        self.0.extend(number.to_le_bytes());
    }

    /// Asks whether a key is there; a byte.
    pub(super) fn check(&mut self, key: &str) {
        self.0.push(query::CHECK);
        self.number(1);
        self.text(key.as_bytes());
    }

    /// Waits until a key is there; a byte.
    pub(super) fn wait(&mut self, key: &str) {
        self.0.push(query::WAIT);
        self.number(1);
        self.text(key.as_bytes());
    }

    /// Gives up to wait; a byte.
    pub(super) fn cancel_wait(&mut self) {
        self.0.push(query::CANCEL_WAIT);
    }

    /// Deletes a key; how many that were.
    pub(super) fn delete(&mut self, key: &str) {
        self.0.push(query::DELETE_KEY);
        self.text(key.as_bytes());
    }

    fn number(&mut self, number: usize) {
        self.0.extend((number as u64).to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.number(text.len());
        self.0.extend_from_slice(text);
    }
}

/// A request, as it is read.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Request {
    Greeting,
    Set { key: Vec<u8>, value: Vec<u8> },
    Get { key: Vec<u8> },
    Add { key: Vec<u8>, number: i64 },
    Check { keys: Vec<Vec<u8>> },
    Wait { keys: Vec<Vec<u8>> },
    Delete { key: Vec<u8> },
    Append { key: Vec<u8>, value: Vec<u8> },
    GetAll { keys: Vec<Vec<u8>> },
    CancelWait,
}

impl Request {
    /// Reads the next one. Fails if the connection ends, or what comes is no request of ours.
    pub(super) fn read(from: &mut impl Read) -> io::Result<Self> {
        let [asked] = bytes(from)?;
        Ok(match asked {
            query::VALIDATE => {
                if bytes(from)? != GREETING {
                    return Err(strange("a greeting of another kind"));
                }
                Self::Greeting
            }
            query::SET => Self::Set { key: key(from)?, value: text(from, LONGEST)? },
            query::GET => Self::Get { key: key(from)? },
            query::ADD => Self::Add { key: key(from)?, number: i64::from_le_bytes(bytes(from)?) },
            query::CHECK => Self::Check { keys: keys(from)? },
            query::WAIT => Self::Wait { keys: keys(from)? },
            query::DELETE_KEY => Self::Delete { key: key(from)? },
            query::APPEND => Self::Append { key: key(from)?, value: text(from, LONGEST)? },
            query::MULTI_GET => Self::GetAll { keys: keys(from)? },
            query::CANCEL_WAIT => Self::CancelWait,
            _ => return Err(strange("what is no request")),
        })
    }
}

fn strange(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn bytes<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn length(from: &mut impl Read, most: usize) -> io::Result<usize> {
    let length = usize::try_from(u64::from_le_bytes(bytes(from)?)).ok();
    length.filter(|length| *length <= most).ok_or_else(|| strange("more than a store takes"))
}

fn text(from: &mut impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut text = vec![0; length(from, most)?];
    from.read_exact(&mut text)?;
    Ok(text)
}

fn key(from: &mut impl Read) -> io::Result<Vec<u8>> {
    text(from, LONGEST_KEY)
}

fn keys(from: &mut impl Read) -> io::Result<Vec<Vec<u8>>> {
    (0..length(from, MOST_KEYS)?).map(|_| key(from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut requests = Requests::default();
        requests.greet();
        requests.set("a", &[b"x", b"yz"]);
        requests.touch("b");
        requests.get("a");
        requests.get_all(["a", "b"].map(str::to_owned).into_iter());
        requests.add("c", -3);
        requests.check("a");
        requests.wait("b");
        requests.cancel_wait();
        requests.delete("a");
        let [a, b, c] = [b"a", b"b", b"c"].map(|key| key.to_vec());
        let expected = [
            Request::Greeting,
            Request::Set { key: a.clone(), value: b"xyz".to_vec() },
            Request::Append { key: b.clone(), value: Vec::new() },
            Request::Get { key: a.clone() },
            Request::GetAll { keys: vec![a.clone(), b.clone()] },
            Request::Add { key: c, number: -3 },
            Request::Check { keys: vec![a.clone()] },
            Request::Wait { keys: vec![b] },
            Request::CancelWait,
            Request::Delete { key: a },
        ];
        let mut from = requests.0.as_slice();
        for request in expected {
            assert_eq!(Request::read(&mut from).expect("a request"), request);
        }
        assert!(from.is_empty());
    }

    #[test]
    fn what_is_none_is_refused() {
        let mut long = vec![query::GET];
        long.extend(u64::MAX.to_le_bytes());
        for wrong in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 1, 2, 3, 4], &long] {
            let error = Request::read(&mut &*wrong).expect_err("no request");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
        assert_eq!(Request::read(&mut &[1, 1][..]).expect_err("cut off").kind(), io::ErrorKind::UnexpectedEof);
    }
}
