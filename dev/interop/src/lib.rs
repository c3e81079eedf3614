//! Two programs for interoperability runs with other SDKs and servers, for `cargo xtask interop`.
//!
//! [`client`] runs the steps with a server. [`server`] has the tools that clients need for the same steps. The side that runs the steps
//! prints one line of JSON for each, and the command collects them.

#[cfg(unix)]
pub mod client;
#[cfg(unix)]
pub mod server;
