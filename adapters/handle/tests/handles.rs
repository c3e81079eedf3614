//! Tests the handles and owners of both ends, connected in memory, with a manual clock.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use everlink::client::{CallOptions, Event, FailureKind, Misuse, State};
use everlink::protocol::{ServerCapabilities, code};
use everlink::server::{self, InputRequired, Offer, Progress, Server};
use everlink::{
    Change, Config, Dialect, Epoch, ErrorObject, ExitStatus, Input, Instant, Limit, List, Output,
    Payload, Watch,
};
use everlink_handle::{
    Call, CallError, Events, Link, LinkOwner, Response, Service, ServiceOwner, Task, ToolResult,
};
use serde_json::json;

/// Both ends, and the in-memory connection between them.
struct World {
    now: Instant,
    link: Option<Link>,
    owner: Option<LinkOwner>,
    service: Service,
    host: ServiceOwner,
    epoch: Epoch,
    /// The requests that the server has not answered yet.
    tasks: Vec<Task>,
    /// Whether every attempt to open a transport fails.
    refuses: bool,
}

impl World {
    fn new() -> World {
        World::with(Config::child("handles", "1.0"))
    }

    fn with(config: Config) -> World {
        let (link, owner) = Link::new(config);
        let (service, host) = Service::new(server());
        World {
            now: Instant::ZERO,
            link: Some(link),
            owner: Some(owner),
            service,
            host,
            epoch: Epoch::NONE,
            tasks: Vec::new(),
            refuses: false,
        }
    }

    fn link(&self) -> &Link {
        self.link.as_ref().expect("it was not dropped")
    }

