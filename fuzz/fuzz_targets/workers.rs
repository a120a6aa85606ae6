//! See `isthmus_fuzz_cases::workers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| isthmus_fuzz_cases::workers(bytes));
