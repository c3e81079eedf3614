//! The program as people run it, a file for each command. `props` is what they need: processes that are not left behind, a terminal, a server
//! over HTTP that wants credentials.
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
