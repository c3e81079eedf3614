//! Tests handles in awkward applications: wakers that call a handle, callbacks that block, listeners and futures that are dropped early.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use everlink::client::State;
use everlink::protocol::ServerCapabilities;
use everlink::server::{self, Offer, Progress, Server};
use everlink::{Config, Epoch, ExitStatus, Input, Instant, Output, Payload};
use everlink_handle::{CallError, Link, LinkOwner, Service, ServiceOwner, Task};
use serde_json::json;

/// Longer than any step takes, so only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A client and a server, each with its owner, connected in memory.
struct ConnectedPair {
    link: Option<Link>,
    owner: LinkOwner,
    server_owner: ServiceOwner,
    epoch: Epoch,
    /// Requests that the server has not answered yet.
    tasks: Vec<Task>,
}

impl ConnectedPair {
    fn new() -> ConnectedPair {
        let (link, owner) = Link::new(Config::child("hostile", "1.0"));
        ConnectedPair {
            link: Some(link),
            owner,
            server_owner: Service::new(server()).1,
            epoch: Epoch::NONE,
            tasks: Vec::new(),
        }
    }

    fn link(&self) -> &Link {
        self.link.as_ref().expect("the test still holds the link")
    }

    /// Runs both drivers until there is no more output.
    fn run(&mut self) {
        while self.turn() {}
    }

    /// Runs one turn of both drivers. Returns whether there was any output.
    fn turn(&mut self) -> bool {
        self.owner.advance(Instant::ZERO);
        let had_output = self.run_client();
        self.run_server() || had_output
    }

    fn run_client(&mut self) -> bool {
        let (mut buf, mut had_output) = (Vec::new(), false);
        while let Some(output) = self.owner.poll_output(&mut buf) {
            had_output = true;
            match output {
                Output::Open { epoch } => {
                    self.epoch = epoch;
                    self.server_owner = Service::new(server()).1;
                    self.owner.handle(Instant::ZERO, epoch, Input::Opened);
                }
                Output::Write { epoch, len, .. } => {
                    self.owner.handle(Instant::ZERO, epoch, Input::sent(len));
                    self.server_owner
                        .handle(Instant::ZERO, Input::bytes(&buf[..]));
                    buf.clear();
                }
                Output::CloseWrite { epoch } | Output::Kill { epoch } => {
                    self.owner.handle(Instant::ZERO, epoch, Input::end(&[]));
                    let exited = Input::exited(ExitStatus::Code(0));
                    self.owner.handle(Instant::ZERO, epoch, exited);
                }
                _ => {}
            }
        }
        had_output
    }

    /// Delivers the server's output to the client without polling the client's outputs.
    fn run_server(&mut self) -> bool {
        let (mut buf, mut had_output) = (Vec::new(), false);
        self.server_owner.advance(Instant::ZERO);
        while let Some(output) = self.server_owner.poll_output(&mut buf) {
            had_output = true;
            match output {
                Output::Event(task) => self.tasks.push(task),
                Output::Write { len, .. } => {
                    self.server_owner.handle(Instant::ZERO, Input::sent(len));
                    let bytes = Input::bytes(&buf[..]);
                    self.owner.handle(Instant::ZERO, self.epoch, bytes);
                    buf.clear();
                }
                _ => {}
            }
        }
        had_output
    }

    fn kill_server(&mut self) {
        self.owner
            .handle(Instant::ZERO, self.epoch, Input::end(&[]));
        let exited = Input::exited(ExitStatus::Signal(9));
        self.owner.handle(Instant::ZERO, self.epoch, exited);
    }
}

fn server() -> Server {
    let offer = Offer::new("hostile", "1.0")
        .with_capabilities(ServerCapabilities::default().with_tools(true));
    Server::new(server::Config::new(offer, [7; 16]))
}

fn text(text: &str) -> Payload {
    Payload::of(&json!({"content": [{"type": "text", "text": text}]})).expect("the result is JSON")
}

fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Returns a waker that calls this function.
fn waker(wake: impl Fn() + Send + Sync + 'static) -> Waker {
    struct CallsFunction<F>(F);
    impl<F: Fn() + Send + Sync> Wake for CallsFunction<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    Waker::from(Arc::new(CallsFunction(wake)))
}

/// Runs `work` on another thread and fails if it is not done within [`TIMEOUT`].
fn with_timeout<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    is_done
        .recv_timeout(TIMEOUT)
        .unwrap_or_else(|_| panic!("{what} hangs, or panicked"))
}

#[test]
fn blocking_call_in_on_progress_does_not_lose_the_wake_up() {
    let mut pair = ConnectedPair::new();
    let (entered, has_entered) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let call = pair
        .link()
        .call_tool("say", json!({}))
        .on_progress(move |_| {
            entered.send(()).expect("the test listens");
            may_go_on.recv().expect("the test sends it");
            // Consumes the token of `unpark`, as any blocking call in here may do.
            thread::park_timeout(Duration::ZERO);
        })
        .start();
    pair.run();
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(call.wait().map(|result| result.text())));

    pair.tasks[0].context.progress(Progress::new(1.0));
    pair.run();
    has_entered
        .recv_timeout(TIMEOUT)
        .expect("progress is reported");
    pair.tasks.remove(0).answer.give(Ok(text("done")));
    pair.run();
    go_on.send(()).expect("the callback waits");

    let outcome = is_done.recv_timeout(TIMEOUT).expect("the call is done");
    assert_eq!(outcome.expect("a reply"), "done");
}

#[test]
fn panic_in_on_progress_cancels_only_its_own_call() {
    let mut pair = ConnectedPair::new();
    let mut call = pair
        .link()
        .call_tool("say", json!({}))
        .on_progress(|_| panic!("intentional panic"))
        .start();
    let mut other = pair.link().call_tool("say", json!({})).start();
    pair.run();
    assert!(poll_once(&mut call, Waker::noop()).is_pending());
    pair.tasks[0].context.progress(Progress::new(1.0));
    pair.run();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        drop(poll_once(&mut call, Waker::noop()));
    }));
    assert!(panicked.is_err());
    pair.run();
    assert!(pair.tasks[0].context.is_cancelled());
    assert!(!pair.tasks[1].context.is_cancelled());
    pair.tasks.remove(1).answer.give(Ok(text("other")));
    pair.run();
    assert!(poll_once(&mut other, Waker::noop()).is_ready());
}

#[test]
fn state_is_ready_when_ready_completes() {
    let mut pair = ConnectedPair::new();
    let first = pair.link().ready();
    // A driver feeds the input that makes the link ready, and then runs queued commands before it polls outputs.
    for _ in 0..10 {
        pair.owner.advance(Instant::ZERO);
        pair.run_client();
        pair.run_server();
        let mut ready = pair.link().ready();
        pair.owner.advance(Instant::ZERO);
        if let Poll::Ready(answer) = poll_once(&mut ready, Waker::noop()) {
            answer.expect("the link is ready");
            assert_eq!(pair.link().state(), State::Ready);
            assert!(pair.link().session().is_some());
            drop(first);
            return;
        }
        pair.run_client();
    }
    panic!("it never became ready");
}

#[test]
fn state_is_not_idle_when_a_call_is_refused_after_shutdown() {
    let mut pair = ConnectedPair::new();
    pair.run();
    drop(pair.link().shutdown());
    let mut call = pair.link().call_tool("say", json!({})).start();
    pair.owner.advance(Instant::ZERO);
    let polled = poll_once(&mut call, Waker::noop());
    assert!(matches!(polled, Poll::Ready(Err(CallError::Misuse(_)))));
    assert_ne!(pair.link().state(), State::Idle);
}

