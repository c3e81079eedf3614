//! A relay: any host in front, any deaths behind, every promise to the host.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::relay(data));
