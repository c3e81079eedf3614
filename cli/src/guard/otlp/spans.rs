//! Encodes spans: two for each request, in front of and behind the guard, and one for each connection to the server. Sends nothing.

use std::time::Duration;

use everlink::client::{Ended, Event as LinkEvent};
use everlink::protocol::Version;
use everlink::relay::Trace;
use everlink::{Epoch, ExitStatus, Id, Instant};
use everlink_tokio::secret;

use super::Endpoints;
use super::attributes::{self, Failed, name_key};
use super::protobuf::Message;

/// The fields of a `Span` that repeat.
const ATTRIBUTES: u64 = 9;
const EVENTS: u64 = 11;

/// The kinds of spans.
const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const CLIENT: u64 = 3;

/// The flags of a span: it is sampled, and its parent is of this process, or of another one.
const LOCAL: u32 = 0x101;
const REMOTE: u32 = 0x301;

const REQUEST_ID: &str = "jsonrpc.request.id";

/// The most events of one connection that are kept.
const MOST_EVENTS: usize = 32;

/// Nanoseconds since 1970.
pub(super) type UnixNanos = u64;

/// Converts times of the driver's clock, given both times of the same moment.
#[derive(Clone, Copy)]
pub(super) struct WallClock {
    pub(super) now: Instant,
    pub(super) unix: UnixNanos,
}