#[test]
fn ready_after_shutdown_reports_the_published_state() {
    let mut pair = ConnectedPair::new();
    drop(pair.link().shutdown());
    let mut ready = pair.link().ready();
    pair.owner.advance(Instant::ZERO);
    if let Poll::Ready(result) = poll_once(&mut ready, Waker::noop()) {
        let not_ready = result.expect_err("it is closed");
        assert_eq!(pair.link().state(), not_ready.state);
    }
    pair.run();
    assert_eq!(pair.link().state(), State::Closed);
}

#[test]
fn waker_may_subscribe_to_events() {
    with_timeout("a waker that asks for events", || {
        let mut pair = ConnectedPair::new();
        let link = pair.link().clone();
        let waker = waker(move || drop(link.events()));
        let mut events = pair.link().events();
        {
            let mut next = std::pin::pin!(events.recv());
            let mut cx = Context::from_waker(&waker);
            assert!(next.as_mut().poll(&mut cx).is_pending());
        }
        drop(pair.link().ready());
        pair.run();
        assert!(events.try_recv().is_some());
    });
}

/// A waker that owns the task that it wakes, as in many executors.
struct OwningWaker<T>(Mutex<Option<T>>);

impl<T: Send> Wake for OwningWaker<T> {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn replacing_a_waker_that_owns_the_last_link_does_not_deadlock() {
    with_timeout("a driver that moves to another task", || {
        let (link, owner) = Link::new(Config::child("hostile", "1.0"));
        let task = Arc::new(OwningWaker(Mutex::new(Some(link))));
        let has_commands = owner.register_waker(&Waker::from(task));
        assert!(!has_commands);
        // The old task has ended; its registered waker is the last reference to it.
        let _ = owner.register_waker(Waker::noop());
        assert!(
            owner.register_waker(Waker::noop()),
            "the dropped link queued its shutdown"
        );
    });
}

#[test]
fn waker_that_owns_its_call_and_link_is_dropped_without_deadlock() {
    with_timeout("the end of a link whose wakers own calls", || {
        let mut pair = ConnectedPair::new();
        let mut call = pair.link().call_tool("say", json!({})).start();
        let task = Arc::new(OwningWaker(Mutex::new(None)));
        let waker = Waker::from(Arc::clone(&task));
        assert!(poll_once(&mut call, &waker).is_pending());
        *task.0.lock().expect("nobody panicked") = Some((call, pair.link.take()));
        drop((task, waker));
        pair.run();
        pair.tasks.remove(0).answer.give(Ok(text("the last word")));
        pair.run();
        // The reply woke the task. Its waker was the last reference to it, so the task and its link were dropped.
        pair.run();
        assert!(
            pair.owner.is_closed(),
            "the last link was dropped with the task"
        );
    });
}

#[cfg(target_os = "linux")]
#[test]
fn dropped_listeners_are_freed_while_no_event_is_sent() {
    let resident_kib = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number
            .expect("the line has a number")
            .parse::<u64>()
            .expect("a number")
    };
    let pair = ConnectedPair::new();
    let before = resident_kib();
    (0..500_000).for_each(|_| drop(pair.link().events()));
    let growth = resident_kib().saturating_sub(before);
    assert!(
        growth < 16 << 10,
        "{growth} KiB are held for dropped listeners"
    );
}

#[test]
fn dropped_cancellation_future_releases_its_waker() {
    let mut pair = ConnectedPair::new();
    let call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let context = pair.tasks[0].context.clone();
    let task = Arc::new(OwningWaker(Mutex::new(Some(()))));
    let waker = Waker::from(Arc::clone(&task));
    let mut cancelled = Box::pin(context.cancelled());
    let polled = cancelled.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    drop((cancelled, waker));
    assert_eq!(
        Arc::strong_count(&task),
        1,
        "the dropped future still holds its waker"
    );
    drop(call);
    pair.run();
    assert!(context.is_cancelled());
}

