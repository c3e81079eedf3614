//! Tests the program `everlink` as a process, with a file for each command or feature. Three modules are helpers: `support` (processes that are killed
//! on drop, a terminal, a server that requires credentials), `auth_server` and `collector`.
#![cfg(unix)]

mod adopt;
mod auth;
mod auth_server;
mod call;
mod collector;
mod demo;
mod guard;
#[cfg(target_os = "linux")]
mod hostile;
mod inspect;
mod listen;
mod old_servers;
mod otlp;
mod passthrough;
mod record;
mod record_file;
mod recovery_time;
mod shell;
mod shutdown;
mod startup;
mod status;
mod stderr;
mod store;
mod support;
mod timeline;
mod watch;
