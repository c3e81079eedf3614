//! Containers and counters that both ends use. They know nothing of MCP.

mod arc;
pub(crate) mod ascending_map;
pub(crate) mod digest;
pub(crate) mod noise;
pub(crate) mod pipe;
pub(crate) mod queue;
pub(crate) mod sorted;
pub(crate) mod split_mix;
pub(crate) mod timers;

pub use arc::Arc;
