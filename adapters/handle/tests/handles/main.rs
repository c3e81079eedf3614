//! Tests the handles and owners of both ends, connected in memory, with a manual clock.
//!
//! - `ends`: drivers that end, and what they publish before.
//! - `web`: both ends over HTTP, without the other one.
//! - `spans`: what both ends report to `tracing`.

mod ends;
#[cfg(feature = "tracing")]
mod spans;
mod web;

use std::error::Error;
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use everlink::client::{CallOptions, Ended, Event, FailureKind, Misuse, State};
use everlink::protocol::{LogLevel, ServerCapabilities, code};
use everlink::server::{self, InputRequired, Offer, Progress, Server};
use everlink::{
    Change, Config, Dialect, Epoch, ErrorObject, ExitStatus, Input, Instant, Limit, List, Output,
    Payload, Watch,
};
use everlink_handle::{
    Call, CallError, Events, Link, LinkOwner, NoTransport, Response, Service, ServiceOwner, Task,
    ThreadPark, ToolResult, drive, run,
};
use futures_core::Stream;
use serde_json::json;

/// Both ends, and the in-memory connection between them.
struct Pair {
    now: Instant,
    link: Option<Link>,
    owner: Option<LinkOwner>,
    service: Service,
    server_owner: ServiceOwner,
    epoch: Epoch,
    /// The requests that the server has not answered yet.
    tasks: Vec<Task>,
    /// Whether every attempt to open a transport fails.
    opens_fail: bool,
}

impl Pair {
    fn new() -> Pair {
        Pair::with(Config::child("handles", "1.0"))
    }

    fn with(config: Config) -> Pair {
        let (link, owner) = Link::new(config);
        let (service, server_owner) = Service::new(server());
        Pair {
            now: Instant::ZERO,
            link: Some(link),
            owner: Some(owner),
            service,
            server_owner,
            epoch: Epoch::NONE,
            tasks: Vec::new(),
            opens_fail: false,
        }
    }

    fn link(&self) -> &Link {
        self.link.as_ref().expect("it was not dropped")
    }

