//! The whole compiler, from the text of a source to the program.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pipe_tests::fuzz::source(bytes));
