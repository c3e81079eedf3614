//! Exports traces and metrics of a guard to an OpenTelemetry collector, with OTLP over HTTP.
//!
//! `spans` and `metrics` encode what the relay reports, with the names of `attributes` and the wire format of `protobuf`. `exporter` sends it, as
//! `settings` say. Spans are encoded when they end, so that they wait as one buffer and need no allocation for each attribute.

mod attributes;
mod exporter;
mod metrics;
mod protobuf;
mod settings;
mod spans;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use everlink::Instant;
use everlink::client::Event as LinkEvent;
use everlink::http::Url;
use everlink::relay::{Event, Trace};
use everlink_tokio::Guard;
use everlink_tokio::http::Connector;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::attributes::Failed;
use self::exporter::Exporter;
use self::metrics::Metrics;
use self::protobuf::Message;
use self::settings::Settings;
use self::spans::{Connection, ConnectionLink, Templates, UnixNanos, WallClock};
use super::log::LogLine;
use crate::Failure;

/// The size of the encoded spans at which they are sent without waiting for the interval.
const FULL: usize = 512 << 10;

/// The size of the encoded spans at which new ones are dropped.
const MAX_BYTES: usize = 4 << 20;

/// The capacity of the buffer beyond [`FULL`]. The spans that cross `FULL` usually fit, so that the buffer is not moved.
const SLACK: usize = 64 << 10;

/// How long the last spans and metrics may take to be sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The telemetry of a guard before it runs.
pub(super) struct Otlp {
    settings: Settings,
    shared: Arc<Shared>,
}

/// The exporter of a running guard.
pub(super) struct RunningExporter {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    remarks: UnboundedSender<LogLine>,
}

/// What the observer of the relay and the exporter share.
struct Shared {
    state: Mutex<State>,
    /// Wakes the exporter because the encoded spans have reached [`FULL`].
    full: Notify,
    /// Wakes the exporter because the guard has ended.
    ending: Notify,
    endpoints: Endpoints,
}

/// The encoded attributes of both sides: field 9 of a `Span` and of a `HistogramDataPoint`.
struct Endpoints {
    front: Vec<u8>,
    back: Vec<u8>,
}

struct State {
    /// The request with the spans that wait to be sent.
    spans: Envelope,
    span_count: u64,
    /// The present time on both clocks. Read anew for each batch and each event of the link.
    clock: Option<WallClock>,
    metrics: Metrics,
    connection: Option<Connection>,
    /// The newest connection, and the one before.
    links: [Option<ConnectionLink>; 2],
}

/// A request to the collector. Its form is the same for spans and metrics: the resource, the scope, and fields of the scope that are appended.
struct Envelope {
    bytes: Vec<u8>,
    /// Where the two messages around the fields begin.
    open: [usize; 2],
}

impl Envelope {
    fn new(resource: &[u8], capacity: usize) -> Envelope {
        let mut bytes = Vec::with_capacity(capacity);
        let mut request = Message::new(&mut bytes);
        let outer = request.begin_open(1);
        request.splice(resource);
        let inner = request.begin_open(2);
        request.message(1, |scope| {
            scope.text(1, "everlink");
            scope.text(2, env!("CARGO_PKG_VERSION"));
        });
        Envelope {
            bytes,
            open: [outer, inner],
        }
    }

    /// Returns the encoded request.
    fn close(mut self) -> Vec<u8> {
        for start in self.open {
            protobuf::end_open(&mut self.bytes, start);
        }
        self.bytes
    }
}

impl Otlp {
    /// Reads the settings. `url` is the value of `--otlp`, if it has one. `server` is the URL of the server, if it is no child process.
    pub(super) fn new(
        url: Option<&str>,
        is_stdio: bool,
        server: Option<&str>,
    ) -> Result<Otlp, Failure> {
        let settings = Settings::read(url)?;
        let state = State {
            spans: Envelope::new(&settings.resource, FULL + SLACK),
            span_count: 0,
            clock: None,
            metrics: Metrics::default(),
            connection: None,
            links: [None, None],
        };
        Ok(Otlp {
            settings,
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                full: Notify::new(),
                ending: Notify::new(),
                endpoints: Endpoints {
                    front: endpoint(!is_stdio, None),
                    back: endpoint(server.is_some(), server),
                },
            }),
        })
    }

    /// Returns the function that sees each event of the relay.
    pub(super) fn observer(&self) -> impl FnMut(Instant, &Event) + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move |now, event| shared.observe(now, event)
    }

    /// Starts to export. `remarks` go to the log.
    pub(super) fn start(self, guard: Guard, remarks: UnboundedSender<LogLine>) -> RunningExporter {
        let shared = Arc::clone(&self.shared);
        let web = Connector::new().web();
        let exporter = Exporter::new(self.settings, self.shared, web, guard, remarks.clone());
        RunningExporter {
            shared,
            task: tokio::spawn(exporter.run()),
            remarks,
        }
    }
}

