//! An MCP connection as a value.
#![no_std]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod protocol;
pub mod wire;