#[test]
fn cancellation_wakes_all_waiting_threads() {
    let mut pair = ConnectedPair::new();
    let call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let contexts = [(); 3].map(|()| pair.tasks[0].context.clone());
    let waiting = contexts.map(|context| thread::spawn(move || context.wait_cancelled()));
    drop(call);
    pair.run();
    for thread in waiting {
        with_timeout("a thread that waits for a cancellation", move || {
            thread.join()
        })
        .expect("the waiting thread did not panic");
    }
}

#[test]
fn wait_cancelled_ends_when_the_request_is_answered() {
    let mut pair = ConnectedPair::new();
    let call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let Task {
        context, answer, ..
    } = pair.tasks.remove(0);
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        context.wait_cancelled();
        done.send(())
    });
    answer.give(Ok(text("done")));
    pair.run();
    drop((call, pair));
    let ended = is_done.recv_timeout(TIMEOUT);
    assert_eq!(ended, Ok(()), "the request is over, and so is its server");
}

#[test]
fn finished_call_can_be_polled_again() {
    let mut pair = ConnectedPair::new();
    let mut call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    pair.tasks.remove(0).answer.give(Ok(text("once")));
    pair.run();
    assert!(matches!(
        poll_once(&mut call, Waker::noop()),
        Poll::Ready(Ok(_))
    ));
    assert!(
        poll_once(&mut call, Waker::noop()).is_ready(),
        "no hang, no panic"
    );
}

#[test]
fn panic_of_the_driver_ends_all_calls_queries_and_events() {
    let mut pair = ConnectedPair::new();
    let (call, ready) = (
        pair.link().call_tool("say", json!({})).start(),
        pair.link().ready(),
    );
    pair.run();
    let later = pair.link().call_tool("say", json!({})).start();
    let (stats, closed, mut events) = (
        pair.link().stats(),
        pair.link().shutdown(),
        pair.link().events(),
    );
    let link = pair.link().clone();
    let ConnectedPair { owner, .. } = pair;
    let driver = thread::spawn(move || {
        let _owner = owner;
        panic!("intentional panic");
    });
    assert!(driver.join().is_err());
    with_timeout("a caller that waits for a dropped owner", move || {
        assert!(matches!(call.wait(), Err(CallError::Gone)));
        assert!(matches!(later.wait(), Err(CallError::Misuse(_))));
        drop((ready.wait(), stats.wait(), closed.wait()));
        let _ = events.iter().count();
        assert_eq!(link.state(), State::Closed);
        assert!(link.stats().wait().is_err());
        assert!(link.shutdown().wait().is_ok());
    });
}

#[test]
fn commands_of_many_threads_are_all_run() {
    let (link, mut owner) = Link::new(Config::child("hostile", "1.0"));
    let threads = [(); 4].map(|()| {
        let link = link.clone();
        thread::spawn(move || (0..500).all(|_| link.stats().wait().is_ok()))
    });
    drop(link);
    with_timeout("a driver that is woken for each command", move || {
        let driver = thread::current();
        let _ = owner.register_waker(&waker(move || driver.unpark()));
        let mut buf = Vec::new();
        loop {
            owner.advance(Instant::ZERO);
            while owner.poll_output(&mut buf).is_some() {}
            if owner.is_closed() {
                return;
            }
            thread::park();
        }
    });
    for thread in threads {
        assert!(thread.join().expect("the thread did not panic"));
    }
}

#[test]
fn call_fails_when_it_is_cancelled_after_the_server_died() {
    let mut pair = ConnectedPair::new();
    let mut call = pair.link().call_tool("say", json!({})).start();
    let canceller = call.canceller();
    pair.run();
    pair.kill_server();
    // The cancellation is queued before the outcome is delivered.
    canceller.cancel("too late");
    pair.run();
    assert!(matches!(
        poll_once(&mut call, Waker::noop()),
        Poll::Ready(Err(CallError::Failed(_)))
    ));
}