    /// Runs both drivers until there is no more output.
    fn carry(&mut self) {
        let mut buf = Vec::new();
        loop {
            let mut is_quiet = true;
            if let Some(owner) = &mut self.owner {
                owner.serve(self.now);
                while let Some(output) = owner.poll_output(&mut buf) {
                    is_quiet = false;
                    match output {
                        Output::Open { epoch } if self.refuses => {
                            owner.handle(self.now, epoch, Input::open_failed(&[]));
                        }
                        Output::Open { epoch } => {
                            self.epoch = epoch;
                            (self.service, self.host) = Service::new(server());
                            owner.handle(self.now, epoch, Input::Opened);
                        }
                        Output::Write { epoch, len, .. } => {
                            owner.handle(self.now, epoch, Input::sent(len));
                            self.host.handle(self.now, Input::bytes(&buf[..]));
                            buf.clear();
                        }
                        Output::CloseWrite { epoch } | Output::Kill { epoch } => {
                            owner.handle(self.now, epoch, Input::end(&[]));
                            owner.handle(self.now, epoch, Input::exited(ExitStatus::Code(0)));
                        }
                        _ => {}
                    }
                }
            }
            self.host.serve(self.now);
            while let Some(output) = self.host.poll_output(&mut buf) {
                is_quiet = false;
                match output {
                    Output::Event(task) => self.tasks.push(task),
                    Output::Write { len, .. } => {
                        self.host.handle(self.now, Input::sent(len));
                        if let Some(owner) = &mut self.owner {
                            owner.handle(self.now, self.epoch, Input::bytes(&buf[..]));
                        }
                        buf.clear();
                    }
                    _ => {}
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
        self.carry();
    }

    fn answer(&mut self, answer: Result<Payload, ErrorObject>) {
        self.tasks.remove(0).answer.give(answer);
        self.carry();
    }

    /// Ends the server's process: standard error, end of output, then `SIGKILL` as its exit status.
    fn die(&mut self) {
        let owner = self.owner.as_mut().expect("it was not dropped");
        owner.handle(self.now, self.epoch, Input::stderr(&b"out of cheese"[..]));
        owner.handle(self.now, self.epoch, Input::end(&[]));
        owner.handle(self.now, self.epoch, Input::exited(ExitStatus::Signal(9)));
    }
}

fn server() -> Server {
    let capabilities = ServerCapabilities::default()
        .with_tools(true)
        .with_logging();
    let offer = Offer::new("handles", "1.0").with_capabilities(capabilities);
    Server::new(server::Config::new(offer, [7; 16]))
}

fn text(text: &str) -> Payload {
    Payload::of(&json!({"content": [{"type": "text", "text": text}]})).expect("it is JSON")
}

/// Polls a future once, without a runtime.
fn look<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn now<F: Future + Unpin>(mut future: F) -> F::Output {
    match look(&mut future) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it should be there by now"),
    }
}

#[test]
fn a_call_is_answered_to_whoever_made_it() {
    let mut world = World::new();
    let one = world.link().call_tool("say", json!({"n": 1}));
    let two = world.link().call_tool("say", json!({"n": 2}));
    world.carry();
    assert_eq!(world.tasks.len(), 2, "both are under way at once");
    // Answer the second call first.
    world.tasks.swap(0, 1);
    world.answer(Ok(text("two")));
    world.answer(Ok(text("one")));
    assert_eq!(now(two).expect("a reply").text(), "two");
    assert_eq!(now(one).expect("a reply").text(), "one");
}

#[test]
fn what_a_tool_returns_is_read_as_it_is_meant() {
    let mut world = World::new();
    let call = world.link().call_tool("say", json!({}));
    world.carry();
    let said = json!({
        "content": [{"type": "text", "text": "a\nb"}, {"type": "image", "data": ""}, {"type": "text", "text": "c"}],
        "structuredContent": {"n": 3},
        "isError": true,
    });
    world.answer(Ok(Payload::of(&said).expect("it is JSON")));
    let result = now(call).expect("a tool that failed is a reply");
    assert!(result.is_error());
    assert_eq!(result.text(), "a\nb\nc");
    let structured: serde_json::Value = result.structured().expect("there is some");
    assert_eq!(structured, json!({"n": 3}));
    assert!(world.link().state() == State::Ready, "the link is well");
}

#[test]
fn the_text_of_a_result_is_that_of_all_pieces_that_have_one() {
    let texts = [
        (
            json!([{"text": ""}, {"text": null}, {"text": "a"}, {}]),
            "\na",
        ),
        (json!([{"text": "\u{e9}\t", "type": "text"}]), "\u{e9}\t"),
        (json!([]), ""),
        (json!([{"text": "a"}, {"text": 1}]), ""),
        (json!("a"), ""),
    ];
    for (content, text) in texts {
        let mut world = World::new();
        let call = world.link().call_tool("say", json!({}));
        world.carry();
        let said = Payload::of(&json!({"content": content}));
        world.answer(Ok(said.expect("it is JSON")));
        assert_eq!(now(call).expect("a reply").text(), text, "{content}");
    }
}

#[test]
fn arguments_that_are_no_json_are_told_without_asking_anybody() {
    let mut world = World::new();
    let mut bad = std::collections::BTreeMap::new();
    bad.insert(vec![1, 2], "a key that is no text");
    let call = world.link().call_tool("say", bad);
    let error = now(call).expect_err("it cannot be written");
    assert!(matches!(error, CallError::Arguments(_)), "{error}");
    assert!(!error.may_have_run());
    world.carry();
    assert_eq!(
        world.link().state(),
        State::Idle,
        "nothing was connected for it"
    );
}

#[test]
fn a_call_that_is_dropped_is_cancelled_at_the_server() {
    let mut world = World::new();
    let call = world.link().call_tool("say", json!({}));
    world.carry();
    assert!(!world.tasks[0].context.is_cancelled());
    drop(call);
    world.carry();
    assert!(world.tasks[0].context.is_cancelled());
}

#[test]
fn a_call_that_is_dropped_before_anybody_saw_it_is_not_sent() {
    let mut world = World::new();
    drop(world.link().call_tool("say", json!({})));
    world.carry();
    assert!(world.tasks.is_empty());
    let stats = world.link().stats();
    world.carry();
    let stats = now(stats).expect("it is driven");
    assert_eq!((stats.calls, stats.settled), (1, 1));
}

#[test]
fn somebody_else_can_cancel_a_call_and_say_why() {
    let mut world = World::new();
    let call = world.link().call_tool("say", json!({}));
    let canceller = call.canceller();
    world.carry();
    canceller.cancel("changed my mind");
    world.carry();
    let error = now(call).expect_err("it was cancelled");
    let CallError::Failed(failure) = &error else {
        panic!("{error}");
    };
    assert!(matches!(failure.kind, FailureKind::Cancelled { .. }));
    assert!(error.to_string().contains("changed my mind"), "{error}");
    assert!(error.may_have_run());
    // A second cancellation, after the call has ended, has no effect.
    canceller.cancel("twice");
    world.carry();
}

#[test]
fn progress_is_told_by_whoever_waits() {
    let mut world = World::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    let mut call = world
        .link()
        .call_tool("say", json!({}))
        .on_progress(move |report| {
            sink.lock()
                .expect("no panic")
                .push((report.progress, report.total));
        });
    world.carry();
    for step in 1..=3 {
        let context = &world.tasks[0].context;
        context.progress(Progress::new(f64::from(step)).of(3.0));
        world.carry();
    }
    assert!(
        heard.lock().expect("no panic").is_empty(),
        "nobody waits yet"
    );
    assert!(look(&mut call).is_pending());
    assert_eq!(heard.lock().expect("no panic").len(), 3);
    world.answer(Ok(text("done")));
    now(call).expect("a reply");
}

/// A driver that runs a task itself answers without the command queue.
#[test]
fn what_was_asked_for_on_the_way_to_an_answer_comes_before_it() {
    let mut world = World::new();
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    let call = world
        .link()
        .call_tool("say", json!({}))
        .on_progress(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
    world.carry();
    let task = world.tasks.remove(0);
    task.context.progress(Progress::new(1.0));
    let answer = Ok(Response::Result(text("done")));
    world.host.respond(world.now, task.answer, answer);
    assert!(task.context.is_cancelled(), "nobody waits for more");
    world.carry();
    assert_eq!(now(call).expect("a reply").text(), "done");
    assert_eq!(heard.load(Ordering::Relaxed), 1);
}

#[test]
fn a_link_is_light_with_one_call_and_not_with_two() {
    let mut world = World::new();
    let one = world.link().call_tool("say", json!({}));
    world.carry();
    let is_light = |world: &World| world.owner.as_ref().is_some_and(LinkOwner::is_light);
    assert!(is_light(&world));
    let two = world.link().call_tool("say", json!({}));
    world.carry();
    assert!(!is_light(&world));
    drop((one, two));
    world.carry();
    assert!(is_light(&world));
}

#[test]
fn progress_that_nobody_looks_at_is_bounded() {
    let mut world = World::new();
    let call = world.link().call_tool("say", json!({}));
    world.carry();
    for step in 1..=1000 {
        world.tasks[0]
            .context
            .progress(Progress::new(f64::from(step)));
        world.carry();
    }
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    let mut call =
        call.on_progress(move |report| sink.lock().expect("no panic").push(report.progress));
    assert!(look(&mut call).is_pending());
    let heard = heard.lock().expect("no panic");
    assert!(heard.len() <= 64, "{}", heard.len());
    assert_eq!(heard.last(), Some(&1000.0), "the newest is kept");
}

/// A waker that notes the link's state at each wake-up.
struct Witness(Link, Mutex<Vec<State>>);

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        let state = self.0.state();
        self.1.lock().expect("no panic").push(state);
    }
}

/// Returns the error of a call in flight after `happens`, and the states that its waker saw.
fn witnessed(happens: fn(&mut World)) -> (String, Vec<State>) {
    let mut world = World::new();
    let mut call = world.link().call_tool("say", json!({}));
    world.carry();
    assert_eq!(world.link().state(), State::Ready);
    let witness = Arc::new(Witness(world.link().clone(), Mutex::default()));
    let waker = Waker::from(Arc::clone(&witness));
    let polled = std::pin::Pin::new(&mut call).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());

