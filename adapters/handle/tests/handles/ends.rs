//! The calls of drivers to owners, and the end of a driver as callers, handlers and listeners see it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use everlink::client::{Misuse, State};
use everlink::server::{Offer, Server};
use everlink::{Config, Input, Instant, Output, StreamId};
use everlink_handle::{CallError, Service, ServiceError};
use serde_json::json;

use super::{
    CountingWaker, Pair, StateWaker, link_with_roots_and_open_call, poll_once, server, text,
    value_of,
};

const NOTIFICATION: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/other\"}\n";

/// Runs a function when it is woken.
struct OnWake(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for OnWake {
    fn wake(self: Arc<Self>) {
        let function = self.0.lock().expect("no panic").take();
        if let Some(function) = function {
            function();
        }
    }
}

/// A waker that checks something when it is woken, and the result of that check.
fn checking_waker(
    check: impl FnOnce() -> bool + Send + 'static,
) -> (Waker, Arc<Mutex<Option<bool>>>) {
    let seen = Arc::new(Mutex::new(None));
    let sink = Arc::clone(&seen);
    let function = move || {
        let result = check();
        *sink.lock().expect("no panic") = Some(result);
    };
    let on_wake = OnWake(Mutex::new(Some(Box::new(function))));
    (Waker::from(Arc::new(on_wake)), seen)
}

fn result_of(seen: &Mutex<Option<bool>>) -> Option<bool> {
    *seen.lock().expect("no panic")
}

#[test]
fn command_after_the_server_died_finds_that_published() {
    let mut pair = Pair::new();
    drop(pair.link().ready());
    pair.run();
    assert_eq!(pair.link().state(), State::Ready);
    let mut stats = pair.link().stats();
    let state_waker = Arc::new(StateWaker(pair.link().clone(), Mutex::default()));
    let waker = Waker::from(Arc::clone(&state_waker));
    let polled = std::pin::Pin::new(&mut stats).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    pair.kill_server();
    pair.run();
    value_of(stats).expect("the link lives");
    let seen = state_waker.1.lock().expect("no panic").clone();
    assert!(
        !seen.is_empty() && !seen.contains(&State::Ready),
        "{seen:?}"
    );
}

#[test]
fn caller_whose_reply_came_is_woken_although_the_driver_ends_before_its_pause() {
    let mut pair = Pair::new();
    let mut done = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let count = Arc::new(CountingWaker(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let polled = std::pin::Pin::new(&mut done).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    pair.tasks.remove(0).answer.give(Ok(text("done")));
    pair.server_owner.advance(pair.now);
    let mut buf = Vec::new();
    let written = pair.server_owner.poll_output(&mut buf);
    assert!(matches!(written, Some(Output::Write { .. })), "{written:?}");
    // Another call is to be written when the reply arrives.
    let _other = pair.link().call_tool("say", json!({})).start();
    let owner = pair.owner.as_mut().expect("it was not dropped");
    owner.handle(pair.now, pair.epoch, Input::bytes(&buf[..]));
    owner.advance(pair.now);
    buf.clear();
    let written = owner.poll_output(&mut buf);
    assert!(matches!(written, Some(Output::Write { .. })), "{written:?}");
    pair.owner = None;
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert_eq!(value_of(done).expect("a reply").text(), "done");
}

#[test]
fn caller_that_is_woken_by_the_end_of_the_driver_can_make_no_other_call() {
    let mut pair = Pair::new();
    let mut call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let link = pair.link().clone();
    let (waker, is_refused) = checking_waker(move || {
        let polled = poll_once(&mut link.call_tool("late", json!({})).start());
        matches!(polled, Poll::Ready(Err(CallError::Misuse(Misuse::Closed))))
    });
    let polled = std::pin::Pin::new(&mut call).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    pair.owner = None;
    assert_eq!(result_of(&is_refused), Some(true));
}

#[test]
fn calls_have_ended_when_a_listener_learns_that_the_driver_ended() {
    let mut pair = Pair::new();
    let mut call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    let mut events = pair.link().events();
    let (waker, has_ended) = checking_waker(move || poll_once(&mut call).is_ready());
    let mut next = Box::pin(events.recv());
    let polled = next.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    pair.owner = None;
    assert_eq!(result_of(&has_ended), Some(true));
}

#[test]
fn deadline_and_reading_of_a_link_are_those_of_its_machine() {
    let mut config = Config::child("handles", "1.0");
    config.limits.undelivered_bytes = 1;
    let mut pair = Pair::with(config);
    let deadline = |pair: &Pair| {
        let owner = pair.owner.as_ref().expect("it was not dropped");
        let expected = owner.client().poll_timeout().map(|deadline| deadline.at);
        assert_eq!(owner.poll_timeout().map(|deadline| deadline.at), expected);
        expected
    };
    let reads = |pair: &Pair| {
        let owner = pair.owner.as_ref().expect("it was not dropped");
        owner.wants_input(StreamId::DUPLEX)
    };
    assert_eq!(deadline(&pair), None);
    let _call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    assert!(deadline(&pair).is_some(), "the call has a limit");
    assert!(reads(&pair));
    let owner = pair.owner.as_mut().expect("it was not dropped");
    owner.handle(pair.now, pair.epoch, Input::bytes(NOTIFICATION));
    assert!(!reads(&pair), "an event waits to be delivered");
    pair.run();
    assert!(reads(&pair));
}

#[test]
fn reading_of_a_service_is_that_of_its_machine() {
    let mut config = server::Config::new(Offer::new("handles", "1.0"), [7; 16]);
    config.limits.undelivered_bytes = 1;
    let (_service, mut owner) = Service::new(Server::new(config));
    assert!(owner.wants_input(StreamId::DUPLEX));
    owner.handle(Instant::ZERO, Input::bytes(NOTIFICATION));
    assert!(!owner.wants_input(StreamId::DUPLEX), "an event waits");
    let mut buf = Vec::new();
    while owner.poll_output(&mut buf).is_some() {}
    assert!(owner.wants_input(StreamId::DUPLEX));
}

#[test]
fn command_of_a_service_wakes_its_driver() {
    let (service, mut owner) = Service::new(server());
    let count = Arc::new(CountingWaker(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    assert!(!owner.register_waker(&waker));
    let stats = service.stats();
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert!(owner.register_waker(&waker), "it is queued");
    owner.advance(Instant::ZERO);
    assert!(!owner.register_waker(&waker));
    value_of(stats).expect("it is driven");
}

#[test]
fn service_that_is_shut_down_ends_at_its_deadline_although_a_handler_runs_on() {
    let mut pair = Pair::new();
    let _call = pair.link().call_tool("say", json!({})).start();
    pair.run();
    assert!(!pair.server_owner.is_closed());
    drop(pair.service.shutdown());
    pair.run();
    assert!(!pair.server_owner.is_closed(), "a handler runs");
    let owner = &pair.server_owner;
    let deadline = owner.poll_timeout().expect("the end of the drain").at;
    let expected = owner.server().poll_timeout().map(|deadline| deadline.at);
    assert_eq!(Some(deadline), expected);
    pair.advance_time(Duration::from_secs(10));
    assert!(pair.server_owner.is_closed());
    assert!(pair.tasks[0].context.is_cancelled());
}

#[test]
fn end_of_a_driver_cancels_the_requests_of_its_server() {
    let (mut pair, _events, _call) = link_with_roots_and_open_call();
    let service = pair.service.clone();
    let context = pair.tasks[0].context.clone();
    let asked = context.ask("roots/list", None);
    pair.run();
    let late = service.clone();
    let (waker, is_refused) = checking_waker(move || poll_once(&mut late.stats()).is_ready());
    let mut cancelled = Box::pin(context.cancelled());
    let polled = cancelled.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    (_, pair.server_owner) = Service::new(server());
    assert!(context.is_cancelled());
    assert_eq!(result_of(&is_refused), Some(true));
    assert_eq!(service.state(), server::State::Closed);
    assert_eq!(value_of(asked), Err(ServiceError::Gone));
    value_of(service.stats()).expect_err("nobody drives it");
}

#[test]
fn asks_have_ended_when_a_listener_learns_that_the_driver_of_a_server_ended() {
    let (mut pair, _events, _call) = link_with_roots_and_open_call();
    let mut asked = pair.tasks[0].context.ask("roots/list", None);
    pair.run();
    let mut events = pair.service.events();
    let (waker, has_ended) = checking_waker(move || poll_once(&mut asked).is_ready());
    let mut next = Box::pin(events.recv());
    let polled = next.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    (_, pair.server_owner) = Service::new(server());
    assert_eq!(result_of(&has_ended), Some(true));
    let polled = next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(None)));
}
