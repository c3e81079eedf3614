//! Fuzzes the reader of lines, with the bytes divided at arbitrary places.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::line(data));
