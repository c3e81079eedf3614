//! Logs the events of both sides on standard error, between the lines of the server's own standard error. Does not know how the sides are reached.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use everlink::client::{self, Cause, Ended, Failure as Lost, FailureKind, Noise, Outcome};
use everlink::relay::Event;
use everlink::server::{self, RefusalCause, Refused};
use everlink::{Epoch, Instant};
use everlink_tokio::Events;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::stderr::Screen;
use crate::Failure;
use crate::args::Log;
use crate::shown::{Mood, Timeline, relayed_as_json, relayed_mood};
use crate::tap::{Backlog, Taken, block_on};

/// How long the last lines may take to be written. The reader may have stopped reading.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Advice for a message that is too long.
const LARGER: &str = "--max-message lets longer messages pass";

/// Advice for text on a server's standard output.
const STDOUT_HINT: &str = "it is ignored: stdout is for MCP messages, and the server should write such text to stderr; more of it is counted, and not shown";

/// The client reports each of the first 8 pieces of noise of a connection, and then only those whose number is a power of two. Above 8, the last
/// reported count is a lower bound.
const COUNTED_ONE_BY_ONE: u64 = 8;

/// A log line that says where something is served.
pub(super) struct Notice {
    what: &'static str,
    url: String,
    /// The URL for hosts that speak only the transport of 2024-11-05.
    sse: Option<String>,
    /// A warning about this URL, if there is one.
    caution: Option<String>,
}

impl Notice {
    pub(super) fn new(what: &'static str, url: &str) -> Notice {
        Notice {
            what,
            url: url.to_owned(),
            sse: None,
            caution: None,
        }
    }

    pub(super) fn with_sse(mut self, url: Option<&str>) -> Notice {
        self.sse = url.map(str::to_owned);
        self
    }

    pub(super) fn with_caution(mut self, caution: Option<&str>) -> Notice {
        self.caution = caution.map(str::to_owned);
        self
    }
}

/// A thread that writes until the guard has ended.
pub(super) struct Told(oneshot::Receiver<()>);

impl Told {
    pub(super) const fn new(done: oneshot::Receiver<()>) -> Told {
        Told(done)
    }

    /// Waits up to [`LAST_LINES`] until everything is written.
    pub(super) async fn end(self) {
        let _ = timeout(LAST_LINES, self.0).await;
    }
}

/// Logs the notices, then the events, on a thread of its own. A reader who stops reading our standard error blocks only this thread.
///
/// The server's standard error is shown on `screen`. Without a screen, the log quotes its last lines when the server ends. Only a server that
/// `is_process` has standard streams.
pub(super) fn start(
    log: Log,
    notices: Vec<Notice>,
    events: Events<Event>,
    is_process: bool,
    screen: Option<(Screen, Arc<Backlog>)>,
) -> Result<Told, Failure> {
    let (done, told) = oneshot::channel();
    let tell = move || {
        let mut teller = Teller::new(log, Timeline::on_stderr(), is_process);
        teller.screen = screen;
        for notice in notices {
            teller.tell_notice(notice);
        }
        block_on(teller.tell_all(events));
        let _ = done.send(());
    };
    thread::Builder::new().name("tell".into()).spawn(tell)?;
    Ok(Told(told))
}

/// Logs events, live or from a recording.
pub(crate) struct Teller {
    log: Log,
    is_process: bool,
    timeline: Timeline,
    /// When this was created, which is about when the clock of the events started.
    started: std::time::Instant,
    screen: Option<(Screen, Arc<Backlog>)>,
    noise: NoiseCount,
}

/// Counts the text on the server's standard output that is no message.
#[derive(Default)]
struct NoiseCount {
    /// Whether one piece of it was shown.
    is_shown: bool,
    /// The epoch of the last piece that was not shown, and how many pieces there were in that epoch.
    of: Option<(Epoch, u64)>,
}

impl Teller {
    /// Creates a teller for a guard that does not show the server's standard error.
    pub(crate) fn new(log: Log, timeline: Timeline, is_process: bool) -> Teller {
        Teller {
            log,
            is_process,
            timeline,
            started: std::time::Instant::now(),
            screen: None,
            noise: NoiseCount::default(),
        }
    }

