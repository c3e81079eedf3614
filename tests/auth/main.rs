//! Tests of authorization: sign-ins, renewals, the store that processes share, and everything that can go wrong on the way.

mod enterprise;
mod refresh;
mod shared;
mod sign_in;
mod support;
