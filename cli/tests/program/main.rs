//! Tests the program as a process, with a file for each command. `props` has shared helpers: processes that are killed on drop, a terminal, and an
//! HTTP server that wants credentials.
#![cfg(unix)]

mod call;
mod demo;
mod ends;
mod guard;
#[cfg(target_os = "linux")]
mod hostile;
mod inspect;
mod listen;
mod old_servers;
mod passes;
mod props;
mod record;
mod shell;
mod soon;
mod starts;
mod stderr;
mod watch;
