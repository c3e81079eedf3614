//! A relay with HTTP on one side or on both: the host is served over any transport.

use everlink::client::{CallOptions, Client, Event, Outcome, State};
use everlink::protocol::{ClientCapabilities, Version};
use everlink::relay::{self, Relay, Side};
use everlink::server::{self, Http, Progress, Server};
use everlink::{
    Change, Config, Epoch, ExitStatus, Fault, FaultKind, Input, Instant, List, Output, StreamId,
    Watch,
};
use model::Net;
use serde_json::{Value, json};

use crate::http::harness::{client, payload, seconds, server};

/// The transport of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Http,
    Stdio,
}

const TRANSPORTS: [(Transport, Transport); 3] = [
    (Transport::Stdio, Transport::Http),
    (Transport::Http, Transport::Stdio),
    (Transport::Http, Transport::Http),
];

/// The receiver of an input.
enum Receiver {
    Client(Epoch),
    Server,
}

type Inputs = Vec<(Receiver, Input<'static>)>;

/// A host, a relay and a server, connected in memory.
struct Chain {
    now: Instant,
    host: Client,
    relay: Relay,
    server: Server,
    server_config: server::Config,
    host_epoch: Epoch,
    relay_epoch: Epoch,
    host_events: Vec<Event>,
    server_events: Vec<server::Event>,
    buf: Vec<u8>,
}

impl Chain {
    fn new(version: Version, (front, back): (Transport, Transport)) -> Chain {
        let with_transport = |transport: Transport, mut config: Config| {
            if transport == Transport::Stdio {
                config.binding = everlink::Binding::Child;
            }
            config
        };
        let http = |transport: Transport| (transport == Transport::Http).then(Http::new);
        let mut host = with_transport(front, client(version));
        host.watch = Watch::lists();
        host.capabilities = ClientCapabilities::default()
            .with_elicitation_form()
            .with_roots(true);
        let upstream = with_transport(back, Net::client_config());
        let mut relay = relay::Config::new(upstream, [9; 16]);
        relay.downstream.http = http(front);
        let mut server_config = server(Http::new());
        server_config.http = http(back);
        Chain {
            now: Instant::ZERO,
            host: Client::new(host),
            relay: Relay::new(relay),
            server: Server::new(server_config.clone()),
            server_config,
            host_epoch: Epoch::NONE,
            relay_epoch: Epoch::NONE,
            host_events: Vec::new(),
            server_events: Vec::new(),
            buf: Vec::new(),
        }
    }

    /// A chain whose host is ready.
    fn ready(version: Version, transports: (Transport, Transport)) -> Chain {
        let mut chain = Chain::new(version, transports);
        chain.host.connect(chain.now);
        chain.advance(20);
        assert_eq!(chain.host.state(), State::Ready, "{version} {transports:?}");
        chain.host_events.clear();
        chain
    }

    fn settle(&mut self) {
        while self.step() {}
    }

    /// Carries out one output of any party. Returns false if there was none.
    fn step(&mut self) -> bool {
        let buf = &mut self.buf;
        if let Some(output) = self.host.poll_output(buf) {
            if let Output::Open { epoch } = &output {
                self.host_epoch = *epoch;
            }
            let (inputs, event) = from_client(output, buf);
            self.host_events.extend(event);
            self.deliver(Side::Downstream, inputs);
        } else if let Some((side, output)) = self.relay.poll_output(buf) {
            if let Output::Open { epoch } = &output {
                self.relay_epoch = *epoch;
            }
            let inputs = match side {
                Side::Downstream => from_server(output, buf, self.host_epoch).0,
                _ => from_client(output, buf).0,
            };
            self.deliver(side, inputs);
        } else if let Some(output) = self.server.poll_output(buf) {
            let (inputs, event) = from_server(output, buf, self.relay_epoch);
            self.server_events.extend(event);
            self.deliver(Side::Upstream, inputs);
        } else {
            return false;
        }
        true
    }

    fn deliver(&mut self, side: Side, inputs: Inputs) {
        let now = self.now;
        for (receiver, input) in inputs {
            match (side, receiver) {
                (Side::Downstream, Receiver::Client(epoch)) => self.host.handle(now, epoch, input),
                (Side::Downstream, Receiver::Server) => self.relay.handle_downstream(now, input),
                (_, Receiver::Client(epoch)) => self.relay.handle_upstream(now, epoch, input),
                (_, Receiver::Server) => self.server.handle(now, input),
            }
        }
    }

    fn advance(&mut self, secs: u64) {
        let goal = self.now + seconds(secs);
        self.settle();
        loop {
            let due = [
                self.host.poll_timeout(),
                self.relay.poll_timeout(),
                self.server.poll_timeout(),
            ];
            let due = due.into_iter().flatten().map(|deadline| deadline.at).min();
            let Some(at) = due.filter(|at| *at <= goal) else {
                break;
            };
            self.now = self.now.max(at);
            self.host.handle_timeout(self.now);
            self.relay.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
            self.settle();
        }
        self.now = goal;
    }

    fn call(&mut self, name: &str) -> everlink::CallId {
        let params = payload(&json!({"name": name}));
        let call = self
            .host
            .call(self.now, "tools/call", Some(params), CallOptions::new());
        self.settle();
        call.expect("the link accepts the call")
    }

    /// The newest request that the server's application received.
    #[track_caller]
    fn request(&mut self) -> server::Request {
        self.settle();
        let at = self.server_events.iter();
        let mut at = at
            .enumerate()
            .filter(|(_, event)| matches!(event, server::Event::Request(_)));
        let (at, _) = at.next_back().expect("a request");
        match self.server_events.remove(at) {
            server::Event::Request(request) => request,
            _ => unreachable!("the event is a request"),
        }
    }

    /// The reply to a call.
    #[track_caller]
    fn reply(&mut self, call: everlink::CallId) -> Value {
        self.settle();
        let mut events = self.host_events.iter();
        let found = events.find_map(|event| match event {
            Event::Done { call: of, outcome } if *of == call => Some(outcome),
            _ => None,
        });
        match found {
            Some(Outcome::Reply(reply)) => reply.parse().expect("JSON"),
            other => panic!("{call}: {other:?}"),
        }
    }
}

/// Maps an output of a client end to inputs for both ends of its transport.
fn from_client<E>(output: Output<E>, buf: &mut Vec<u8>) -> (Inputs, Option<E>) {
    let mut inputs: Inputs = Vec::new();
    let faults = || vec![Fault::new(FaultKind::BrokenPipe)].into();
    match output {
        Output::Abort { stream, .. } => {
            let faults = faults();
            inputs.push((Receiver::Server, Input::WriteFailed { stream, faults }));
        }
        Output::Inspect { .. } => {}
        Output::CloseWrite { epoch } | Output::Kill { epoch } | Output::Terminate { epoch } => {
            inputs.push((Receiver::Server, Input::end(Vec::new())));
            let exited = Input::exited(ExitStatus::Code(0));
            inputs.push((Receiver::Client(epoch), exited));
            inputs.push((Receiver::Client(epoch), Input::end(Vec::new())));
        }
        Output::Event(event) => return (inputs, Some(event)),
        Output::Open { epoch } => inputs.push((Receiver::Client(epoch), Input::Opened)),
        Output::Release { .. } => {}
        Output::Request {
            stream,
            mut head,
            len,
            ..
        } => {
            let body = buf.split_off(buf.len() - len);
            head.target = "/mcp".into();
            head.fields.push("host", "localhost");
            inputs.push((Receiver::Server, Input::Request { stream, head }));
            let bytes = body.into();
            inputs.push((Receiver::Server, Input::Bytes { stream, bytes }));
            let faults = Vec::new().into();
            inputs.push((Receiver::Server, Input::End { stream, faults }));
        }
        Output::Write { epoch, len, .. } => {
            let bytes = buf.split_off(buf.len() - len);
            inputs.push((Receiver::Server, Input::bytes(bytes)));
            inputs.push((Receiver::Client(epoch), Input::sent(len)));
        }
        other => panic!(
            "{} is not valid for a client",
            core::any::type_name_of_val(&other)
        ),
    }
    (inputs, None)
}

/// Maps an output of a server end to inputs for both ends of its transport.
fn from_server<E>(output: Output<E>, buf: &mut Vec<u8>, epoch: Epoch) -> (Inputs, Option<E>) {
    let mut inputs: Inputs = Vec::new();
    let client = || Receiver::Client(epoch);
    let mut body = |inputs: &mut Inputs, stream: StreamId, len: usize| {
        let bytes = buf.split_off(buf.len() - len).into();
        inputs.push((client(), Input::Bytes { stream, bytes }));
        inputs.push((Receiver::Server, Input::Sent { stream, len }));
    };
    let end = |stream: StreamId, faults: Vec<Fault>| {
        let faults = faults.into();
        (client(), Input::End { stream, faults })
    };
    match output {
        Output::Abort { stream, .. } => {
            inputs.push(end(stream, vec![Fault::new(FaultKind::Reset)]));
        }
        Output::Event(event) => return (inputs, Some(event)),
        Output::Finish { stream, .. } => inputs.push(end(stream, Vec::new())),
        Output::Release { .. } => {}
        Output::Response {
            stream,
            head,
            len,
            is_whole,
            ..
        } => {
            inputs.push((client(), Input::Response { stream, head }));
            body(&mut inputs, stream, len);
            if is_whole {
                inputs.push(end(stream, Vec::new()));
            }
        }
        Output::Write { stream, len, .. } => body(&mut inputs, stream, len),
        other => panic!(
            "{} is not valid for a server",
            core::any::type_name_of_val(&other)
        ),
    }
    (inputs, None)
}

#[test]
fn calls_progress_asks_and_changes_pass_over_every_transport() {
    for transports in TRANSPORTS {
        for &version in Version::ALL {
            let mut chain = Chain::ready(version, transports);
            let call = chain.call("add");
            let request = chain.request().request;
            let sent = chain
                .server
                .progress(chain.now, request, Progress::new(1.0));
            sent.expect("the request is open");
            chain.settle();

            if version >= Version::V2025_06_18 {
                let params = payload(&json!({"message": "?", "requestedSchema": {}}));
                let asked =
                    chain
                        .server
                        .ask(chain.now, request, "elicitation/create", Some(params));
                let asked = asked.expect("the client can be asked");
                chain.settle();
                let ask = chain.host_events.iter().find_map(|event| match event {
                    Event::Ask(ask) => Some(ask.ask),
                    _ => None,
                });
                let ask = ask.unwrap_or_else(|| panic!("no ask: {version} {transports:?}"));
                let answer = payload(&json!({"action": "accept", "content": {"x": 1}}));
                let sent = chain.host.answer(chain.now, ask, Ok(answer));
                sent.expect("the ask is open");
                chain.settle();
                let answered = chain.server_events.iter().any(|event| {
                    matches!(event, server::Event::Answered { ask, outcome: Ok(_), .. } if *ask == asked)
                });
                assert!(
                    answered,
                    "{version} {transports:?}: {:?}",
                    chain.server_events
                );
            }

            let sent = chain.server.respond(
                chain.now,
                request,
                payload(&json!({"content": [], "sum": 3})),
            );
            sent.expect("the request is open");
            assert_eq!(chain.reply(call)["sum"], 3, "{version} {transports:?}");
            let progress = |event: &Event| matches!(event, Event::Progress { .. });
            assert!(
                chain.host_events.iter().any(progress),
                "{version} {transports:?}"
            );

            let sent = chain.server.publish(chain.now, Change::List(List::Tools));
            sent.expect("the server offers it");
            chain.advance(1);
            let changed =
                |event: &Event| matches!(event, Event::Changed(Change::List(List::Tools)));
            assert!(
                chain.host_events.iter().any(changed),
                "{version} {transports:?}"
            );
        }
    }
}

#[test]
fn cancelled_call_is_cancelled_at_the_server() {
    for transports in TRANSPORTS {
        for &version in Version::ALL {
            let mut chain = Chain::ready(version, transports);
            let call = chain.call("slow");
            let request = chain.request().request;
            let cancelled = chain.host.cancel(chain.now, call, Some("enough"));
            cancelled.expect("the call is in flight");
            chain.advance(1);
            let cancelled = chain.server_events.iter().any(|event| {
                matches!(event, server::Event::Cancelled { request: of, .. } if *of == request)
            });
            assert!(cancelled, "{version} {transports:?}");
        }
    }
}

#[test]
fn host_does_not_notice_that_the_server_lost_its_sessions() {
    for transports in TRANSPORTS
        .into_iter()
        .filter(|(_, back)| *back == Transport::Http)
    {
        for &version in Version::ALL {
            let mut chain = Chain::ready(version, transports);
            chain.server = Server::new(chain.server_config.clone());
            let call = chain.call("add");
            chain.advance(5);
            let request = chain.request().request;
            let result = payload(&json!({"content": [], "sum": 3}));
            let sent = chain.server.respond(chain.now, request, result);
            sent.expect("the request is open");
            assert_eq!(chain.reply(call)["sum"], 3, "{version} {transports:?}");
            let is_change = |event: &Event| event.state().is_some();
            let noticed: Vec<&Event> = chain.host_events.iter().filter(|e| is_change(e)).collect();
            assert!(noticed.is_empty(), "{version} {transports:?}: {noticed:?}");
        }
    }
}

#[test]
fn host_shutdown_closes_its_sessions_and_requests_at_the_relay() {
    for transports in TRANSPORTS {
        for &version in Version::ALL {
            let mut chain = Chain::ready(version, transports);
            chain.host.shutdown(chain.now);
            chain.advance(30);
            assert_eq!(
                chain.host.state(),
                State::Closed,
                "{version} {transports:?}"
            );
            if transports.0 == Transport::Stdio {
                assert!(chain.relay.is_closed(), "{version} {transports:?}");
            }
            let front = chain.relay.downstream();
            assert_eq!((front.sessions(), front.requests()), (0, 0));
        }
    }
}
