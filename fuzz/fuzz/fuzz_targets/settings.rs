//! See `isthmus_fuzz_cases::settings`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| isthmus_fuzz_cases::settings(bytes));
