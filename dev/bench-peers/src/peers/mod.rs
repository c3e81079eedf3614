//! The measured libraries, each with a client and a server for the same tool. Must not measure anything.

pub(crate) mod everlink;
pub(crate) mod raw;
pub(crate) mod rmcp;
pub(crate) mod script;

use std::any::Any;
use std::future::Future;
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};

/// A connected client, as the works use it.
pub(crate) trait Client {
    /// Makes this many calls with this text, one after the other. Returns the duration of each in nanoseconds.
    fn sequential(&mut self, calls: usize, text: &str) -> Vec<u64>;

    /// Makes this many calls with this text, with a fixed number in flight.
    fn concurrent(&mut self, calls: usize, in_flight: usize, text: &str);
}

/// A call on a runtime.
pub(crate) trait Caller: Clone + Send + 'static {
    /// Calls the tool, and returns the length of the answered text.
    fn call(&self, text: &str) -> impl Future<Output = usize> + Send;
}

/// A client on tokio, with the same runtime and the same loops for every library with futures.
pub(crate) struct OnTokio<C> {
    runtime: Runtime,
    caller: C,
    /// Values that must live as long as the calls.
    _kept_alive: Box<dyn Any>,
}

/// A single-threaded runtime: with one connection, a second thread would be idle.
pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder
        .enable_all()
        .build()
        .expect("the system can create a runtime")
}

impl<C: Caller> OnTokio<C> {
    pub(crate) fn new(runtime: Runtime, caller: C, kept_alive: impl Any) -> OnTokio<C> {
        OnTokio {
            runtime,
            caller,
            _kept_alive: Box::new(kept_alive),
        }
    }
}

impl<C: Caller> Client for OnTokio<C> {
    fn sequential(&mut self, calls: usize, text: &str) -> Vec<u64> {
        self.runtime.block_on(async {
            let mut times = Vec::with_capacity(calls);
            for _ in 0..calls {
                let start = Instant::now();
                let len = self.caller.call(text).await;
                times.push(nanos(start));
                assert_eq!(len, text.len());
            }
            times
        })
    }

    fn concurrent(&mut self, calls: usize, in_flight: usize, text: &str) {
        self.runtime.block_on(async {
            let workers: Vec<_> = (0..in_flight)
                .map(|worker| {
                    let (caller, text) = (self.caller.clone(), text.to_owned());
                    let share = calls / in_flight + usize::from(worker < calls % in_flight);
                    tokio::spawn(async move {
                        for _ in 0..share {
                            assert_eq!(caller.call(&text).await, text.len());
                        }
                    })
                })
                .collect();
            for worker in workers {
                worker.await.expect("every call is answered");
            }
        });
    }
}

pub(crate) fn nanos(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}
