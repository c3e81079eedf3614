//! Both ends over real sockets of this machine: what is said, how it ends, and that nothing is left behind.

mod endings;
mod front;
mod mounted;
mod raw;
#[cfg(feature = "http2")]
mod shared;
mod stage;
mod talk;
mod weather;
