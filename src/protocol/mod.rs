//! The facts of MCP as data: versions, methods, features, capabilities, `_meta` keys, error codes.
//!
//! Does not depend on framing, calls or states. Other modules look up method names, keys and codes here, so that each fact of the protocol
//! is written down once.

mod capability;
pub mod code;
mod content;
mod declared;
mod feature;
mod implementation;
mod log;
mod members;
pub mod meta;
pub mod method;
pub(crate) mod param_headers;
mod peer;
pub mod question;
pub mod round;
mod trace_context;
mod version;
pub(crate) mod watch;
pub(crate) mod watch_filter;

pub use capability::{ClientCapabilities, ServerCapabilities};
pub use declared::InvalidCapability;
pub use feature::{ClientFeature, ServerFeature};
pub use implementation::Implementation;
pub use log::LogLevel;
pub use method::{Kind, Method, Owner, Repeat};
pub use peer::Peer;
pub use trace_context::TraceContext;
pub use version::{Era, Version, Versions};
