//! Faults: when one device fails, all of them stop, with one message.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first failure of a run, seen by all devices.
#[derive(Debug, Default)]
pub struct Fault {
    raised: AtomicBool,
    message: Mutex<Option<String>>,
}

impl Fault {
    /// Reports a failure; the first one is kept.
    pub fn raise(&self, message: String) {
        let mut first = self.message.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        first.get_or_insert(message);
        self.raised.store(true, Ordering::Release);
    }

    /// Whether any device has failed.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// The first failure.
    #[must_use]
    pub fn message(&self) -> Option<String> {
        self.message.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}
