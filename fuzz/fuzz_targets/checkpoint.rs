//! Checkpoints.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pipe_tests::fuzz::checkpoint(bytes));
