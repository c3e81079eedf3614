//! The adapters of this repository as drivers for `everlink-driver-tests`, and measurements of them.
//!
//! `tests/kit.rs` runs the kit with all of them. `many-links` and `death-latency` are measurements, not tests. Their children are the bad
//! children of the kit: the program itself, started again. All of it is for Linux.

mod adapter;

pub use adapter::{ADAPTERS, Adapter, find_adapter};
