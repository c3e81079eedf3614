//! Tests of authorization: sign-ins, renewals, the store that processes share, and everything that can go wrong on the way.

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
mod sign_in;
mod sign_out;
mod step_up;
mod store;
mod support;
mod token;
mod web;
