//! Both ends of a link: any two applications, any deaths, every promise to both.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::pair(data));