impl WallClock {
    pub(super) fn at(self, at: Instant) -> UnixNanos {
        // The moment may be earlier or later. Both clocks count nanoseconds.
        let elapsed = at.as_nanos().wrapping_sub(self.now.as_nanos());
        self.unix.wrapping_add(elapsed)
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The ids of a span.
#[derive(Clone, Copy)]
struct Ids {
    trace_id: u128,
    span_id: u64,
    parent: Option<u64>,
}

/// Writes the fields that differ from span to span. They have a fixed form, and are written for each request.
fn begin(span: &mut Vec<u8>, ids: Ids, [start, end]: [UnixNanos; 2]) {
    let mut head = [0; 28];
    head[..2].copy_from_slice(&[1 << 3 | 2, 16]);
    head[2..18].copy_from_slice(&ids.trace_id.to_be_bytes());
    head[18..20].copy_from_slice(&[2 << 3 | 2, 8]);
    head[20..].copy_from_slice(&ids.span_id.to_be_bytes());
    span.extend_from_slice(&head);
    if let Some(parent) = ids.parent {
        Message::new(span).bytes(4, &parent.to_be_bytes());
    }
    let mut times = [0; 18];
    times[0] = 7 << 3 | 1;
    times[1..9].copy_from_slice(&start.to_le_bytes());
    times[9] = 8 << 3 | 1;
    times[10..].copy_from_slice(&end.max(start).to_le_bytes());
    span.extend_from_slice(&times);
}

fn fail(span: &mut Message<'_>, error_type: &str) {
    attributes::text(span, ATTRIBUTES, "error.type", error_type);
    span.message(15, |status| status.number(3, 2));
}

/// The encoded fields that requests with the same method, name, error and versions have in common.
pub(super) struct Templates {
    front: Vec<u8>,
    back: Vec<u8>,
}

impl Templates {
    pub(super) fn new(trace: &Trace, failed: Option<&Failed>, endpoints: &Endpoints) -> Templates {
        let fields = |kind, flags, version: Option<Version>, endpoint: &[u8]| {
            let mut encoded = Vec::new();
            let mut span = Message::new(&mut encoded);
            span.number(6, kind);
            span.fixed32(16, flags);
            describe(&mut span, trace, failed);
            if let Some(version) = version {
                let version = version.as_str();
                attributes::text(&mut span, ATTRIBUTES, "mcp.protocol.version", version);
            }
            span.splice(endpoint);
            encoded
        };
        let (host, server) = (Some(trace.host_version), trace.server_version);
        Templates {
            front: fields(SERVER, REMOTE, host, &endpoints.front),
            back: fields(CLIENT, LOCAL, server, &endpoints.back),
        }
    }
}

/// Writes the name and the attributes that both spans of a request have.
fn describe(span: &mut Message<'_>, trace: &Trace, failed: Option<&Failed>) {
    let method = &*trace.method;
    match (&trace.name, name_key(method)) {
        (Some(name), Some(key)) => {
            span.text(5, &[method, " ", name].concat());
            attributes::text(span, ATTRIBUTES, key, name);
        }
        _ => span.text(5, method),
    }
    attributes::text(span, ATTRIBUTES, "mcp.method.name", method);
    if method == "tools/call" {
        attributes::text(span, ATTRIBUTES, "gen_ai.operation.name", "execute_tool");
    }
    if let Some(failed) = failed {
        if failed.is_code {
            attributes::text(span, ATTRIBUTES, "rpc.response.status_code", &failed.class);
        }
        fail(span, &failed.class);
    }
}

/// Encodes the spans of a request. The one behind is left out if the request was never sent. `connection` is encoded, too.
pub(super) fn request(
    spans: &mut Vec<u8>,
    trace: &Trace,
    templates: &Templates,
    clock: WallClock,
    connection: &[u8],
) {
    let ended = clock.at(trace.ended);
    let mut spans = Message::new(spans);
    spans.long_message(2, |span| {
        let ids = Ids {
            trace_id: trace.trace_id,
            span_id: trace.server_span,
            parent: trace.parent,
        };
        begin(span.buffer(), ids, [clock.at(trace.accepted), ended]);
        span.splice(&templates.front);
        write_state(span, trace);
        match &trace.id {
            Some(Id::Number(id)) => write_number(span, *id),
            Some(Id::Text(id) | Id::LongNumber(id)) => {
                attributes::text(span, ATTRIBUTES, REQUEST_ID, id)
            }
            _ => {}
        }
    });
    let Some((sent, _)) = trace.sent else {
        return;
    };
    spans.long_message(2, |span| {
        let ids = Ids {
            trace_id: trace.trace_id,
            span_id: trace.client_span,
            parent: Some(trace.server_span),
        };
        begin(span.buffer(), ids, [clock.at(sent), ended]);
        span.splice(&templates.back);
        write_state(span, trace);
        span.splice(connection);
        for (at, epoch) in &trace.resent {
            event(span, clock.at(*at), "everlink.reconnected", |event| {
                attributes::number(event, 3, "everlink.epoch", epoch.number());
            });
        }
    });
}

fn write_state(span: &mut Message<'_>, trace: &Trace) {
    if let Some(state) = &trace.state {
        span.text(3, state);
    }
}

/// Writes the id of a request that is a number. Most ids are, so this does what `attributes::text` does, with all lengths in one byte.
fn write_number(span: &mut Message<'_>, id: i64) {
    const KEY: &[u8; 22] = b"\x4a\0\x0a\x12jsonrpc.request.id";
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(id).as_bytes();
    // At most 20, so that nothing is cut off.
    let len = digits.len() as u8;
    let mut attribute = [0; 26];
    attribute[..22].copy_from_slice(KEY);
    attribute[1] = 24 + len;
    attribute[22..].copy_from_slice(&[0x12, len + 2, 0x0a, len]);
    span.splice(&attribute);
    span.splice(digits);
}

fn event(span: &mut Message<'_>, at: UnixNanos, name: &str, fill: impl FnOnce(&mut Message<'_>)) {
    span.message(EVENTS, |event| {
        event.fixed64(1, at);
        event.text(2, name);
        fill(event);
    });
}

/// What the spans of requests say of their connection.
pub(super) struct ConnectionLink {
    pub(super) epoch: Epoch,
    /// The encoded epoch, and a link to the span of the connection.
    pub(super) encoded: Vec<u8>,
}

/// A connection to the server that has not ended. It is a trace of its own, because it outlives requests.
pub(super) struct Connection {
    epoch: Epoch,
    trace_id: u128,
    span_id: u64,
    opened: UnixNanos,
    version: Option<&'static str>,
    /// The encoded events.
    events: Vec<u8>,
    event_count: usize,
}

impl Connection {
    pub(super) fn new(epoch: Epoch, opened: UnixNanos) -> Connection {
        let [trace_id, span_id] = [(); 2].map(|()| u128::from_be_bytes(secret()).max(1));
        Connection {
            epoch,
            trace_id,
            span_id: (span_id as u64).max(1),
            opened,
            version: None,
            events: Vec::new(),
            event_count: 0,
        }
    }

