//! Links over real sockets of this machine: what they bring, how they are cut, and that nothing is left of them.

mod cuts;
mod doors;
mod host;
mod lives;
mod quiet;
mod replies;
mod site;
mod tls;
mod words;
