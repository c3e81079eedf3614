//! Logs the events of both sides on standard error, between the lines of the server's own standard error. Does not know how the sides are reached.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use everlink::client::{self, Cause, Ended, Failure as CallFailure, FailureKind, Noise};
use everlink::relay::Event;
use everlink::server::{self, RefusalCause, Refused};
use everlink::{Epoch, Instant};
use everlink_tokio::Events;
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::attempts::Attempts;
use super::stderr::StderrPrinter;
use crate::Failure;
use crate::args::LogFormat;
use crate::output::{EventPrinter, Severity, relay_as_json, relay_severity};
use crate::stderr_copy::{Backlog, Chunk, block_on};

/// How long the last lines may take to be written. The reader may have stopped reading.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// How long an event waits for the end of a line on the server's standard error.
const LINE_PATIENCE: Duration = Duration::from_millis(100);

/// Advice for a message that is too long.
const MAX_MESSAGE_HINT: &str = "--max-message raises the limit";

/// Advice for text on a server's standard output.
const STDOUT_HINT: &str = "ignored, because stdout is for MCP messages; the server should write such text to stderr; further text is counted but not shown";

/// The client reports each of the first 8 lines of noise of a connection, and then only those whose number is a power of two. So a last reported
/// count of 8 or more is a lower bound.
const MIN_INEXACT_COUNT: u64 = 8;

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

/// A line for the log from a part of the guard. Events of the relay come another way.
#[derive(Debug)]
pub(super) enum LogLine {
    Info(String),
    Warning(String),
}

/// A thread that writes until the guard has ended.
pub(crate) struct WriterThread(oneshot::Receiver<()>);

impl WriterThread {
    pub(crate) const fn new(done: oneshot::Receiver<()>) -> WriterThread {
        WriterThread(done)
    }

    /// Waits up to [`FLUSH_TIMEOUT`] until everything is written.
    pub(crate) async fn end(self) {
        let _ = timeout(FLUSH_TIMEOUT, self.0).await;
    }
}

/// Logs the notices, then the events and remarks of `sources`, on a thread of its own. If nobody reads the guard's standard error, only this thread blocks.
///
/// `stderr_printer` shows the server's standard error. Without it, the log quotes the last lines when the server ends. `is_process` says whether the
/// server is a child process, and so has standard streams.
pub(super) fn start(
    format: LogFormat,
    notices: Vec<Notice>,
    sources: (Events<Event>, UnboundedReceiver<LogLine>),
    is_process: bool,
    stderr_printer: Option<(StderrPrinter, Arc<Backlog>)>,
    retries: Option<u32>,
) -> Result<WriterThread, Failure> {
    let (done, written) = oneshot::channel();
    let write = move || {
        let mut event_log = EventLog::new(format, EventPrinter::on_stderr(), is_process, retries);
        event_log.stderr_printer = stderr_printer;
        for notice in notices {
            event_log.log_notice(notice);
        }
        let (events, remarks) = sources;
        block_on(event_log.log_all(events, remarks));
        let _ = done.send(());
    };
    thread::Builder::new()
        .name("event-log".into())
        .spawn(write)?;
    Ok(WriterThread(written))
}

/// Logs events, live or from a recording.
pub(crate) struct EventLog {
    format: LogFormat,
    is_process: bool,
    printer: EventPrinter,
    /// When this was created, which is about when the clock of the events started.
    started: std::time::Instant,
    stderr_printer: Option<(StderrPrinter, Arc<Backlog>)>,
    noise: NoiseCount,
    attempts: Attempts,
}

/// Counts the lines on the server's standard output that are not messages.
#[derive(Default)]
struct NoiseCount {
    /// Whether one piece of it was shown.
    is_shown: bool,
    /// The epoch of the last piece that was not shown, and how many pieces there were in that epoch.
    in_epoch: Option<(Epoch, u64)>,
}

