//! Tests of authorization: sign-ins, renewals, the store that processes share, and everything that can go wrong on the way.

mod challenge;
mod client;
mod discovery;
mod metadata;
mod redirect;
mod refresh;
mod scope;
mod sign_in;
mod step_up;
mod store;
mod support;
mod token;
mod web;