    happens(&mut world);
    world.carry();
    let seen = witness.1.lock().expect("no panic").clone();
    assert!(!seen.is_empty(), "nobody was woken");
    (now(call).expect_err("it has no reply").to_string(), seen)
}

#[test]
fn whoever_hears_of_a_death_finds_that_the_state_says_so() {
    let (error, seen) = witnessed(World::die);
    assert!(!seen.contains(&State::Ready), "{seen:?}");
    assert!(
        error.contains("SIGKILL") && error.contains("may have run"),
        "{error}"
    );
    assert!(error.contains("out of cheese"), "{error}");
}

/// Commands of handles run after inputs and before events are delivered.
#[test]
fn whoever_hears_of_a_shutdown_finds_that_the_state_says_so() {
    let (_, seen) = witnessed(|world| drop(world.link().shutdown()));
    assert!(!seen.contains(&State::Ready), "{seen:?}");
}

#[test]
fn the_link_comes_back_and_nobody_does_anything() {
    let mut world = World::new();
    let lost = world.link().call_tool("say", json!({}));
    world.carry();
    world.die();
    world.carry();
    now(lost).expect_err("its server died");
    world.tasks.clear();
    let next = world.link().call_tool("say", json!({}));
    world.pass(Duration::from_secs(60));
    assert_eq!(world.link().epoch().number(), 2);
    world.answer(Ok(text("here again")));
    assert_eq!(now(next).expect("a reply").text(), "here again");
    let ended = world.link().last_end().expect("one life ended");
    assert_eq!(ended.exit, Some(ExitStatus::Signal(9)));
}

