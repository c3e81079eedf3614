//! Fuzzes both ends of a link with arbitrary applications and connections that end, and checks every promise to both applications.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::pair(data));
