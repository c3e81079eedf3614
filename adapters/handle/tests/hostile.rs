//! Misuse of handles by applications: wakers that call back, closures that block, listeners that are dropped.

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

/// Longer than any step here takes, so that a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(20);

/// Both ends, and the in-memory connection between them.
struct World {
    link: Option<Link>,
    owner: LinkOwner,
    host: ServiceOwner,
    epoch: Epoch,
    tasks: Vec<Task>,
}

impl World {
    fn new() -> World {
        let (link, owner) = Link::new(Config::child("hostile", "1.0"));
        World {
            link: Some(link),
            owner,
            host: Service::new(server()).1,
            epoch: Epoch::NONE,
            tasks: Vec::new(),
        }
    }

    fn link(&self) -> &Link {
        self.link.as_ref().expect("it was not dropped")
    }

    /// Runs both drivers until there is no more output.
    fn carry(&mut self) {
        while self.turn() {}
    }

    /// Runs one turn of both drivers. Returns whether there was any output.
    fn turn(&mut self) -> bool {
        self.owner.serve(Instant::ZERO);
        let carried = self.carry_client();
        self.carry_server() || carried
    }

    fn carry_client(&mut self) -> bool {
        let (mut buf, mut carried) = (Vec::new(), false);
        while let Some(output) = self.owner.poll_output(&mut buf) {
            carried = true;
            match output {
                Output::Open { epoch } => {
                    self.epoch = epoch;
                    self.host = Service::new(server()).1;
                    self.owner.handle(Instant::ZERO, epoch, Input::Opened);
                }
                Output::Write { epoch, len, .. } => {
                    self.owner.handle(Instant::ZERO, epoch, Input::sent(len));
                    self.host.handle(Instant::ZERO, Input::bytes(&buf[..]));
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
        carried
    }

    /// Delivers the server's output to the client without polling the client's outputs.
    fn carry_server(&mut self) -> bool {
        let (mut buf, mut carried) = (Vec::new(), false);
        self.host.serve(Instant::ZERO);
        while let Some(output) = self.host.poll_output(&mut buf) {
            carried = true;
            match output {
                Output::Event(task) => self.tasks.push(task),
                Output::Write { len, .. } => {
                    self.host.handle(Instant::ZERO, Input::sent(len));
                    let bytes = Input::bytes(&buf[..]);
                    self.owner.handle(Instant::ZERO, self.epoch, bytes);
                    buf.clear();
                }
                _ => {}
            }
        }
        carried
    }

    fn die(&mut self) {
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
    Payload::of(&json!({"content": [{"type": "text", "text": text}]})).expect("it is JSON")
}

fn look<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Returns a waker that calls this function.
fn waker(wake: impl Fn() + Send + Sync + 'static) -> Waker {
    struct Does<F>(F);
    impl<F: Fn() + Send + Sync> Wake for Does<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    Waker::from(Arc::new(Does(wake)))
}

/// Runs `work` on another thread and fails if it is not done within [`PATIENCE`].
fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    is_done
        .recv_timeout(PATIENCE)
        .unwrap_or_else(|_| panic!("{what} hangs, or panicked"))
}

#[test]
fn what_on_progress_waits_for_does_not_eat_the_wake_up() {
    let mut world = World::new();
    let (entered, has_entered) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let call = world
        .link()
        .call_tool("say", json!({}))
        .on_progress(move |_| {
            entered.send(()).expect("somebody listens");
            may_go_on.recv().expect("somebody says so");
            // Consumes the token of `unpark`, as any blocking call in here may do.
            thread::park_timeout(Duration::ZERO);
        });
    world.carry();
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(call.wait().map(|result| result.text())));

    world.tasks[0].context.progress(Progress::new(1.0));
    world.carry();
    has_entered.recv_timeout(PATIENCE).expect("it is told");
    world.tasks.remove(0).answer.give(Ok(text("done")));
    world.carry();
    go_on.send(()).expect("it waits");

    let outcome = is_done.recv_timeout(PATIENCE).expect("the call is done");
    assert_eq!(outcome.expect("a reply"), "done");
}

#[test]
fn a_panic_in_on_progress_cancels_the_call_and_harms_nobody_else() {
    let mut world = World::new();
    let mut call = world
        .link()
        .call_tool("say", json!({}))
        .on_progress(|_| panic!("as it is meant to"));
    let mut other = world.link().call_tool("say", json!({}));
    world.carry();
    assert!(look(&mut call, Waker::noop()).is_pending());
    world.tasks[0].context.progress(Progress::new(1.0));
    world.carry();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        drop(look(&mut call, Waker::noop()));
    }));
    assert!(panicked.is_err());
    world.carry();
    assert!(world.tasks[0].context.is_cancelled());
    assert!(!world.tasks[1].context.is_cancelled());
    world.tasks.remove(1).answer.give(Ok(text("other")));
    world.carry();
    assert!(look(&mut other, Waker::noop()).is_ready());
}

