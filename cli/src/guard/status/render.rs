//! Renders the status of a relay as JSON and as Prometheus metrics. Of the texts from the server and the operating system, it shows only the server's
//! name and version.

use std::fmt::Write;

use everlink::client::{Cause, Delivery, Ended, Failure, FailureKind, State};
use everlink::{Fault, Latency, Stats, server};
use everlink_tokio::Status;
use serde_json::{Map, Value, json};

pub(super) fn as_json(status: &Status) -> Value {
    let session = status.session.as_ref();
    let server = session.and_then(|session| session.server.as_ref());
    json!({
        "upstream": {
            "state": status.upstream.to_string(),
            "epoch": status.epoch.number(),
            "server": server.map(|server| json!({
                "name": server.name(),
                "version": server.version(),
            })),
            "version": session.map(|session| session.version.as_str()),
            "failures": status.failures,
            "last_end": status.last_end.as_deref().map(describe_end),
            "counters": counters_json(&upstream(&status.upstream_stats)),
        },
        "downstream": {
            "state": status.downstream.to_string(),
            "requests": status.requests,
            "sessions": status.sessions,
            "counters": counters_json(&downstream(&status.downstream_stats)),
        },
    })
}

/// Describes how an epoch ended. Leaves out texts from the server and the operating system. They may hold secrets and paths, and other machines may read
/// the status port.
pub(super) fn describe_end(ended: &Ended) -> String {
    let cause = match &ended.cause {
        Cause::AskedTo { .. } => "a reconnect was requested".to_owned(),
        Cause::HandshakeRefused { .. } => "the handshake failed".to_owned(),
        cause => cause.to_string(),
    };
    let lived = ended.lived.as_secs_f64();
    let mut text = format!("{cause} ({}, after {lived:.3} s", ended.epoch);
    if let Some(exit) = &ended.exit {
        let _ = write!(text, ", {exit}");
    }
    let faults = ended.faults.len() + ended.more_faults as usize;
    if let Some(first) = ended.faults.first() {
        // Without its detail, which is a text from the operating system.
        let first = Fault::new(first.kind());
        let _ = match faults {
            1 => write!(text, "; 1 fault: {first}"),
            _ => write!(text, "; {faults} faults, first: {first}"),
        };
    }
    text.push(')');
    text
}

/// Describes why a call has no reply. Leaves out texts from the server, the host and the operating system. The method is such a text, because a host may
/// send any text as a method.
pub(super) fn describe_failure(failure: &Failure) -> String {
    let kind = match &failure.kind {
        FailureKind::Cancelled { .. } => "it was cancelled".to_owned(),
        FailureKind::Declined { .. } => "a question of the server was not answered".to_owned(),
        FailureKind::Invalid { .. } => "the reply breaks the protocol".to_owned(),
        FailureKind::NotOffered { .. } => {
            "the server does not offer what the call needs".to_owned()
        }
        FailureKind::Status { status, .. } => {
            format!("the server answered with HTTP status {status}")
        }
        FailureKind::Unauthorized { .. } => "the server wants other credentials".to_owned(),
        kind => kind.to_string(),
    };
    let after = failure.after.as_secs_f64();
    let effect = describe_delivery(failure.delivery);
    format!("a call failed after {after:.3} s: {kind}; {effect}")
}

const fn describe_delivery(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Harmless => "it only reads, so nothing was changed",
        Delivery::NotSent => "it did not run",
        // Also for a delivery that is newer than this program.
        _ => "it may have run",
    }
}

fn counters_json(counters: &[Counter]) -> Value {
    let counters = counters.iter();
    let counters: Map<_, _> = counters
        .map(|(name, _, value)| ((*name).to_owned(), json!(value)))
        .collect();
    counters.into()
}

pub(super) fn as_metrics(status: &Status) -> String {
    let mut page = Page::default();
    let is_ready = u64::from(status.upstream == State::Ready);
    page.gauge(
        "everlink_upstream_ready",
        "Whether the server is ready.",
        is_ready,
    );
    page.gauge(
        "everlink_upstream_epoch",
        "The number of the newest connection to the server.",
        status.epoch.number(),
    );
    page.gauge(
        "everlink_upstream_failures_in_a_row",
        "How many attempts in a row have failed.",
        status.failures.into(),
    );
    page.gauge(
        "everlink_downstream_open_requests",
        "Requests of hosts that are not answered yet.",
        status.requests as u64,
    );
    page.gauge(
        "everlink_downstream_open_sessions",
        "Sessions of legacy hosts over HTTP.",
        status.sessions as u64,
    );
    if let Some(session) = &status.session {
        let server = session.server.as_ref();
        let labels = [
            ("name", server.map_or("", |server| server.name())),
            ("version", server.map_or("", |server| server.version())),
            ("protocol", session.version.as_str()),
        ];
        page.info(
            "everlink_upstream_info",
            "Name and version of the server.",
            &labels,
        );
    }
    for (name, help, value) in upstream(&status.upstream_stats) {
        page.counter(&format!("everlink_upstream_{name}_total"), help, value);
    }
    for (name, help, value) in downstream(&status.downstream_stats) {
        page.counter(&format!("everlink_downstream_{name}_total"), help, value);
    }
    page.histogram(
        "everlink_upstream_call_seconds",
        "The time from the acceptance of a call to its outcome.",
        &status.upstream_stats.latency,
    );
    page.text
}

