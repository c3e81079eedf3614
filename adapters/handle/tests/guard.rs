//! Tests the handle and the owner of a relay with a manual clock. The host is a byte stream of texts, and the server answers over HTTP.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use everlink::client::{self, State};
use everlink::http::{ResponseHead, Url, Verb};
use everlink::relay::{Config, Event, Side};
use everlink::{Dialect, Epoch, Fault, FaultKind, Input, Instant, Output, StreamId, server};
use everlink_handle::{Events, Guard, GuardOwner, Pending, Status};
use serde_json::{Value, json};

/// A relay with its host and its server.
struct Relayed {
    now: Instant,
    guard: Guard,
    owner: Option<GuardOwner>,
    /// How the server answers.
    answers: Answers,
    /// The epochs that were opened.
    opened: Vec<Epoch>,
    /// The text that the host got.
    to_host: String,
    /// The calls of tools that the server got.
    calls: usize,
    /// Those that it has not answered yet.
    open_calls: Vec<(Epoch, StreamId, Value)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answers {
    /// With a result.
    Results,
    /// It wants credentials for a call of a tool.
    WantsCredentials,
    /// A call of a tool gets no answer yet.
    NoResults,
    /// It cannot be reached.
    Nothing,
}

/// In place of a status: there is no response.
const UNREACHABLE: u16 = 0;

impl Relayed {
    fn new(configure: impl FnOnce(&mut Config)) -> Relayed {
        let upstream = everlink::Config::http("guard", "1.0", "https://mcp.example/mcp");
        let mut config = Config::new(upstream.expect("a URL"), [7; 16]);
        config.upstream.dialect = Dialect::Legacy;
        configure(&mut config);
        let (guard, owner) = Guard::new(config);
        Relayed {
            now: Instant::ZERO,
            guard,
            owner: Some(owner),
            answers: Answers::Results,
            opened: Vec::new(),
            to_host: String::new(),
            calls: 0,
            open_calls: Vec::new(),
        }
    }