#[test]
fn who_is_told_that_the_link_is_ready_finds_it_so() {
    let mut world = World::new();
    let first = world.link().ready();
    // A driver feeds the input that makes the link ready, and then runs queued commands before it polls outputs.
    for _ in 0..10 {
        world.owner.serve(Instant::ZERO);
        world.carry_client();
        world.carry_server();
        let mut told = world.link().ready();
        world.owner.serve(Instant::ZERO);
        if let Poll::Ready(answer) = look(&mut told, Waker::noop()) {
            answer.expect("it is driven").expect("it is ready");
            assert_eq!(world.link().state(), State::Ready);
            assert!(world.link().session().is_some());
            drop(first);
            return;
        }
        world.carry_client();
    }
    panic!("it never became ready");
}

#[test]
fn who_is_told_that_the_link_is_closed_finds_it_so() {
    let mut world = World::new();
    world.carry();
    drop(world.link().shutdown());
    let mut call = world.link().call_tool("say", json!({}));
    world.owner.serve(Instant::ZERO);
    let told = look(&mut call, Waker::noop());
    assert!(matches!(told, Poll::Ready(Err(CallError::Misuse(_)))));
    assert_ne!(world.link().state(), State::Idle);
}

#[test]
fn who_asks_a_link_that_closes_to_be_ready_finds_it_closed() {
    let mut world = World::new();
    drop(world.link().shutdown());
    let mut ready = world.link().ready();
    world.owner.serve(Instant::ZERO);
    if let Poll::Ready(told) = look(&mut ready, Waker::noop()) {
        let not_ready = told.expect("it is driven").expect_err("it is closed");
        assert_eq!(world.link().state(), not_ready.state);
    }
    world.carry();
    assert_eq!(world.link().state(), State::Closed);
}

#[test]
fn a_waker_may_ask_for_events() {
    in_time("a waker that asks for events", || {
        let mut world = World::new();
        let link = world.link().clone();
        let waker = waker(move || drop(link.events()));
        let mut events = world.link().events();
        {
            let mut next = std::pin::pin!(events.recv());
            let mut cx = Context::from_waker(&waker);
            assert!(next.as_mut().poll(&mut cx).is_pending());
        }
        drop(world.link().ready());
        world.carry();
        assert!(events.try_recv().is_some());
    });
}

/// A waker that owns the task that it wakes, as in many executors.
struct Owns<T>(Mutex<Option<T>>);

impl<T: Send> Wake for Owns<T> {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_that_owns_the_last_link_may_be_replaced() {
    in_time("a driver that moves to another task", || {
        let (link, owner) = Link::new(Config::child("hostile", "1.0"));
        let task = Arc::new(Owns(Mutex::new(Some(link))));
        let is_asked = owner.belongs_to(&Waker::from(task));
        assert!(!is_asked);
        // The old task has ended; its registered waker is the last reference to it.
        let _ = owner.belongs_to(Waker::noop());
        assert!(
            owner.belongs_to(Waker::noop()),
            "the link went, and is to be shut down"
        );
    });
}

#[test]
fn a_waker_that_owns_its_call_may_be_dropped_anywhere() {
    in_time("the end of a link whose wakers own calls", || {
        let mut world = World::new();
        let mut call = world.link().call_tool("say", json!({}));
        let task = Arc::new(Owns(Mutex::new(None)));
        let waker = Waker::from(Arc::clone(&task));
        assert!(look(&mut call, &waker).is_pending());
        *task.0.lock().expect("nobody panicked") = Some((call, world.link.take()));
        drop((task, waker));
        world.carry();
        world.tasks.remove(0).answer.give(Ok(text("the last word")));
        world.carry();
        // The reply woke the task. Its waker was the last reference to it, so the task and its link were dropped.
        world.carry();
        assert!(world.owner.is_closed(), "the last link went with the task");
    });
}

#[cfg(target_os = "linux")]
#[test]
fn listeners_that_left_are_forgotten_on_a_quiet_link() {
    let kib_held = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number
            .expect("it is there")
            .parse::<u64>()
            .expect("a number")
    };
    let world = World::new();
    let before = kib_held();
    (0..500_000).for_each(|_| drop(world.link().events()));
    let more = kib_held().saturating_sub(before);
    assert!(more < 16 << 10, "{more} KiB are held for nobody");
}