/// A page in the text format of Prometheus.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.add(name, "gauge", help, &format!("{name} {value}"));
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.add(name, "counter", help, &format!("{name} {value}"));
    }

    fn histogram(&mut self, name: &str, help: &str, latency: &Latency) {
        let mut samples = String::new();
        let mut total = 0_u64;
        for (bucket, count) in latency.counts.iter().enumerate() {
            total += u64::from(*count);
            let bound = Latency::bound(bucket);
            let bound = bound.map_or("+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
            let _ = writeln!(samples, "{name}_bucket{{le=\"{bound}\"}} {total}");
        }
        let sum = latency.sum_nanos as f64 / 1e9;
        let _ = write!(samples, "{name}_sum {sum}\n{name}_count {total}");
        self.add(name, "histogram", help, &samples);
    }

    /// Adds a sample with the value 1, whose labels carry the information.
    fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str)]) {
        let labels = labels.iter();
        let labels: Vec<_> = labels
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
            .collect();
        let labels = labels.join(",");
        self.add(name, "gauge", help, &format!("{name}{{{labels}}} 1"));
    }

    fn add(&mut self, name: &str, kind: &str, help: &str, sample: &str) {
        // Writing to a `String` does not fail.
        let _ = write!(
            self.text,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{sample}\n"
        );
    }
}

