//! The handles of an everlink connection that applications hold, and the owners that drivers run. All adapters share this crate.
//!
//! A state machine of the core is a value with one owner. Applications need handles that can be cloned and calls that can be awaited. [`Link`] and
//! [`Service`] are these handles. [`LinkOwner`] and [`ServiceOwner`] are the other side: a machine with a command queue, driven by one thread or
//! task. This crate does no I/O and has no thread and no runtime. A method of a handle returns a future that any runtime can await, or that a plain
//! thread can `wait` for.
//!
//! Applications use it through an adapter: `everlink-stdio`, `everlink-http` or `everlink-tokio`. Another adapter brings a [`Transport`] and a
//! [`Clock`] for its runtime, and [`drive`] is the rest. This one has a transport that does nothing, and a thread for a runtime:
//!
//! ```
//! use everlink::Config;
//! use everlink_handle::{Link, NoTransport, ThreadPark, drive, run};
//!
//! let (link, owner) = Link::new(Config::child("docs", "1.0"));
//! drop(link); // the last handle: the link is to be shut down
//!
//! run(ThreadPark::new(), |clock| drive(owner, NoTransport::default(), clock));
//! ```

// The modules: `drive` is the driver's loop, `transport` is what it is made of, and `park` runs it on a thread. `promise` is a value that arrives
// later. `credentials` is the interface of whatever knows the credentials of requests, and `setup` says what is wrong with the settings of a connector.
// `command_queue` is the owner's command queue and `commands` are its commands. `events` delivers events, and `record` is the interface of
// recorders. For transports, `backlog` holds bytes that are yet to be written, `inbox` takes messages of threads, `id_map` is a hash map with
// internal ids as keys, and `proxy` reads the proxy settings of the environment. `sync` has the locks and wakers of all of them, and
// `trace` reports to `tracing`.

mod backlog;
mod client;
mod command_queue;
mod commands;
mod credentials;
mod drive;
mod events;
mod id_map;
mod inbox;
#[cfg(all(test, loom))]
mod model;
mod park;
pub mod prelude;
mod promise;
mod proxy;
mod record;
mod relay;
mod server;
mod setup;
mod sync;
mod trace;
mod transport;

pub use backlog::Backlog;
pub use client::{
    Call, CallBuilder, CallError, Canceller, Link, LinkOwner, NotReady, OpenAsk, Progress,
    ToolResult,
};
pub use commands::{ClientCommand, LinkCommand};
pub use credentials::{
    Credentials, CredentialsFn, CredentialsFuture, RequestCredentials, Web, WebResponse,
};
pub use drive::{Answered, drive, drive_relay, drive_server};
pub use events::Events;
pub use id_map::{IdHasher, IdMap};
pub use inbox::{Inbox, InboxSender};
pub use park::{Park, ThreadClock, ThreadPark, run, wait};
pub use promise::{Gone, Pending, Promise, promise};
pub use proxy::{Proxies, is_local_host};
pub use record::Recorder;
pub use relay::{Guard, GuardOwner, Status};
pub use server::{Answer, Context, Response, Service, ServiceError, ServiceOwner, Task};
pub use setup::SetupError;
pub use trace::RequestSpan;
pub use transport::{Clock, NoTransport, Transport};

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
