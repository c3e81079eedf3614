//! Fuzzes an authorizer as a whole: bytes choose the settings, the operations of its program, and the answers of the servers.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::auth_machine(data));