/// Escapes the value of a label, because a server may have any name.
fn escaped(value: &str) -> String {
    value
        .replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

/// The name of a counter, its help text, and its value.
type Counter = (&'static str, &'static str, u64);

fn upstream(stats: &Stats) -> [Counter; 23] {
    [
        ("opens", "Connections opened.", stats.opens),
        ("readies", "Handshakes finished.", stats.readies),
        (
            "failures",
            "Connections that ended in a failure.",
            stats.failures,
        ),
        (
            "free_ends",
            "Connections that were closed on purpose.",
            stats.free_ends,
        ),
        (
            "abandoned",
            "Connections released before their end was reported.",
            stats.abandoned,
        ),
        (
            "stale_inputs",
            "Inputs dropped because their connection had already ended.",
            stats.stale_inputs,
        ),
        ("calls", "Calls accepted.", stats.calls),
        (
            "settled",
            "Calls that were answered or failed.",
            stats.settled,
        ),
        (
            "requeued",
            "Calls that were sent again to the next server.",
            stats.requeued,
        ),
        (
            "late_replies",
            "Replies that came too late, or twice.",
            stats.late_replies,
        ),
        ("asks", "Requests from the server.", stats.asks),
        (
            "asks_refused",
            "Requests from the server that the guard refused.",
            stats.asks_refused,
        ),
        ("probes", "Probes sent to a quiet server.", stats.probes),
        (
            "probes_missed",
            "Probes that were not answered in time.",
            stats.probes_missed,
        ),
        (
            "messages_in",
            "Messages received and understood.",
            stats.messages_in,
        ),
        ("messages_out", "Messages sent.", stats.messages_out),
        ("exchanges", "HTTP requests sent.", stats.exchanges),
        ("resumes", "Event streams resumed.", stats.resumes),
        (
            "turned_away",
            "Messages that the server refused and that may be sent again.",
            stats.turned_away,
        ),
        ("bytes_in", "Bytes received.", stats.bytes_in),
        ("bytes_out", "Bytes sent.", stats.bytes_out),
        (
            "noise",
            "Lines and messages that were ignored.",
            stats.noise,
        ),
        (
            "answers_dropped",
            "Answers dropped because the server does not read.",
            stats.answers_dropped,
        ),
    ]
}

fn downstream(stats: &server::Stats) -> [Counter; 15] {
    [
        ("requests", "Requests accepted.", stats.requests),
        ("refused", "Requests that cannot be served.", stats.refused),
        ("answered", "Requests answered.", stats.answered),
        (
            "cancelled",
            "Requests that ended without an answer.",
            stats.cancelled,
        ),
        (
            "answers_dropped",
            "Answers dropped because the host had cancelled the request or was gone.",
            stats.answers_dropped,
        ),
        ("asks", "Requests sent to hosts.", stats.asks),
        (
            "late_replies",
            "Replies that came too late, or twice.",
            stats.late_replies,
        ),
        (
            "news_dropped",
            "Notifications dropped because the host does not read.",
            stats.news_dropped,
        ),
        (
            "displaced",
            "Sessions, requests and calls that were ended to make room for others.",
            stats.displaced,
        ),
        (
            "messages_in",
            "Messages received and understood.",
            stats.messages_in,
        ),
        ("messages_out", "Messages sent.", stats.messages_out),
        ("bytes_in", "Bytes received.", stats.bytes_in),
        ("bytes_out", "Bytes sent.", stats.bytes_out),
        (
            "noise",
            "Lines and messages that were ignored.",
            stats.noise,
        ),
        (
            "stale_inputs",
            "Inputs dropped because the connection had already ended.",
            stats.stale_inputs,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use everlink::client::{CallOptions, Client, Event, Outcome};
    use everlink::{Config, Dialect, ExitStatus, FaultKind, Input, Instant, Output};

    use super::*;

    fn initialize_reply(request: &str) -> Vec<u8> {
        let request: Value = serde_json::from_str(request).expect("JSON");
        let result = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"resources": {}},
            "serverInfo": {"name": "test", "version": "1.0"},
        });
        let reply = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        format!("{reply}\n").into_bytes()
    }

    /// Calls `resources/list`. The server exits with these faults when it gets the call. Returns how it ended, and the failure of the call.
    fn lost_read(faults: &[Fault]) -> (String, String) {
        let mut config = Config::child("test", "1.0").with_dialect(Dialect::Legacy);
        config.policy.resends = 0;
        let mut link = Client::new(config);
        let (mut now, mut buf) = (Instant::ZERO, Vec::new());
        let (mut end, mut lost) = (None, None);
        let call = link.call(now, "resources/list", None, CallOptions::new());
        call.expect("the call is accepted");
        for _ in 0..100 {
            while let Some(output) = link.poll_output(&mut buf) {
                match output {
                    Output::Open { epoch } => link.handle(now, epoch, Input::Opened),
                    Output::Write { epoch, len, .. } => {
                        let line = String::from_utf8(buf.split_off(buf.len() - len));
                        let line = line.expect("a message is UTF-8");
                        link.handle(now, epoch, Input::sent(len));
                        if line.contains("\"initialize\"") {
                            link.handle(now, epoch, Input::bytes(initialize_reply(&line)));
                        } else if line.contains("resources/list") {
                            link.handle(now, epoch, Input::exited(ExitStatus::Code(3)));
                            link.handle(now, epoch, Input::end(faults.to_vec()));
                        }
                    }
                    Output::Event(Event::Ended(ended)) => end = Some(describe_end(&ended)),
                    Output::Event(Event::Done { outcome, .. }) => {
                        let Outcome::Failed(failure) = outcome else {
                            panic!("the call has a reply");
                        };
                        lost = Some(describe_failure(&failure));
                    }
                    _ => {}
                }
            }
            if let (Some(end), Some(lost)) = (&end, &lost) {
                return (String::clone(end), String::clone(lost));
            }
            now = link.poll_timeout().map_or(now, |next| now.max(next.at));
            link.handle_timeout(now);
        }
        panic!("the server did not end, or the call has no outcome");
    }

    #[test]
    fn failed_call_that_only_reads_is_said_to_have_changed_nothing() {
        let (_, failure) = lost_read(&[]);
        let text = "the server ended before it replied; it only reads, so nothing was changed";
        assert!(failure.ends_with(text), "{failure}");
        assert_eq!(describe_delivery(Delivery::NotSent), "it did not run");
        assert_eq!(describe_delivery(Delivery::Unknown), "it may have run");
    }

    #[test]
    fn end_is_described_with_the_number_of_faults_and_the_kind_of_the_first() {
        let read = Fault::with_detail(FaultKind::Read, "/home/ann/secret");
        let reset = Fault::new(FaultKind::Reset);
        for (faults, expected) in [
            (vec![], ", exit status 3)"),
            (
                vec![read.clone()],
                ", exit status 3; 1 fault: reading from the other end failed)",
            ),
            (
                vec![read, reset],
                ", exit status 3; 2 faults, first: reading from the other end failed)",
            ),
        ] {
            let (end, _) = lost_read(&faults);
            assert!(end.ends_with(expected), "{end}");
        }
    }

    #[test]
    fn label_values_are_escaped() {
        let mut page = Page::default();
        page.info("it", "Help.", &[("name", "a\"b\\c\nd"), ("version", "")]);
        let sample = page.text.lines().nth(2);
        assert_eq!(sample, Some(r#"it{name="a\"b\\c\nd",version=""} 1"#));
        assert_eq!(page.text.lines().count(), 3);
    }
}
