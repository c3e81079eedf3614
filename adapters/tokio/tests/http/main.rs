//! Tests both ends over real local sockets: the messages, how connections end, and that nothing is left behind.

mod endings;
mod front;
mod mounted;
mod raw;
#[cfg(feature = "http2")]
mod shared;
mod stage;
mod talk;
mod weather;
