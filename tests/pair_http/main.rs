//! Both ends of a link over HTTP, with a faulty network between them: the guarantees that both applications can rely
//! on.
#![allow(clippy::std_instead_of_alloc, reason = "a test has the whole of std")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a scenario looks for what it is about and passes over the rest"
)]

mod cuts;
mod methods;
mod proxies;
mod relays;
mod restarts;
mod stage;
mod storms;
