//! Lists the adapters that spawn processes, as drivers for the kit. Must not depend on any test.

use std::future::Future;
use std::io;
use std::process::Command;
use std::thread;

use everlink_driver_tests::{Connect, DriveGuard, Driver, Serve, SilentHost};
use everlink_handle::{GuardOwner, Park, ThreadClock, ThreadPark, drive_relay, run};
use everlink_stdio::reactor::PollReactor;
use everlink_stdio::threads::ThreadedChild;
use everlink_stdio::{ChildTransport, PolledChild};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Uses links of one adapter.
type Program<'a> = dyn FnMut(&Connect<'_>) + 'a;

/// One adapter.
#[derive(Clone, Copy, Debug)]
pub struct Adapter {
    name: &'static str,
    run_inside: fn(&mut Program<'_>),
    drive_guard: fn(GuardOwner, SilentHost, Command) -> io::Result<()>,
    serve: Serve,
    has_runtime: bool,
}

/// All adapters under test.
pub const ADAPTERS: &[&dyn Driver] = &[&STDIO, &THREADS, &TOKIO, &TOKIO_ALONE];

const STDIO: Adapter = Adapter {
    name: "stdio",
    run_inside: |program| program(&everlink_stdio::connect),
    drive_guard: |owner, host, command| {
        let reactor = PollReactor::new()?;
        let child = ChildTransport::<PolledChild<_>>::new(command, reactor.clone());
        start(
            move || reactor,
            move |clock| drive_relay(owner, host, child, clock),
        )
    },
    serve: |config, answer| {
        let service = everlink_stdio::serve(config, answer)?;
        service.closed().wait().map_err(io::Error::other)
    },
    has_runtime: false,
};

const THREADS: Adapter = Adapter {
    name: "threads",
    run_inside: |program| program(&everlink_stdio::with_threads::connect),
    drive_guard: |owner, host, command| {
        let child = ChildTransport::<ThreadedChild>::new(command, ());
        start(ThreadPark::new, move |clock| {
            drive_relay(owner, host, child, clock)
        })
    },
    serve: |config, answer| {
        let service = everlink_stdio::with_threads::serve(config, answer)?;
        service.closed().wait().map_err(io::Error::other)
    },
    has_runtime: false,
};

const TOKIO: Adapter = Adapter {
    name: "tokio",
    run_inside: |program| {
        let runtime = multi_threaded_runtime();
        let _guard = runtime.enter();
        program(&everlink_tokio::child::connect);
    },
    drive_guard: drive_guard_on_tokio,
    serve: |config, answer| {
        let runtime = multi_threaded_runtime();
        let _guard = runtime.enter();
        let answer = move |request, context| async move { answer(request, context) };
        let service = everlink_tokio::stdio::serve(config, answer)?;
        service.closed().wait().map_err(io::Error::other)
    },
    has_runtime: true,
};

const TOKIO_ALONE: Adapter = Adapter {
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
            // Waits for the exit of the thread: the kit counts threads.
            runtime_thread
                .join()
                .expect("the runtime thread does not panic")
        })
        .expect_err("the sender is dropped");
    },
    drive_guard: drive_guard_on_tokio,
    serve: |config, answer| {
        single_threaded_runtime().block_on(async {
            let answer = move |request, context| async move { answer(request, context) };
            let service = everlink_tokio::stdio::serve(config, answer)?;
            service.closed().await.map_err(io::Error::other)
        })
    },
    has_runtime: true,
};

impl Driver for Adapter {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self, program: &mut dyn FnMut(&Connect<'_>)) {
        (self.run_inside)(program);
    }

    fn ends_with_run(&self) -> bool {
        self.has_runtime
    }

    fn drive_guard(&self) -> Option<Box<DriveGuard<'_>>> {
        Some(Box::new(self.drive_guard))
    }

    fn serve(&self) -> Option<Serve> {
        Some(self.serve)
    }
}

/// Finds an adapter by its name.
#[must_use]
pub fn find_adapter(name: &str) -> Option<&'static dyn Driver> {
    let mut all = ADAPTERS.iter().copied();
    all.find(|adapter| adapter.name() == name)
}

/// Starts a thread that runs a driver.
fn start<P: Park, D: Future>(
    park: impl FnOnce() -> P + Send + 'static,
    driver: impl FnOnce(ThreadClock) -> D + Send + 'static,
) -> io::Result<()> {
    let thread = thread::Builder::new().name("guard".into());
    thread.spawn(move || drop(run(park(), driver))).map(drop)
}

fn drive_guard_on_tokio(owner: GuardOwner, host: SilentHost, command: Command) -> io::Result<()> {
    let child = everlink_tokio::child::transport(command);
    drop(tokio::spawn(everlink_tokio::drive_relay(
        owner, host, child,
    )));
    Ok(())
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