impl EventLog {
    /// Creates a log for a guard that does not show the server's standard error. `retries` is the value of `--retries`.
    pub(crate) fn new(
        format: LogFormat,
        printer: EventPrinter,
        is_process: bool,
        retries: Option<u32>,
    ) -> EventLog {
        EventLog {
            format,
            is_process,
            printer,
            started: std::time::Instant::now(),
            stderr_printer: None,
            noise: NoiseCount::default(),
            attempts: Attempts::new(retries, is_process),
        }
    }

    fn log_notice(&mut self, notice: Notice) {
        let Notice {
            what,
            url,
            sse,
            caution,
        } = notice;
        match self.format {
            LogFormat::Json => {
                let mut entry = json!({what: url});
                if let Some(sse) = sse {
                    entry["sse"] = json!(sse);
                }
                if let Some(caution) = caution {
                    entry["caution"] = json!(caution);
                }
                self.printer.print_json(Instant::ZERO, entry);
            }
            LogFormat::Off => {}
            LogFormat::Text => {
                let caution = caution.map(|caution| format!(" ({caution})"));
                let line = format!("{what}: {url}{}", caution.unwrap_or_default());
                self.printer
                    .print_line(Instant::ZERO, Severity::Neutral, &line);
                if let Some(sse) = sse {
                    let line =
                        format!("{what} for hosts that speak only HTTP+SSE (2024-11-05): {sse}");
                    self.printer
                        .print_line(Instant::ZERO, Severity::Neutral, &line);
                }
            }
        }
    }

    /// Logs events and remarks until both have ended.
    async fn log_all(
        &mut self,
        mut events: Events<Event>,
        mut remarks: UnboundedReceiver<LogLine>,
    ) {
        let backlog = self
            .stderr_printer
            .as_ref()
            .map(|(_, backlog)| Arc::clone(backlog));
        loop {
            let chunk = async {
                match &backlog {
                    Some(backlog) => backlog.next().await,
                    None => None,
                }
            };
            let event = tokio::select! {
                biased;
                Some(chunk) = chunk => {
                    self.show(chunk);
                    // The selection is biased, so a server that never stops writing would keep the other lines from the log.
                    if let Ok(remark) = remarks.try_recv() {
                        self.log_remark(remark);
                    }
                    match events.try_recv() {
                        Some(event) => Some(event),
                        None => continue,
                    }
                }
                Some(remark) = remarks.recv() => {
                    self.log_remark(remark);
                    continue;
                }
                event = events.recv() => event,
            };
            if let Some(backlog) = &backlog {
                self.show_before_event(backlog);
            }
            match event {
                Some(event) => self.log(events.at(), &event),
                None => break,
            }
        }
        // The server has ended and writes nothing more, so this loop ends.
        while let Some(chunk) = backlog.as_ref().and_then(|backlog| backlog.try_next()) {
            self.show(chunk);
        }
        self.end_line();
        while let Some(remark) = remarks.recv().await {
            self.log_remark(remark);
        }
    }

    fn log_remark(&mut self, remark: LogLine) {
        self.end_line();
        let (key, severity, text) = match remark {
            LogLine::Info(text) => ("event", Severity::Neutral, text),
            LogLine::Warning(text) => ("warning", Severity::Problem, text),
        };
        let now = Instant::from_origin(self.started.elapsed());
        match self.format {
            LogFormat::Json => self.printer.print_json(now, json!({key: text})),
            LogFormat::Off => {}
            LogFormat::Text => self.printer.print_line(now, severity, &text),
        }
    }

    /// Shows what the server wrote before an event happened. If that ends within a line, waits a little for the rest of the line, so that the event
    /// does not divide it. A server that is read in large chunks may be in the middle of a line at any time.
    fn show_before_event(&mut self, backlog: &Backlog) {
        let begun = std::time::Instant::now();
        loop {
            // This is everything that the server wrote until now. While it is shown, the server may write more.
            if let Some(chunk) = backlog.try_next() {
                self.show(chunk);
            }
            let printer = self.stderr_printer.as_ref();
            let is_mid_line = printer.is_some_and(|(printer, _)| printer.is_mid_line());
            if !is_mid_line || begun.elapsed() >= LINE_PATIENCE {
                return;
            }
            thread::sleep(LINE_PATIENCE / 20);
        }
    }

