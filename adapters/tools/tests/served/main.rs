//! Serves sets of functions over HTTP on tokio, and calls them with a link.

mod asking;
mod changes;
mod hostile;
mod offers;
mod schemas;
mod support;
mod tools;