#[test]
fn whoever_stops_waiting_for_a_cancellation_is_forgotten() {
    let mut world = World::new();
    let call = world.link().call_tool("say", json!({}));
    world.carry();
    let context = world.tasks[0].context.clone();
    let task = Arc::new(Owns(Mutex::new(Some(()))));
    let waker = Waker::from(Arc::clone(&task));
    let mut cancelled = Box::pin(context.cancelled());
    let is_there = cancelled.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(is_there.is_pending());
    drop((cancelled, waker));
    assert_eq!(Arc::strong_count(&task), 1, "its waker is kept for nobody");
    drop(call);
    world.carry();
    assert!(context.is_cancelled());
}

#[test]
fn everybody_who_waits_for_a_cancellation_is_woken() {
    let mut world = World::new();
    let call = world.link().call_tool("say", json!({}));
    world.carry();
    let contexts = [(); 3].map(|()| world.tasks[0].context.clone());
    let waiting = contexts.map(|context| thread::spawn(move || context.wait_cancelled()));
    drop(call);
    world.carry();
    for thread in waiting {
        in_time("who waits for a cancellation", move || thread.join()).expect("it is told");
    }
}

#[test]
fn who_waits_for_a_cancellation_does_not_wait_past_the_answer() {
    let mut world = World::new();
    let call = world.link().call_tool("say", json!({}));
    world.carry();
    let Task {
        context, answer, ..
    } = world.tasks.remove(0);
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        context.wait_cancelled();
        done.send(())
    });
    answer.give(Ok(text("done")));
    world.carry();
    drop((call, world));
    let told = is_done.recv_timeout(PATIENCE);
    assert_eq!(told, Ok(()), "the request is over, and so is its server");
}

#[test]
fn a_call_that_was_taken_can_be_polled_again() {
    let mut world = World::new();
    let mut call = world.link().call_tool("say", json!({}));
    world.carry();
    world.tasks.remove(0).answer.give(Ok(text("once")));
    world.carry();
    assert!(matches!(look(&mut call, Waker::noop()), Poll::Ready(Ok(_))));
    assert!(
        look(&mut call, Waker::noop()).is_ready(),
        "no hang, no panic"
    );
}

#[test]
fn everybody_hears_of_the_end_of_an_owner_that_panics() {
    let mut world = World::new();
    let (call, ready) = (
        world.link().call_tool("say", json!({})),
        world.link().ready(),
    );
    world.carry();
    let later = world.link().call_tool("say", json!({}));
    let (stats, closed, events) = (
        world.link().stats(),
        world.link().shutdown(),
        world.link().events(),
    );
    let link = world.link().clone();
    let World { owner, .. } = world;
    let driver = thread::spawn(move || {
        let _owner = owner;
        panic!("as it is meant to");
    });
    assert!(driver.join().is_err());
    in_time("somebody who waits for an owner that is gone", move || {
        assert!(matches!(call.wait(), Err(CallError::Gone)));
        assert!(matches!(later.wait(), Err(CallError::Misuse(_))));
        drop((ready.wait(), stats.wait(), closed.wait()));
        let _ = events.count();
        assert_eq!(link.state(), State::Closed);
        assert!(link.stats().wait().is_err());
        assert!(link.shutdown().wait().is_ok());
    });
}

#[test]
fn letters_of_many_threads_all_arrive() {
    let (link, mut owner) = Link::new(Config::child("hostile", "1.0"));
    let threads = [(); 4].map(|()| {
        let link = link.clone();
        thread::spawn(move || (0..500).all(|_| link.stats().wait().is_ok()))
    });
    drop(link);
    in_time("a driver that is woken for each letter", move || {
        let driver = thread::current();
        let _ = owner.belongs_to(&waker(move || driver.unpark()));
        let mut buf = Vec::new();
        loop {
            owner.serve(Instant::ZERO);
            while owner.poll_output(&mut buf).is_some() {}
            if owner.is_closed() {
                return;
            }
            thread::park();
        }
    });
    for thread in threads {
        assert!(thread.join().expect("it did not panic"));
    }
}

#[test]
fn a_link_that_dies_under_a_call_says_so_once() {
    let mut world = World::new();
    let mut call = world.link().call_tool("say", json!({}));
    let canceller = call.canceller();
    world.carry();
    world.die();
    // The cancellation is queued before the outcome is delivered.
    canceller.cancel("too late");
    world.carry();
    assert!(matches!(
        look(&mut call, Waker::noop()),
        Poll::Ready(Err(CallError::Failed(_)))
    ));
}
