//! Messages, against an obvious parser.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::message(data));
