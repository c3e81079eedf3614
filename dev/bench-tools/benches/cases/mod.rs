//! Defines the measured calls of a tool once. Each program beside this directory measures all of them in its own way. Measures nothing itself.
//!
//! Each case has the same tool in one of three forms: as a typed function, and as two handlers that are written by hand. A case is the whole work of a
//! server's end: it receives the bytes of a call, its handler runs, and it writes the bytes of the reply.
#![allow(dead_code, reason = "each program that measures uses its own part")]

mod handlers;

use core::hint::black_box;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::future::Future;

use everlink::client::{CallOptions, Client, State};
use everlink::protocol::{Era, ServerCapabilities};
use everlink::server::{self, Offer, Request, Server};
use everlink::{Config, Dialect, ErrorObject, Input, Instant, Output, Payload};
use everlink_handle::{Answered, Context as RequestContext, Response, Service, ServiceOwner, Task};

/// Passes the table of all cases to a macro: the kinds of work, and for each kind its cases by name with their constructors.
macro_rules! all_cases {
    ($measure:ident) => {
        $measure! {
            tool_call: ToolCall {
                legacy_by_hand => by_hand(Era::Legacy, 5),
                legacy_typed => typed(Era::Legacy, 5),
                legacy_untyped => untyped(Era::Legacy, 5),
                modern_by_hand => by_hand(Era::Modern, 5),
                modern_typed => typed(Era::Modern, 5),
                modern_untyped => untyped(Era::Modern, 5),
                modern_by_hand_10kb => by_hand(Era::Modern, 10 << 10),
                modern_typed_10kb => typed(Era::Modern, 10 << 10),
                modern_untyped_10kb => untyped(Era::Modern, 10 << 10),
            }
        }
    };
}
pub(crate) use all_cases;

/// The number of calls before a measurement.
const WARM_UP: usize = 100;

/// Runs the handler of a request.
type Run = dyn Fn(Task) -> Answered;

/// Measures one call of a tool, from its bytes to those of its reply.
pub(crate) struct ToolCall {
    owner: ServiceOwner,
    run: Box<Run>,
    call: Vec<u8>,
    reply: Vec<u8>,
}

impl ToolCall {
    /// The tool as a typed function, with a city of this many bytes.
    pub(crate) fn typed(era: Era, bytes: usize) -> Box<ToolCall> {
        ToolCall::new(era, bytes, handlers::typed())
    }

    /// The tool as a handler that reads and writes with `serde_json::Value`.
    pub(crate) fn untyped(era: Era, bytes: usize) -> Box<ToolCall> {
        ToolCall::new(era, bytes, handlers::untyped)
    }

    /// The tool as a handler with types for its parameters and its whole result.
    pub(crate) fn by_hand(era: Era, bytes: usize) -> Box<ToolCall> {
        ToolCall::new(era, bytes, handlers::by_hand)
    }

    fn new<F, R>(
        era: Era,
        bytes: usize,
        handler: impl Fn(Request, RequestContext) -> F + 'static,
    ) -> Box<ToolCall>
    where
        F: Future<Output = Result<R, ErrorObject>>,
        R: Into<Response>,
    {
        let run = move |task: Task| {
            let answer = task.answer;
            let mut answered = pin!(handler(task.request, task.context));
            match answered
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                Poll::Ready(outcome) => (answer, outcome.map(Into::into)),
                Poll::Pending => panic!("the handler answers at once"),
            }
        };
        let tools = ServerCapabilities::default().with_tools(false);
        let offer = Offer::new("measured", "1.0").with_capabilities(tools);
        let server = Server::new(server::Config::new(offer, [7; 16]));
        let mut case = Box::new(ToolCall {
            owner: Service::new(server).1,
            run: Box::new(run),
            call: Vec::new(),
            reply: Vec::with_capacity(64 << 10),
        });
        let mut client = case.connected_client(era);
        for _ in 0..=WARM_UP {
            case.prepare(&mut client, bytes);
            case.run();
            assert!(!case.reply.is_empty(), "the call is answered");
        }
        let reply = core::str::from_utf8(&case.reply).expect("the reply is text");
        assert!(
            reply.contains(r#""structuredContent":{"city":""#),
            "{reply}"
        );
        assert!(reply.contains(r#""text":"{\"city\":\""#), "{reply}");
        case.prepare(&mut client, bytes);
        case
    }

    /// A client that is ready.
    fn connected_client(&mut self, era: Era) -> Client {
        let mut config = Config::child("measured", "1.0");
        config.dialect = match era {
            Era::Legacy => Dialect::Legacy,
            _ => Dialect::Modern,
        };
        let mut client = Client::new(config);
        client.connect(Instant::ZERO);
        client.handle(Instant::ZERO, client.epoch(), Input::Opened);
        while client.state() != State::Ready {
            self.call = written(&mut client);
            self.run();
            let replies = Input::bytes(&*self.reply);
            client.handle(Instant::ZERO, client.epoch(), replies);
        }
        self.call = written(&mut client);
        self.run();
        client
    }

    /// Prepares the bytes of the next call, and lets the client forget the last one.
    fn prepare(&mut self, client: &mut Client, bytes: usize) {
        let replies = Input::bytes(&*self.reply);
        client.handle(Instant::ZERO, client.epoch(), replies);
        let city = "Paris".repeat(bytes / 5);
        let params = format!(
            r#"{{"name":"forecast","arguments":{{"city":"{city}","days":3,"celsius":true}}}}"#
        );
        let params: Payload = params.parse().expect("this is JSON");
        let options = CallOptions::new();
        let call = client.call(Instant::ZERO, "tools/call", Some(params), options);
        call.expect("there is room for a call");
        self.call = written(client);
    }

    pub(crate) fn run(&mut self) {
        self.reply.clear();
        let call = Input::bytes(black_box(&*self.call));
        self.owner.handle(Instant::ZERO, call);
        while let Some(output) = self.owner.poll_output(&mut self.reply) {
            match output {
                Output::Event(task) => {
                    let (answer, outcome) = (self.run)(task);
                    self.owner.respond(Instant::ZERO, answer, outcome);
                }
                Output::Write { len, .. } => self.owner.handle(Instant::ZERO, Input::sent(len)),
                _ => {}
            }
        }
        black_box(&self.reply);
    }
}

/// The bytes that a client writes.
fn written(client: &mut Client) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(output) = client.poll_output(&mut bytes) {
        if let Output::Write { len, .. } = output {
            client.handle(Instant::ZERO, client.epoch(), Input::sent(len));
        }
    }
    bytes
}
