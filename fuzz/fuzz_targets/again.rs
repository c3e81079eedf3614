//! What was said before: whoever knows the words does what whoever does not would do.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::again(data));
