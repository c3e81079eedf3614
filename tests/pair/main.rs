//! Both ends of a link against each other: `pipe` over a byte stream, `http` over HTTP with a faulty network between them.
#![allow(
    clippy::std_instead_of_alloc,
    clippy::std_instead_of_core,
    clippy::wildcard_enum_match_arm,
    reason = "a test may use all of std, and looks only at the events that it is about"
)]

mod http;
mod pipe;
