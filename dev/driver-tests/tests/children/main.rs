//! Links to real children that misbehave, through every adapter; and after each ordeal, a count of what is left.
//!
//! `closing` is how children end that do not want to, `deaths` how they end unasked, `silence` how they stop to take part without ending,
//! `noise` what they say that nobody asked for, `trees` whom they leave behind, `life` what a program sees of it all, `servers` our own
//! servers as children. Start in `stage`.
#![cfg(target_os = "linux")]

mod closing;
mod deaths;
mod life;
mod noise;
mod servers;
mod silence;
mod stage;
mod trees;
