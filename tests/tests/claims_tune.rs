//! What `tune` claims of small random clusters is not contradicted by any candidate in any order of the nodes.
//!
//! `PIPEC_CLAIMS=1000 cargo test -p pipe-tests --test house claims_tune:: -- --nocapture` judges so many problems
//! instead of a few, and prints what it counted; `PIPEC_FIRST=20000` begins with that seed.

use pipe_tests::cases::report;
use pipe_tests::claims::tuning::{Counts, analysis_of};
use pipe_tests::slice::takes_all;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Problems, where nobody asks for more, from a seed on: those before it have many orders of nodes.
const USUAL: u64 = 1;
const FIRST: u64 = 2;
/// Seeds of problems that were judged wrong once: a candidate fitted in some orders of its nodes only, and
/// was left out.
const KNOWN: [u64; 1] = [16];

fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|count| count.parse().expect("a number"))
}

#[test]
fn nothing_that_was_left_out_is_better_and_no_order_of_nodes_is_shorter() {
    let (first, n) = (asked("PIPEC_FIRST").unwrap_or(FIRST), asked("PIPEC_CLAIMS").unwrap_or(USUAL));
    let known = if takes_all() || asked("PIPEC_CLAIMS").is_some() { &KNOWN[..] } else { &[] };
    let seeds: Vec<u64> = (first..first + n).chain(known.iter().copied()).collect();
    let (next, counts) = (AtomicU64::new(0), Mutex::new(Counts::default()));
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let one = analysis_of(*seed);
            counts.lock().unwrap_or_else(PoisonError::into_inner).add(one);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    let Counts { problems, candidates, differ, checked, complete, rows, mapped, failures } = &counts;
    println!(
        "{problems} problems of tune, {candidates} candidates in all orders of nodes ({differ} whose bytes depend on that), {checked} compared with check;\n\
         {complete} claims that nothing that was pruned can be faster, {rows} final rows, {mapped} orders of check --map; \
         {} contradicted",
        failures.len()
    );
    report(failures);
    assert!(2 * complete >= *problems && checked >= problems, "too little was compared: {counts:?}");
}
