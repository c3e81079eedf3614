//! The adapters for processes, all of which go through the same ordeals. Knows no ordeal.

use std::io;
use std::process::Command;
use std::thread;

use everlink::server::Request;
use everlink::{Config, ErrorObject, Payload, server};
use everlink_handle::{Context, Link};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// How a program gets a link to a child from an adapter.
pub type Connect<'a> = dyn Fn(Command, Config) -> io::Result<Link> + 'a;

/// What is done with links.
type Program<'a> = dyn FnMut(&Connect<'_>) + 'a;

/// How a server of ours answers.
pub type Answer = fn(Request, Context) -> Result<Payload, ErrorObject>;

/// One adapter.
#[derive(Clone, Copy, Debug)]
pub struct Adapter {
    /// What it is called.
    pub name: &'static str,
    within: fn(&mut Program<'_>),
    serve: fn(server::Config, Answer) -> io::Result<()>,
}

/// All of them.
pub const ADAPTERS: &[Adapter] = &[
    Adapter {
        name: "stdio",
        within: |program| program(&everlink_stdio::connect),
        serve: |config, answer| {
            let service = everlink_stdio::serve(config, answer)?;
            service.closed().wait().map_err(io::Error::other)
        },
    },
    Adapter {
        name: "threads",
        within: |program| program(&everlink_stdio::threads::connect),
        serve: |config, answer| {
            let service = everlink_stdio::threads::serve(config, answer)?;
            service.closed().wait().map_err(io::Error::other)
        },
    },
    Adapter {
        name: "tokio",
        within: |program| {
            let runtime = runtime();
            let _inside = runtime.enter();
            program(&everlink_tokio::child::connect);
        },
        serve: |config, answer| {
            let runtime = runtime();
            let _inside = runtime.enter();
            let answer = move |request, context| async move { answer(request, context) };
            let service = everlink_tokio::stdio::serve(config, answer)?;
            service.closed().wait().map_err(io::Error::other)
        },
    },
    Adapter {
        name: "tokio-alone",
        within: |program| {
            let runtime = alone();
            let _inside = runtime.enter();
            let (stop, stopped) = oneshot::channel::<()>();
            thread::scope(|scope| {
                let lent = scope.spawn(|| runtime.block_on(stopped));
                // Also dropped by a panic.
                let stop = stop;
                program(&everlink_tokio::child::connect);
                drop(stop);
                // Not only its work is over then, but the thread.
                lent.join().expect("it does not panic")
            })
            .expect_err("nothing was sent");
        },
        serve: |config, answer| {
            alone().block_on(async {
                let answer = move |request, context| async move { answer(request, context) };
                let service = everlink_tokio::stdio::serve(config, answer)?;
                service.closed().await.map_err(io::Error::other)
            })
        },
    },
];

impl Adapter {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Adapter> {
        let mut all = ADAPTERS.iter().copied();
        all.find(|adapter| adapter.name == name)
    }

    /// Runs a program with links of this adapter, within whatever the adapter needs around it.
    pub fn run(self, mut program: impl FnMut(&Connect<'_>)) {
        (self.within)(&mut program);
    }

    /// Serves the client at the standard streams of this process, until its end.
    ///
    /// # Errors
    ///
    /// When the system has no room for it.
    pub fn serve(self, config: server::Config, answer: Answer) -> io::Result<()> {
        (self.serve)(config, answer)
    }
}

/// A runtime with one thread beside that of the program, which may block.
fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build();
    runtime.expect("the system has room for a runtime")
}

/// A runtime with no thread but the one that is lent to it.
fn alone() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("the system has room for a runtime")
}
