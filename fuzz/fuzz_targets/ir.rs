//! Programs in their textual form, and the verifier.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pipe_tests::fuzz::ir(bytes));
