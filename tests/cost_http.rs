//! A server over HTTP keeps nothing of finished exchanges: its memory stays constant over any number of rounds. Writing an event does
//! not allocate.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a driver in a test ignores outputs that it does not need"
)]

use alloc_count::{Counting, count, live};
use everlink::http::{Fields, RequestHead, Verb};
use everlink::protocol::ServerCapabilities;
use everlink::server::{Config, Event, Http, Offer, Replay, Server};
use everlink::{Change, Input, Instant, List, Output, StreamId};

#[global_allocator]
static HEAP: Counting = Counting;

/// Rounds before measuring starts. By then queues and tables have their final capacity.
const WARM_UP: usize = 100;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

struct Rig {
    server: Server,
    last: u64,
    buf: Vec<u8>,
    session: Option<String>,
}

impl Rig {
    fn new() -> Rig {
        let tools = ServerCapabilities::default().with_tools(true);
        let offer = Offer::new("rig", "1").with_capabilities(tools);
        let mut http = Http::new();
        http.replay = Replay::new(8, 10_000);
        Rig {
            server: Server::new(Config::new(offer, [7; 16]).with_http(http)),
            last: 0,
            buf: Vec::new(),
            session: None,
        }
    }

    /// Runs one exchange. The application answers its requests.
    fn exchange(&mut self, verb: Verb, fields: &[(&str, &str)], body: &str) -> StreamId {
        self.last += 1;
        let stream = StreamId::new(self.last);
        let mut request_fields = Fields::new().and("host", "localhost");
        for (name, value) in fields {
            request_fields.push(*name, *value);
        }
        if let Some(session) = &self.session {
            request_fields.push("mcp-session-id", session.as_str());
        }
        let head = Box::new(RequestHead::new(verb, "/mcp").with_fields(request_fields));
        let now = Instant::ZERO;
        self.server.handle(now, Input::Request { stream, head });
        let bytes = body.as_bytes().into();
        self.server.handle(now, Input::Bytes { stream, bytes });
        let faults = Vec::new().into();
        self.server.handle(now, Input::End { stream, faults });
        self.drain_outputs();
        stream
    }

    fn drain_outputs(&mut self) {
        let now = Instant::ZERO;
        let mut session = None;
        while let Some(output) = self.server.poll_output(&mut self.buf) {
            match output {
                Output::Event(Event::Request(request)) => {
                    let result = r#"{"content":[]}"#.parse().expect("this is JSON");
                    let done = self.server.respond(now, request.request, result);
                    done.expect("the request is open");
                }
                Output::Response {
                    stream, head, len, ..
                } => {
                    session = head.fields.get("mcp-session-id").map(str::to_owned);
                    self.server.handle(now, Input::Sent { stream, len });
                }
                Output::Write { stream, len, .. } => {
                    self.server.handle(now, Input::Sent { stream, len });
                }
                _ => {}
            }
            self.buf.clear();
        }
        self.session = session.or(self.session.take());
    }

    fn disconnect(&mut self, stream: StreamId) {
        let faults = Vec::new().into();
        self.server
            .handle(Instant::ZERO, Input::WriteFailed { stream, faults });
        self.drain_outputs();
    }

    fn modern_round(&mut self) {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a",{META}}}}}"#
        );
        let fields = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "a"),
        ];
        self.exchange(Verb::Post, &fields, &call);
        let watch = self.watch();
        self.disconnect(watch);
        self.exchange(Verb::Post, &[("accept", "text/html")], "{}");
        self.exchange(Verb::Post, &[], "nonsense");
        let other = self.exchange(Verb::Other, &[], "");
        self.disconnect(other);
    }

    fn watch(&mut self) -> StreamId {
        let listen = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}},{META}}}}}"#
        );
        let fields = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "subscriptions/listen"),
        ];
        self.exchange(Verb::Post, &fields, &listen)
    }

    fn legacy_round(&mut self) {
        self.session = None;
        let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
        self.exchange(Verb::Post, &[], initialize);
        let stream = self.exchange(Verb::Get, &[], "");
        for id in 0..20 {
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"a"}}}}"#
            );
            let stream = self.exchange(Verb::Post, &[], &call);
            self.disconnect(stream);
        }
        self.exchange(Verb::Get, &[("last-event-id", "0-0")], "");
        self.disconnect(stream);
        self.exchange(Verb::Delete, &[], "");
        self.session = None;
    }
}

#[test]
fn finished_exchanges_leave_no_memory_allocated() {
    for round in [Rig::modern_round, Rig::legacy_round] {
        let mut rig = Rig::new();
        let live_after_round = |rig: &mut Rig| {
            round(rig);
            live()
        };
        for _ in 0..WARM_UP {
            live_after_round(&mut rig);
        }
        let before = live_after_round(&mut rig);
        for _ in 0..WARM_UP {
            assert_eq!(live_after_round(&mut rig), before);
        }
        assert_eq!((rig.server.sessions(), rig.server.requests()), (0, 0));
    }
}

#[test]
fn writing_an_event_does_not_allocate() {
    let mut rig = Rig::new();
    rig.watch();
    for round in 0..2 * WARM_UP {
        let change = Change::List(List::Tools);
        let done = rig.server.publish(Instant::ZERO, change);
        done.expect("the server offers it");
        let (output, counts) = count(|| rig.server.poll_output(&mut rig.buf));
        let Some(Output::Write { stream, len, .. }) = output else {
            panic!("{output:?} is no event of a stream");
        };
        if round >= WARM_UP {
            assert_eq!((counts.allocs, counts.reallocs), (0, 0), "round {round}");
        }
        rig.buf.clear();
        let input = Input::Sent { stream, len };
        rig.server.handle(Instant::ZERO, input);
    }
}
