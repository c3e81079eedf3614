//! Fuzzes an authorizer as a whole: bytes choose the settings, the answers and the calls.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::auth_machine(data));
