//! Tests of authorization: sign-ins, renewals, the store that processes share, and everything that can go wrong on the way.
#![allow(
    clippy::std_instead_of_alloc,
    clippy::std_instead_of_core,
    clippy::wildcard_enum_match_arm,
    reason = "a test may use all of std, and looks only at the events that it is about"
)]

mod bad_input;
mod challenge;
mod client;
mod device;
mod discovery;
mod dpop;
mod enterprise;
mod machine_grants;
mod metadata;
mod redirect;
mod refresh;
mod scope;
mod security;
mod shared;
mod sign_in;
mod sign_out;
mod states;
mod step_up;
mod store;
mod support;
mod token;
mod web;
