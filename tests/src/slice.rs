//! Long tests take a slice of their cases; with `PIPEC_ALL=1`, as in `.ci/full`, they take all of them.

/// Whether every case is asked for.
#[must_use]
pub fn takes_all() -> bool {
    std::env::var("PIPEC_ALL").is_ok_and(|all| all != "0")
}

/// One case in `one_in`, beginning with the first.
pub fn slice<T>(one_in: usize, cases: impl IntoIterator<Item = T>) -> Vec<T> {
    cases.into_iter().step_by(if takes_all() { 1 } else { one_in }).collect()
}

/// How many random cases to draw: `few`, or `all`.
#[must_use]
pub fn drawn(few: usize, all: usize) -> usize {
    if takes_all() { all } else { few }
}
