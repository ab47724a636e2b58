//! The compiler behind the playground: a request as JSON in, an answer as JSON out, through two
//! texts in its own memory.
//!
//! The page writes UTF-8 where [`input`] says, calls [`compile`], [`svg`], [`assist()`], [`search()`] or
//! [`gallery`], and reads as many bytes as that answers where [`output`] says. After a panic, [`complaint`]
//! has what to report; the page then starts anew.

mod answer;
mod assist;
mod configs;
mod examples;
mod page;
mod search;

use pipe_syntax::stdlib;
use serde_json::json;
use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static OUTPUT: RefCell<String> = const { RefCell::new(String::new()) };
    static COMPLAINT: RefCell<String> = const { RefCell::new(String::new()) };
}

static HOOK: Once = Once::new();

/// Makes room for so many bytes of a request, and says where they go.
#[unsafe(no_mangle)]
pub extern "C" fn input(bytes: usize) -> *mut u8 {
    INPUT.with_borrow_mut(|input| {
        input.clear();
        input.resize(bytes, 0);
        input.as_mut_ptr()
    })
}

/// Where the last answer is.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    OUTPUT.with_borrow(|output| output.as_ptr())
}

/// Answers the request that was written; how many bytes the answer has.
#[unsafe(no_mangle)]
pub extern "C" fn compile() -> usize {
    told(answer::answer)
}

/// Answers the request about a place in a source that was written; how many bytes the answer has.
#[unsafe(no_mangle)]
pub extern "C" fn assist() -> usize {
    told(assist::assist)
}

/// Draws what the request that was written asks for; how many bytes the answer has.
#[unsafe(no_mangle)]
pub extern "C" fn svg() -> usize {
    told(answer::svg)
}

/// Searches for a shorter schedule, as the request that was written asks; how many bytes the answer has.
#[unsafe(no_mangle)]
pub extern "C" fn search() -> usize {
    told(search::search)
}

/// Answers what was written, and keeps what a panic says.
fn told(answer: fn(&str) -> String) -> usize {
    HOOK.call_once(|| std::panic::set_hook(Box::new(|panic| COMPLAINT.set(panic.to_string()))));
    let request = INPUT.take();
    put(answer(&String::from_utf8_lossy(&request)))
}

/// The standard schedules, names with sources, the examples by group, and the words of the language; how many bytes
/// that has.
#[unsafe(no_mangle)]
pub extern "C" fn gallery() -> usize {
    let schedules: Vec<[&str; 2]> = stdlib::SCHEDULES.iter().map(|(name, text)| [*name, *text]).collect();
    let keywords: Vec<&str> = pipe_ide::reference::keywords().collect();
    put(json!({ "schedules": schedules, "examples": examples::GROUPS, "keywords": keywords }).to_string())
}

/// Makes what a panic said the answer; how many bytes it has.
#[unsafe(no_mangle)]
pub extern "C" fn complaint() -> usize {
    put(COMPLAINT.take())
}

fn put(answer: String) -> usize {
    let bytes = answer.len();
    OUTPUT.set(answer);
    bytes
}
