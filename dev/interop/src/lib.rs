//! Two programs that meet the SDKs and servers of others, for `cargo xtask interop`: [`client`] goes through the steps of a meeting with a
//! server, [`server`] has the tools that clients need for the same steps.
//!
//! Nothing here judges a peer: whoever drives a meeting prints a line of JSON for each step, and the command gathers them.

#[cfg(unix)]
pub mod client;
#[cfg(unix)]
pub mod server;