#[test]
fn a_list_is_read_once_for_all_who_want_it() {
    let mut world = World::new();
    let (one, two) = (world.link().list_tools(), world.link().list_tools());
    world.carry();
    assert_eq!(world.tasks.len(), 1);
    let tools = json!({"tools": [{"name": "say", "inputSchema": {"type": "object"}}]});
    world.answer(Ok(Payload::of(&tools).expect("it is JSON")));
    let (one, two) = (now(one).expect("a list"), now(two).expect("a list"));
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(one.items.len(), 1);
}

#[test]
fn options_are_those_of_the_clone_that_calls() {
    let mut world = World::new();
    let hasty = world
        .link()
        .with(CallOptions::new().with_total(Limit::After(Duration::from_secs(1))));
    let mut slow = world.link().call_tool("say", json!({}));
    let fast = hasty.call_tool("say", json!({}));
    world.carry();
    world.pass(Duration::from_secs(2));
    let error = now(fast).expect_err("it took too long").to_string();
    assert!(error.contains("may have run"), "{error}");
    assert!(look(&mut slow).is_pending());
}

#[test]
fn the_last_handle_shuts_the_link_down() {
    let mut world = World::new();
    let clone = world.link().clone();
    let events = world.link().events();
    let ready = world.link().ready();
    world.carry();
    assert_eq!(
        now(ready)
            .expect("it is driven")
            .expect("it is ready")
            .epoch
            .number(),
        1
    );
    world.link = None;
    world.carry();
    assert_eq!(clone.state(), State::Ready, "there is another handle");
    drop(clone);
    world.carry();
    assert!(world.owner.as_ref().is_some_and(LinkOwner::is_closed));
    world.owner = None;
    let last = events.last().expect("the end is told");
    assert!(matches!(*last, Event::Closed), "{last:?}");
}

#[test]
fn shutdown_is_over_when_the_driver_is_done() {
    let mut world = World::new();
    let mut call = world.link().call_tool("say", json!({}));
    world.carry();
    let mut shutdown = world.link().shutdown();
    world.carry();
    assert!(world.owner.as_ref().is_some_and(LinkOwner::is_closed));
    assert!(look(&mut call).is_ready(), "every call has ended");
    assert!(
        look(&mut shutdown).is_pending(),
        "the driver still holds the transport"
    );
    world.owner = None;
    now(shutdown).expect("it is over");
    now(world.link().shutdown()).expect("it needs no repetition");
    assert_eq!(world.link().state(), State::Closed);
}

#[test]
fn a_closed_link_says_so_at_once() {
    let mut world = World::new();
    drop(world.link().shutdown());
    world.carry();
    let early = world.link().call_tool("say", json!({}));
    world.carry();
    let early = now(early).expect_err("it is closed");
    assert!(
        matches!(early, CallError::Misuse(Misuse::Closed)),
        "{early}"
    );
    world.owner = None;
    let late = now(world.link().call_tool("say", json!({}))).expect_err("it is closed");
    assert!(matches!(late, CallError::Misuse(Misuse::Closed)), "{late}");
    assert!(!late.may_have_run());
    assert!(now(world.link().stats()).is_err());
    assert!(now(world.link().ready()).is_err());
    assert_eq!(
        world.link().events().count(),
        0,
        "nothing will happen any more"
    );
}