    fn tell_notice(&mut self, notice: Notice) {
        let Notice {
            what,
            url,
            sse,
            caution,
        } = notice;
        match self.log {
            Log::Json => {
                let mut fact = json!({what: url});
                if let Some(sse) = sse {
                    fact["sse"] = json!(sse);
                }
                if let Some(caution) = caution {
                    fact["caution"] = json!(caution);
                }
                self.timeline.tell_json(Instant::ZERO, fact);
            }
            Log::Off => {}
            Log::Text => {
                let caution = caution.map(|caution| format!(" ({caution})"));
                let line = format!("{what}: {url}{}", caution.unwrap_or_default());
                self.timeline.tell(Instant::ZERO, Mood::Plain, &line);
                if let Some(sse) = sse {
                    let line =
                        format!("{what} for hosts that speak only HTTP+SSE (2024-11-05): {sse}");
                    self.timeline.tell(Instant::ZERO, Mood::Plain, &line);
                }
            }
        }
    }

    async fn tell_all(&mut self, mut events: Events<Event>) {
        let backlog = self.screen.as_ref().map(|(_, backlog)| Arc::clone(backlog));
        loop {
            let event = match &backlog {
                Some(backlog) => tokio::select! {
                    biased;
                    Some(taken) = backlog.next() => {
                        self.show(taken);
                        continue;
                    }
                    event = events.recv() => event,
                },
                None => events.recv().await,
            };
            // The server wrote these bytes before the event happened.
            while let Some(taken) = backlog.as_ref().and_then(|backlog| backlog.try_next()) {
                self.show(taken);
            }
            match event {
                Some(event) => self.tell(events.at(), &event),
                None => break,
            }
        }
        self.end_line();
    }

    fn show(&mut self, taken: Taken) {
        let now = Instant::from_origin(self.started.elapsed());
        if let Some((screen, _)) = &mut self.screen {
            screen.show(now, &self.timeline, taken);
        }
    }

    fn end_line(&mut self) {
        let now = Instant::from_origin(self.started.elapsed());
        if let Some((screen, _)) = &mut self.screen {
            screen.end_line(now, &self.timeline);
        }
    }

    pub(crate) fn tell(&mut self, at: Instant, event: &Event) {
        match event {
            Event::Upstream(client::Event::Noise(noise)) if self.is_process && is_text(noise) => {
                return self.tell_noise(at, event, noise);
            }
            Event::Downstream(server::Event::Refused(refused)) => {
                return self.tell_refused(at, event, refused);
            }
            Event::Upstream(client::Event::Ready(session)) => {
                let name = session.server.as_ref().map(|server| server.name());
                if let (Some((screen, _)), Some(name)) = (&mut self.screen, name) {
                    screen.rename(name);
                }
            }
            Event::Upstream(client::Event::Ended(ended)) => {
                self.end_line();
                self.tell_noise_count(at, ended.epoch);
            }
            _ => {}
        }
        let brief = without_stderr(event, self.screen.is_none());
        let event = brief.as_ref().unwrap_or(event);
        match (self.log, advice(event)) {
            (Log::Json, advice) => {
                let mut fact = relayed_as_json(event);
                if let Some(advice) = advice {
                    fact["hint"] = json!(advice);
                }
                self.write_json(at, fact);
            }
            (Log::Off, _) => {}
            (Log::Text, Some(advice)) => {
                let line = format!("{event} ({advice})");
                self.write(at, relayed_mood(event), &line);
            }
            (Log::Text, None) => self.write(at, relayed_mood(event), event),
        }
    }

    /// Logs a refused request, with its method and path and a hint. The server reports the first refusal for each reason, and then ever fewer.
    fn tell_refused(&mut self, at: Instant, event: &Event, refused: &Refused) {
        let hint = match refused.cause {
            RefusalCause::Host => Some("--allow-host lets in requests for another name"),
            RefusalCause::Origin => Some("--cors lets in web pages of an origin"),
            RefusalCause::Path => Some("hosts connect to the path of --listen, or to /sse"),
            RefusalCause::Size => Some(LARGER),
            _ => None,
        };
        let verb = match refused.verb.as_str() {
            "" => "a request of another method",
            verb => verb,
        };
        let path = refused.path.as_deref().unwrap_or("");
        match self.log {
            Log::Json => {
                let mut fact = relayed_as_json(event);
                fact["verb"] = json!(refused.verb.as_str());
                fact["path"] = json!(path);
                fact["from"] = json!(refused.address);
                fact["status"] = json!(refused.status);
                fact["count"] = json!(refused.count);
                fact["hint"] = json!(hint);
                self.write_json(at, fact);
            }
            Log::Off => {}
            Log::Text => {
                let from = refused.address.map(|address| format!(" from {address}"));
                let from = from.unwrap_or_default();
                let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
                let line = format!("{event} [{verb} {path}{from}]{hint}");
                self.write(at, Mood::Bad, &line);
            }
        }
    }

