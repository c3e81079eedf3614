//! everlink: both machines in memory, and clients and servers on threads and on tokio.

use std::collections::VecDeque;
use std::process::Command;
use std::time::Instant as StdInstant;

use everlink::client::{CallOptions, Client as Machine, Event, Outcome, State};
use everlink::protocol::ServerCapabilities;
use everlink::server::{self, Http, Offer, Request, Server};
use everlink::{Config, Dialect, Epoch, ErrorObject, Input, Instant, Output, Payload};
use everlink_tokio::{Context, Link};

use super::{Caller, Client, OnTokio, nanos, runtime, script};
use crate::echo::{Answer, Arguments, Json, NAME, Params, Text};
use crate::report::Era;

/// Sets the era of a config.
pub(crate) fn with_era(era: Era, mut config: Config) -> Config {
    config.dialect = match era {
        Era::Legacy => Dialect::Legacy,
        Era::Modern => Dialect::Modern,
        Era::Both => Dialect::Automatic,
    };
    config
}

pub(crate) fn child(era: Era) -> Config {
    with_era(era, Config::child("measured", "1.0"))
}

fn server() -> server::Config {
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("measured", "1.0").with_capabilities(tools);
    server::Config::new(offer, everlink_tokio::secret())
}

/// The answer of the tool, with the text parsed and written again.
fn answer(request: &Request) -> Payload {
    let params = request.params.as_ref().expect("a call has parameters");
    let params: Params<'_, Text<'_>> = params.parse().expect("the arguments match");
    Payload::of(&params.answer()).expect("this is JSON")
}

/// The answer of the tool, with the text forwarded as JSON.
fn answer_json(request: &Request) -> Payload {
    let params = request.params.as_ref().expect("a call has parameters");
    let params: Params<'_, Json<'_>> = params.parse().expect("the arguments match");
    Payload::of(&params.answer()).expect("this is JSON")
}

/// Both machines with two buffers between them: no runtime, no clock, no system call.
pub(crate) struct InMemory {
    client: Machine,
    server: Server,
    epoch: Epoch,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

impl InMemory {
    /// Two ends that are ready.
    pub(crate) fn new(era: Era) -> InMemory {
        let mut pair = InMemory {
            client: Machine::new(child(era)),
            server: Server::new(server()),
            epoch: Epoch::NONE,
            to_server: Vec::new(),
            to_client: Vec::new(),
        };
        pair.client.connect(Instant::ZERO);
        pair.settle(answer);
        assert_eq!(pair.client.state(), State::Ready);
        pair
    }

    /// The machines without the buffers.
    pub(crate) fn into_ends(self) -> (Machine, Server) {
        (self.client, self.server)
    }

    /// A call from one application to the other and back. Returns the length of the answered text.
    pub(crate) fn call(&mut self, text: &str) -> usize {
        let params: Params<'_, Text<'_>> = Params::of(text);
        let params = Payload::of(&params).expect("this is JSON");
        let result = self.round_trip(params, answer);
        let result: Answer<'_, Text<'_>> = result.parse().expect("the result matches");
        result.into_text().0.len()
    }

    /// The same for applications that only forward JSON.
    pub(crate) fn call_with_json(&mut self, params: &Payload) -> Payload {
        self.round_trip(params.clone(), answer_json)
    }

    fn round_trip(&mut self, params: Payload, tool: fn(&Request) -> Payload) -> Payload {
        let (now, options) = (Instant::ZERO, CallOptions::new());
        let call = self.client.call(now, "tools/call", Some(params), options);
        call.expect("the call is accepted");
        self.settle(tool).expect("the call is done")
    }

    /// Moves bytes until neither end has output.
    fn settle(&mut self, tool: fn(&Request) -> Payload) -> Option<Payload> {
        let (now, mut reply) = (Instant::ZERO, None);
        loop {
            while let Some(output) = self.client.poll_output(&mut self.to_server) {
                match output {
                    Output::Open { epoch } => {
                        self.epoch = epoch;
                        self.client.handle(now, epoch, Input::Opened);
                    }
                    Output::Write { epoch, len, .. } => {
                        self.client.handle(now, epoch, Input::sent(len));
                    }
                    Output::Event(Event::Done {
                        outcome: Outcome::Reply(result),
                        ..
                    }) => reply = Some(result),
                    _ => {}
                }
            }
            if !self.to_server.is_empty() {
                self.server.handle(now, Input::bytes(&*self.to_server));
                self.to_server.clear();
            }
            while let Some(output) = self.server.poll_output(&mut self.to_client) {
                match output {
                    Output::Write { len, .. } => self.server.handle(now, Input::sent(len)),
                    Output::Event(server::Event::Request(request)) => {
                        let result = tool(&request);
                        let accepted = self.server.respond(now, request.request, result);
                        accepted.expect("the request is open");
                    }
                    _ => {}
                }
            }
            if self.to_client.is_empty() {
                return reply;
            }
            let input = Input::bytes(&*self.to_client);
            self.client.handle(now, self.epoch, input);
            self.to_client.clear();
        }
    }
}

/// A client machine alone, with the script at the other end of its stream.
pub(crate) struct Scripted {
    pub(crate) client: Machine,
    epoch: Epoch,
}

impl Scripted {
    /// A client that is ready. The messages of both ends go through `buf`.
    pub(crate) fn new(config: Config, buf: &mut Vec<u8>) -> Scripted {
        let client = Machine::new(config);
        let epoch = Epoch::NONE;
        let mut scripted = Scripted { client, epoch };
        scripted.client.connect(Instant::ZERO);
        loop {
            scripted.write(buf);
            let lines = str::from_utf8(buf).expect("this is JSON").lines();
            let replies: Vec<_> = lines.filter_map(script::reply).collect();
            if replies.is_empty() {
                break;
            }
            for reply in replies {
                scripted.receive(format!("{reply}\n").as_bytes());
            }
        }
        assert_eq!(scripted.client.state(), State::Ready);
        scripted
    }

