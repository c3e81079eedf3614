//! Tests links to real children that misbehave, with every adapter, and counts what is left after each test.
//!
//! `closing` ends children that ignore a shutdown, `deaths` has children that die, `unresponsive` children that stop reading or running,
//! `noise` unwanted output, `descendants` processes that children spawn, `lifecycle` state and events, and `servers` our own servers as
//! children. Start in `harness`.
#![cfg(target_os = "linux")]

mod closing;
mod deaths;
mod descendants;
mod harness;
mod lifecycle;
mod noise;
mod servers;
mod unresponsive;
