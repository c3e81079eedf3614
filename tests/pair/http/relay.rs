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

use crate::http::stage::{client, payload, seconds, server};

/// The transport of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hop {
    Http,
    Stdio,
}

const CHAINS: [(Hop, Hop); 3] = [
    (Hop::Stdio, Hop::Http),
    (Hop::Http, Hop::Stdio),
    (Hop::Http, Hop::Http),
];

/// The receiver of an input.
enum Toward {
    Client(Epoch),
    Server,
}

type Told = Vec<(Toward, Input<'static>)>;

/// A host, a relay and a server, connected in memory.
struct Chain {
    now: Instant,
    host: Client,
    relay: Relay,
    server: Server,
    site: server::Config,
    host_epoch: Epoch,
    relay_epoch: Epoch,
    host_events: Vec<Event>,
    server_events: Vec<server::Event>,
    buf: Vec<u8>,
}

impl Chain {
    fn new(version: Version, (front, back): (Hop, Hop)) -> Chain {
        let near = |hop: Hop, mut config: Config| {
            if hop == Hop::Stdio {
                config.http = None;
                config.binding = everlink::Binding::Child;
            }
            config
        };
        let http = |hop: Hop| (hop == Hop::Http).then(Http::new);
        let mut host = near(front, client(version));
        host.watch = Watch::lists();
        host.capabilities = ClientCapabilities::default()
            .with_elicitation_form()
            .with_roots(true);
        let upstream = near(back, Net::client_config());
        let mut relay = relay::Config::new(upstream, [9; 16]);
        relay.downstream.http = http(front);
        let mut site = server(Http::new());
        site.http = http(back);
        Chain {
            now: Instant::ZERO,
            host: Client::new(host),
            relay: Relay::new(relay),
            server: Server::new(site.clone()),
            site,
            host_epoch: Epoch::NONE,
            relay_epoch: Epoch::NONE,
            host_events: Vec::new(),
            server_events: Vec::new(),
            buf: Vec::new(),
        }
    }

    /// A chain whose host is ready.
    fn ready(version: Version, hops: (Hop, Hop)) -> Chain {
        let mut chain = Chain::new(version, hops);
        chain.host.connect(chain.now);
        chain.pass(20);
        assert_eq!(chain.host.state(), State::Ready, "{version} {hops:?}");
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
            let (told, event) = from_client(output, buf);
            self.host_events.extend(event);
            self.tell(Side::Downstream, told);
        } else if let Some((side, output)) = self.relay.poll_output(buf) {
            if let Output::Open { epoch } = &output {
                self.relay_epoch = *epoch;
            }
            let told = match side {
                Side::Downstream => from_server(output, buf, self.host_epoch).0,
                _ => from_client(output, buf).0,
            };
            self.tell(side, told);
        } else if let Some(output) = self.server.poll_output(buf) {
            let (told, event) = from_server(output, buf, self.relay_epoch);
            self.server_events.extend(event);
            self.tell(Side::Upstream, told);
        } else {
            return false;
        }
        true
    }

    fn tell(&mut self, side: Side, told: Told) {
        let now = self.now;
        for (toward, input) in told {
            match (side, toward) {
                (Side::Downstream, Toward::Client(epoch)) => self.host.handle(now, epoch, input),
                (Side::Downstream, Toward::Server) => self.relay.handle_downstream(now, input),
                (_, Toward::Client(epoch)) => self.relay.handle_upstream(now, epoch, input),
                (_, Toward::Server) => self.server.handle(now, input),
            }
        }
    }

    fn pass(&mut self, secs: u64) {
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
        call.expect("the link takes it")
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
            _ => unreachable!("it is one"),
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

/// Maps an output of a client end to inputs for both ends of its hop.
fn from_client<E>(output: Output<E>, buf: &mut Vec<u8>) -> (Told, Option<E>) {
    let mut told: Told = Vec::new();
    let faults = || vec![Fault::new(FaultKind::BrokenPipe)].into();
    match output {
        Output::Abort { stream, .. } => {
            let faults = faults();
            told.push((Toward::Server, Input::WriteFailed { stream, faults }));
        }
        Output::Inspect { .. } => {}
        Output::CloseWrite { epoch } | Output::Kill { epoch } | Output::Terminate { epoch } => {
            told.push((Toward::Server, Input::end(Vec::new())));
            let exited = Input::exited(ExitStatus::Code(0));
            told.push((Toward::Client(epoch), exited));
            told.push((Toward::Client(epoch), Input::end(Vec::new())));
        }
        Output::Event(event) => return (told, Some(event)),
        Output::Open { epoch } => told.push((Toward::Client(epoch), Input::Opened)),
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
            told.push((Toward::Server, Input::Request { stream, head }));
            let bytes = body.into();
            told.push((Toward::Server, Input::Bytes { stream, bytes }));
            let faults = Vec::new().into();
            told.push((Toward::Server, Input::End { stream, faults }));
        }
        Output::Write { epoch, len, .. } => {
            let bytes = buf.split_off(buf.len() - len);
            told.push((Toward::Server, Input::bytes(bytes)));
            told.push((Toward::Client(epoch), Input::sent(len)));
        }
        other => panic!(
            "{} means nothing for a client",
            core::any::type_name_of_val(&other)
        ),
    }
    (told, None)
}

/// Maps an output of a server end to inputs for both ends of its hop.
fn from_server<E>(output: Output<E>, buf: &mut Vec<u8>, epoch: Epoch) -> (Told, Option<E>) {
    let mut told: Told = Vec::new();
    let client = || Toward::Client(epoch);
    let mut body = |told: &mut Told, stream: StreamId, len: usize| {
        let bytes = buf.split_off(buf.len() - len).into();
        told.push((client(), Input::Bytes { stream, bytes }));
        told.push((Toward::Server, Input::Sent { stream, len }));
    };
    let end = |stream: StreamId, faults: Vec<Fault>| {
        let faults = faults.into();
        (client(), Input::End { stream, faults })
    };
    match output {
        Output::Abort { stream, .. } => {
            told.push(end(stream, vec![Fault::new(FaultKind::Reset)]));
        }
        Output::Event(event) => return (told, Some(event)),
        Output::Finish { stream, .. } => told.push(end(stream, Vec::new())),
        Output::Release { .. } => {}
        Output::Response {
            stream,
            head,
            len,
            is_whole,
            ..
        } => {
            told.push((client(), Input::Response { stream, head }));
            body(&mut told, stream, len);
            if is_whole {
                told.push(end(stream, Vec::new()));
            }
        }
        Output::Write { stream, len, .. } => body(&mut told, stream, len),
        other => panic!(
            "{} means nothing for a server",
            core::any::type_name_of_val(&other)
        ),
    }
    (told, None)
}

#[test]
fn calls_progress_questions_and_changes_pass_whatever_carries_them() {
    for hops in CHAINS {
        for &version in Version::ALL {
            let mut chain = Chain::ready(version, hops);
            let call = chain.call("add");
            let request = chain.request().request;
            let told = chain
                .server
                .progress(chain.now, request, Progress::new(1.0));
            told.expect("the request is open");
            chain.settle();

            if version >= Version::V2025_06_18 {
                let question = payload(&json!({"message": "?", "requestedSchema": {}}));
                let asked =
                    chain
                        .server
                        .ask(chain.now, request, "elicitation/create", Some(question));
                let asked = asked.expect("it can be asked");
                chain.settle();
                let ask = chain.host_events.iter().find_map(|event| match event {
                    Event::Ask(ask) => Some(ask.ask),
                    _ => None,
                });
                let ask = ask.unwrap_or_else(|| panic!("no question: {version} {hops:?}"));
                let answer = payload(&json!({"action": "accept", "content": {"x": 1}}));
                let given = chain.host.answer(chain.now, ask, Ok(answer));
                given.expect("it is open");
                chain.settle();
                let answered = chain.server_events.iter().any(|event| {
                    matches!(event, server::Event::Answered { ask, outcome: Ok(_), .. } if *ask == asked)
                });
                assert!(answered, "{version} {hops:?}: {:?}", chain.server_events);
            }

            let given = chain.server.respond(
                chain.now,
                request,
                payload(&json!({"content": [], "sum": 3})),
            );
            given.expect("the request is open");
            assert_eq!(chain.reply(call)["sum"], 3, "{version} {hops:?}");
            let progress = |event: &Event| matches!(event, Event::Progress { .. });
            assert!(chain.host_events.iter().any(progress), "{version} {hops:?}");

            let told = chain.server.publish(chain.now, Change::List(List::Tools));
            told.expect("it is offered");
            chain.pass(1);
            let changed =
                |event: &Event| matches!(event, Event::Changed(Change::List(List::Tools)));
            assert!(chain.host_events.iter().any(changed), "{version} {hops:?}");
        }
    }
}

#[test]
fn a_cancelled_call_is_cancelled_at_the_server_behind() {
    for hops in CHAINS {
        for &version in Version::ALL {
            let mut chain = Chain::ready(version, hops);
            let call = chain.call("slow");
            let request = chain.request().request;
            let cancelled = chain.host.cancel(chain.now, call, Some("enough"));
            cancelled.expect("it is under way");
            chain.pass(1);
            let cancelled = chain.server_events.iter().any(|event| {
                matches!(event, server::Event::Cancelled { request: of, .. } if *of == request)
            });
            assert!(cancelled, "{version} {hops:?}");
        }
    }
}

#[test]
fn a_server_behind_that_forgets_its_sessions_is_not_noticed_in_front() {
    for hops in CHAINS.into_iter().filter(|(_, back)| *back == Hop::Http) {
        for &version in Version::ALL {
            let mut chain = Chain::ready(version, hops);
            chain.server = Server::new(chain.site.clone());
            let call = chain.call("add");
            chain.pass(5);
            let request = chain.request().request;
            let result = payload(&json!({"content": [], "sum": 3}));
            let given = chain.server.respond(chain.now, request, result);
            given.expect("the request is open");
            assert_eq!(chain.reply(call)["sum"], 3, "{version} {hops:?}");
            let is_change = |event: &Event| event.state().is_some();
            let noticed: Vec<&Event> = chain.host_events.iter().filter(|e| is_change(e)).collect();
            assert!(noticed.is_empty(), "{version} {hops:?}: {noticed:?}");
        }
    }
}

#[test]
fn when_the_host_leaves_all_is_over() {
    for hops in CHAINS {
        for &version in Version::ALL {
            let mut chain = Chain::ready(version, hops);
            chain.host.shutdown(chain.now);
            chain.pass(30);
            assert_eq!(chain.host.state(), State::Closed, "{version} {hops:?}");
            if hops.0 == Hop::Stdio {
                assert!(chain.relay.is_closed(), "{version} {hops:?}");
            }
            let front = chain.relay.downstream();
            assert_eq!((front.sessions(), front.requests()), (0, 0));
        }
    }
}
