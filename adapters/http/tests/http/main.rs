//! Tests links over real local sockets: their results, how they are cut, and that nothing is left of them.

mod cuts;
mod doors;
mod host;
mod lives;
mod quiet;
mod replies;
mod site;
mod tls;
mod words;
