//! Fuzzes a client over a byte stream with arbitrary inputs, and checks every rule.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::client_stdio(data));
