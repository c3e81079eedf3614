//! HTTP.

mod config;

pub use config::{Allowed, Http, Replay, SsePaths};
