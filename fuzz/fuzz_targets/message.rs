//! Fuzzes the parser of messages, and compares it with a simple parser.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::message(data));
