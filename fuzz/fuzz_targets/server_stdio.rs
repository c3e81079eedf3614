//! A server over a byte stream: any client, any application, every rule.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::server_stdio(data));
