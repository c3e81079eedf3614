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
//!     // Sleep until `owner.poll_timeout()`, until the waker given to `owner.register_waker` is woken, or until the transport has an
//!     // input, which goes to `owner.handle`.
//!     owner.advance(Instant::from_origin(clock.elapsed()));
//!     while let Some(_output) = owner.poll_output(&mut buf) {
//!         // Open, write, close, kill.
//!     }
//! }
//! ```
//!
//! The modules: `promise` is a value that arrives later. `command_queue` is the owner's command queue and `commands` are its commands. `events`
//! delivers events, `record` is the interface of recorders, and `backlog` holds bytes that a driver has yet to write. `id_map` is a hash map with
//! internal ids as keys, `wakers` postpones wake-ups, and `proxy` reads the proxy settings of the environment.

mod backlog;
mod client;
mod command_queue;
mod commands;
mod events;
mod id_map;
mod promise;
mod proxy;
mod record;
mod relay;
mod server;
mod wakers;

pub use backlog::Backlog;
pub use client::{Call, CallError, Canceller, Link, LinkOwner, NotReady, Progress, ToolResult};
pub use commands::{ClientCommand, LinkCommand};
pub use events::Events;
pub use id_map::{IdHasher, IdMap};
pub use promise::{Gone, Pending, wait};
pub use proxy::{Proxies, is_local_host};
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
    assert!(fill_random(&mut secret), "the system has a random source");
    secret
}

/// Returns a random number for a link's seed, so that many links do not reconnect at the same time. It needs no secrecy: without a random source it
/// is zero for every link.
fn random_seed() -> u64 {
    let mut seed = [0; 8];
    fill_random(&mut seed);
    u64::from_ne_bytes(seed)
}

/// Fills the slice with random bytes from the system. Returns whether that succeeded.
#[cfg(target_os = "linux")]
fn fill_random(bytes: &mut [u8]) -> bool {
    use rustix::rand::{GetRandomFlags, getrandom};
    // `getrandom` returns up to 256 bytes at once or none, and a signal can interrupt it only before the first byte.
    let len = bytes.len();
    let read = rustix::io::retry_on_intr(|| getrandom(&mut *bytes, GetRandomFlags::empty()));
    read == Ok(len)
}

#[cfg(not(target_os = "linux"))]
fn fill_random(bytes: &mut [u8]) -> bool {
    getrandom::fill(bytes).is_ok()
}
