//! Serves sets of functions over HTTP on tokio, and calls them with a link.

mod asking;
mod changes;
mod offers;
mod schemas;
mod support;
mod tools;
