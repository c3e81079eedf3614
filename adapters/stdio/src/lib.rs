//! everlink over the standard streams of processes, with plain threads: no async runtime.
mod child;
mod drive;
mod poll;
mod serve;
pub mod tree;
mod wake;
mod workers;

pub use drive::connect;
pub use everlink_handle::*;
pub use serve::{secret, serve};