#[test]
fn a_driver_that_vanishes_leaves_nobody_waiting() {
    let mut world = World::new();
    let sent = world.link().call_tool("say", json!({}));
    world.carry();
    let unseen = world.link().call_tool("say", json!({}));
    let stats = world.link().stats();
    world.owner = None;
    let sent = now(sent).expect_err("nobody drives it");
    assert!(
        matches!(sent, CallError::Gone) && sent.may_have_run(),
        "{sent}"
    );
    let unseen = now(unseen).expect_err("nobody drives it");
    assert!(!unseen.may_have_run(), "{unseen}");
    assert!(now(stats).is_err());
    assert_eq!(world.link().state(), State::Closed);
    assert!(world.link().session().is_none());
}

#[test]
fn who_waits_for_a_link_that_parks_is_told_why() {
    let mut world = World::new();
    world.refuses = true;
    let mut ready = world.link().ready();
    let not_ready = loop {
        if let Poll::Ready(told) = look(&mut ready) {
            break told
                .expect("it is driven")
                .expect_err("it cannot be opened");
        }
        assert!(world.now < Instant::ZERO + Duration::from_secs(86_400));
        world.pass(Duration::from_secs(1));
    };
    assert_eq!(not_ready.state, State::Parked);
    let text = not_ready.to_string();
    assert!(text.contains("could not be reached"), "{text}");

    // `ready` makes a parked link try again, and its caller gets the result of that attempt.
    world.refuses = false;
    let mut ready = world.link().ready();
    world.carry();
    world.pass(Duration::from_secs(60));
    let told = look(&mut ready);
    assert!(matches!(told, Poll::Ready(Ok(Ok(_)))), "{told:?}");
}

#[test]
fn letters_wake_the_driver_once_and_again_after_they_were_read() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    let (link, mut owner) = Link::new(Config::child("handles", "1.0"));
    link.wake();
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    assert!(owner.belongs_to(&waker), "one is there already");
    owner.serve(Instant::ZERO);
    assert!(!owner.belongs_to(&waker));
    link.wake();
    link.wake();
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "one wake-up for a batch");
    owner.serve(Instant::ZERO);
    link.wake();
    assert_eq!(count.0.load(Ordering::SeqCst), 2);
}

#[test]
fn a_listener_that_does_not_listen_misses_the_oldest() {
    let mut world = World::new();
    let mut events = world.link().events();
    drop(world.link().ready());
    world.carry();
    for _ in 0..3000 {
        drop(world.service.publish(Change::List(List::Tools)));
        world.carry();
        // Each change makes the link read the list again; the server refuses that.
        for task in world.tasks.drain(..) {
            task.answer
                .give(Err(ErrorObject::new(code::INTERNAL_ERROR, "not now")));
        }
        world.carry();
    }
    let mut heard = 0;
    while events.try_recv().is_some() {
        heard += 1;
    }
    assert_eq!(heard, 1024);
    assert!(events.missed() > 0);
}

/// Returns a link whose server may ask for roots, with one call in flight.
fn askable() -> (World, Events<Event>, Call<ToolResult>) {
    let mut config = Config::child("handles", "1.0");
    config.capabilities = config.capabilities.with_roots(false);
    config.dialect = Dialect::Legacy;
    config.policy.keepalive = None;
    let mut world = World::with(config);
    let events = world.link().events();
    let options = CallOptions::new()
        .with_idle(Limit::Never)
        .with_total(Limit::Never);
    let call = world.link().with(options).call_tool("say", json!({}));
    world.carry();
    (world, events, call)
}

/// Sends more notifications than a queue of events holds.
fn flood(world: &mut World) {
    let line = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/other\"}\n";
    for _ in 0..3000 {
        let owner = world.owner.as_mut().expect("it was not dropped");
        owner.handle(world.now, world.epoch, Input::bytes(&line[..]));
        world.carry();
    }
}

fn heard(events: &mut Events<Event>) -> Vec<Arc<Event>> {
    std::iter::from_fn(|| events.try_recv()).collect()
}

