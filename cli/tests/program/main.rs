//! The program as people run it, a file for each command.
#![cfg(unix)]

mod call;
mod demo;
mod guard;
mod record;
