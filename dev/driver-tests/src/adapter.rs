//! Lists the adapters that spawn processes, so that each test runs with all of them. Must not depend on any test.

use std::io;
use std::process::Command;
use std::thread;

use everlink::server::Request;
use everlink::{Config, ErrorObject, Payload, server};
use everlink_handle::{Context, Link};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Opens a link to the child that the command spawns.
pub type Connect<'a> = dyn Fn(Command, Config) -> io::Result<Link> + 'a;

/// Uses links of one adapter.
type Program<'a> = dyn FnMut(&Connect<'_>) + 'a;

/// The handler of a server of ours.
pub type Answer = fn(Request, Context) -> Result<Payload, ErrorObject>;

/// One adapter.
#[derive(Clone, Copy, Debug)]
pub struct Adapter {
    /// The name on the command line and in output.
    pub name: &'static str,
    run_inside: fn(&mut Program<'_>),
    serve: fn(server::Config, Answer) -> io::Result<()>,
}

/// All adapters under test.
pub const ADAPTERS: &[Adapter] = &[
    Adapter {
        name: "stdio",
        run_inside: |program| program(&everlink_stdio::connect),
        serve: |config, answer| {
            let service = everlink_stdio::serve(config, answer)?;
            service.closed().wait().map_err(io::Error::other)
        },
    },
    Adapter {
        name: "threads",
        run_inside: |program| program(&everlink_stdio::with_threads::connect),
        serve: |config, answer| {
            let service = everlink_stdio::with_threads::serve(config, answer)?;
            service.closed().wait().map_err(io::Error::other)
        },
    },
    Adapter {
        name: "tokio",
        run_inside: |program| {
            let runtime = multi_threaded_runtime();
            let _guard = runtime.enter();
            program(&everlink_tokio::child::connect);
        },
        serve: |config, answer| {
            let runtime = multi_threaded_runtime();
            let _guard = runtime.enter();
            let answer = move |request, context| async move { answer(request, context) };
            let service = everlink_tokio::stdio::serve(config, answer)?;
            service.closed().wait().map_err(io::Error::other)
        },
    },
    Adapter {
        name: "tokio-alone",
        run_inside: |program| {
            let runtime = single_threaded_runtime();
            let _guard = runtime.enter();
            let (stop, stopped) = oneshot::channel::<()>();
            thread::scope(|scope| {
                let runtime_thread = scope.spawn(|| runtime.block_on(stopped));
                // A panic drops it, too, and stops the runtime.
                let stop = stop;
                program(&everlink_tokio::child::connect);
                drop(stop);
                // Waits for the exit of the thread: the test counts threads.
                runtime_thread
                    .join()
                    .expect("the runtime thread does not panic")
            })
            .expect_err("the sender is dropped");
        },
        serve: |config, answer| {
            single_threaded_runtime().block_on(async {
                let answer = move |request, context| async move { answer(request, context) };
                let service = everlink_tokio::stdio::serve(config, answer)?;
                service.closed().await.map_err(io::Error::other)
            })
        },
    },
];

impl Adapter {
    /// Finds an adapter by its name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Adapter> {
        let mut all = ADAPTERS.iter().copied();
        all.find(|adapter| adapter.name == name)
    }

    /// Runs a program with links of this adapter, inside the runtime that the adapter needs.
    pub fn run(self, mut program: impl FnMut(&Connect<'_>)) {
        (self.run_inside)(&mut program);
    }

    /// Serves the client on the standard streams of this process until it closes them.
    ///
    /// # Errors
    ///
    /// If the system lacks resources for the service.
    pub fn serve(self, config: server::Config, answer: Answer) -> io::Result<()> {
        (self.serve)(config, answer)
    }
}

/// A runtime with one worker thread; the program blocks its own thread.
fn multi_threaded_runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build();
    runtime.expect("the system can create a runtime")
}

/// A single-threaded runtime; the caller lends it a thread.
fn single_threaded_runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("the system can create a runtime")
}
