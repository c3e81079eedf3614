//! Programs that checks start besides the bad child: a parent that gets killed, and a server with careless handlers.

pub(crate) mod noisy_server;
pub(crate) mod parent;
