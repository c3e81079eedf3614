//! Fuzzes the reader of server-sent events, with the bytes divided at arbitrary places.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::sse(data));
