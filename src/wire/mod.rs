//! Bytes to JSON-RPC messages and back; knows no call and no MCP method.
//!
//! ```text
//! bytes --LineReader--> text --parse--> Message      Object, request, result, ... --> bytes
//!    \--- SseReader ---/                             sse: begin, end, ... around them
//!             \
//!              Skimmed: what can be told of a message too long to keep
//! ```
//!
//! Reading borrows: a line that arrives whole is not copied, and the payloads of a [`Message`] are slices of it.
//! What must outlive the bytes becomes a [`Payload`]. Writing appends to a buffer of the caller.

pub mod encode;
mod id;
mod json;
mod keep;
mod line;
mod message;
pub mod object;
mod path;
mod payload;
mod scan;
mod skim;
pub mod sse;
#[cfg(test)]
mod tests;
mod unescape;

pub use id::{Id, TEXT_ID_LIMIT};
pub use json::{Json, NotJson};
pub use line::{Line, LineReader};
pub use message::{
    BATCH_LIMIT, Batch, ErrorObject, Inbound, Malformed, MalformedKind, Message, parse,
};
pub(crate) use message::{parse_behind, parse_showing};
pub use path::Step;
pub use payload::Payload;
pub use skim::Skimmed;
pub use sse::{SseEvent, SseReader};