    /// Starts this many calls. Returns their ids on the wire.
    pub(crate) fn start_calls(&mut self, calls: usize, buf: &mut Vec<u8>) -> Vec<u64> {
        #[derive(serde::Deserialize)]
        struct Sent {
            id: u64,
        }
        let mut ids = Vec::with_capacity(calls);
        for _ in 0..calls {
            let (now, params) = (Instant::ZERO, r#"{"name":"echo","arguments":{}}"#.parse());
            let (params, options) = (params.expect("this is JSON"), CallOptions::new());
            let call = self.client.call(now, "tools/call", Some(params), options);
            call.expect("the call is accepted");
            self.write(buf);
            let sent: Sent = serde_json::from_slice(buf).expect("it is a request");
            ids.push(sent.id);
        }
        ids
    }

    /// Feeds the reply to a call, and returns the result that the application gets.
    pub(crate) fn decode(&mut self, line: &[u8], buf: &mut Vec<u8>) -> Payload {
        self.receive(line);
        loop {
            let output = self.client.poll_output(buf).expect("the call is done");
            if let Output::Event(Event::Done {
                outcome: Outcome::Reply(result),
                ..
            }) = output
            {
                return result;
            }
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        let input = Input::bytes(bytes);
        self.client.handle(Instant::ZERO, self.epoch, input);
    }

    /// Writes all pending messages to `buf`.
    fn write(&mut self, buf: &mut Vec<u8>) {
        buf.clear();
        while let Some(output) = self.client.poll_output(buf) {
            match output {
                Output::Open { epoch } => {
                    self.epoch = epoch;
                    self.client.handle(Instant::ZERO, epoch, Input::Opened);
                }
                Output::Write { epoch, len, .. } => {
                    self.client.handle(Instant::ZERO, epoch, Input::sent(len));
                }
                _ => {}
            }
        }
    }
}

fn arguments(text: &str) -> Arguments<Text<'_>> {
    Arguments::of(text)
}

/// A link that a plain thread waits for.
pub(crate) struct OnThreads(Link);

impl OnThreads {
    pub(crate) fn stdio(command: Command, config: Config) -> OnThreads {
        let link = everlink_stdio::connect(command, config).expect("a link can be opened");
        let ready = link.ready().wait().expect("the link is driven");
        ready.expect("the server is there");
        OnThreads(link)
    }
}

impl Client for OnThreads {
    fn sequential(&mut self, calls: usize, text: &str) -> Vec<u64> {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let start = StdInstant::now();
            let result = self.0.call_tool(NAME, arguments(text)).start();
            let result = result.wait().expect("it is answered");
            let len = result.text().len();
            times.push(nanos(start));
            assert_eq!(len, text.len());
        }
        times
    }

    /// One thread, which starts a new call for each that has ended.
    fn concurrent(&mut self, calls: usize, in_flight: usize, text: &str) {
        let start_call = || self.0.call_tool(NAME, arguments(text)).start();
        let mut pending: VecDeque<_> = (0..in_flight.min(calls)).map(|_| start_call()).collect();
        let mut started = pending.len();
        while let Some(call) = pending.pop_front() {
            let result = call.wait().expect("it is answered");
            assert_eq!(result.text().len(), text.len());
            if started < calls {
                pending.push_back(start_call());
                started += 1;
            }
        }
    }
}

impl Caller for Link {
    async fn call(&self, text: &str) -> usize {
        let result = self.call_tool(NAME, arguments(text)).start();
        result.await.expect("it is answered").text().len()
    }
}

/// A link on tokio to a child.
pub(crate) fn tokio_stdio(command: Command, config: Config) -> OnTokio<Link> {
    let runtime = runtime();
    let link = runtime.block_on(async {
        let link = everlink_tokio::child::connect(command, config).expect("a link can be opened");
        wait_ready(&link).await;
        link
    });
    OnTokio::new(runtime, link, ())
}

/// A link on tokio to a server over HTTP.
pub(crate) fn tokio_http(url: &str, era: Era) -> OnTokio<Link> {
    let runtime = runtime();
    let config = Config::http("measured", "1.0", url).expect("the URL is valid");
    let link = runtime.block_on(async {
        let link =
            everlink_tokio::http::connect(with_era(era, config)).expect("a link can be opened");
        wait_ready(&link).await;
        link
    });
    OnTokio::new(runtime, link, ())
}

async fn wait_ready(link: &Link) {
    let ready = link.ready().await.expect("the link is driven");
    ready.expect("the server is there");
}

/// A server on the standard streams of this process, on plain threads.
pub(crate) fn serve_threads() {
    let service = everlink_stdio::serve(server(), |request: Request, _| {
        Ok::<_, ErrorObject>(answer(&request))
    });
    let service = service.expect("the standard streams can be used");
    let _ = service.closed().wait();
}

/// A server on the standard streams of this process, on tokio.
pub(crate) fn serve_tokio() {
    runtime().block_on(async {
        let service = everlink_tokio::stdio::serve(server(), answer_later);
        let service = service.expect("the standard streams can be used");
        let _ = service.closed().await;
    });
}

/// A server over HTTP, which prints its address and serves until it is killed.
pub(crate) fn serve_http() {
    runtime().block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("there is a port");
        println!("{}", listener.local_addr().expect("it has an address"));
        let config = server().with_http(Http::new());
        let service = everlink_tokio::http::serve(listener, config, answer_later);
        let _ = service.closed().await;
    });
}

async fn answer_later(request: Request, _: Context) -> Result<Payload, ErrorObject> {
    Ok(answer(&request))
}
