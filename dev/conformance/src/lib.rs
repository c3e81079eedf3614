//! The programs for the public conformance suite: `client` runs its scenarios, and `server` has the tools, resources and prompts that they
//! use.
//!
//! Both are plain programs on the adapters. They contain no rule of the protocol.

pub mod client;
pub mod server;