    /// A relay whose host has introduced itself, and can show pages.
    fn with_host(configure: impl FnOnce(&mut Config)) -> Relayed {
        let mut relayed = Relayed::new(configure);
        relayed.host_sends(
            &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"elicitation": {"url": {}}},
                "clientInfo": {"name": "host", "version": "1"},
            }}),
        );
        relayed.host_sends(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        relayed
    }

    fn owner(&mut self) -> &mut GuardOwner {
        self.owner.as_mut().expect("it was not dropped")
    }

    fn host_sends(&mut self, message: &Value) {
        let (now, line) = (self.now, format!("{message}\n"));
        let input = Input::bytes(line.into_bytes());
        self.owner().handle_downstream(now, input);
        self.run();
    }

    fn call_tool(&mut self, id: u32) {
        let params = json!({"name": "x"});
        self.host_sends(
            &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}),
        );
    }

    /// The reply that the host got to this request.
    fn reply(&self, id: u32) -> Option<Value> {
        let messages = self.to_host.lines().map(|line| {
            let message: Value = serde_json::from_str(line).expect("a message");
            message
        });
        let mut replies = messages.filter(|message| message.get("method").is_none());
        replies.find(|reply| reply["id"] == id)
    }

    /// Carries out all outputs.
    fn run(&mut self) {
        let mut buf = Vec::new();
        while let Some(mut owner) = self.owner.take() {
            owner.advance(self.now);
            while let Some((side, output)) = owner.poll_output(&mut buf) {
                self.carry_out(&mut owner, side, output, &mut buf);
            }
            let is_idle = !owner.register_waker(Waker::noop());
            self.owner = Some(owner);
            if is_idle {
                return;
            }
        }
    }

    fn carry_out<E>(
        &mut self,
        owner: &mut GuardOwner,
        side: Side,
        output: Output<E>,
        buf: &mut Vec<u8>,
    ) {
        match (side, output) {
            (Side::Upstream, Output::Open { epoch }) => {
                self.opened.push(epoch);
                owner.handle_upstream(self.now, epoch, Input::Opened);
            }
            (
                Side::Upstream,
                Output::Request {
                    epoch,
                    stream,
                    head,
                    ..
                },
            ) => {
                let message = serde_json::from_slice(buf).unwrap_or_default();
                buf.clear();
                let answer = match head.verb {
                    Verb::Post => self.answer(&message),
                    _ => Some((405, Vec::new())),
                };
                match answer {
                    Some(answer) => self.respond(owner, epoch, stream, answer),
                    None => self.open_calls.push((epoch, stream, message)),
                }
            }
            (Side::Downstream, Output::Write { len, .. }) => {
                self.to_host += std::str::from_utf8(buf).expect("a text");
                buf.clear();
                owner.handle_downstream(self.now, Input::sent(len));
            }
            _ => {}
        }
    }

    fn answer_open_calls(&mut self) {
        for (epoch, stream, message) in std::mem::take(&mut self.open_calls) {
            let answer = self.answer(&message).expect("a result");
            let mut owner = self.owner.take().expect("it was not dropped");
            self.respond(&mut owner, epoch, stream, answer);
            self.owner = Some(owner);
            self.run();
        }
    }

    /// The status and the body with which the server answers, if it does so now.
    fn answer(&mut self, message: &Value) -> Option<(u16, Vec<u8>)> {
        let method = message["method"].as_str().unwrap_or_default();
        let is_call = method == "tools/call";
        self.calls += usize::from(is_call);
        let result = match method {
            "initialize" => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "resources": {"subscribe": true}},
                "serverInfo": {"name": "server", "version": "1"},
            }),
            _ => json!({"content": []}),
        };
        let reply = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        Some(match self.answers {
            Answers::Nothing => (UNREACHABLE, Vec::new()),
            Answers::NoResults if is_call => return None,
            Answers::WantsCredentials if is_call => (401, Vec::new()),
            _ if message.get("id").is_none() => (202, Vec::new()),
            _ => (200, reply.to_string().into_bytes()),
        })
    }

    fn respond(
        &self,
        owner: &mut GuardOwner,
        epoch: Epoch,
        stream: StreamId,
        (status, body): (u16, Vec<u8>),
    ) {
        let mut faults = vec![Fault::new(FaultKind::Refused)];
        if status != UNREACHABLE {
            faults.clear();
            let mut head = ResponseHead::new(status);
            head.fields.push("content-type", "application/json");
            let head = Box::new(head);
            owner.handle_upstream(self.now, epoch, Input::Response { stream, head });
            let bytes = body.into();
            owner.handle_upstream(self.now, epoch, Input::Bytes { stream, bytes });
        }
        let faults = faults.into();
        owner.handle_upstream(self.now, epoch, Input::End { stream, faults });
    }

    fn value_of<T>(&mut self, mut pending: Pending<T>) -> T {
        self.run();
        let polled = std::pin::Pin::new(&mut pending).poll(&mut Context::from_waker(Waker::noop()));
        match polled {
            Poll::Ready(Ok(value)) => value,
            Poll::Ready(Err(gone)) => panic!("{gone}"),
            Poll::Pending => panic!("there is no answer"),
        }
    }

    fn status(&mut self) -> Status {
        let pending = self.guard.status();
        self.value_of(pending)
    }
}

