//! The tasks of the demo: callers, a saboteur that makes servers die, and a listener. They write what they see into the book.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use everlink::Epoch;
use everlink::client::{CallOptions, Cause, Ended, Event, Failure, FailureKind, State};
use everlink_tokio::{Call, CallError, Events, Link};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::book::{Book, Outcome, Wish};
use super::dice::Dice;
use crate::shown::{Mood, Timeline, mood};

/// Anything that takes this long has hung. The time is several times as long as the link allows a call.
pub(super) const HUNG: Duration = Duration::from_secs(60);
/// How long the saboteur waits for the next epoch after it told a server to die. A server that did not get the call in time stays alive, which is
/// fine.
const DYING: Duration = Duration::from_secs(5);

pub(super) struct Stage {
    link: Link,
    start: Instant,
    timeline: Timeline,
    book: Mutex<Book>,
    is_over: AtomicBool,
}

/// The ways in which a server can end: a description, and the request that causes it.
const FATES: [(&str, Fate); 7] = [
    ("a planned reconnect", Fate::Reconnect),
    ("exit", Fate::Die("exit")),
    ("a flood on stderr, then exit", Fate::Die("flood")),
    ("garbage on stdout, then exit", Fate::Die("garbage")),
    ("exit in the middle of a line", Fate::Die("half-line")),
    ("hang (SIGSTOP)", Fate::Die("hang")),
    ("kill -9", Fate::Die("kill")),
];

