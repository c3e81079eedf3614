//! Fuzzes a server over a byte stream with an arbitrary client and an arbitrary application, and checks every rule.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::server_stdio(data));
