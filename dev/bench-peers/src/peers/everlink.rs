//! everlink: its two machines in one memory, and its clients and servers on threads and on tokio.

use std::collections::VecDeque;
use std::process::Command;
use std::time::Instant as Moment;

use everlink::client::{CallOptions, Client as Machine, Event, Outcome, State};
use everlink::protocol::ServerCapabilities;
use everlink::server::{self, Http, Offer, Request, Server};
use everlink::{Config, Dialect, Epoch, ErrorObject, Input, Instant, Output, Payload};
use everlink_tokio::{Context, Link};

use super::{Caller, Client, OnTokio, nanos, runtime, script};
use crate::echo::{Answer, Arguments, Json, NAME, Params, Text};
use crate::report::Era;

/// A link as a user would set it up, in this era.
pub(crate) fn spoken_in(era: Era, mut config: Config) -> Config {
    config.dialect = match era {
        Era::Legacy => Dialect::Legacy,
        Era::Modern => Dialect::Modern,
        Era::Both => Dialect::Automatic,
    };
    config
}

pub(crate) fn child(era: Era) -> Config {
    spoken_in(era, Config::child("measured", "1.0"))
}

fn server() -> server::Config {
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("measured", "1.0").with_capabilities(tools);
    server::Config::new(offer, everlink_tokio::secret())
}

/// What the tool answers, with its text read and written again.
fn answer(request: &Request) -> Payload {
    let params = request.params.as_ref().expect("a call has parameters");
    let params: Params<'_, Text<'_>> = params.parse().expect("it is called as it wants to be");
    Payload::of(&params.answer()).expect("this is JSON")
}

/// What it answers where the text is passed on as it is.
fn pass_on(request: &Request) -> Payload {
    let params = request.params.as_ref().expect("a call has parameters");
    let params: Params<'_, Json<'_>> = params.parse().expect("it is called as it wants to be");
    Payload::of(&params.answer()).expect("this is JSON")
}

/// Both machines and two buffers between them: no runtime, no clock, no system call.
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
        let mut both = InMemory {
            client: Machine::new(child(era)),
            server: Server::new(server()),
            epoch: Epoch::NONE,
            to_server: Vec::new(),
            to_client: Vec::new(),
        };
        both.client.connect(Instant::ZERO);
        both.settle(answer);
        assert_eq!(both.client.state(), State::Ready);
        both
    }

    /// The machines alone.
    pub(crate) fn into_ends(self) -> (Machine, Server) {
        (self.client, self.server)
    }

    /// A call from one application to the other and back. How long the text of the answer is.
    pub(crate) fn call(&mut self, text: &str) -> usize {
        let params: Params<'_, Text<'_>> = Params::of(text);
        let params = Payload::of(&params).expect("this is JSON");
        let result = self.carry(params, answer);
        let result: Answer<'_, Text<'_>> = result.parse().expect("it answers as it should");
        result.into_text().0.len()
    }

    /// The same for applications that only pass JSON on.
    pub(crate) fn call_with_json(&mut self, params: &Payload) -> Payload {
        self.carry(params.clone(), pass_on)
    }

    fn carry(&mut self, params: Payload, tool: fn(&Request) -> Payload) -> Payload {
        let (now, options) = (Instant::ZERO, CallOptions::new());
        let call = self.client.call(now, "tools/call", Some(params), options);
        call.expect("there is room for a call");
        self.settle(tool).expect("the call is done")
    }

    /// Carries bytes until nothing moves any more.
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
                        let given = self.server.respond(now, request.request, result);
                        given.expect("the request is open");
                    }
                    _ => {}
                }
            }
            if self.to_client.is_empty() {
                return reply;
            }
            let said = Input::bytes(&*self.to_client);
            self.client.handle(now, self.epoch, said);
            self.to_client.clear();
        }
    }
}

/// A machine alone, with the script at the other end of its stream.
pub(crate) struct Scripted {
    pub(crate) client: Machine,
    epoch: Epoch,
}

