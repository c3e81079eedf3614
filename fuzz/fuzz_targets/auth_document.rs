//! Fuzzes the documents of an authorization: metadata, and the answers of endpoints.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| model::auth_document(data));
