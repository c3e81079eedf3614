//! A client over a byte stream: any life, every rule.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::client_stdio(data));