/// Whether a promise was kept, or broken because the owner is gone.
fn is_settled(pending: &mut Pending<()>) -> bool {
    std::pin::Pin::new(pending)
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

fn received(events: &mut Events<Event>) -> Vec<Arc<Event>> {
    std::iter::from_fn(|| events.try_recv()).collect()
}

#[test]
fn connect_reaches_the_server_before_there_is_a_host() {
    let mut relayed = Relayed::new(|_| {});
    relayed.run();
    assert_eq!(relayed.status().upstream, State::Idle);
    assert_eq!(relayed.status().epoch, Epoch::NONE);
    relayed.guard.connect();
    relayed.run();
    let status = relayed.status();
    assert_eq!(status.upstream, State::Ready);
    assert_eq!(status.epoch, relayed.opened[0]);
    let session = status.session.expect("it is ready");
    assert_eq!(session.version.to_string(), "2025-11-25");
    assert_eq!(status.downstream, server::State::Serving);
}

#[test]
fn status_counts_the_open_requests_of_the_host_and_the_failed_attempts() {
    let mut relayed = Relayed::with_host(|_| {});
    relayed.answers = Answers::NoResults;
    relayed.call_tool(1);
    assert_eq!(relayed.status().requests, 1);

    let mut relayed = Relayed::new(|_| {});
    relayed.answers = Answers::Nothing;
    relayed.guard.connect();
    relayed.run();
    let status = relayed.status();
    assert_eq!((status.failures, status.requests), (1, 0));
    assert!(status.last_end.is_some());
}

#[test]
fn reconnect_replaces_the_named_transport_and_no_newer_one() {
    let mut relayed = Relayed::with_host(|_| {});
    let first = relayed.opened[0];
    relayed.guard.reconnect(Epoch::NONE, "an older one");
    relayed.run();
    assert_eq!(relayed.status().epoch, first);
    relayed.guard.reconnect(first, "a new version");
    relayed.run();
    relayed.now = relayed.now + Duration::from_secs(1);
    relayed.run();
    let status = relayed.status();
    assert!(status.epoch > first);
    let ended = status.last_end.expect("the first one").to_string();
    assert!(ended.contains("a new version"), "{ended}");
}

#[test]
fn wake_ends_the_pause_before_the_next_attempt() {
    let mut relayed = Relayed::new(|_| {});
    relayed.answers = Answers::Nothing;
    relayed.guard.connect();
    for _ in 0..20 {
        relayed.run();
        relayed.now = relayed.now + Duration::from_millis(100);
    }
    relayed.run();
    relayed.answers = Answers::Results;
    assert_eq!(relayed.status().upstream, State::Waiting);
    relayed.guard.wake();
    relayed.run();
    assert_eq!(relayed.status().upstream, State::Ready);
}

#[test]
fn call_that_waits_for_credentials_goes_on_when_they_come() {
    let mut relayed = Relayed::with_host(|_| {});
    relayed.answers = Answers::WantsCredentials;
    relayed.call_tool(1);
    assert_eq!(relayed.reply(1), None);
    relayed.answers = Answers::Results;
    relayed.guard.authorized();
    relayed.run();
    assert!(relayed.reply(1).expect("a reply")["result"].is_object());
    assert_eq!(relayed.calls, 2);
}

#[test]
fn call_that_waits_for_credentials_fails_with_the_reason_when_they_are_denied() {
    let mut relayed = Relayed::with_host(|_| {});
    relayed.answers = Answers::WantsCredentials;
    relayed.call_tool(1);
    relayed.guard.denied("the account is locked");
    relayed.run();
    let reply = relayed.reply(1).expect("a reply").to_string();
    assert!(reply.contains("the account is locked"), "{reply}");
    assert!(!reply.contains("elicitation"), "there is no page: {reply}");
}

#[test]
fn call_that_waits_for_credentials_fails_with_the_page_of_the_sign_in() {
    let mut relayed = Relayed::with_host(|_| {});
    relayed.answers = Answers::WantsCredentials;
    relayed.call_tool(1);
    let page = Url::parse("https://as.example/authorize").expect("a URL");
    relayed
        .guard
        .denied_until_sign_in(&page, "sign in and call again");
    relayed.run();
    let reply = relayed.reply(1).expect("a reply");
    assert_eq!(reply["error"]["message"], "sign in and call again");
    let shown = &reply["error"]["data"]["elicitations"][0]["url"];
    assert_eq!(shown, page.as_str());
}

/// Replaces the server more often than a queue holds the events of that.
fn flood(relayed: &mut Relayed) {
    relayed.answers = Answers::Results;
    for _ in 0..200 {
        let epoch = relayed.status().epoch;
        relayed.guard.reconnect(epoch, "a new version");
        relayed.run();
        relayed.now = relayed.now + Duration::from_secs(60);
        relayed.run();
        assert_eq!(relayed.status().upstream, State::Ready);
    }
}

fn is_demand(event: &Arc<Event>) -> bool {
    matches!(**event, Event::Upstream(client::Event::AuthRequired(_)))
}

#[test]
fn demand_for_credentials_reaches_a_listener_that_fell_behind_until_it_is_answered() {
    for is_answered in [false, true] {
        let mut relayed = Relayed::with_host(|_| {});
        let mut events = relayed.guard.events();
        relayed.answers = Answers::WantsCredentials;
        relayed.call_tool(1);
        if is_answered {
            relayed.guard.denied("nobody is there");
            relayed.run();
        } else {
            let params = json!({"requestId": 1});
            relayed.host_sends(
                &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}),
            );
        }
        flood(&mut relayed);
        let received = received(&mut events);
        assert!(events.missed() > 0, "the flood was not long enough");
        assert_eq!(received.iter().any(is_demand), !is_answered);
    }
}

