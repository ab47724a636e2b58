//! The board: the last picture, what speaks against the files as they are now, and a number that
//! grows with every change.

use super::compile::Compiled;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the page shows.
pub(crate) struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    number: u64,
    is_accepted: bool,
    findings: String,
    /// The last picture that there was, and the number of its change.
    picture: (u64, Option<String>),
}

impl Default for Board {
    /// Nothing yet. Numbers begin elsewhere in every process, so that a page that has seen another one notices.
    fn default() -> Self {
        let state = State { number: u64::from(std::process::id()) << 20, ..State::default() };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows what a compilation came to. One without a picture leaves the last one where it is.
    pub(crate) fn post(&self, compiled: Compiled) {
        let (findings, picture) = (compiled.findings(), compiled.picture());
        let mut state = self.state();
        state.number += 1;
        state.is_accepted = compiled.compilation.report.ok;
        state.findings = findings;
        if picture.is_some() {
            state.picture = (state.number, picture);
        }
        self.changed.notify_all();
    }

    /// Says that files cannot be read.
    pub(crate) fn complain(&self, message: &str) {
        let mut state = self.state();
        state.number += 1;
        state.is_accepted = false;
        state.findings = format!("{message}\n");
        self.changed.notify_all();
    }

    /// What has changed for someone who has seen the change with this number; waits some time for a new one.
    pub(crate) fn since(&self, seen: u64, wait: Duration) -> String {
        let is_old = |state: &mut State| state.number == seen;
        let waited = self.changed.wait_timeout_while(self.state(), wait, is_old);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        // Who has seen a higher number has seen another process.
        let is_new = state.picture.0 > seen || seen > state.number;
        let picture = state.picture.1.as_deref().filter(|_| is_new).unwrap_or("null");
        let findings = serde_json::Value::from(state.findings.as_str());
        format!(r#"{{"number":{},"ok":{},"findings":{findings},"picture":{picture}}}"#, state.number, state.is_accepted)
    }
}
