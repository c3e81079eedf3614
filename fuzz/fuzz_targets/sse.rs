//! Server-sent events, however the bytes are cut.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::sse(data));
