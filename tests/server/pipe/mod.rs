//! A server over a byte stream. `server_pipe` is the harness: the server, and a client that the test plays.

mod asks;
mod cancel;
mod deadlines;
mod failures;
mod handshake;
mod limits;
mod messages;
mod progress;
mod requirements;
mod results;
mod tasks;
mod versions;
mod watches;
