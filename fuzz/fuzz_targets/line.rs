//! Lines, however the bytes are cut.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::line(data));