    /// Runs both drivers until there is no more output.
    fn run(&mut self) {
        let mut buf = Vec::new();
        loop {
            let mut is_idle = true;
            if let Some(owner) = &mut self.owner {
                owner.advance(self.now);
                while let Some(output) = owner.poll_output(&mut buf) {
                    is_idle = false;
                    match output {
                        Output::Open { epoch } if self.opens_fail => {
                            owner.handle(self.now, epoch, Input::open_failed(&[]));
                        }
                        Output::Open { epoch } => {
                            self.epoch = epoch;
                            (self.service, self.server_owner) = Service::new(server());
                            owner.handle(self.now, epoch, Input::Opened);
                        }
                        Output::Write { epoch, len, .. } => {
                            owner.handle(self.now, epoch, Input::sent(len));
                            self.server_owner.handle(self.now, Input::bytes(&buf[..]));
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
            self.server_owner.advance(self.now);
            while let Some(output) = self.server_owner.poll_output(&mut buf) {
                is_idle = false;
                match output {
                    Output::Event(task) => self.tasks.push(task),
                    Output::Write { len, .. } => {
                        self.server_owner.handle(self.now, Input::sent(len));
                        if let Some(owner) = &mut self.owner {
                            owner.handle(self.now, self.epoch, Input::bytes(&buf[..]));
                        }
                        buf.clear();
                    }
                    _ => {}
                }
            }
            // An event may have made its listener send a command.
            let owner = self.owner.as_ref();
            is_idle &= !owner.is_some_and(|owner| owner.register_waker(Waker::noop()));
            if is_idle {
                return;
            }
        }
    }

    fn advance_time(&mut self, span: Duration) {
        self.now = self.now + span;
        self.run();
    }

    fn answer(&mut self, answer: Result<Payload, ErrorObject>) {
        self.tasks.remove(0).answer.give(answer);
        self.run();
    }

    /// Ends the server's process: standard error, end of output, then `SIGKILL` as its exit status.
    fn kill_server(&mut self) {
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
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn value_of<F: Future + Unpin>(mut future: F) -> F::Output {
    match poll_once(&mut future) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future is still pending"),
    }
}

#[test]
fn calls_answered_out_of_order_get_their_own_replies() {
    let mut pair = Pair::new();
    let one = pair.link().call_tool("say", json!({"n": 1})).start();
    let two = pair.link().call_tool("say", json!({"n": 2})).start();
    pair.run();
    assert_eq!(pair.tasks.len(), 2, "both calls are in flight at once");
    // Answer the second call first.
    pair.tasks.swap(0, 1);
    pair.answer(Ok(text("two")));
    pair.answer(Ok(text("one")));
    assert_eq!(value_of(two).expect("a reply").text(), "two");
    assert_eq!(value_of(one).expect("a reply").text(), "one");
}

#[test]
fn tool_result_gives_text_structured_content_and_error_flag() {
    let mut pair = Pair::new();
    let call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let said = json!({
        "content": [{"type": "text", "text": "a\nb"}, {"type": "image", "data": ""}, {"type": "text", "text": "c"}],
        "structuredContent": {"n": 3},
        "isError": true,
    });
    pair.answer(Ok(Payload::of(&said).expect("it is JSON")));
    let result = value_of(call).expect("a tool that failed is a reply");
    assert!(result.is_error());
    assert_eq!(result.text(), "a\nb\nc");
    let structured: serde_json::Value = result.structured().expect("there is some");
    assert_eq!(structured, json!({"n": 3}));
    assert!(pair.link().state() == State::Ready, "the link is ready");
}

#[test]
fn result_text_joins_all_text_blocks_and_is_empty_for_bad_content() {
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
        let mut pair = Pair::new();
        let call = pair.link().call_tool("say", json!({})).start();
        pair.run();
        let said = Payload::of(&json!({"content": content}));
        pair.answer(Ok(said.expect("it is JSON")));
        assert_eq!(value_of(call).expect("a reply").text(), text, "{content}");
    }
}

#[test]
fn arguments_that_cannot_be_serialized_fail_the_call_without_connecting() {
    let mut pair = Pair::new();
    let mut bad = std::collections::BTreeMap::new();
    bad.insert(vec![1, 2], "a key that is no text");
    let call = pair.link().call_tool("say", bad).start();
    let error = value_of(call).expect_err("it cannot be written");
    assert!(matches!(error, CallError::Arguments(_)), "{error}");
    assert!(!error.may_have_run());
    pair.run();
    assert_eq!(
        pair.link().state(),
        State::Idle,
        "no connection was opened for it"
    );
}

#[test]
fn dropped_call_is_cancelled_at_the_server() {
    let mut pair = Pair::new();
    let call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    assert!(!pair.tasks[0].context.is_cancelled());
    drop(call);
    pair.run();
    assert!(pair.tasks[0].context.is_cancelled());
}

#[test]
fn call_dropped_before_the_driver_runs_is_not_sent() {
    let mut pair = Pair::new();
    drop(pair.link().call_tool("say", json!({})).start());
    pair.run();
    assert!(pair.tasks.is_empty());
    let stats = pair.link().stats();
    pair.run();
    let stats = value_of(stats).expect("it is driven");
    assert_eq!((stats.calls, stats.settled), (1, 1));
}

#[test]
fn canceller_ends_the_call_and_its_reason_is_in_the_error() {
    let mut pair = Pair::new();
    let call = pair.link().call_tool("say", json!({})).start();
    let canceller = call.canceller();
    pair.run();
    canceller.cancel("changed my mind");
    pair.run();
    let error = value_of(call).expect_err("it was cancelled");
    let CallError::Failed(failure) = &error else {
        panic!("{error}");
    };
    assert!(matches!(failure.kind, FailureKind::Cancelled { .. }));
    assert!(error.to_string().contains("changed my mind"), "{error}");
    assert!(error.may_have_run());
    // A second cancellation, after the call has ended, has no effect.
    canceller.cancel("twice");
    pair.run();
}

#[test]
fn on_progress_runs_when_the_call_is_polled() {
    let mut pair = Pair::new();
    let received = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&received);
    let mut call = pair
        .link()
        .call_tool("say", json!({}))
        .on_progress(move |report| {
            sink.lock()
                .expect("no panic")
                .push((report.progress, report.total));
        })
        .start();
    pair.run();
    for step in 1..=3 {
        let context = &pair.tasks[0].context;
        context.progress(Progress::new(f64::from(step)).of(3.0));
        pair.run();
    }
    assert!(
        received.lock().expect("no panic").is_empty(),
        "nobody waits yet"
    );
    assert!(poll_once(&mut call).is_pending());
    assert_eq!(received.lock().expect("no panic").len(), 3);
    pair.answer(Ok(text("done")));
    value_of(call).expect("a reply");
}

/// A driver that runs a task itself answers without the command queue.
#[test]
fn progress_queued_before_an_answer_is_delivered_before_it() {
    let mut pair = Pair::new();
    let received = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&received);
    let call = pair
        .link()
        .call_tool("say", json!({}))
        .on_progress(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        })
        .start();
    pair.run();
    let task = pair.tasks.remove(0);
    task.context.progress(Progress::new(1.0));
    let answer = Ok(Response::Result(text("done")));
    pair.server_owner.respond(pair.now, task.answer, answer);
    assert!(
        task.context.is_cancelled(),
        "the answered request no longer waits"
    );
    pair.run();
    assert_eq!(value_of(call).expect("a reply").text(), "done");
    assert_eq!(received.load(Ordering::Relaxed), 1);
}

#[test]
fn unread_progress_reports_are_bounded_and_the_newest_is_kept() {
    let mut pair = Pair::new();
    let received = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&received);
    let call = pair.link().call_tool("say", json!({}));
    let mut call = call
        .on_progress(move |report| sink.lock().expect("no panic").push(report.progress))
        .start();
    pair.run();
    for step in 1..=1000 {
        pair.tasks[0]
            .context
            .progress(Progress::new(f64::from(step)));
        pair.run();
    }
    assert!(poll_once(&mut call).is_pending());
    let received = received.lock().expect("no panic");
    assert!(received.len() <= 64, "{}", received.len());
    assert_eq!(received.last(), Some(&1000.0), "the newest is kept");
}

/// A waker that notes the link's state at each wake-up.
struct StateWaker(Link, Mutex<Vec<State>>);

impl Wake for StateWaker {
    fn wake(self: Arc<Self>) {
        let state = self.0.state();
        self.1.lock().expect("no panic").push(state);
    }
}

/// Returns the error of a call in flight after `action`, and the states that its waker saw.
fn error_and_states_seen_by_waker(action: fn(&mut Pair)) -> (String, Vec<State>) {
    let mut pair = Pair::new();
    let mut call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    assert_eq!(pair.link().state(), State::Ready);
    let state_waker = Arc::new(StateWaker(pair.link().clone(), Mutex::default()));
    let waker = Waker::from(Arc::clone(&state_waker));
    let polled = std::pin::Pin::new(&mut call).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());

    action(&mut pair);
    pair.run();
    let seen = state_waker.1.lock().expect("no panic").clone();
    assert!(!seen.is_empty(), "the waker was not woken");
    (
        value_of(call).expect_err("it has no reply").to_string(),
        seen,
    )
}