    /// Shows the first piece of text on standard output, and counts the others.
    fn tell_noise(&mut self, at: Instant, event: &Event, noise: &Noise) {
        self.noise.of = Some((noise.epoch, noise.count));
        if std::mem::replace(&mut self.noise.is_shown, true) {
            return;
        }
        // This piece is shown, so it needs no count.
        self.noise.of = None;
        let sample = &noise.sample;
        match self.log {
            Log::Json => {
                let mut fact = relayed_as_json(event);
                fact["text"] = json!(sample);
                fact["hint"] = json!(STDOUT_HINT);
                self.write_json(at, fact);
            }
            Log::Off => {}
            Log::Text => {
                let line = format!(
                    "server: text on stdout that is no message: `{sample}` ({STDOUT_HINT})"
                );
                self.write(at, Mood::Bad, &line);
            }
        }
    }

    /// Logs the number of ignored lines when their connection has ended.
    fn tell_noise_count(&mut self, at: Instant, epoch: Epoch) {
        let Some((_, count)) = self.noise.of.take_if(|(of, _)| *of == epoch) else {
            return;
        };
        let least = if count > COUNTED_ONE_BY_ONE {
            "at least "
        } else {
            ""
        };
        let line = format!("lines on the stdout of {epoch} that were ignored: {least}{count}");
        match self.log {
            Log::Json => {
                let fact = json!({"side": "upstream", "event": line, "count": count});
                self.write_json(at, fact);
            }
            Log::Off => {}
            Log::Text => self.write(at, Mood::Plain, &format_args!("server: {line}")),
        }
    }

    fn write(&mut self, at: Instant, mood: Mood, line: &dyn std::fmt::Display) {
        if let Some((screen, _)) = &mut self.screen {
            screen.make_way();
        }
        self.timeline.tell(at, mood, line);
    }

    fn write_json(&mut self, at: Instant, fact: serde_json::Value) {
        if let Some((screen, _)) = &mut self.screen {
            screen.make_way();
        }
        self.timeline.tell_json(at, fact);
    }
}

/// Whether this is plain text, such as a log line, and not a malformed message.
fn is_text(noise: &Noise) -> bool {
    let sample = noise.sample.trim_start();
    !sample.is_empty() && !sample.starts_with(['{', '['])
}

/// Returns the event without the server's standard error, or `None` if the event stays as it is. With a screen, those lines were shown already.
/// Without one, only the end of the connection quotes them, not each call that failed with it.
fn without_stderr(event: &Event, quotes_at_end: bool) -> Option<Event> {
    let brief = |ended: &Ended| {
        let mut brief = ended.clone();
        brief.stderr = Box::default();
        Arc::new(brief)
    };
    let lost = |failure: &Lost| {
        let mut lost = failure.clone();
        lost.ended = lost.ended.as_deref().map(brief);
        Box::new(lost)
    };
    match event {
        Event::Lost(failure) => Some(Event::Lost(lost(failure))),
        Event::Upstream(client::Event::Done {
            call,
            outcome: Outcome::Failed(failure),
        }) => Some(Event::Upstream(client::Event::Done {
            call: *call,
            outcome: Outcome::Failed(lost(failure)),
        })),
        Event::Upstream(client::Event::Ended(ended)) if !quotes_at_end => {
            Some(Event::Upstream(client::Event::Ended(brief(ended))))
        }
        _ => None,
    }
}

/// Returns advice for the operator, if there is any.
fn advice(event: &Event) -> Option<&'static str> {
    match event {
        Event::Upstream(client::Event::Closing {
            cause: Cause::Unresponsive { .. },
            ..
        }) => Some("--hang-timeout says how long it may be silent; 0: for ever"),
        Event::Downstream(server::Event::Noise(noise))
        | Event::Upstream(client::Event::Noise(noise))
            if noise.is_too_large =>
        {
            Some(LARGER)
        }
        Event::Lost(failure) if matches!(failure.kind, FailureKind::TooLarge { .. }) => {
            Some(LARGER)
        }
        Event::Downstream(server::Event::NotificationsDropped { .. }) => Some(
            "log messages and the like; answers are kept. --status counts them as news_dropped",
        ),
        _ => None,
    }
}
