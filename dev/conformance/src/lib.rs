//! What the public conformance suite drives: `client` does what its scenarios ask of a client, `server` has the tools, resources and prompts that they
//! name. Both are plain programs on the adapters; nothing in them knows a rule of the protocol.

pub mod client;
pub mod server;
