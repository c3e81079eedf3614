//! What was said before and is said again: an end that knows the words against one that does not. Both must do the same.
//! Knows no message but by its effect.

use std::fmt::Write as _;

use everlink::client::{self, CallOptions, Outcome};
use everlink::internal::wire::{self, Inbound, Message};
use everlink::protocol::ServerCapabilities;
use everlink::server::{self, Offer, Progress};
use everlink::{Client, Config, Dialect, Epoch, Input, Instant, Output, Payload, Server};

const NOW: Instant = Instant::ZERO;

const METHODS: [&str; 5] = [
    "tools/call",
    "resources/read",
    "server/discover",
    "subscriptions/listen",
    "tools/list",
];

/// A request whose terms are not written in a row: whoever was asked this last knows no words.
const OTHER: &str = r#"{"jsonrpc":"2.0","id":"other","method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":0,"io.modelcontextprotocol/clientCapabilities":{}},"name":"other"}}"#;

/// Plays the lines of `data` as how two texts begin, how the first of them goes on and how the second does. They are the params of two
/// requests, and the results of two calls. The first byte chooses the method of the second.
pub fn again(data: &[u8]) {
    let Some((method, text)) = data.split_first() else {
        return;
    };
    let method = METHODS[usize::from(*method) % METHODS.len()];
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let mut lines = text.split('\n');
    let (Some(start), Some(one), Some(two)) = (lines.next(), lines.next(), lines.next()) else {
        return;
    };
    let (one, two) = (format!("{start}{one}"), format!("{start}{two}"));
    server_is_asked(&one, method, &two);
    client_is_answered(&one, method, &two);
}

/// Of two servers that were asked the same, only the first remembers the words of `one` when it is asked `two`.
fn server_is_asked(one: &str, method: &str, two: &str) {
    let one = request(1, METHODS[0], one);
    if !matches!(wire::parse(&one), Ok(Inbound::One(Message::Request { .. }))) {
        return;
    }
    let two = request(2, method, two);
    let knows = served([OTHER, &one], &two);
    let does_not = served([&one, OTHER], &two);
    assert_eq!(knows, does_not, "the server was asked {two} behind {one}");
}

fn request(id: u8, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// What a server does when it is asked the last, in words.
fn served(before: [&str; 2], last: &str) -> String {
    let capabilities = ServerCapabilities::default()
        .with_tools(true)
        .with_resources(true, true);
    let offer = Offer::new("again", "1").with_capabilities(capabilities);
    let mut server = Server::new(server::Config::new(offer, [7; 16]));
    for line in before {
        serve(&mut server, line);
    }
    serve(&mut server, last)
}

fn serve(server: &mut Server, line: &str) -> String {
    server.handle(NOW, Input::bytes(line.as_bytes()));
    server.handle(NOW, Input::bytes(b"\n"));
    let (mut told, mut buf) = (String::new(), Vec::new());
    while let Some(output) = server.poll_output(&mut buf) {
        match output {
            // Whether the client is another one than before is a matter of the order.
            Output::Event(server::Event::Met(_)) => {}
            Output::Event(server::Event::Request(request)) => {
                let params = request.params.as_ref().map(Payload::as_str);
                let input = request.input.as_ref();
                let answers = input.and_then(|input| input.answers.as_ref());
                let state = input.and_then(|input| input.state.as_deref());
                let input = (answers.map(Payload::as_str), state);
                writeln!(told, "{request:?} {params:?} {input:?}").expect("a string takes all");
                let id = request.request;
                let half = server.progress(NOW, id, Progress::new(0.5));
                let result = r#"{"content":[]}"#.parse().expect("JSON");
                let whole = server.respond(NOW, id, result);
                writeln!(told, "{half:?} {whole:?}").expect("a string takes all");
            }
            Output::Write { len, .. } => {
                let bytes = String::from_utf8_lossy(&buf[buf.len() - len..]);
                write!(told, "{bytes}").expect("a string takes all");
                server.handle(NOW, Input::sent(len));
            }
            output => writeln!(told, "{output:?}").expect("a string takes all"),
        }
    }
    told
}

/// Of two clients, only the first was answered `one` before it is answered `two`.
fn client_is_answered(one: &str, method: &'static str, two: &str) {
    let (mut knows, mut does_not) = (Link::ready(), Link::ready());
    let (heard, is_reply) = knows.called(METHODS[0], one);
    // Whatever else it is, it may have effects of its own.
    if !is_reply {
        return;
    }
    let plain = does_not.called(METHODS[0], r#"{"content":[]}"#);
    assert!(plain.1, "{}", plain.0);
    let (knows, _) = knows.called(method, two);
    let (does_not, _) = does_not.called(method, two);
    assert_eq!(
        knows, does_not,
        "the client was answered {two} behind {one}, of which it said {heard}"
    );
}

/// A client in the modern era, and its server.
struct Link {
    client: Client,
    epoch: Epoch,
}

impl Link {
    fn ready() -> Link {
        let mut config = Config::child("again", "1");
        config.dialect = Dialect::Modern;
        let mut client = Client::new(config);
        client.connect(NOW);
        let epoch = client.epoch();
        client.handle(NOW, epoch, Input::Opened);
        let mut link = Link { client, epoch };
        let (_, asked) = link.drain();
        link.answer(
            &asked,
            r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{}}}"#,
        );
        link.drain();
        assert_eq!(link.client.state(), client::State::Ready);
        link
    }

    /// Makes a call and answers it. What came of it, in words, and whether it is a reply and nothing more.
    fn called(&mut self, method: &'static str, result: &str) -> (String, bool) {
        let params = r#"{"name":"x","uri":"x:y"}"#.parse().expect("JSON");
        let call = self
            .client
            .call(NOW, method, Some(params), CallOptions::new());
        if call.is_err() {
            return (format!("{call:?}"), false);
        }
        let (_, asked) = self.drain();
        self.answer(&asked, result);
        let (told, asked) = self.drain();
        let is_reply = told.lines().count() == 1 && told.starts_with("Reply ") && asked.is_empty();
        (told + &asked, is_reply)
    }

    /// Answers the last of these requests.
    fn answer(&mut self, asked: &str, result: &str) {
        let last = asked.lines().last().unwrap_or_default();
        let Ok(Inbound::One(Message::Request { id, .. })) = wire::parse(last) else {
            return;
        };
        let id = serde_json::to_string(&id).expect("JSON");
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
        let input = Input::bytes(line.as_bytes());
        self.client.handle(NOW, self.epoch, input);
    }

    /// What the application is told, in words, and what is written.
    fn drain(&mut self) -> (String, String) {
        let (mut told, mut written) = (String::new(), String::new());
        let mut buf = Vec::new();
        while let Some(output) = self.client.poll_output(&mut buf) {
            match output {
                Output::Event(client::Event::Done {
                    outcome: Outcome::Reply(reply),
                    ..
                }) => writeln!(told, "Reply {}", reply.as_str()).expect("a string takes all"),
                Output::Write { len, .. } => {
                    written += &String::from_utf8_lossy(&buf[buf.len() - len..]);
                    self.client.handle(NOW, self.epoch, Input::sent(len));
                }
                output => writeln!(told, "{output:?}").expect("a string takes all"),
            }
        }
        (told, written)
    }
}
