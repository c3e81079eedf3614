//! Fuzzes a relay with an arbitrary host and servers that end, and checks every promise to the host.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::relay(data));
