//! Fuzzes a server over HTTP with arbitrary clients and an arbitrary application, and checks every rule.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::server_http(data));