    fn show(&mut self, chunk: Chunk) {
        let now = Instant::from_origin(self.started.elapsed());
        if let Some((stderr_printer, _)) = &mut self.stderr_printer {
            stderr_printer.show(now, &self.printer, chunk);
        }
    }

    fn end_line(&mut self) {
        let now = Instant::from_origin(self.started.elapsed());
        if let Some((stderr_printer, _)) = &mut self.stderr_printer {
            stderr_printer.end_line(now, &self.printer);
        }
    }

    pub(crate) fn log(&mut self, at: Instant, event: &Event) {
        match event {
            Event::Upstream(client::Event::Noise(noise))
                if self.is_process && is_plain_text(noise) =>
            {
                return self.log_noise(at, event, noise);
            }
            Event::Downstream(server::Event::Refused(refused)) => {
                return self.log_refused(at, event, refused);
            }
            Event::Upstream(client::Event::Ready(session)) => {
                let name = session.server.as_ref().map(|server| server.name());
                if let (Some((stderr_printer, _)), Some(name)) = (&mut self.stderr_printer, name) {
                    stderr_printer.rename(name);
                }
            }
            Event::Upstream(client::Event::Ended(ended)) => {
                self.end_line();
                self.log_noise_count(at, ended.epoch);
            }
            _ => {}
        }
        let brief = without_stderr(event, self.stderr_printer.is_none());
        let event = brief.as_ref().unwrap_or(event);
        let text = match event {
            Event::Upstream(upstream) => self.attempts.describe(at, upstream),
            _ => None,
        };
        let hint = hint(event);
        match self.format {
            LogFormat::Json => {
                let mut entry = relay_as_json(event);
                if let Some(text) = text {
                    entry["event"] = json!(text);
                }
                if let Some(hint) = hint {
                    entry["hint"] = json!(hint);
                }
                self.write_json(at, entry);
            }
            LogFormat::Off => {}
            LogFormat::Text => {
                let mut line =
                    text.map_or_else(|| event.to_string(), |text| format!("server: {text}"));
                if let Some(hint) = hint {
                    line = format!("{line} ({hint})");
                }
                self.write(at, relay_severity(event), &line);
            }
        }
    }

    /// Logs a refused request, with its method and path and a hint. The server reports the first refusal for each reason, and later ones ever more
    /// rarely.
    fn log_refused(&mut self, at: Instant, event: &Event, refused: &Refused) {
        let hint = match refused.cause {
            RefusalCause::Host => Some("--allow-host accepts another value of Host"),
            RefusalCause::Origin => Some("--cors accepts web pages of another origin"),
            RefusalCause::Path => Some("hosts connect to the path of --listen, or to /sse"),
            RefusalCause::Size => Some(MAX_MESSAGE_HINT),
            _ => None,
        };
        let verb = match refused.verb.as_str() {
            "" => "a request of another method",
            verb => verb,
        };
        let path = refused.path.as_deref().unwrap_or("");
        match self.format {
            LogFormat::Json => {
                let mut entry = relay_as_json(event);
                entry["verb"] = json!(refused.verb.as_str());
                entry["path"] = json!(path);
                entry["from"] = json!(refused.address);
                entry["status"] = json!(refused.status);
                entry["count"] = json!(refused.count);
                entry["hint"] = json!(hint);
                self.write_json(at, entry);
            }
            LogFormat::Off => {}
            LogFormat::Text => {
                let from = refused.address.map(|address| format!(" from {address}"));
                let from = from.unwrap_or_default();
                let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
                let line = format!("{event} [{verb} {path}{from}]{hint}");
                self.write(at, Severity::Problem, &line);
            }
        }
    }

