//! Who is measured: each with a client and a server of its own for the same tool. Measures nothing.

pub(crate) mod everlink;
pub(crate) mod raw;
pub(crate) mod rmcp;
pub(crate) mod script;

use std::any::Any;
use std::future::Future;
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};

/// A client that is connected, as the works use it.
pub(crate) trait Client {
    /// Makes so many calls with this text, each after the reply to the one before. How many nanoseconds each took.
    fn one_by_one(&mut self, calls: usize, text: &str) -> Vec<u64>;

    /// Makes so many calls with this text, as many at a time as are to be in flight.
    fn together(&mut self, calls: usize, in_flight: usize, text: &str);
}

/// A call on a runtime.
pub(crate) trait Caller: Clone + Send + 'static {
    /// Calls the tool, and says how long the text of its answer is.
    fn call(&self, text: &str) -> impl Future<Output = usize> + Send;
}

/// A client on tokio: the same runtime and the same loops for all whose calls are futures.
pub(crate) struct OnTokio<C> {
    runtime: Runtime,
    caller: C,
    /// What must not be dropped while calls are made.
    _kept: Box<dyn Any>,
}

/// One thread: with one connection there is nothing that a second one could do beside it.
pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("there is room")
}

impl<C: Caller> OnTokio<C> {
    pub(crate) fn new(runtime: Runtime, caller: C, kept: impl Any) -> OnTokio<C> {
        OnTokio {
            runtime,
            caller,
            _kept: Box::new(kept),
        }
    }
}

impl<C: Caller> Client for OnTokio<C> {
    fn one_by_one(&mut self, calls: usize, text: &str) -> Vec<u64> {
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

    fn together(&mut self, calls: usize, in_flight: usize, text: &str) {
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
