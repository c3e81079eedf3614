//! The tasks of the demo: callers, a task that disrupts servers, and a listener. They add what they see to the history.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use everlink::Epoch;
use everlink::client::{CallOptions, Cause, Ended, Event, Failure, FailureKind, State};
use everlink_tokio::{Call, CallError, Events, Link};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::history::{CallKind, History, Outcome};
use super::live::{LinkState, LiveView};
use super::rng::Rng;
use crate::output::{EventPrinter, Severity, severity};

/// Anything that takes this long has hung. The time is several times as long as the link allows a call.
pub(super) const HANG_LIMIT: Duration = Duration::from_secs(60);
/// How long [`Workload::disrupt`] waits for the next epoch after it asked a server to end. A server that did not get the call in time stays alive,
/// which is fine.
const NEXT_EPOCH_LIMIT: Duration = Duration::from_secs(5);

pub(super) struct Workload {
    link: Link,
    start: Instant,
    printer: EventPrinter,
    /// The live table, which is shown at a terminal instead of lines.
    live: Option<Mutex<LiveView>>,
    history: Mutex<History>,
    has_ended: AtomicBool,
}

/// The ways in which the demo ends a server: a description, and the request that causes it.
const DISRUPTIONS: [(&str, Disruption); 7] = [
    ("a planned reconnect", Disruption::Reconnect),
    ("exit", Disruption::Crash("exit")),
    ("a flood on stderr, then exit", Disruption::Crash("flood")),
    ("garbage on stdout, then exit", Disruption::Crash("garbage")),
    (
        "exit in the middle of a line",
        Disruption::Crash("half-line"),
    ),
    ("hang", Disruption::Crash("hang")),
    ("kill", Disruption::Crash("kill")),
];

#[derive(Clone, Copy)]
enum Disruption {
    Crash(&'static str),
    Reconnect,
}

impl Workload {
    pub(super) fn new(link: Link, live: Option<LiveView>) -> Workload {
        Workload {
            live: live.map(Mutex::new),
            link,
            start: Instant::now(),
            printer: EventPrinter::on_stderr(),
            history: Mutex::new(History::default()),
            has_ended: AtomicBool::new(false),
        }
    }

    pub(super) fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Stops new calls and new disruptions.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Writes a line about what the demo itself does. The clock started together with the clock of the link.
    fn log(&self, line: &dyn Display) {
        let now = everlink::Instant::from_origin(self.start.elapsed());
        self.show(now, Severity::Neutral, line);
    }

    /// Writes a line, or adds it to the live table.
    fn show(&self, at: everlink::Instant, severity: Severity, line: &dyn Display) {
        match &self.live {
            Some(live) => {
                let seconds = at.as_nanos() as f64 / 1e9;
                lock(live).add_event(seconds, severity, line);
            }
            None => self.printer.print_line(at, severity, line),
        }
    }