#[test]
fn end_of_service_reaches_a_listener_that_fell_behind() {
    let mut relayed = Relayed::with_host(|config| {
        config.traces = true;
        config.drain = Some(Duration::from_secs(60));
    });
    relayed.answers = Answers::NoResults;
    (1..1100).for_each(|id| relayed.call_tool(id));
    let mut events = relayed.guard.events();
    drop(relayed.guard.shutdown());
    relayed.run();
    assert_eq!(relayed.status().downstream, server::State::Draining);
    // Each answer is an event, because the relay takes part in traces.
    relayed.answers = Answers::Results;
    let last = relayed.open_calls.pop();
    relayed.answer_open_calls();
    (0..8).for_each(|_| relayed.host_sends(&json!("no message")));
    let received = received(&mut events);
    assert!(events.missed() > 0, "the flood was not long enough");
    let is_draining =
        |event: &Arc<Event>| matches!(**event, Event::Downstream(server::Event::Draining { .. }));
    assert!(received.iter().any(is_draining));
    assert!(
        last.is_some(),
        "a call is open, so the service has not ended"
    );
}

#[test]
fn observer_sees_all_events_and_leaves_those_of_single_requests_out_for_handles() {
    for is_observed in [false, true] {
        let mut relayed = Relayed::new(|config| config.traces = true);
        let seen = Arc::new(Mutex::new((0, 0)));
        if is_observed {
            let seen = Arc::clone(&seen);
            relayed.owner().observe(move |now, event| {
                assert_eq!(now, Instant::ZERO + Duration::from_secs(1));
                let mut seen = seen.lock().expect("no panic");
                if matches!(event, Event::Traced(_)) {
                    seen.0 += 1;
                } else {
                    seen.1 += 1;
                }
            });
        }
        relayed.now = relayed.now + Duration::from_secs(1);
        let mut events = relayed.guard.events();
        relayed.guard.connect();
        relayed.run();
        relayed.host_sends(
            &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "host", "version": "1"},
            }}),
        );
        relayed.call_tool(1);
        let received = received(&mut events);
        assert_eq!(events.at(), relayed.now);
        let is_traced = |event: &&Arc<Event>| matches!(***event, Event::Traced(_));
        let traced = received.iter().filter(is_traced).count();
        let (observed_traces, observed_others) = *seen.lock().expect("no panic");
        if is_observed {
            assert!(observed_traces > 0);
            assert_eq!((traced, received.len()), (0, observed_others));
        } else {
            assert!(traced > 0 && traced < received.len());
        }
    }
}

#[test]
fn shutdown_closes_both_sides_and_completes_when_the_owner_is_dropped() {
    let mut relayed = Relayed::with_host(|_| {});
    let mut events = relayed.guard.events();
    let (mut shutdown, mut closed) = (relayed.guard.shutdown(), relayed.guard.closed());
    for _ in 0..10 {
        relayed.run();
        relayed.now = relayed.now + Duration::from_secs(1);
    }
    assert!(relayed.owner().is_closed());
    assert!(!is_settled(&mut shutdown) && !is_settled(&mut closed));
    relayed.owner = None;
    assert!(is_settled(&mut shutdown) && is_settled(&mut closed));
    assert!(received(&mut events).len() > 1);
    assert!(events.wait().is_none(), "there are no more events");
}

