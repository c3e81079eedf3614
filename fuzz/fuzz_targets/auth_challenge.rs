//! Fuzzes the challenges of servers, as texts.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::auth_challenge(data));
