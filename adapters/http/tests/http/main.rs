//! Tests links over real local sockets: their results, how they are cut, and that nothing is left of them.

mod aborts;
mod core_server;
mod credentials_and_proxies;
mod epochs;
mod listener;
mod responses;
mod scripted_server;
mod serial;
mod tls;
