//! `pipec search` in the page: one thread, the clock of the browser, and a time after which it ends.

use crate::answer::{Question, request};
use crate::configs::loader;
use crate::page::{improved, now};
use pipe_compiler::report::Report;
use pipe_schedule::dispatch::Objective;
use pipe_search::driver::alternatives::{Moves, SearchTarget};
use pipe_search::driver::find::find;
use pipe_search::{Options, Problem, Progress, Workers};
use pipe_syntax::source::Sources;
use serde::Serialize;
use std::collections::BTreeMap;

/// As `pipec search` has them.
const SEED: u64 = 1;
const ROUNDS: u32 = 8;

/// What was found, or what speaks against the target.
#[derive(Serialize)]
struct Answer {
    /// Of what was found; of the target if that cannot be searched.
    report: Option<Report>,
    /// The schedule; none if there was no time to find any, or the target cannot be searched.
    source: Option<String>,
    /// Whether nothing shorter exists.
    proved: bool,
    mistakes: BTreeMap<&'static str, String>,
}

/// Searches the target of a question for so many seconds; tells the page of every improvement.
pub(crate) fn search(question: &str) -> String {
    let told = match serde_json::from_str(question) {
        Ok(question) => serde_json::to_string(&found(question)),
        Err(error) => return serde_json::json!({ "refused": error.to_string() }).to_string(),
    };
    told.expect("reports are plain data")
}

fn found(question: Question) -> Answer {
    let mut mistakes = BTreeMap::new();
    let request = request(&question, &mut mistakes);
    let nothing = |report, mistakes| Answer { report, source: None, proved: false, mistakes };
    if !mistakes.is_empty() {
        return nothing(None, mistakes);
    }
    let alone = Alone { end: now() + question.seconds };
    let root = question.root();
    let objective = Objective::Makespan;
    let target = SearchTarget { root: &root, loader: &loader, request: &request, objective, may: Moves::default() };
    let mut prepared = match target.prepare(&mut Sources::default()) {
        Ok(prepared) => prepared,
        Err(compilation) => return nothing(Some(compilation.report), mistakes),
    };
    let options = Options { objective, seed: SEED, rounds: ROUNDS };
    let told = &mut |problem: &Problem, found: &Progress| {
        let (length, bound) = (problem.ticks(found.length), problem.ticks(problem.bound(found)));
        improved(format!("{} {length}, at least {bound}", problem.words()));
    };
    match find(&target, &mut prepared, options, &alone, told) {
        None => nothing(None, mistakes),
        Some(result) => {
            let proved = prepared.is_proved(&result.found, &result.compilation);
            Answer { report: Some(result.compilation.report), source: Some(result.source), proved, mistakes }
        }
    }
}

/// One thread, until a moment.
struct Alone {
    end: f64,
}

impl Workers for Alone {
    fn go_on(&self) -> bool {
        now() < self.end
    }

    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..n).for_each(work);
    }
}

#[cfg(test)]
mod tests {
    use super::search;
    use serde_json::{Value, json};

    fn ask(question: Value) -> Value {
        serde_json::from_str(&search(&question.to_string())).expect("JSON")
    }

    #[test]
    fn what_is_found_is_a_source_with_its_proof() {
        let source = pipe_syntax::stdlib::schedule("1f1b").expect("a standard schedule");
        let settings = json!({ "devices": 2, "microbatches": 4 });
        let told = ask(json!({ "source": source, "settings": settings, "memory": "1", "seconds": 20.0 }));
        assert_eq!((&told["report"]["ok"], &told["proved"]), (&true.into(), &true.into()), "{told}");
        assert!(told["source"].as_str().is_some_and(|source| source.contains("Found by")), "{told}");
        let told = ask(json!({ "source": source, "memory": "much" }));
        assert!(told["mistakes"]["memory"].is_string() && told["source"].is_null(), "{told}");
        let told = ask(json!({ "source": "schedule x {" }));
        assert_eq!((&told["report"]["ok"], &told["source"]), (&false.into(), &Value::Null));
    }
}
