//! Both ends of a link against each other, in every version and with bytes cut in every way.
//!
//! A scenario is a function of a `Stage`: two machines, connected in memory. It returns what the two applications saw. The
//! return value must not depend on how the bytes were cut. If an application cannot tell the versions apart, the value
//! must not depend on the version either.
#![allow(clippy::std_instead_of_alloc, reason = "a test has the whole of std")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a scenario looks for what it is about and passes over the rest"
)]

mod asks;
mod calls;
mod handshake;
mod lists;
mod lives;
mod methods;
mod news;
mod stage;
