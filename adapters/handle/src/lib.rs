//! The handles of an everlink connection that applications hold, and the owners that drivers run. All adapters share this crate.
//!
//! A state machine of the core is a value with one owner. Applications need handles that can be cloned and calls that can be awaited. [`Link`] and
//! [`Service`] are these handles. [`LinkOwner`] and [`ServiceOwner`] are the other side: a machine with a command queue, driven by one thread or
//! task. This crate does no I/O and has no thread and no runtime. A method of a handle returns a future that any runtime can await, or that a plain
//! thread can `wait` for.
//!
//! Applications use it through an adapter: `everlink-stdio`, `everlink-http` or `everlink-tokio`. Another adapter follows this example, with code
//! that sleeps and moves bytes in place of the comments:
//!
//! ```
//! use everlink::{Config, Instant};
//! use everlink_handle::Link;
//!
//! let (link, mut owner) = Link::new(Config::child("docs", "1.0"));
//! drop(link); // the last handle: the link is to be shut down
//!
//! let (clock, mut buf) = (std::time::Instant::now(), Vec::new());
//! while !owner.is_closed() {
//!     // Sleep until `owner.poll_timeout()`, until the waker given to `owner.belongs_to` is woken, or until the transport has something
//!     // to tell, which goes to `owner.handle`.
//!     owner.serve(Instant::from_origin(clock.elapsed()));
//!     while let Some(_output) = owner.poll_output(&mut buf) {
//!         // Open, write, close, kill.
//!     }
//! }
//! ```
//!
//! The modules: `promise` is a value that arrives later. `mailbox` is the owner's command queue and `asked` are its commands. `events` delivers
//! events, `record` is the interface of recorders, and `backlog` holds bytes that a driver has yet to write. `numbers` is a hash map with internal
//! ids as keys, `wakers` postpones wake-ups, and `proxy` reads the proxy settings of the environment.

mod asked;
mod backlog;
mod client;
mod events;
mod mailbox;
mod numbers;
mod promise;
mod proxy;
mod record;
mod relay;
mod server;
mod wakers;

pub use asked::{Asked, Upkeep};
pub use backlog::Backlog;
pub use client::{Call, CallError, Canceller, Link, LinkOwner, NotReady, Progress, ToolResult};
pub use events::Events;
pub use numbers::{ByNumber, Spread};
pub use promise::{Gone, Pending, wait};
pub use proxy::{Proxies, is_this_machine};
pub use record::Recorder;
pub use relay::{Guard, GuardOwner, Status};
pub use server::{Answer, AskError, Context, Response, Service, ServiceOwner, Task};
pub use wakers::PostponedWakes;

/// Returns random bytes from the system, for the configuration of a server. The server seals state with them, so they must be unpredictable.
///
/// # Panics
///
/// When the system has no random source.
#[must_use]
pub fn secret() -> [u8; 16] {
    let mut secret = [0; 16];
    assert!(fill(&mut secret), "the system has a random source");
    secret
}

/// Returns a random number for a link's seed, so that many links do not reconnect at the same time. It needs no secrecy: without a random source it
/// is zero for every link.
fn chance() -> u64 {
    let mut chance = [0; 8];
    fill(&mut chance);
    u64::from_ne_bytes(chance)
}

/// Fills the slice with random bytes from the system. Returns whether that succeeded.
#[cfg(target_os = "linux")]
fn fill(bytes: &mut [u8]) -> bool {
    use rustix::rand::{GetRandomFlags, getrandom};
    // `getrandom` returns up to 256 bytes at once or none, and a signal can interrupt it only before the first byte.
    let len = bytes.len();
    let read = rustix::io::retry_on_intr(|| getrandom(&mut *bytes, GetRandomFlags::empty()));
    read == Ok(len)
}

#[cfg(not(target_os = "linux"))]
fn fill(bytes: &mut [u8]) -> bool {
    getrandom::fill(bytes).is_ok()
}
