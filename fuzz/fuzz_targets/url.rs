//! Fuzzes the parser of URLs beside the crate `url`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::url(data));
