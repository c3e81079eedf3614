//! A client link over a byte stream. `client_pipe` is the harness: the link, and servers that follow a script.

mod asks;
mod callers;
mod calls;
mod catalog;
mod guarantees;
mod handshake;
mod input;
mod keepalive;
mod process;
mod random_runs;
mod reconnect;
mod shutdown;
mod texts;