impl RunningExporter {
    /// Sends what is left, for up to [`FLUSH_TIMEOUT`].
    pub(super) async fn end(mut self) {
        self.shared.ending.notify_one();
        if timeout(FLUSH_TIMEOUT, &mut self.task).await.is_err() {
            self.task.abort();
            let remark =
                "--otlp: the last spans were not delivered: the collector did not answer in time";
            let _ = self.remarks.send(LogLine::Warning(remark.to_owned()));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes all metrics into this request.
    fn encode_metrics(&self, request: &mut Envelope, times: [UnixNanos; 2], in_flight: u64) {
        let mut scope = Message::new(&mut request.bytes);
        let state = self.lock();
        let metrics = &state.metrics;
        metrics.write(&mut scope, times, &self.endpoints, in_flight);
    }

    fn observe(&self, now: Instant, event: &Event) {
        let (Event::Traced(_) | Event::Upstream(_)) = event else {
            return;
        };
        let mut state = self.lock();
        let was_full = state.spans.bytes.len() >= FULL;
        if let Event::Upstream(_) = event {
            state.clock = None;
        }
        let clock = *state.clock.get_or_insert_with(|| WallClock {
            now,
            unix: unix_time(),
        });
        match event {
            Event::Traced(trace) => state.add_request(trace, clock, &self.endpoints),
            Event::Upstream(event) => state.add_link_event(event, clock.unix, &self.endpoints),
            _ => {}
        }
        if !was_full && state.spans.bytes.len() >= FULL {
            self.full.notify_one();
        }
    }
}

impl State {
    fn add_request(&mut self, trace: &Trace, clock: WallClock, endpoints: &Endpoints) {
        let spans = 1 + u64::from(trace.sent.is_some());
        let is_exported = trace.is_sampled && self.has_room_for(spans);
        let templates = self.metrics.add_request(trace, endpoints);
        if !is_exported {
            return;
        }
        let last = trace.resent.last().or(trace.sent.as_ref());
        // Requests that were lost with a connection may be reported after its end.
        let mut links = self.links.iter().flatten();
        let link = last.and_then(|(_, epoch)| links.find(|link| link.epoch == *epoch));
        let connection = link.map_or(&[][..], |link| &link.encoded);
        match templates {
            Some(templates) => {
                spans::request(&mut self.spans.bytes, trace, templates, clock, connection);
            }
            None => {
                let templates = Templates::new(trace, Failed::of(trace).as_ref(), endpoints);
                spans::request(&mut self.spans.bytes, trace, &templates, clock, connection);
            }
        }
    }

    fn add_link_event(&mut self, event: &LinkEvent, now: UnixNanos, endpoints: &Endpoints) {
        match event {
            LinkEvent::Opening { epoch, .. } => {
                self.metrics.add_connection();
                let connection = Connection::new(*epoch, now);
                self.links[1] = self.links[0].replace(connection.link());
                self.connection = Some(connection);
            }
            LinkEvent::Ended(ended) => {
                let cause = attributes::cause(&ended.cause);
                let failed = ended.counted.then_some(cause);
                self.metrics.add_end(ended.ready_for, failed);
                let Some(connection) = self.connection.take() else {
                    return;
                };
                if self.has_room_for(1) {
                    connection.end(&mut self.spans.bytes, now, ended, endpoints);
                }
            }
            event => {
                if let Some(connection) = &mut self.connection {
                    connection.add(now, event);
                }
            }
        }
    }

    /// Counts spans, as waiting if there is room and as dropped if there is none.
    fn has_room_for(&mut self, spans: u64) -> bool {
        let has_room = self.spans.bytes.len() < MAX_BYTES;
        match has_room {
            true => self.span_count += spans,
            false => self.metrics.dropped += spans,
        }
        has_room
    }
}

fn unix_time() -> UnixNanos {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    spans::nanos(now.unwrap_or_default())
}

/// Encodes the attributes of one side. `url` is the URL of the peer, if this side connects to one.
fn endpoint(is_http: bool, url: Option<&str>) -> Vec<u8> {
    let mut encoded = Vec::new();
    let mut message = Message::new(&mut encoded);
    let transport = if is_http { "tcp" } else { "pipe" };
    attributes::text(&mut message, 9, "network.transport", transport);
    if is_http {
        attributes::text(&mut message, 9, "network.protocol.name", "http");
    }
    let url = url.and_then(|url| Url::parse(url).ok());
    let uri = url.and_then(|url| url.as_str().parse::<http::Uri>().ok());
    if let Some(host) = uri.as_ref().and_then(http::Uri::host) {
        attributes::text(&mut message, 9, "server.address", host);
        let scheme = uri.as_ref().and_then(http::Uri::scheme_str);
        let default = if scheme == Some("https") { 443 } else { 80 };
        let port = uri
            .as_ref()
            .and_then(http::Uri::port_u16)
            .unwrap_or(default);
        attributes::number(&mut message, 9, "server.port", u64::from(port));
    }
    encoded
}
