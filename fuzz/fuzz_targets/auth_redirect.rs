//! Fuzzes the queries with which a browser comes back from a sign-in.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::auth_redirect(data));
