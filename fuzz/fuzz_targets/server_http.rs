//! A server over HTTP: any clients, any application, every rule.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::server_http(data));