#[derive(Clone, Copy)]
enum Fate {
    Die(&'static str),
    Reconnect,
}

impl Stage {
    pub(super) fn new(link: Link) -> Stage {
        Stage {
            link,
            start: Instant::now(),
            timeline: Timeline::on_stderr(),
            book: Mutex::new(Book::default()),
            is_over: AtomicBool::new(false),
        }
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops new calls and new deaths.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Writes a line about what the demo itself does. The clock started together with the clock of the link.
    fn tell(&self, line: &dyn Display) {
        let now = everlink::Instant::from_origin(self.start.elapsed());
        self.timeline.tell(now, Mood::Plain, line);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Makes one call after another.
    pub(super) async fn call(self: Arc<Self>, mut dice: Dice) {
        while !self.is_over() {
            let ms = 1 + dice.below(40);
            match dice.below(7) {
                0 => self.list().await,
                1 => self.tool("echo", json!({}), Wish::Once).await,
                2 => self.tool("echo", json!({}), Wish::Repeatable).await,
                3 => self.tool("sleep", json!({"ms": ms}), Wish::Once).await,
                4 => {
                    self.tool("sleep", json!({"ms": ms}), Wish::Repeatable)
                        .await;
                }
                5 => {
                    let arguments = json!({"steps": 3, "ms": ms});
                    self.tool("progress", arguments, Wish::Once).await;
                }
                _ => self.tool("pid", json!({}), Wish::Repeatable).await,
            }
            sleep(Duration::from_millis(1 + dice.below(20))).await;
        }
    }

    /// Makes one server after another die. Uses every way once, in random order, before it starts again.
    pub(super) async fn sabotage(self: Arc<Self>, mut dice: Dice) {
        let mut fates = FATES;
        loop {
            dice.shuffle(&mut fates);
            for (words, fate) in fates {
                let lull = Duration::from_millis(150 + dice.below(450));
                sleep(lull).await;
                if self.is_over() {
                    return;
                }
                self.tell(&format_args!(">> what comes now: {words}"));
                let (events, epoch) = (self.link.events(), self.link.epoch());
                match fate {
                    Fate::Die(how) => self.tool("die", json!({"how": how}), Wish::Once).await,
                    Fate::Reconnect => self.link.reconnect("the demo wants a new server"),
                }
                // Only listens to events: `Link::ready` would make the link reconnect earlier.
                let _ = timeout(DYING, life_after(epoch, events)).await;
                self.come_back().await;
            }
        }
    }

    /// Waits until the link is ready. Notes a broken rule if that takes too long.
    pub(super) async fn come_back(&self) {
        let why = match timeout(HUNG, self.link.ready()).await {
            Ok(Ok(Ok(_))) => return,
            Ok(Ok(Err(not_ready))) => not_ready.to_string(),
            Ok(Err(gone)) => gone.to_string(),
            Err(_) => format!("the link is {} for {HUNG:?}", self.link.state()),
        };
        self.book()
            .broken
            .push(format!("the link did not come back: {why}"));
    }

    /// Writes the number of calls once a second.
    pub(super) async fn count(self: Arc<Self>) {
        while !self.is_over() {
            sleep(Duration::from_secs(1)).await;
            let line = {
                let book = self.book();
                let is_reply = |outcome: &Outcome| matches!(outcome, Outcome::Reply);
                let outcomes = || book.calls.iter().filter_map(|call| call.outcome.as_ref());
                let (made, settled) = (book.calls.len(), outcomes().count());
                let answered = outcomes().filter(|outcome| is_reply(outcome)).count();
                format!(
                    "-- {made} calls: {answered} answered, {} without a reply, {} under way",
                    settled - answered,
                    made - settled
                )
            };
            self.tell(&line);
        }
    }

    /// Writes the events of the link until it closes.
    pub(super) async fn listen(self: Arc<Self>, mut events: Events<Event>) {
        let (mut died, mut was_ready) = (None, false);
        while let Some(event) = events.recv().await {
            match &*event {
                Event::Closing { cause, .. } if is_death(cause) => {
                    died.get_or_insert_with(Instant::now);
                }
                Event::Ended(ended) => {
                    self.look_at(ended);
                    if ended.counted {
                        self.book().deaths += 1;
                        died.get_or_insert_with(Instant::now);
                    }
                    // Leaves out the server's last lines of standard error, which are long.
                    let mut brief = Ended::clone(ended);
                    brief.stderr = Box::default();
                    self.timeline.tell(events.at(), mood(&event), &brief);
                    continue;
                }
                Event::Ready(_) => {
                    let mut book = self.book();
                    book.reconnects += u32::from(was_ready);
                    book.comebacks.extend(died.take().map(|at| at.elapsed()));
                    was_ready = true;
                }
                Event::Handshaking { .. } | Event::Watching { .. } => continue,
                _ => {}
            }
            self.timeline.tell(events.at(), mood(&event), &event);
        }
    }

    async fn list(&self) {
        let number = self.book().begin(Wish::List);
        self.follow(number, self.link.list_tools()).await;
    }

    async fn tool(&self, name: &str, mut arguments: Value, wish: Wish) {
        let number = self.book().begin(wish);
        let message = format!("this is call {number}");
        arguments["number"] = json!(number);
        arguments["message"] = json!(message);
        let options = match wish {
            Wish::Repeatable => CallOptions::new().idempotent(),
            Wish::List | Wish::Once => CallOptions::new(),
        };
        let call = self.link.with(options).call_tool(name, arguments);
        let Some(result) = self.follow(number, call).await else {
            return;
        };
        if name == "echo" && result.text() != message {
            let text = format!("call {number} got a reply that is not its own");
            self.book().broken.push(text);
        }
    }

    /// Waits for a call and notes its outcome. A call that hangs stays open in the book.
    async fn follow<T>(&self, number: usize, call: Call<T>) -> Option<T> {
        let (outcome, result) = match timeout(HUNG, call).await.ok()? {
            Ok(result) => (Outcome::Reply, Some(result)),
            Err(error) => (self.fathom(number, error), None),
        };
        self.book().settle(number, outcome);
        result
    }

    fn fathom(&self, number: usize, error: CallError) -> Outcome {
        let broken = match error {
            // An error from the server is a reply.
            CallError::Error(_) => return Outcome::Reply,
            CallError::Failed(failure) => {
                if let Some(ended) = &failure.ended {
                    self.look_at(ended);
                }
                if !has_reason(&failure) {
                    let text = format!("call {number} failed without a reason: {failure}");
                    self.book().broken.push(text);
                }
                let (kind, delivery) = (failure.kind, failure.delivery);
                return Outcome::Failed { kind, delivery };
            }
            CallError::Gone => return Outcome::Lost,
            refused => format!("call {number} was refused: {refused}"),
        };
        self.book().broken.push(broken);
        Outcome::Refused
    }

    /// Checks that the link no longer calls this epoch ready. That must hold as soon as anyone can learn of its end.
    fn look_at(&self, ended: &Ended) {
        if self.link.state() == State::Ready && self.link.epoch() == ended.epoch {
            let text = format!("the link says that it is ready, but {ended}");
            self.book().broken.push(text);
        }
    }
}

/// Waits until a later epoch is ready.
async fn life_after(epoch: Epoch, mut events: Events<Event>) {
    while let Some(event) = events.recv().await {
        if matches!(&*event, Event::Ready(session) if session.epoch > epoch) {
            return;
        }
    }
}

fn is_death(cause: &Cause) -> bool {
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