#[test]
fn state_is_not_ready_when_a_caller_is_woken_by_the_server_death() {
    let (error, seen) = error_and_states_seen_by_waker(Pair::kill_server);
    assert!(!seen.contains(&State::Ready), "{seen:?}");
    assert!(
        error.contains("SIGKILL") && error.contains("may have run"),
        "{error}"
    );
    assert!(error.contains("out of cheese"), "{error}");
}

/// Commands of handles run after inputs and before events are delivered.
#[test]
fn state_is_not_ready_when_a_caller_is_woken_by_shutdown() {
    let (_, seen) = error_and_states_seen_by_waker(|pair| drop(pair.link().shutdown()));
    assert!(!seen.contains(&State::Ready), "{seen:?}");
}

#[test]
fn link_reconnects_by_itself_after_the_server_died() {
    let mut pair = Pair::new();
    let lost = pair.link().call_tool("say", json!({})).start();
    pair.run();
    pair.kill_server();
    pair.run();
    value_of(lost).expect_err("its server died");
    pair.tasks.clear();
    let next = pair.link().call_tool("say", json!({})).start();
    pair.advance_time(Duration::from_secs(60));
    assert_eq!(pair.link().epoch().number(), 2);
    pair.answer(Ok(text("here again")));
    assert_eq!(value_of(next).expect("a reply").text(), "here again");
    let ended = pair.link().last_end().expect("one epoch ended");
    assert_eq!(ended.exit, Some(ExitStatus::Signal(9)));
}

#[test]
fn concurrent_list_calls_share_one_request() {
    let mut pair = Pair::new();
    let (one, two) = (
        pair.link().list_tools().start(),
        pair.link().list_tools().start(),
    );
    pair.run();
    assert_eq!(pair.tasks.len(), 1);
    let tools = json!({"tools": [{"name": "say", "inputSchema": {"type": "object"}}]});
    pair.answer(Ok(Payload::of(&tools).expect("it is JSON")));
    let (one, two) = (
        value_of(one).expect("a list"),
        value_of(two).expect("a list"),
    );
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(one.items.len(), 1);
}

#[test]
fn timeout_applies_to_its_call_only() {
    let mut pair = Pair::new();
    let mut slow = pair.link().call_tool("say", json!({})).start();
    let fast = pair.link().call_tool("say", json!({}));
    let fast = fast.timeout(Duration::from_secs(1)).start();
    pair.run();
    pair.advance_time(Duration::from_secs(2));
    let error = value_of(fast).expect_err("it took too long").to_string();
    assert!(error.contains("may have run"), "{error}");
    assert!(poll_once(&mut slow).is_pending());
}

#[test]
fn dropping_the_last_handle_shuts_the_link_down() {
    let mut pair = Pair::new();
    let clone = pair.link().clone();
    let mut events = pair.link().events();
    let ready = pair.link().ready();
    pair.run();
    assert_eq!(value_of(ready).expect("it is ready").epoch.number(), 1);
    pair.link = None;
    pair.run();
    assert_eq!(clone.state(), State::Ready, "there is another handle");
    drop(clone);
    pair.run();
    assert!(pair.owner.as_ref().is_some_and(LinkOwner::is_closed));
    pair.owner = None;
    let last = events.iter().last().expect("the end is reported");
    assert!(matches!(*last, Event::Closed), "{last:?}");
}

#[test]
fn shutdown_completes_when_the_owner_is_dropped() {
    let mut pair = Pair::new();
    let mut call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let mut shutdown = pair.link().shutdown();
    pair.run();
    assert!(pair.owner.as_ref().is_some_and(LinkOwner::is_closed));
    assert!(poll_once(&mut call).is_ready(), "every call has ended");
    assert!(
        poll_once(&mut shutdown).is_pending(),
        "the driver still holds the transport"
    );
    pair.owner = None;
    value_of(shutdown).expect("it is over");
    value_of(pair.link().shutdown()).expect("it needs no repetition");
    assert_eq!(pair.link().state(), State::Closed);
}

#[test]
fn closed_link_fails_calls_and_queries_at_once() {
    let mut pair = Pair::new();
    drop(pair.link().shutdown());
    pair.run();
    let early = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let early = value_of(early).expect_err("it is closed");
    assert!(
        matches!(early, CallError::Misuse(Misuse::Closed)),
        "{early}"
    );
    pair.owner = None;
    let late = value_of(pair.link().call_tool("say", json!({})).start()).expect_err("it is closed");
    assert!(matches!(late, CallError::Misuse(Misuse::Closed)), "{late}");
    assert!(!late.may_have_run());
    assert!(value_of(pair.link().stats()).is_err());
    assert!(value_of(pair.link().ready()).is_err());
    assert_eq!(
        pair.link().events().iter().count(),
        0,
        "a closed link sends no events"
    );
}

#[test]
fn dropping_the_owner_fails_calls_and_queries() {
    let mut pair = Pair::new();
    let sent = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let unseen = pair.link().call_tool("say", json!({})).start();
    let stats = pair.link().stats();
    pair.owner = None;
    let sent = value_of(sent).expect_err("nobody drives it");
    assert!(
        matches!(sent, CallError::Gone) && sent.may_have_run(),
        "{sent}"
    );
    let unseen = value_of(unseen).expect_err("nobody drives it");
    assert!(!unseen.may_have_run(), "{unseen}");
    assert!(value_of(stats).is_err());
    assert_eq!(pair.link().state(), State::Closed);
    assert!(pair.link().session().is_none());
}

