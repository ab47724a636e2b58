//! Who does the work of a search in tests: without a clock, so that every run is the same.

use pipe_search::Workers;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads that end each piece of work after so many questions whether to go on, whatever else goes
/// on; after none, there is no time at all.
#[derive(Clone, Copy, Debug)]
pub struct Team {
    threads: usize,
    patience: usize,
}

/// So many threads, with so much patience for each piece of work.
#[must_use]
pub const fn team(threads: usize, patience: usize) -> Team {
    Team { threads, patience }
}

thread_local! {
    /// Questions that the piece of work of this thread may still ask.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Workers for Team {
    fn go_on(&self) -> bool {
        let left = LEFT.get();
        LEFT.set(left.map(|left| left.saturating_sub(1)));
        left.unwrap_or(self.patience) > 0
    }

    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let run = || {
            let index = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < n);
            for index in std::iter::from_fn(index) {
                LEFT.set(Some(self.patience));
                work(index);
                LEFT.set(None);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(n) {
                scope.spawn(run);
            }
            run();
        });
    }
}