    /// Returns what the spans of requests say of it.
    pub(super) fn link(&self) -> ConnectionLink {
        let mut encoded = Vec::new();
        let mut span = Message::new(&mut encoded);
        attributes::number(&mut span, ATTRIBUTES, "everlink.epoch", self.epoch.number());
        span.message(13, |link| {
            link.bytes(1, &self.trace_id.to_be_bytes());
            link.bytes(2, &self.span_id.to_be_bytes());
        });
        ConnectionLink {
            epoch: self.epoch,
            encoded,
        }
    }

    /// Adds what happened to the connection.
    pub(super) fn add(&mut self, at: UnixNanos, happened: &LinkEvent) {
        let name = match happened {
            LinkEvent::Ready(session) => {
                self.version = Some(session.version.as_str());
                "everlink.ready"
            }
            LinkEvent::Silent { .. } => "everlink.silent",
            LinkEvent::Responsive { .. } => "everlink.responsive",
            LinkEvent::Slow { .. } => "everlink.slow",
            LinkEvent::Draining { .. } => "everlink.draining",
            LinkEvent::AuthRequired(_) => "everlink.credentials_wanted",
            _ => return,
        };
        self.event_count += 1;
        if self.event_count <= MOST_EVENTS {
            event(&mut Message::new(&mut self.events), at, name, |_| {});
        }
    }

    /// Encodes the span.
    pub(super) fn end(
        self,
        bytes: &mut Vec<u8>,
        at: UnixNanos,
        ended: &Ended,
        endpoints: &Endpoints,
    ) {
        Message::new(bytes).message(2, |span| {
            let ids = Ids {
                trace_id: self.trace_id,
                span_id: self.span_id,
                parent: None,
            };
            begin(span.buffer(), ids, [self.opened, at]);
            span.number(6, INTERNAL);
            span.text(5, "mcp.connection");
            attributes::number(span, ATTRIBUTES, "everlink.epoch", self.epoch.number());
            if let Some(version) = self.version {
                attributes::text(span, ATTRIBUTES, "mcp.protocol.version", version);
            }
            let cause = attributes::cause(&ended.cause);
            attributes::text(span, ATTRIBUTES, "everlink.cause", cause);
            match ended.exit {
                Some(ExitStatus::Code(code)) => {
                    let code = exit_code(code);
                    attributes::number(span, ATTRIBUTES, "process.exit.code", code);
                }
                Some(ExitStatus::Signal(signal)) => {
                    let signal = u64::try_from(signal).unwrap_or_default();
                    attributes::number(span, ATTRIBUTES, "everlink.exit.signal", signal);
                }
                _ => {}
            }
            if ended.counted {
                fail(span, cause);
                // The details are texts of the system.
                for fault in &ended.faults {
                    event(span, at, "everlink.fault", |event| {
                        let kind = format!("{:?}", fault.kind());
                        attributes::text(event, 3, "everlink.fault.kind", &kind);
                    });
                }
            }
            span.splice(&self.events);
            span.splice(&endpoints.back);
        });
    }
}

/// Codes are 32 bits without a sign. On Windows, that of a crash has the highest bit set.
fn exit_code(code: i32) -> u64 {
    u64::from(code as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_of_a_crash_on_windows_keeps_its_value() {
        assert_eq!(exit_code(0xC000_0005_u32 as i32), 0xC000_0005);
        assert_eq!(exit_code(71), 71);
    }
}