    /// Draws the live table ten times a second.
    async fn draw(&self, live: &Mutex<LiveView>) {
        while !self.has_ended() {
            let (state, epoch) = (self.link.state(), self.link.epoch());
            lock(live).draw(
                self.start.elapsed(),
                &self.history(),
                &LinkState { state, epoch },
            );
            sleep(Duration::from_millis(100)).await;
        }
        lock(live).end();
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Makes one call after another.
    pub(super) async fn call(self: Arc<Self>, mut rng: Rng) {
        while !self.has_ended() {
            let ms = 1 + rng.below(40);
            match rng.below(7) {
                0 => self.list().await,
                1 => self.tool("echo", json!({}), CallKind::Once).await,
                2 => self.tool("echo", json!({}), CallKind::Repeatable).await,
                3 => self.tool("sleep", json!({"ms": ms}), CallKind::Once).await,
                4 => {
                    self.tool("sleep", json!({"ms": ms}), CallKind::Repeatable)
                        .await;
                }
                5 => {
                    let arguments = json!({"steps": 3, "ms": ms});
                    self.tool("progress", arguments, CallKind::Once).await;
                }
                _ => self.tool("pid", json!({}), CallKind::Repeatable).await,
            }
            sleep(Duration::from_millis(1 + rng.below(20))).await;
        }
    }

    /// Ends one server after another. Uses every disruption once, in random order, before it starts again.
    pub(super) async fn disrupt(self: Arc<Self>, mut rng: Rng) {
        let mut disruptions = DISRUPTIONS;
        loop {
            rng.shuffle(&mut disruptions);
            for (description, disruption) in disruptions {
                let pause = Duration::from_millis(150 + rng.below(450));
                sleep(pause).await;
                if self.has_ended() {
                    return;
                }
                self.log(&format_args!(">> next: {description}"));
                let (events, epoch) = (self.link.events(), self.link.epoch());
                match disruption {
                    Disruption::Crash(how) => {
                        self.tool("die", json!({"how": how}), CallKind::Once).await
                    }
                    Disruption::Reconnect => self.link.reconnect("the demo wants a new server"),
                }
                // Only listens to events: `Link::ready` would make the link reconnect earlier.
                let _ = timeout(NEXT_EPOCH_LIMIT, wait_for_later_epoch(epoch, events)).await;
                self.wait_until_ready().await;
            }
        }
    }

    /// Waits until the link is ready. Notes a broken rule if that takes too long.
    pub(super) async fn wait_until_ready(&self) {
        let reason = match timeout(HANG_LIMIT, self.link.ready()).await {
            Ok(Ok(_)) => return,
            Ok(Err(not_ready)) => not_ready.to_string(),
            Err(_) => format!("the link was {} for {HANG_LIMIT:?}", self.link.state()),
        };
        self.history()
            .violations
            .push(format!("the link did not come back: {reason}"));
    }

    /// Writes the number of calls once a second, or draws the live table.
    pub(super) async fn count(self: Arc<Self>) {
        if let Some(live) = &self.live {
            return self.draw(live).await;
        }
        while !self.has_ended() {
            sleep(Duration::from_secs(1)).await;
            let line = {
                let history = self.history();
                let is_reply = |outcome: &Outcome| matches!(outcome, Outcome::Reply);
                let outcomes = || {
                    history
                        .calls
                        .iter()
                        .filter_map(|call| call.outcome.as_ref())
                };
                let (made, settled) = (history.calls.len(), outcomes().count());
                let answered = outcomes().filter(|outcome| is_reply(outcome)).count();
                format!(
                    "-- {made} calls: {answered} answered, {} without a reply, {} under way",
                    settled - answered,
                    made - settled
                )
            };
            self.log(&line);
        }
    }

    /// Writes the events of the link until it closes.
    pub(super) async fn listen(self: Arc<Self>, mut events: Events<Event>) {
        let (mut ended_at, mut was_ready) = (None, false);
        while let Some(event) = events.recv().await {
            match &*event {
                Event::Closing { cause, .. } if is_unplanned_end(cause) => {
                    ended_at.get_or_insert_with(Instant::now);
                }
                Event::Ended(ended) => {
                    self.check_not_ready(ended);
                    if ended.counted {
                        self.history().deaths += 1;
                        ended_at.get_or_insert_with(Instant::now);
                    }
                    // Leaves out the server's last lines of standard error, which are long.
                    let mut brief = Ended::clone(ended);
                    brief.stderr = Box::default();
                    self.show(events.at(), severity(&event), &brief);
                    continue;
                }
                Event::Ready(_) => {
                    let mut history = self.history();
                    history.reconnects += u32::from(was_ready);
                    history
                        .recovery_times
                        .extend(ended_at.take().map(|at| at.elapsed()));
                    was_ready = true;
                }
                Event::Handshaking { .. } | Event::Watching { .. } => continue,
                _ => {}
            }
            self.show(events.at(), severity(&event), &event);
        }
    }

    async fn list(&self) {
        let number = self.history().add_call(CallKind::List);
        self.wait_for_outcome(number, self.link.list_tools().start())
            .await;
    }

    async fn tool(&self, name: &str, mut arguments: Value, kind: CallKind) {
        let number = self.history().add_call(kind);
        let message = format!("this is call {number}");
        arguments["number"] = json!(number);
        arguments["message"] = json!(message);
        let options = match kind {
            CallKind::Repeatable => CallOptions::new().idempotent(),
            CallKind::List | CallKind::Once => CallOptions::new(),
        };
        let call = self.link.call_tool(name, arguments);
        let call = call.options(options).start();
        let Some(result) = self.wait_for_outcome(number, call).await else {
            return;
        };
        if name == "echo" && result.text() != message {
            let text = format!("call {number} got a reply that is not its own");
            self.history().violations.push(text);
        }
    }

    /// Waits for a call and notes its outcome. A call that hangs stays open in the history.
    async fn wait_for_outcome<T>(&self, number: usize, call: Call<T>) -> Option<T> {
        let (outcome, result) = match timeout(HANG_LIMIT, call).await.ok()? {
            Ok(result) => (Outcome::Reply, Some(result)),
            Err(error) => (self.classify(number, error), None),
        };
        self.history().settle(number, outcome);
        result
    }

    fn classify(&self, number: usize, error: CallError) -> Outcome {
        let violation = match error {
            // An error from the server is a reply.
            CallError::Error(_) => return Outcome::Reply,
            CallError::Failed(failure) => {
                if let Some(ended) = &failure.ended {
                    self.check_not_ready(ended);
                }
                if !has_reason(&failure) {
                    let text = format!("call {number} failed without a reason: {failure}");
                    self.history().violations.push(text);
                }
                let (kind, delivery) = (failure.kind, failure.delivery);
                return Outcome::Failed { kind, delivery };
            }
            CallError::Gone => return Outcome::Lost,
            refused => format!("call {number} was refused: {refused}"),
        };
        self.history().violations.push(violation);
        Outcome::Refused
    }

    /// Checks that the link no longer calls this epoch ready. That must hold as soon as anyone can learn of its end.
    fn check_not_ready(&self, ended: &Ended) {
        if self.link.state() == State::Ready && self.link.epoch() == ended.epoch {
            let text = format!("the link says that it is ready, but {ended}");
            self.history().violations.push(text);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until a later epoch is ready.
async fn wait_for_later_epoch(epoch: Epoch, mut events: Events<Event>) {
    while let Some(event) = events.recv().await {
        if matches!(&*event, Event::Ready(session) if session.epoch > epoch) {
            return;
        }
    }
}

fn is_unplanned_end(cause: &Cause) -> bool {
    !matches!(
        cause,
        Cause::AskedTo { .. } | Cause::EraProbe | Cause::Shutdown
    )
}

/// Whether a failure says what happened and, if a server ended, how it ended.
fn has_reason(failure: &Failure) -> bool {
    let needs_end = matches!(failure.kind, FailureKind::Down | FailureKind::Lost);
    let (text, kind) = (failure.to_string(), failure.kind.to_string());
    let names_end = match &failure.ended {
        Some(ended) => text.contains(&ended.cause.to_string()),
        None => !needs_end,
    };
    !kind.is_empty() && text.contains(&kind) && names_end
}