impl Scripted {
    /// One that is ready. What the two say to each other goes through `buf`.
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
                scripted.hear(format!("{reply}\n").as_bytes());
            }
        }
        assert_eq!(scripted.client.state(), State::Ready);
        scripted
    }

    /// Has so many calls written. The ids that they have on the wire.
    pub(crate) fn fly(&mut self, calls: usize, buf: &mut Vec<u8>) -> Vec<u64> {
        #[derive(serde::Deserialize)]
        struct Sent {
            id: u64,
        }
        let mut ids = Vec::with_capacity(calls);
        for _ in 0..calls {
            let (now, params) = (Instant::ZERO, r#"{"name":"echo","arguments":{}}"#.parse());
            let (params, options) = (params.expect("this is JSON"), CallOptions::new());
            let call = self.client.call(now, "tools/call", Some(params), options);
            call.expect("there is room for a call");
            self.write(buf);
            let sent: Sent = serde_json::from_slice(buf).expect("it is a request");
            ids.push(sent.id);
        }
        ids
    }

    /// Takes in the reply to a call, and gives out what the application is told of it.
    pub(crate) fn decode(&mut self, line: &[u8], buf: &mut Vec<u8>) -> Payload {
        self.hear(line);
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

    fn hear(&mut self, bytes: &[u8]) {
        let input = Input::bytes(bytes);
        self.client.handle(Instant::ZERO, self.epoch, input);
    }

    /// Has all written that there is to write.
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

fn said(text: &str) -> Arguments<Text<'_>> {
    Arguments::of(text)
}

/// A link that a plain thread waits for.
pub(crate) struct OnThreads(Link);

impl OnThreads {
    pub(crate) fn stdio(command: Command, config: Config) -> OnThreads {
        let link = everlink_stdio::connect(command, config).expect("there is room for a link");
        let ready = link.ready().wait().expect("the link is driven");
        ready.expect("the server is there");
        OnThreads(link)
    }
}

impl Client for OnThreads {
    fn one_by_one(&mut self, calls: usize, text: &str) -> Vec<u64> {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let start = Moment::now();
            let result = self.0.call_tool(NAME, said(text));
            let result = result.wait().expect("it is answered");
            let len = result.text().len();
            times.push(nanos(start));
            assert_eq!(len, text.len());
        }
        times
    }

    /// One thread, which begins a call for each that is done.
    fn together(&mut self, calls: usize, in_flight: usize, text: &str) {
        let begin = || self.0.call_tool(NAME, said(text));
        let mut under_way: VecDeque<_> = (0..in_flight.min(calls)).map(|_| begin()).collect();
        let mut begun = under_way.len();
        while let Some(call) = under_way.pop_front() {
            let result = call.wait().expect("it is answered");
            assert_eq!(result.text().len(), text.len());
            if begun < calls {
                under_way.push_back(begin());
                begun += 1;
            }
        }
    }
}

impl Caller for Link {
    async fn call(&self, text: &str) -> usize {
        let result = self.call_tool(NAME, said(text));
        result.await.expect("it is answered").text().len()
    }
}

/// A link on tokio to a child.
pub(crate) fn tokio_stdio(command: Command, config: Config) -> OnTokio<Link> {
    let runtime = runtime();
    let link = runtime.block_on(async {
        let link = everlink_tokio::child::connect(command, config).expect("there is room");
        is_ready(&link).await;
        link
    });
    OnTokio::new(runtime, link, ())
}

/// A link on tokio to a server over HTTP.
pub(crate) fn tokio_http(url: &str, era: Era) -> OnTokio<Link> {
    let runtime = runtime();
    let config = Config::http("measured", "1.0", url).expect("this is an address");
    let link = runtime.block_on(async {
        let link = everlink_tokio::http::connect(spoken_in(era, config)).expect("there is room");
        is_ready(&link).await;
        link
    });
    OnTokio::new(runtime, link, ())
}

async fn is_ready(link: &Link) {
    let ready = link.ready().await.expect("the link is driven");
    ready.expect("the server is there");
}

/// A server on the standard streams of this process, on plain threads.
pub(crate) fn serve_threads() {
    let service = everlink_stdio::serve(server(), |request: Request, _| {
        Ok::<_, ErrorObject>(answer(&request))
    });
    let service = service.expect("there are standard streams");
    let _ = service.closed().wait();
}

/// A server on the standard streams of this process, on tokio.
pub(crate) fn serve_tokio() {
    runtime().block_on(async {
        let service = everlink_tokio::stdio::serve(server(), answer_later);
        let service = service.expect("there are standard streams");
        let _ = service.closed().await;
    });
}

/// A server over HTTP, which says its address on standard output and serves until it is killed.
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
