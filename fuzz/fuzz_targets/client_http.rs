//! Fuzzes a client over HTTP with arbitrary responses, and checks every rule.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::client_http(data));
