//! Fuzzes several servers with one store that is slow, fails and forgets, and checks what their clients get.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::shared_store(data));
