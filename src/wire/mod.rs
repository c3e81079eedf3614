//! Converts bytes to JSON-RPC messages and back. Does not depend on calls or MCP methods.
//!
//! ```text
//! bytes --LineReader--> text --parse--> Message      Object, request, result, ... --> bytes
//!    \--- SseReader ---/                             sse: begin, end, ... around them
//!             \
//!              Skimmed: the facts about a message that is too long to keep
//! ```
//!
//! Reading borrows: a line that arrives in one piece is not copied, and the payloads of a [`Message`] are slices of it. Convert a value to
//! a [`Payload`] if it must outlive the bytes. Writing appends to the caller's buffer.

mod buffer;
pub mod encode;
mod id;
mod line;
mod message;
mod skim;
pub mod sse;
#[cfg(test)]
mod tests;

pub use crate::json::{Json, NotJson, Payload, Step, object};
pub use id::{Id, TEXT_ID_LIMIT};
pub use line::{Line, LineReader};
pub use message::{
    BATCH_LIMIT, Batch, ErrorObject, Inbound, Malformed, MalformedKind, Message, parse,
};
pub(crate) use message::{parse_after_run, parse_visiting};
pub use skim::Skimmed;
pub use sse::{SseEvent, SseReader};

/// Requests with at most this many bytes of parameters count as short. Where several clients share a link, a short request neither waits
/// behind long ones of other clients nor is refused because of them. 64 KiB: most requests are a thousandth of it.
pub(crate) const SHORT: usize = 64 << 10;
