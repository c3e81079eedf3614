//! A client over HTTP: any responses, every rule.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::client_http(data));