#[test]
fn an_ask_reaches_a_listener_that_fell_behind() {
    let (mut world, mut events, _call) = askable();
    let _unanswered = world.tasks[0].context.ask("roots/list", None);
    world.carry();
    flood(&mut world);
    let heard = heard(&mut events);
    assert!(events.missed() > 0, "the flood was not long enough");
    let ask = heard.iter().find_map(|event| match &**event {
        Event::Ask(ask) => Some(ask.ask),
        _ => None,
    });
    let roots = r#"{"roots":[]}"#.parse().expect("it is JSON");
    let answered = world.link().answer(ask.expect("the question"), Ok(roots));
    world.carry();
    now(answered)
        .expect("the link is there")
        .expect("the question is open");
}

#[test]
fn asks_that_are_over_do_not_pile_up_before_a_listener_that_never_reads() {
    let (mut world, mut events, _call) = askable();
    let mut answering = world.link().events();
    for round in 0..3000 {
        let asked = world.tasks[0].context.ask("roots/list", None);
        world.carry();
        if round % 2 == 0 {
            let told = heard(&mut answering);
            let ask = told.iter().rev().find_map(|event| match &**event {
                Event::Ask(ask) => Some(ask.ask),
                _ => None,
            });
            let error = ErrorObject::new(code::INTERNAL_ERROR, "no");
            drop(world.link().answer(ask.expect("the question"), Err(error)));
            world.carry();
        } else {
            // Let the ask time out.
            world.pass(Duration::from_secs(601));
        }
        now(asked)
            .expect("the server is there")
            .expect_err("no roots");
    }
    assert_eq!(heard(&mut events).len(), 1024);
}

#[test]
fn a_listener_that_heard_an_ask_and_fell_behind_hears_that_it_was_withdrawn() {
    let (mut world, mut events, _call) = askable();
    let _unanswered = world.tasks[0].context.ask("roots/list", None);
    world.carry();
    assert!(
        heard(&mut events)
            .iter()
            .any(|event| matches!(**event, Event::Ask(_)))
    );
    world.die();
    world.carry();
    world.pass(Duration::from_secs(1));
    drop(world.link().ready());
    world.carry();
    flood(&mut world);
    let heard = heard(&mut events);
    assert!(events.missed() > 0, "the flood was not long enough");
    assert!(
        heard
            .iter()
            .any(|event| matches!(**event, Event::AskWithdrawn { .. }))
    );
}

#[test]
fn the_newest_state_reaches_a_listener_that_fell_behind() {
    let (mut world, mut events, _call) = askable();
    flood(&mut world);
    let heard = heard(&mut events);
    assert!(events.missed() > 0, "the flood was not long enough");
    let state = heard.iter().rev().find_map(|event| event.state());
    assert_eq!(state, Some(world.link().state()));
}