#[test]
fn ready_fails_with_the_reason_when_the_link_parks() {
    let mut pair = Pair::new();
    pair.opens_fail = true;
    let mut ready = pair.link().ready();
    let not_ready = loop {
        if let Poll::Ready(result) = poll_once(&mut ready) {
            break result.expect_err("it cannot be opened");
        }
        assert!(pair.now < Instant::ZERO + Duration::from_secs(86_400));
        pair.advance_time(Duration::from_secs(1));
    };
    assert_eq!(not_ready.state, State::Parked);
    let text = not_ready.to_string();
    assert!(text.contains("could not be reached"), "{text}");

    // `ready` makes a parked link try again, and its caller gets the result of that attempt.
    pair.opens_fail = false;
    let mut ready = pair.link().ready();
    pair.run();
    pair.advance_time(Duration::from_secs(60));
    let polled = poll_once(&mut ready);
    assert!(matches!(polled, Poll::Ready(Ok(_))), "{polled:?}");
}

struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn commands_wake_the_driver_once_per_batch() {
    let (link, mut owner) = Link::new(Config::child("handles", "1.0"));
    link.wake();
    let count = Arc::new(CountingWaker(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    assert!(
        owner.register_waker(&waker),
        "one command is already queued"
    );
    owner.advance(Instant::ZERO);
    assert!(!owner.register_waker(&waker));
    link.wake();
    link.wake();
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "one wake-up for a batch");
    owner.advance(Instant::ZERO);
    link.wake();
    assert_eq!(count.0.load(Ordering::SeqCst), 2);
}

#[test]
fn slow_listener_misses_the_oldest_events() {
    let mut pair = Pair::new();
    let mut events = pair.link().events();
    let mut reading_events = pair.link().events();
    let mut sent = 0;
    drop(pair.link().ready());
    pair.run();
    for _ in 0..3000 {
        drop(pair.service.publish(Change::List(List::Tools)));
        pair.run();
        // Each change makes the link read the list again; the server refuses that.
        for task in pair.tasks.drain(..) {
            task.answer
                .give(Err(ErrorObject::new(code::INTERNAL_ERROR, "not now")));
        }
        pair.run();
        sent += received(&mut reading_events).len() as u64;
    }
    assert_eq!(received(&mut events).len(), 1024);
    assert_eq!(events.missed(), sent - 1024);
    assert_eq!(reading_events.missed(), 0);
}

#[test]
fn each_listener_gets_each_event_and_its_time() {
    let mut pair = Pair::new();
    let mut listeners: Vec<Events<Event>> = (0..10).map(|_| pair.link().events()).collect();
    pair.advance_time(Duration::from_secs(3));
    drop(pair.link().ready());
    pair.run();
    for events in &mut listeners {
        assert_eq!(events.at(), Instant::ZERO, "nothing was received");
        let received = received(events);
        let is_ready = |event: &Arc<Event>| matches!(**event, Event::Ready(_));
        assert_eq!(received.iter().filter(|it| is_ready(it)).count(), 1);
        assert_eq!(events.at(), pair.now);
    }
}

#[test]
fn event_wakes_the_task_that_waits_for_it() {
    let mut pair = Pair::new();
    let mut events = pair.link().events();
    let count = Arc::new(CountingWaker(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut next = pin!(events.recv());
    let polled = next.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    drop(pair.link().ready());
    pair.run();
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    let polled = next.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(matches!(polled, Poll::Ready(Some(_))));
}

#[test]
fn states_do_not_accumulate_for_a_listener_that_never_reads() {
    let mut pair = Pair::new();
    let mut events = pair.link().events();
    for _ in 0..300 {
        drop(pair.link().ready());
        pair.run();
        assert_eq!(pair.link().state(), State::Ready);
        pair.kill_server();
        pair.advance_time(Duration::from_secs(60));
    }
    assert!(events.missed() > 0, "there were not enough changes");
    let received = received(&mut events);
    assert_eq!(received.len(), 1024);
    let state = received.iter().rev().find_map(|event| event.state());
    assert_eq!(state, Some(pair.link().state()));
}

/// Returns a link whose server may ask for roots, with one call in flight.
fn link_with_roots_and_open_call() -> (Pair, Events<Event>, Call<ToolResult>) {
    let mut config = Config::child("handles", "1.0");
    config.capabilities = config.capabilities.with_roots(false);
    config.dialect = Dialect::Legacy;
    config.policy.keepalive = None;
    let mut pair = Pair::with(config);
    let events = pair.link().events();
    let options = CallOptions::new()
        .with_idle(Limit::Never)
        .with_total(Limit::Never);
    let call = pair
        .link()
        .call_tool("say", json!({}))
        .options(options)
        .start();
    pair.run();
    (pair, events, call)
}

/// Sends more notifications than a queue of events holds.
fn flood(pair: &mut Pair) {
    let line = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/other\"}\n";
    for _ in 0..3000 {
        let owner = pair.owner.as_mut().expect("it was not dropped");
        owner.handle(pair.now, pair.epoch, Input::bytes(&line[..]));
        pair.run();
    }
}

fn received(events: &mut Events<Event>) -> Vec<Arc<Event>> {
    std::iter::from_fn(|| events.try_recv()).collect()
}

#[test]
fn open_ask_reaches_a_listener_that_fell_behind() {
    let (mut pair, mut events, _call) = link_with_roots_and_open_call();
    let _unanswered = pair.tasks[0].context.ask("roots/list", None);
    pair.run();
    flood(&mut pair);
    let received = received(&mut events);
    assert!(events.missed() > 0, "the flood was not long enough");
    let ask = received.iter().find_map(|event| match &**event {
        Event::Ask(ask) => Some(ask.ask),
        _ => None,
    });
    let roots = r#"{"roots":[]}"#.parse().expect("it is JSON");
    let answered = pair.link().answer(ask.expect("the question"), Ok(roots));
    pair.run();
    value_of(answered).expect("the question is open");
}

#[test]
fn finished_asks_do_not_accumulate_for_a_listener_that_never_reads() {
    let (mut pair, mut events, _call) = link_with_roots_and_open_call();
    let mut answering_events = pair.link().events();
    for round in 0..3000 {
        let asked = pair.tasks[0].context.ask("roots/list", None);
        pair.run();
        if round % 2 == 0 {
            let events = received(&mut answering_events);
            let ask = events.iter().rev().find_map(|event| match &**event {
                Event::Ask(ask) => Some(ask.ask),
                _ => None,
            });
            let error = ErrorObject::new(code::INTERNAL_ERROR, "no");
            drop(pair.link().answer(ask.expect("the question"), Err(error)));
            pair.run();
        } else {
            // Let the ask time out.
            pair.advance_time(Duration::from_secs(601));
        }
        value_of(asked).expect_err("no roots");
    }
    assert_eq!(received(&mut events).len(), 1024);
}

#[test]
fn withdrawal_of_a_delivered_ask_reaches_a_listener_that_fell_behind() {
    let (mut pair, mut events, _call) = link_with_roots_and_open_call();
    let _unanswered = pair.tasks[0].context.ask("roots/list", None);
    pair.run();
    assert!(
        received(&mut events)
            .iter()
            .any(|event| matches!(**event, Event::Ask(_)))
    );
    pair.kill_server();
    pair.run();
    pair.advance_time(Duration::from_secs(1));
    drop(pair.link().ready());
    pair.run();
    flood(&mut pair);
    let received = received(&mut events);
    assert!(events.missed() > 0, "the flood was not long enough");
    assert!(
        received
            .iter()
            .any(|event| matches!(**event, Event::AskWithdrawn { .. }))
    );
}

#[test]
fn newest_state_reaches_a_listener_that_fell_behind() {
    let (mut pair, mut events, _call) = link_with_roots_and_open_call();
    flood(&mut pair);
    let received = received(&mut events);
    assert!(events.missed() > 0, "the flood was not long enough");
    let state = received.iter().rev().find_map(|event| event.state());
    assert_eq!(state, Some(pair.link().state()));
}

#[test]
fn newest_watch_reaches_a_listener_that_fell_behind() {
    let (mut pair, mut events, _call) = link_with_roots_and_open_call();
    pair.link().watch(Watch::lists());
    pair.run();
    flood(&mut pair);
    let received = received(&mut events);
    assert!(events.missed() > 0, "the flood was not long enough");
    let is_watch = |event: &Arc<Event>| matches!(**event, Event::Watching { .. });
    assert_eq!(received.iter().filter(|it| is_watch(it)).count(), 1);
}

/// What a server reports to its own application.
#[test]
fn watch_and_end_of_service_reach_a_listener_of_the_server_that_fell_behind() {
    let mut pair = Pair::new();
    drop(pair.link().ready());
    pair.run();
    let mut events = pair.service.events();
    pair.link().watch(Watch::none());
    let call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    drop(pair.service.shutdown());
    pair.server_owner.advance(pair.now);
    let line = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/other\"}\n";
    let mut buf = Vec::new();
    for _ in 0..3000 {
        pair.server_owner.handle(pair.now, Input::bytes(&line[..]));
        while pair.server_owner.poll_output(&mut buf).is_some() {}
    }
    assert!(events.missed() > 0, "the flood was not long enough");
    let received: Vec<_> = std::iter::from_fn(|| events.try_recv()).collect();
    for is_kept in [
        |event: &server::Event| matches!(event, server::Event::Watching(_)),
        |event: &server::Event| matches!(event, server::Event::Draining { .. }),
    ] {
        assert!(received.iter().any(|event| is_kept(event)));
    }
    drop(call);
}

#[test]
fn arguments_that_are_not_an_object_are_refused_and_nothing_is_sent() {
    let mut pair = Pair::new();
    let link = pair.link().clone();
    let number = link.call_tool("add", 3).start();
    let nothing = link.call_tool("add", json!(null)).start();
    let prompt = link.get_prompt("greet", ["me"]).start();
    let plain = link.call(
        "tools/call",
        Some(r#"{"name":"add","arguments":[1]}"#.parse().expect("it is JSON")),
    );
    let plain = plain.start();
    let good = link.call_tool("add", json!({"a": 3})).start();
    pair.run();
    for refused in [value_of(number), value_of(nothing)] {
        let error = refused.expect_err("no object");
        assert!(matches!(
            error,
            CallError::Misuse(Misuse::NotAnObject { .. })
        ));
        assert!(!error.may_have_run());
    }
    for refused in [value_of(prompt), value_of(plain)] {
        let error = refused.expect_err("no object").to_string();
        assert!(error.contains("arguments") && error.contains("must be a JSON object"));
    }
    assert_eq!(pair.tasks.len(), 1, "the server heard of one call");
    pair.answer(Ok(text("3")));
    assert_eq!(value_of(good).expect("a reply").text(), "3");
}

#[test]
fn dropped_task_is_answered_with_an_internal_error() {
    let mut pair = Pair::new();
    let call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    pair.tasks.clear();
    pair.run();
    let CallError::Error(error) = value_of(call).expect_err("nobody answered") else {
        panic!("the server is alive");
    };
    assert_eq!(error.code, code::INTERNAL_ERROR);
}

#[test]
fn invalid_result_of_a_handler_becomes_an_error_reply() {
    let mut pair = Pair::new();
    let call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    pair.answer(Ok("[1]".parse().expect("it is JSON")));
    let error = value_of(call)
        .expect_err("a result is an object")
        .to_string();
    assert!(error.contains("must be a JSON object"), "{error}");
}

#[test]
fn thread_can_block_on_a_call_that_another_thread_drives() {
    let mut pair = Pair::new();
    let link = pair.link().clone();
    let caller = std::thread::spawn(move || link.call_tool("say", json!({})).wait());
    while pair.tasks.is_empty() {
        pair.run();
        std::thread::yield_now();
    }
    pair.answer(Ok(text("hello")));
    let result = caller.join().expect("no panic").expect("a reply");
    assert_eq!(result.text(), "hello");
}

#[test]
fn service_closed_completes_when_the_owner_is_dropped() {
    let mut pair = Pair::new();
    drop(pair.link().ready());
    pair.run();
    let mut closed = pair.service.closed();
    assert!(poll_once(&mut closed).is_pending());
    drop(pair.service.shutdown());
    pair.run();
    assert!(pair.server_owner.is_closed());
    assert_eq!(pair.service.state(), server::State::Closed);
    (_, pair.server_owner) = Service::new(server());
    value_of(closed).expect("it is over");
}

#[test]
fn handler_can_require_input_and_answer_after_the_client_sent_it() {
    let mut config = Config::child("handles", "1.0");
    config.capabilities = config.capabilities.with_roots(false);
    let mut pair = Pair::with(config);
    let mut events = pair.link().events();
    let call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let input = InputRequired::new().and_ask("where", "roots/list", None);
    pair.tasks.remove(0).answer.require_input(input);
    pair.run();
    let mut received = std::iter::from_fn(|| events.try_recv());
    let ask = received.find_map(|event| match &*event {
        Event::Ask(ask) => Some(ask.ask),
        _ => None,
    });
    let roots = r#"{"roots":[]}"#.parse().expect("it is JSON");
    let answered = pair.link().answer(ask.expect("the question"), Ok(roots));
    pair.run();
    value_of(answered).expect("it was asked");
    let input = pair.tasks[0].request.input.take();
    let answers = input.and_then(|input| input.answers);
    assert_eq!(
        answers.expect("answers").as_str(),
        r#"{"where":{"roots":[]}}"#
    );
    pair.answer(Ok(text("here")));
    assert_eq!(value_of(call).expect("a reply").text(), "here");
}

#[test]
fn ask_without_client_capability_becomes_an_error_that_names_it() {
    let mut pair = Pair::new();
    let call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let asked = pair.tasks[0].context.ask("roots/list", None);
    pair.run();
    let refused = value_of(asked).expect_err("roots were not declared");
    pair.answer(Err(refused.into()));
    let CallError::Error(error) = value_of(call).expect_err("no result") else {
        panic!("the server is alive");
    };
    assert_eq!(error.code, code::MISSING_REQUIRED_CLIENT_CAPABILITY);
    let data = error.data.as_ref().expect("what is missing");
    assert_eq!(data.as_str(), r#"{"requiredCapabilities":{"roots":{}}}"#);
}

#[test]
fn handler_can_publish_a_change_to_watching_clients() {
    let mut pair = Pair::new();
    drop(pair.link().ready());
    pair.link().watch(Watch::lists());
    let call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let mut events = pair.link().events();
    let task = pair.tasks.remove(0);
    let published = task.context.service().publish(Change::List(List::Tools));
    task.answer.give(Ok(text("done")));
    pair.run();
    value_of(published).expect("it is offered");
    assert_eq!(value_of(call).expect("a reply").text(), "done");
    let mut received = std::iter::from_fn(|| events.try_recv());
    assert!(received.any(|event| matches!(*event, Event::Changed(Change::List(List::Tools)))));
}

#[test]
fn call_that_is_not_started_is_not_made() {
    let mut pair = Pair::new();
    drop(pair.link().ready());
    let call = pair.link().call_tool("say", json!({})).idempotent();
    pair.run();
    assert!(pair.tasks.is_empty());
    let mut call = call.into_future();
    pair.run();
    assert_eq!(pair.tasks.len(), 1);
    pair.answer(Ok(text("late")));
    assert!(poll_once(&mut call).is_ready());
}

/// The policy's limit for silence would end the call before its own limit.
#[test]
fn timeout_of_a_call_replaces_the_limit_for_silence() {
    let mut config = Config::child("handles", "1.0");
    config.policy.call_idle = Limit::After(Duration::from_secs(60));
    config.policy.keepalive = None;
    config.policy.hang = None;
    let mut pair = Pair::with(config);
    let hour = Duration::from_secs(3600);
    let call = || pair.link().call_tool("say", json!({}));
    let mut patient = call().timeout(hour).start();
    let mut brief = call().idle_timeout(hour / 60).timeout(hour).start();
    pair.run();
    pair.advance_time(hour / 2);
    assert!(poll_once(&mut patient).is_pending());
    let Poll::Ready(Err(CallError::Failed(failure))) = poll_once(&mut brief) else {
        panic!("nothing was heard for a minute");
    };
    assert!(matches!(failure.kind, FailureKind::TimedOut { .. }));
    pair.advance_time(hour / 2);
    assert!(poll_once(&mut patient).is_ready());
}

#[test]
fn asks_that_came_before_the_handler_are_passed_to_it() {
    let (mut pair, _events, _call) = link_with_roots_and_open_call();
    let first = pair.tasks[0].context.ask("roots/list", None);
    let withdrawn = pair.tasks[0].context.ask("roots/list", None);
    pair.run();
    pair.advance_time(Duration::from_secs(300));
    let second = pair.tasks[0].context.ask("roots/list", None);
    pair.run();
    // The server waits for 10 minutes.
    pair.advance_time(Duration::from_secs(299));
    drop((first, withdrawn));
    pair.advance_time(Duration::from_secs(2));
    let answered = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&answered);
    pair.link().on_ask(move |ask| {
        assert_eq!(ask.method(), "roots/list");
        count.fetch_add(1, Ordering::Relaxed);
        ask.answer_with(&json!({"roots": []}));
    });
    pair.run();
    assert_eq!(
        value_of(second).expect("an answer").as_str(),
        r#"{"roots":[]}"#
    );
    assert_eq!(answered.load(Ordering::Relaxed), 1, "two were withdrawn");
    let third = pair.tasks[0].context.ask("roots/list", None);
    pair.run();
    value_of(third).expect("an answer");
    assert_eq!(answered.load(Ordering::Relaxed), 2);
}

#[test]
fn ask_that_is_dropped_or_whose_handler_panics_is_refused() {
    let (mut pair, _events, _call) = link_with_roots_and_open_call();
    for panics in [false, true] {
        pair.link().on_ask(move |ask| {
            assert!(!panics, "intentional panic");
            drop(ask);
        });
        let asked = pair.tasks[0].context.ask("roots/list", None);
        pair.run();
        let error = value_of(asked).expect_err("no answer").to_string();
        assert!(error.contains("without an answer"), "{error}");
    }
    assert_eq!(pair.link().state(), State::Ready);
}

#[test]
fn answer_that_cannot_be_sent_refuses_the_ask_and_says_why() {
    let (mut pair, _events, _call) = link_with_roots_and_open_call();
    let too_long = " ".repeat(everlink::Limits::default().message_bytes);
    for (answer, why) in [
        ("[]".to_owned(), "must be a JSON object"),
        (format!("{{{too_long}}}"), "more than a message may have"),
    ] {
        let answer: Payload = answer.parse().expect("JSON");
        pair.link()
            .on_ask(move |ask| ask.answer(Ok(answer.clone())));
        let asked = pair.tasks[0].context.ask("roots/list", None);
        pair.run();
        let error = value_of(asked).expect_err("no answer").to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn pid_is_that_of_the_present_server() {
    let mut pair = Pair::new();
    assert_eq!(pair.link().pid(), None);
    pair.owner.as_mut().expect("it lives").set_pid(Some(7));
    assert_eq!(pair.link().pid(), None, "it is not open");
    drop(pair.link().ready());
    pair.run();
    assert_eq!(pair.link().pid(), Some(7));
    let clone = pair.link().clone();
    pair.opens_fail = true;
    pair.kill_server();
    pair.run();
    assert_ne!(clone.state(), State::Ready);
    assert_eq!(clone.pid(), None);
    pair.owner = None;
    assert_eq!(clone.pid(), None);
}

#[test]
fn sources_of_an_error_are_typed() {
    let mut pair = Pair::new();
    pair.opens_fail = true;
    let call = pair.link().call_tool("say", json!({})).start();
    let ready = pair.link().ready();
    for _ in 0..600 {
        pair.advance_time(Duration::from_secs(1));
    }
    let failed = value_of(call).expect_err("no server");
    let not_ready = CallError::from(value_of(ready).expect_err("no server"));
    for error in [&failed, &not_ready] {
        let source = error.source().expect("how it ended");
        let ended = source.downcast_ref::<Ended>().expect("an end");
        assert!(error.to_string().contains(&ended.to_string()), "{error}");
    }
    assert!(!not_ready.may_have_run());
    pair.owner = None;
    let refused = value_of(pair.link().call_tool("say", json!({})).start());
    let refused = refused.expect_err("it is closed");
    let source = refused.source().and_then(|source| source.downcast_ref());
    assert_eq!(source, Some(&Misuse::Closed));
    let notified = value_of(pair.link().notify("notifications/x", None));
    assert_eq!(notified, Err(Misuse::Closed));
    let not_ready = value_of(pair.link().ready()).expect_err("it is closed");
    assert_eq!(not_ready.state, State::Closed);
}

#[test]
fn events_are_a_stream_that_ends_with_the_link() {
    let mut pair = Pair::new();
    let mut events = pin!(pair.link().events());
    let mut poll = || {
        let mut cx = Context::from_waker(Waker::noop());
        events.as_mut().poll_next(&mut cx)
    };
    assert!(poll().is_pending());
    drop(pair.link().ready());
    pair.run();
    let mut is_ready = false;
    while let Poll::Ready(event) = poll() {
        is_ready |= matches!(*event.expect("the link lives"), Event::Ready(_));
    }
    assert!(is_ready);
    pair.owner = None;
    assert!(matches!(poll(), Poll::Ready(None)));
}

/// Drivers run on any thread of a runtime.
#[test]
fn drivers_and_calls_can_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    let (link, owner) = Link::new(Config::child("handles", "1.0"));
    run(ThreadPark::new(), |clock| {
        let driver = drive(owner, NoTransport::default(), clock);
        is_send(&driver);
        drop(driver);
        std::future::ready(())
    });
    is_send(&link.call_tool("say", json!({})));
    is_send(&link.call_tool("say", json!({})).start());
    is_send(&link.ready());
    is_send(&link.events());
}

/// Calls of other methods may have arguments of any kind.
#[test]
fn only_arguments_of_tools_and_prompts_must_be_objects() {
    let mut pair = Pair::new();
    for params in [
        json!({"arguments": [1]}),
        json!({"arguments": 7}),
        json!({"n": 1}),
    ] {
        let params = Payload::of(&params).expect("it is JSON");
        let call = pair.link().call("custom/method", Some(params)).start();
        pair.run();
        let CallError::Error(error) = value_of(call).expect_err("the server has no such method")
        else {
            panic!("the call was not sent");
        };
        assert_eq!(error.code, code::METHOD_NOT_FOUND);
    }
    let params = Payload::of(&json!({"name": "add", "arguments": {"a": 1}}));
    let params = params.expect("it is JSON");
    let call = pair.link().call("tools/call", Some(params)).start();
    pair.run();
    pair.answer(Ok(text("1")));
    value_of(call).expect("a reply");
}

#[test]
fn call_of_a_method_of_the_link_itself_is_refused_with_that_reason() {
    let mut pair = Pair::new();
    let call = pair.link().call("initialize", None).start();
    pair.run();
    let error = value_of(call).expect_err("the link calls it");
    let is_refused = matches!(error, CallError::Misuse(Misuse::OwnedByLink { .. }));
    assert!(is_refused, "{error}");
    assert!(pair.tasks.is_empty());
}

#[test]
fn result_without_an_error_flag_is_no_error() {
    for flag in [None, Some(false)] {
        let mut pair = Pair::new();
        let call = pair.link().call_tool("say", json!({})).start();
        pair.run();
        let mut said = json!({"content": []});
        if let Some(flag) = flag {
            said["isError"] = flag.into();
        }
        pair.answer(Ok(Payload::of(&said).expect("it is JSON")));
        assert!(!value_of(call).expect("a reply").is_error(), "{flag:?}");
    }
}

#[test]
fn reconnect_replaces_the_server_and_its_reason_is_in_the_end() {
    let mut pair = Pair::new();
    drop(pair.link().ready());
    pair.run();
    assert_eq!(pair.link().epoch().number(), 1);
    pair.link().reconnect("a new version");
    pair.run();
    pair.advance_time(Duration::from_secs(60));
    assert_eq!(pair.link().epoch().number(), 2);
    assert_eq!(pair.link().state(), State::Ready);
    let ended = pair.link().last_end().expect("the first ended").to_string();
    assert!(ended.contains("a new version"), "{ended}");
}

#[test]
fn new_watch_of_a_link_reaches_its_server() {
    let mut pair = Pair::new();
    drop(pair.link().ready());
    pair.run();
    let watched = |pair: &Pair| pair.server_owner.server().watched();
    assert!(watched(&pair).tools, "the lists are watched unless told");
    pair.link().watch(Watch::none());
    pair.run();
    assert_eq!(watched(&pair), Watch::none());
}

#[test]
fn links_with_the_same_seed_do_not_retry_at_the_same_time() {
    for seed in [0, u64::MAX] {
        let retries = [(); 4].map(|()| {
            let mut config = Config::child("handles", "1.0");
            config.seed = seed;
            config.policy.retry.first = Duration::from_secs(100);
            config.policy.retry.cap = Duration::from_secs(100);
            let mut pair = Pair::with(config);
            pair.opens_fail = true;
            drop(pair.link().ready());
            pair.run();
            assert_eq!(pair.link().state(), State::Waiting);
            let owner = pair.owner.as_ref().expect("it was not dropped");
            owner.poll_timeout().expect("the next attempt").at
        });
        assert!(retries.iter().any(|at| *at != retries[0]), "{retries:?}");
    }
}

#[test]
fn ask_that_was_answered_before_the_handler_came_is_not_passed_to_it() {
    let (mut pair, mut events, _call) = link_with_roots_and_open_call();
    let asked = pair.tasks[0].context.ask("roots/list", None);
    pair.run();
    let ask = received(&mut events)
        .iter()
        .find_map(|event| match &**event {
            Event::Ask(ask) => Some(ask.ask),
            _ => None,
        });
    let roots = r#"{"roots":[]}"#.parse().expect("it is JSON");
    drop(pair.link().answer(ask.expect("the question"), Ok(roots)));
    pair.run();
    value_of(asked).expect("an answer");
    let passed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&passed);
    pair.link().on_ask(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    pair.run();
    assert_eq!(passed.load(Ordering::Relaxed), 0);
}

#[test]
fn handler_of_asks_gets_their_parameters() {
    let (mut pair, _events, _call) = link_with_roots_and_open_call();
    let seen = Arc::new(Mutex::new(None));
    let sink = Arc::clone(&seen);
    pair.link().on_ask(move |ask| {
        let params = ask.params().map(|params| params.as_str().to_owned());
        *sink.lock().expect("no panic") = params;
        ask.answer_with(&json!({"roots": []}));
    });
    let params = r#"{"_meta":{"why":"a test"}}"#;
    let asked = pair.tasks[0].context.ask("roots/list", params.parse().ok());
    pair.run();
    value_of(asked).expect("an answer");
    assert_eq!(seen.lock().expect("no panic").as_deref(), Some(params));
}

#[test]
fn log_message_of_a_handler_reaches_the_client() {
    let (mut pair, mut events, _call) = link_with_roots_and_open_call();
    pair.link().watch(Watch::none().and_logs(LogLevel::Info));
    pair.run();
    let data = r#""it is full""#.parse().expect("it is JSON");
    pair.tasks[0]
        .context
        .log(LogLevel::Error, Some("disk"), data);
    pair.run();
    let logged = received(&mut events).into_iter().filter_map(|event| {
        let Event::Log {
            level,
            logger,
            data,
            ..
        } = &*event
        else {
            return None;
        };
        Some((*level, logger.clone(), data.as_str().to_owned()))
    });
    let expected = (
        LogLevel::Error,
        Some("disk".into()),
        r#""it is full""#.to_owned(),
    );
    assert_eq!(logged.collect::<Vec<_>>(), [expected]);
}

#[test]
fn handler_that_waits_for_its_cancellation_goes_on_when_it_comes() {
    let mut pair = Pair::new();
    let call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let context = pair.tasks[0].context.clone();
    let count = Arc::new(CountingWaker(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut cancelled = pin!(context.cancelled());
    let polled = cancelled.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    let (sender, receiver) = std::sync::mpsc::channel();
    let blocked = context.clone();
    std::thread::spawn(move || {
        blocked.wait_cancelled();
        sender.send(blocked.is_cancelled())
    });
    let early = receiver.recv_timeout(Duration::from_millis(50));
    assert!(early.is_err(), "nothing was cancelled");
    drop(call);
    pair.run();
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    let polled = cancelled.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_ready());
    let woken = receiver.recv_timeout(Duration::from_secs(10));
    assert_eq!(woken, Ok(true));
}
