//! Fuzzes header fields beside the crates that are made for them.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::header(data));
