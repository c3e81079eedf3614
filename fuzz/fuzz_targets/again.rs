//! Fuzzes the caches of earlier texts: a machine that has seen a text before must act like one that has not.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::again(data));
