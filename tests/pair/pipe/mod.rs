//! Both ends of a link against each other, in every version and with bytes cut in every way.
//!
//! A scenario is a function of a `Harness`: two machines, connected in memory. It returns what the two applications saw. The
//! return value must not depend on how the bytes were cut. If an application cannot tell the versions apart, the value
//! must not depend on the version either.

mod asks;
mod calls;
mod epochs;
mod handshake;
mod harness;
mod lists;
mod methods;
mod notifications;
