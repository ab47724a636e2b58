//! Requests: what can be asked of a store, byte by byte.
//!
//! A request is a byte that says what is asked, and then keys, values and numbers. A key or a value stands behind its length, lengths and
//! numbers are of 64 bits, little-endian. Requests are answered in their order, but for one: the end of a wait comes when it comes.

/// The first words of a client.
const GREETING: [u8; 4] = 0x3C85_F7CE_u32.to_le_bytes();

#[derive(Clone, Copy)]
#[repr(u8)]
enum Query {
    Validate = 0,
    Set = 1,
    Get = 3,
    Add = 4,
    Check = 5,
    Wait = 6,
    DeleteKey = 8,
    Append = 9,
    MultiGet = 10,
    CancelWait = 12,
}

/// What answers a wait: that the key is there, or that the wait was given up.
pub(super) const THERE: u8 = 0;
pub(super) const GIVEN_UP: u8 = 1;
/// What answers the question whether a key is there.
pub(super) const READY: u8 = 0;

/// Requests that are still to be written.
#[derive(Default)]
pub(super) struct Requests(pub(super) Vec<u8>);

impl Requests {
    /// The first request of all; no answer.
    pub(super) fn greet(&mut self) {
        self.query(Query::Validate);
        self.0.extend(GREETING);
    }

    /// Sets a key to a value, given in parts; no answer.
    pub(super) fn set(&mut self, key: &str, parts: &[&[u8]]) {
        self.query(Query::Set);
        self.text(key.as_bytes());
        self.number(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
    }

    /// Gives a key that is not there an empty value; no answer. Some stores hang up on who reads a key that is not there.
    pub(super) fn touch(&mut self, key: &str) {
        self.query(Query::Append);
        self.text(key.as_bytes());
        self.text(&[]);
    }

    /// Reads a key that is there; its value.
    pub(super) fn get(&mut self, key: &str) {
        self.query(Query::Get);
        self.text(key.as_bytes());
    }

    /// Reads keys that are there; their values.
    pub(super) fn get_all(&mut self, keys: impl ExactSizeIterator<Item = String>) {
        self.query(Query::MultiGet);
        self.number(keys.len());
        keys.for_each(|key| self.text(key.as_bytes()));
    }

    /// Adds to a key, which begins with 0; the sum.
    pub(super) fn add(&mut self, key: &str, number: i64) {
        self.query(Query::Add);
        self.text(key.as_bytes());
        self.0.extend(number.to_le_bytes());
    }

    /// Asks whether a key is there; a byte.
    pub(super) fn check(&mut self, key: &str) {
        self.query(Query::Check);
        self.number(1);
        self.text(key.as_bytes());
    }

    /// Waits until a key is there; a byte.
    pub(super) fn wait(&mut self, key: &str) {
        self.query(Query::Wait);
        self.number(1);
        self.text(key.as_bytes());
    }

    /// Gives up to wait; a byte.
    pub(super) fn cancel_wait(&mut self) {
        self.query(Query::CancelWait);
    }

    /// Deletes a key; how many that were.
    pub(super) fn delete(&mut self, key: &str) {
        self.query(Query::DeleteKey);
        self.text(key.as_bytes());
    }

    fn query(&mut self, query: Query) {
        self.0.push(query as u8);
    }

    fn number(&mut self, number: usize) {
        self.0.extend((number as u64).to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.number(text.len());
        self.0.extend_from_slice(text);
    }
}