    /// Shows the first piece of text on standard output, and counts the others.
    fn log_noise(&mut self, at: Instant, event: &Event, noise: &Noise) {
        self.noise.in_epoch = Some((noise.epoch, noise.count));
        if std::mem::replace(&mut self.noise.is_shown, true) {
            return;
        }
        // This piece is shown, so it needs no count.
        self.noise.in_epoch = None;
        let sample = &noise.sample;
        match self.format {
            LogFormat::Json => {
                let mut entry = relay_as_json(event);
                entry["text"] = json!(sample);
                entry["hint"] = json!(STDOUT_HINT);
                self.write_json(at, entry);
            }
            LogFormat::Off => {}
            LogFormat::Text => {
                let line = format!(
                    "server: text on stdout that is not a message: `{sample}` ({STDOUT_HINT})"
                );
                self.write(at, Severity::Problem, &line);
            }
        }
    }

    /// Logs the number of ignored lines when their connection has ended.
    fn log_noise_count(&mut self, at: Instant, epoch: Epoch) {
        let Some((_, count)) = self
            .noise
            .in_epoch
            .take_if(|(counted, _)| *counted == epoch)
        else {
            return;
        };
        let at_least = if count >= MIN_INEXACT_COUNT {
            "at least "
        } else {
            ""
        };
        let line = format!("ignored lines on the stdout of {epoch}: {at_least}{count}");
        match self.format {
            LogFormat::Json => {
                let entry = json!({"side": "upstream", "event": line, "kind": "noise_count", "count": count});
                self.write_json(at, entry);
            }
            LogFormat::Off => {}
            LogFormat::Text => self.write(at, Severity::Neutral, &format_args!("server: {line}")),
        }
    }

    fn write(&mut self, at: Instant, severity: Severity, line: &dyn std::fmt::Display) {
        if let Some((stderr_printer, _)) = &mut self.stderr_printer {
            stderr_printer.start_new_line();
        }
        self.printer.print_line(at, severity, line);
    }

    fn write_json(&mut self, at: Instant, entry: serde_json::Value) {
        if let Some((stderr_printer, _)) = &mut self.stderr_printer {
            stderr_printer.start_new_line();
        }
        self.printer.print_json(at, entry);
    }
}

/// Whether this is plain text, such as a log line, and not a malformed message.
fn is_plain_text(noise: &Noise) -> bool {
    let sample = noise.sample.trim_start();
    !sample.is_empty() && !sample.starts_with(['{', '['])
}

/// Returns the event without the server's standard error, or `None` if the event stays as it is. With a printer for standard error, those
/// lines were shown already. Without one, only the end of the connection quotes them, not each call that failed with it.
fn without_stderr(event: &Event, quotes_at_end: bool) -> Option<Event> {
    let brief = |ended: &Ended| {
        let mut brief = ended.clone();
        brief.stderr = Box::default();
        Arc::new(brief)
    };
    let lost = |failure: &CallFailure| {
        let mut lost = failure.clone();
        lost.ended = lost.ended.as_deref().map(brief);
        Box::new(lost)
    };
    match event {
        Event::Lost(failure) => Some(Event::Lost(lost(failure))),
        Event::Upstream(client::Event::Ended(ended)) if !quotes_at_end => {
            Some(Event::Upstream(client::Event::Ended(brief(ended))))
        }
        _ => None,
    }
}

/// Returns advice for the operator, if there is any.
fn hint(event: &Event) -> Option<&'static str> {
    match event {
        Event::Upstream(client::Event::Closing {
            cause: Cause::Unresponsive { .. },
            ..
        }) => Some("--hang-timeout sets how long it may be silent; 0 means without limit"),
        Event::Downstream(server::Event::Noise(noise))
        | Event::Upstream(client::Event::Noise(noise))
            if noise.is_too_large =>
        {
            Some(MAX_MESSAGE_HINT)
        }
        Event::Lost(failure) if matches!(failure.kind, FailureKind::TooLarge { .. }) => {
            Some(MAX_MESSAGE_HINT)
        }
        Event::Downstream(server::Event::NotificationsDropped { .. }) => Some(
            "only notifications such as log messages are dropped, never answers; --status counts them as news_dropped",
        ),
        _ => None,
    }
}
