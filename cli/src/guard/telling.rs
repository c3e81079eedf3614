//! How it is told on standard error what happens to both sides. Knows nothing of how they are reached.

use std::thread;
use std::time::Duration;

use everlink::Instant;
use everlink::client::{self, Cause};
use everlink::relay::Event;
use everlink_tokio::Events;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::Failure;
use crate::args::Log;
use crate::shown::{Mood, Timeline, relayed_as_json, relayed_mood};

/// How long the last lines may take to be written. Nobody may read them.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Where something can be found.
pub(super) struct Notice {
    what: &'static str,
    url: String,
    /// What to take care of there, if anything.
    caution: Option<String>,
}

impl Notice {
    pub(super) fn new(what: &'static str, url: &str) -> Notice {
        Notice {
            what,
            url: url.to_owned(),
            caution: None,
        }
    }

    pub(super) fn with_caution(mut self, caution: Option<&str>) -> Notice {
        self.caution = caution.map(str::to_owned);
        self
    }
}

/// What is told until the end.
pub(super) struct Told(oneshot::Receiver<()>);

impl Told {
    /// Waits until all is told, but not for ever.
    pub(super) async fn end(self) {
        let _ = timeout(LAST_LINES, self.0).await;
    }
}

/// Tells first the notices, then the events. On a thread of its own: whoever does not read our standard error stops that, and nothing else.
pub(super) fn start(
    log: Log,
    notices: Vec<Notice>,
    events: Events<Event>,
) -> Result<Told, Failure> {
    let timeline = Timeline::on_stderr();
    let (done, told) = oneshot::channel();
    let tell = move || {
        match log {
            Log::Json => tell_json(&timeline, notices, events),
            Log::Off => {}
            Log::Text => tell_text(&timeline, notices, events),
        }
        let _ = done.send(());
    };
    thread::Builder::new().name("tell".into()).spawn(tell)?;
    Ok(Told(told))
}

fn tell_json(timeline: &Timeline, notices: Vec<Notice>, mut events: Events<Event>) {
    for Notice { what, url, caution } in notices {
        let mut fact = json!({what: url});
        if let Some(caution) = caution {
            fact["caution"] = json!(caution);
        }
        timeline.tell_json(Instant::ZERO, fact);
    }
    while let Some(event) = events.next() {
        timeline.tell_json(events.at(), relayed_as_json(&event));
    }
}

fn tell_text(timeline: &Timeline, notices: Vec<Notice>, mut events: Events<Event>) {
    for Notice { what, url, caution } in notices {
        let caution = caution.map(|caution| format!(" ({caution})"));
        let line = format!("{what}: {url}{}", caution.unwrap_or_default());
        timeline.tell(Instant::ZERO, Mood::Plain, &line);
    }
    while let Some(event) = events.next() {
        let mood = relayed_mood(&event);
        match advice(&event) {
            Some(advice) => timeline.tell(events.at(), mood, &format_args!("{event} ({advice})")),
            None => timeline.tell(events.at(), mood, &event),
        }
    }
}

/// What the operator can do about it.
fn advice(event: &Event) -> Option<&'static str> {
    match event {
        Event::Upstream(client::Event::Closing {
            cause: Cause::Unresponsive { .. },
            ..
        }) => Some("--hang-timeout says how long it may be silent; 0: for ever"),
        _ => None,
    }
}
