//! Serves the state of a relay over HTTP: JSON at `/`, Prometheus metrics at `/metrics`. Read-only.

use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use everlink::client::{Cause, Ended, State};
use everlink::server::Allowed;
use everlink::{Stats, server};
use everlink_tokio::http::{Connections, http1};
use everlink_tokio::{Guard, Status};
use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::listen;
use crate::{Failure, usage_error};

/// The maximum number of connections. 16 is enough for a few web pages and scrapers.
const CONNECTIONS: usize = 16;

/// The HTTP server for `--status`.
pub(super) struct StatusServer {
    listener: TcpListener,
    url: String,
    /// The accepted values of `Host`. A web page whose own domain resolves to this address is refused.
    hosts: Allowed,
}

impl StatusServer {
    pub(super) async fn bind(
        address: SocketAddr,
        allowed: &[String],
    ) -> Result<StatusServer, Failure> {
        let host = match address {
            SocketAddr::V4(address_v4) => address_v4.ip().to_string(),
            SocketAddr::V6(address_v6) => format!("[{}]", address_v6.ip()),
        };
        let hosts = listen::allowed_hosts(&host, address.ip(), allowed)
            .map_err(|what| usage_error(format!("--status {address}: {what}")))?;
        let hosts = listen::with_loopback_names(hosts.as_deref());
        let listener = TcpListener::bind(address).await;
        let listener =
            listener.map_err(|error| format!("--status {address}: cannot listen: {error}"))?;
        let url = format!("http://{}/", listener.local_addr()?);
        Ok(StatusServer {
            listener,
            url,
            hosts: hosts.map_or(Allowed::Loopback, Allowed::list),
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Serves the status of the guard. Dropping the future closes all connections.
    pub(super) async fn serve(self, guard: Guard) {
        let (connections, mut tasks) = (Connections::new(CONNECTIONS), JoinSet::new());
        let hosts = Arc::new(self.hosts);
        loop {
            let (socket, connection) = tokio::select! {
                accepted = connections.accept(&self.listener) => accepted,
                Some(_) = tasks.join_next() => continue,
            };
            let (guard, hosts, connection_handle) =
                (guard.clone(), hosts.clone(), connection.clone());
            let service = service_fn(move |request: http::Request<_>| {
                // Fixes the type of the body, which hyper's generic service cannot infer.
                let _: &hyper::body::Incoming = request.body();
                connection_handle.request_arrived();
                let (guard, hosts) = (guard.clone(), hosts.clone());
                async move {
                    if !is_allowed(&hosts, request.headers()) {
                        let text = "the Host header must name this machine, or be a value of --allow-host\n";
                        return Ok(refusal(StatusCode::FORBIDDEN, text));
                    }
                    let (method, path) = (request.method(), request.uri().path());
                    Ok::<_, Infallible>(answer(method, path, &guard).await)
                }
            });
            let served = http1().serve_connection(TokioIo::new(socket), service);
            tasks.spawn(connection.serve(served));
        }
    }
}

/// Makes the same check as the endpoint for hosts. It refuses web pages of other origins, and web pages whose domain was made to resolve to this
/// address.
fn is_allowed(hosts: &Allowed, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().ok());
    let is_for_us = hosts.allows_host(text(HOST).flatten());
    let is_from_us = match text(ORIGIN) {
        None => true,
        Some(origin) => origin.is_some_and(|origin| Allowed::Loopback.allows_origin(origin)),
    };
    is_for_us && is_from_us
}

async fn answer(method: &Method, path: &str, guard: &Guard) -> Response<String> {
    let (content_type, render): (_, fn(&Status) -> String) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/") => {
            ("application/json", |status| as_json(status).to_string())
        }
        (&Method::GET | &Method::HEAD, "/metrics") => {
            ("text/plain; version=0.0.4; charset=utf-8", as_metrics)
        }
        _ => {
            return refusal(
                StatusCode::NOT_FOUND,
                "not found: only / and /metrics are served\n",
            );
        }
    };
    match guard.status().await {
        Ok(status) => {
            let mut response = Response::new(render(&status));
            let content_type = http::HeaderValue::from_static(content_type);
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        }
        Err(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "the guard has ended\n"),
    }
}

fn refusal(status: StatusCode, text: &str) -> Response<String> {
    let mut response = Response::new(text.to_owned());
    *response.status_mut() = status;
    response
}

fn as_json(status: &Status) -> Value {
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

/// Describes how an epoch ended, without any text from the server or the system. Such text may hold secrets and paths, which must not be served on a
/// port that others can reach.
fn describe_end(ended: &Ended) -> String {
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
    let _ = write!(text, "; {faults} faults");
    if let Some(first) = ended.faults.first() {
        let _ = write!(text, ", the first: {:?}", first.kind());
    }
    text.push(')');
    text
}

fn counters_json(counters: &[Counter]) -> Value {
    let counters = counters.iter();
    let counters: Map<_, _> = counters
        .map(|(name, _, value)| ((*name).to_owned(), json!(value)))
        .collect();
    counters.into()
}

fn as_metrics(status: &Status) -> String {
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
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        let mut page = Page::default();
        page.info("it", "Help.", &[("name", "a\"b\\c\nd"), ("version", "")]);
        let sample = page.text.lines().nth(2);
        assert_eq!(sample, Some(r#"it{name="a\"b\\c\nd",version=""} 1"#));
        assert_eq!(page.text.lines().count(), 3);
    }
}
