//! Tests of authorization: sign-ins, renewals, the store that processes share, and everything that can go wrong on the way.

mod bad_input;
mod challenge;
mod client;
mod device;
mod discovery;
mod dpop;
mod machine_grants;
mod metadata;
mod redirect;
mod refresh;
mod scope;
mod security;
mod sign_in;
mod sign_out;
mod states;
mod step_up;
mod store;
mod support;
mod token;
mod web;