#[test]
fn arguments_that_are_no_object_are_refused_before_anything_is_sent() {
    let mut world = World::new();
    let link = world.link().clone();
    let number = link.call_tool("add", 3);
    let nothing = link.call_tool("add", json!(null));
    let prompt = link.get_prompt("greet", ["me"]);
    let plain = link.call(
        "tools/call",
        Some(r#"{"name":"add","arguments":[1]}"#.parse().expect("it is JSON")),
    );
    let good = link.call_tool("add", json!({"a": 3}));
    world.carry();
    for refused in [now(number), now(nothing)] {
        let error = refused.expect_err("no object");
        assert!(matches!(
            error,
            CallError::Misuse(Misuse::NotAnObject { .. })
        ));
        assert!(!error.may_have_run());
    }
    for refused in [now(prompt), now(plain)] {
        let error = refused.expect_err("no object").to_string();
        assert!(error.contains("arguments") && error.contains("must be a JSON object"));
    }
    assert_eq!(world.tasks.len(), 1, "the server heard of one call");
    world.answer(Ok(text("3")));
    assert_eq!(now(good).expect("a reply").text(), "3");
}

#[test]
fn a_handler_that_gives_no_answer_is_answered_for() {
    let mut world = World::new();
    let call = world.link().call_tool("say", json!({}));
    world.carry();
    world.tasks.clear();
    world.carry();
    let CallError::Error(error) = now(call).expect_err("nobody answered") else {
        panic!("the server is alive");
    };
    assert_eq!(error.code, code::INTERNAL_ERROR);
}

#[test]
fn an_answer_that_cannot_be_given_is_an_error_of_the_server() {
    let mut world = World::new();
    let call = world.link().call_tool("say", json!({}));
    world.carry();
    world.answer(Ok("[1]".parse().expect("it is JSON")));
    let error = now(call).expect_err("a result is an object").to_string();
    assert!(error.contains("must be a JSON object"), "{error}");
}

#[test]
fn a_thread_can_wait_for_what_another_one_drives() {
    let mut world = World::new();
    let link = world.link().clone();
    let caller = std::thread::spawn(move || link.call_tool("say", json!({})).wait());
    while world.tasks.is_empty() {
        world.carry();
        std::thread::yield_now();
    }
    world.answer(Ok(text("hello")));
    let result = caller.join().expect("no panic").expect("a reply");
    assert_eq!(result.text(), "hello");
}

#[test]
fn the_service_tells_when_it_is_over() {
    let mut world = World::new();
    drop(world.link().ready());
    world.carry();
    let mut closed = world.service.closed();
    assert!(look(&mut closed).is_pending());
    drop(world.service.shutdown());
    world.carry();
    assert!(world.host.is_closed());
    assert_eq!(world.service.state(), server::State::Closed);
    (_, world.host) = Service::new(server());
    now(closed).expect("it is over");
}

#[test]
fn a_handler_can_answer_with_what_it_needs_first() {
    let mut config = Config::child("handles", "1.0");
    config.capabilities = config.capabilities.with_roots(false);
    let mut world = World::with(config);
    let mut events = world.link().events();
    let call = world.link().call_tool("say", json!({}));
    world.carry();
    let input = InputRequired::new().and_ask("where", "roots/list", None);
    world.tasks.remove(0).answer.require_input(input);
    world.carry();
    let mut heard = std::iter::from_fn(|| events.try_recv());
    let ask = heard.find_map(|event| match &*event {
        Event::Ask(ask) => Some(ask.ask),
        _ => None,
    });
    let roots = r#"{"roots":[]}"#.parse().expect("it is JSON");
    let answered = world.link().answer(ask.expect("the question"), Ok(roots));
    world.carry();
    now(answered)
        .expect("the link is there")
        .expect("it was asked");
    let input = world.tasks[0].request.input.take();
    let answers = input.and_then(|input| input.answers);
    assert_eq!(
        answers.expect("answers").as_str(),
        r#"{"where":{"roots":[]}}"#
    );
    world.answer(Ok(text("here")));
    assert_eq!(now(call).expect("a reply").text(), "here");
}

#[test]
fn a_handler_that_asks_in_vain_says_what_its_client_would_have_to_declare() {
    let mut world = World::new();
    let call = world.link().call_tool("say", json!({}));
    world.carry();
    let asked = world.tasks[0].context.ask("roots/list", None);
    world.carry();
    let refused = now(asked).expect("the server is there");
    world.answer(Err(refused.expect_err("roots were not declared").into()));
    let CallError::Error(error) = now(call).expect_err("no result") else {
        panic!("the server is alive");
    };
    assert_eq!(error.code, code::MISSING_REQUIRED_CLIENT_CAPABILITY);
    let data = error.data.as_ref().expect("what is missing");
    assert_eq!(data.as_str(), r#"{"requiredCapabilities":{"roots":{}}}"#);
}

#[test]
fn a_handler_can_tell_all_clients_what_its_request_changed() {
    let mut world = World::new();
    drop(world.link().ready());
    world.link().watch(Watch::lists());
    let call = world.link().call_tool("say", json!({}));
    world.carry();
    let mut events = world.link().events();
    let task = world.tasks.remove(0);
    let published = task.context.service().publish(Change::List(List::Tools));
    task.answer.give(Ok(text("done")));
    world.carry();
    now(published)
        .expect("the server is there")
        .expect("it is offered");
    assert_eq!(now(call).expect("a reply").text(), "done");
    let mut heard = std::iter::from_fn(|| events.try_recv());
    assert!(heard.any(|event| matches!(*event, Event::Changed(Change::List(List::Tools)))));
}