#[test]
fn relay_stays_open_without_a_shutdown() {
    let mut relayed = Relayed::with_host(|_| {});
    let mut closed = relayed.guard.closed();
    for _ in 0..10 {
        relayed.run();
        relayed.now = relayed.now + Duration::from_secs(1);
    }
    assert!(!relayed.owner().is_closed() && !is_settled(&mut closed));
}

/// Counts how often a driver is woken.
#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn command_wakes_the_driver_of_a_relay() {
    let mut relayed = Relayed::new(|_| {});
    relayed.run();
    let count = Arc::new(CountingWaker::default());
    let waker = Waker::from(Arc::clone(&count));
    assert!(!relayed.owner().register_waker(&waker));
    relayed.guard.wake();
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(relayed.owner().register_waker(&waker), "it is queued");
}

#[test]
fn deadline_of_a_relay_is_that_of_its_machine() {
    let mut relayed = Relayed::new(|_| {});
    relayed.answers = Answers::Nothing;
    relayed.guard.connect();
    relayed.run();
    let owner = relayed.owner();
    let deadline = owner.poll_timeout().expect("the next attempt");
    assert_eq!(
        Some(deadline.at),
        owner.relay().poll_timeout().map(|it| it.at)
    );
    assert!(owner.wants_input(Side::Downstream));
}

#[test]
fn relay_does_not_read_from_a_host_that_has_as_many_requests_as_it_may() {
    let mut relayed = Relayed::with_host(|config| config.downstream.limits.requests = 1);
    relayed.answers = Answers::NoResults;
    assert!(relayed.owner().wants_input(Side::Downstream));
    relayed.call_tool(1);
    assert!(!relayed.owner().wants_input(Side::Downstream));
    assert!(relayed.owner().wants_input(Side::Upstream));
    relayed.answers = Answers::Results;
    relayed.answer_open_calls();
    assert!(relayed.owner().wants_input(Side::Downstream));
}

#[test]
fn relays_with_the_same_seed_do_not_retry_at_the_same_time() {
    for seed in [0, u64::MAX] {
        let retries = [(); 4].map(|()| {
            let mut relayed = Relayed::new(|config| {
                config.upstream.seed = seed;
                config.upstream.policy.retry.first = Duration::from_secs(100);
                config.upstream.policy.retry.cap = Duration::from_secs(100);
            });
            relayed.answers = Answers::Nothing;
            relayed.guard.connect();
            relayed.run();
            assert_eq!(relayed.status().upstream, State::Waiting);
            let deadline = relayed.owner().relay().upstream().poll_timeout();
            deadline.expect("the next attempt").at
        });
        assert!(retries.iter().any(|at| *at != retries[0]), "{retries:?}");
    }
}

/// Asks for the status of a relay when it is woken, and notes whether that fails at once.
struct AskingWaker(Guard, Mutex<Option<bool>>);

impl Wake for AskingWaker {
    fn wake(self: Arc<Self>) {
        let is_over = is_over(&mut self.0.status());
        *self.1.lock().expect("no panic") = Some(is_over);
    }
}

fn is_over(pending: &mut Pending<Status>) -> bool {
    let polled = std::pin::Pin::new(pending).poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Err(_)))
}

#[test]
fn listener_that_is_woken_by_the_end_of_a_relay_finds_that_it_takes_no_commands() {
    let mut relayed = Relayed::new(|_| {});
    relayed.run();
    let mut events = relayed.guard.events();
    let asking = Arc::new(AskingWaker(relayed.guard.clone(), Mutex::default()));
    let waker = Waker::from(Arc::clone(&asking));
    let mut next = Box::pin(events.recv());
    let polled = next.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    relayed.owner = None;
    assert_eq!(*asking.1.lock().expect("no panic"), Some(true));
}
