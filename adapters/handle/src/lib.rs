//! What programs hold of an everlink connection, and what its driver owns: the part that adapters of all runtimes have in common.
//!
//! A machine of the core is a value with one owner. Programs want something else: handles that can be cloned, calls that can be waited for.
//! [`Link`] and [`Service`] are those; [`LinkOwner`] and [`ServiceOwner`] are the other side, a machine with a box for letters that one
//! thread or task drives. There is no I/O in here, no thread and no runtime: what a verb returns is a future that any runtime can
//! await, and that a plain thread can `wait` for.
//!
//! Programs use it through an adapter: `everlink-stdio`, `everlink-http`, `everlink-tokio`. Who writes another one does what this does, with
//! sleeping and moving bytes in the place of the comments:
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
//! `promise` is how a value that comes later is waited for, `mailbox` how the owner is asked and `asked` for what, `events` how it is listened to, `record` how all
//! of it is written down, `backlog` what drivers could not write yet, `numbers` what is found by the number that a machine gave it, `wakers` how
//! programs are woken, `proxy` what the environment says about proxies.

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

/// Random bytes from the system, for the configuration of a server: what they seal must not be guessed.
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

/// A number that no other link has, so that many links do not come back in step. It is no secret: a system without a random source has links
/// that do.
fn chance() -> u64 {
    let mut chance = [0; 8];
    fill(&mut chance);
    u64::from_ne_bytes(chance)
}

/// Fills all of it with random bytes from the system, and says whether it could.
#[cfg(target_os = "linux")]
fn fill(bytes: &mut [u8]) -> bool {
    use rustix::rand::{GetRandomFlags, getrandom};
    // The kernel gives up to 256 bytes at once or none, and can be interrupted only before the first.
    let len = bytes.len();
    let read = rustix::io::retry_on_intr(|| getrandom(&mut *bytes, GetRandomFlags::empty()));
    read == Ok(len)
}

#[cfg(not(target_os = "linux"))]
fn fill(bytes: &mut [u8]) -> bool {
    getrandom::fill(bytes).is_ok()
}
