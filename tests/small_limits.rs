//! A peer that sends as much as it can makes a machine with `Limits::small` hold less than 48 KB of heap, which leaves 16 KB of a
//! machine with 64 KB of RAM for the stack and for the application. With other limits, the bounds in `docs/EMBEDDED.md` hold.

use alloc_count::{Counting, count};
use everlink::client::{CallOptions, Client, Event, Outcome, State};
use everlink::protocol::{ClientCapabilities, LogLevel, ServerCapabilities};
use everlink::server::{self, Offer};
use everlink::{
    CallId, Config, Dialect, Epoch, Input, Instant, Limits, Output, Payload, RequestId, Server,
    StreamId, Watch,
};
use serde_json::Value;

#[global_allocator]
static HEAP: Counting = Counting;

/// The most bytes of heap, with the driver's own buffer. Pointers are twice as large here as on the machines that this is for.
const MOST: usize = 48_000;
/// The longest message with `Limits::small`.
const SMALL_MESSAGE: usize = 8 << 10;
/// The bytes of one read, as from a UART.
const READ: usize = 128;
/// The bytes of each kind of noise.
const BYTES: usize = 100_000;
const NOW: Instant = Instant::ZERO;

/// The behaviour of the driver while noise arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    /// Carries out all outputs after each read.
    Prompt,
    /// Polls outputs only when the machine wants no input.
    Slow,
    /// Cannot send, because the peer does not read.
    Stuck,
}

const DRIVERS: [Driver; 3] = [Driver::Prompt, Driver::Slow, Driver::Stuck];

#[test]
fn client_with_small_limits_stays_below_48_kb_and_answers_after_every_kind_of_noise() {
    for dialect in [Dialect::Legacy, Dialect::Modern] {
        check(MOST, SMALL_MESSAGE, |driver, reads| {
            flood_client(Limits::small(), dialect, driver, reads)
        });
    }
}

#[test]
fn server_with_small_limits_stays_below_48_kb_and_answers_after_every_kind_of_noise() {
    check(MOST, SMALL_MESSAGE, |driver, reads| {
        flood_server(server::Limits::small(), driver, reads)
    });
}

/// The first formula in `docs/EMBEDDED.md`.
#[test]
fn client_stays_below_the_sum_of_its_limits() {
    for shift in SHIFTS {
        let mut limits = Limits::small();
        limits.message_bytes = resized(limits.message_bytes, shift);
        limits.queued_bytes = resized(limits.queued_bytes, shift);
        limits.undelivered_bytes = resized(limits.undelivered_bytes, shift);
        limits.list_bytes = resized(limits.list_bytes, shift);
        limits.asks = resized(limits.asks, shift);
        let most = 2 * limits.message_bytes
            + limits.queued_bytes
            + limits.undelivered_bytes
            + limits.write_window
            + limits.list_bytes
            + limits.stderr_tail
            + 1_024 * limits.asks
            + 16_000;
        for dialect in [Dialect::Legacy, Dialect::Modern] {
            check(most, limits.message_bytes, |driver, reads| {
                flood_client(limits, dialect, driver, reads)
            });
        }
    }
}

/// The second formula in `docs/EMBEDDED.md`.
#[test]
fn server_stays_below_the_sum_of_its_limits() {
    for shift in SHIFTS {
        let mut limits = server::Limits::small();
        limits.message_bytes = resized(limits.message_bytes, shift);
        limits.queued_bytes = resized(limits.queued_bytes, shift);
        limits.undelivered_bytes = resized(limits.undelivered_bytes, shift);
        limits.requests = resized(limits.requests, shift);
        let most = 2 * limits.message_bytes
            + limits.queued_bytes
            + limits.undelivered_bytes
            + limits.write_window
            + limits.peer_bytes
            + limits.watched_bytes
            + 1_024 * limits.requests
            + 5_000;
        check(most, limits.message_bytes, |driver, reads| {
            flood_server(limits, driver, reads)
        });
    }
}

/// Limits of half the small ones, of the small ones, and of twice and four times as much.
const SHIFTS: [i32; 4] = [-1, 0, 1, 2];

fn resized(limit: usize, shift: i32) -> usize {
    if shift < 0 {
        limit >> -shift
    } else {
        limit << shift
    }
}

/// Runs `flood` with each kind of driver and of noise, in messages that nearly reach the limit. It returns whether the machine works after that.
fn check(most: usize, message_bytes: usize, flood: impl Fn(Driver, &[Vec<u8>]) -> bool) {
    let mut failures = Vec::new();
    let mut highest = 0;
    for driver in DRIVERS {
        for line in noise(message_bytes) {
            let reads = reads(&line);
            let (works, counts) = count(|| flood(driver, &reads));
            highest = highest.max(counts.peak_live);
            if !works || counts.peak_live >= most {
                let start = &line[..line.len().min(80)];
                failures.push((driver, start.to_owned(), works, counts.peak_live));
            }
        }
    }
    println!("at most {highest} of {most} bytes");
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Lines that a peer repeats, for a limit of messages. `%` stands for a number.
fn noise(message_bytes: usize) -> Vec<String> {
    let id = |len| format!(r#""%{}""#, "i".repeat(len));
    let message = |len| "x".repeat(len * message_bytes / SMALL_MESSAGE);
    let request = |id: &str, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    };
    let notification = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
    };
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let watch = format!(
        r#"{{{meta},"notifications":{{"resourceSubscriptions":["file:///{}"]}}}}"#,
        message(900)
    );
    let call = format!(r#"{{"name":"{}"}}"#, message(7_000));
    vec![
        "[info] % requests served".into(),
        message(50_000),
        "[".repeat(50_000),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"_":"{}"}}}}"#,
            message(8_000)
        ),
        request("%", "ping", "{}"),
        request(&id(1_000), "ping", "{}"),
        request(&id(1_000), &message(6_000), "{}"),
        request(&id(1_000), "sampling/createMessage", "{}"),
        request("%", "sampling/createMessage", &call),
        request(&id(1_000), "tools/call", r#"{"name":"slow"}"#),
        request("%", "tools/call", &call),
        request(
            "%",
            "resources/subscribe",
            &format!(r#"{{"uri":"file:///%/{}"}}"#, message(500)),
        ),
        request(&id(900), "subscriptions/listen", &watch),
        notification(
            "notifications/message",
            &format!(r#"{{"level":"info","data":"{}"}}"#, message(7_000)),
        ),
        notification("notifications/tools/list_changed", "{}"),
        notification(
            "notifications/resources/updated",
            &format!(r#"{{"uri":"file:///%/{}"}}"#, message(7_000)),
        ),
        notification(&message(8_000), "{}"),
        notification(
            "n",
            &format!("{}1{}", r#"{"a":"#.repeat(1_000), "}".repeat(1_000)),
        ),
    ]
}

/// The reads of a peer that repeats `line`.
fn reads(line: &str) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    for number in 0..BYTES.div_ceil(line.len() + 1) {
        bytes.extend(line.replace('%', &number.to_string()).bytes());
        bytes.push(b'\n');
    }
    bytes.chunks(READ).map(<[u8]>::to_vec).collect()
}

// ---- the client ----

/// Fills a client with calls, then with noise. Returns whether the next call gets its reply.
fn flood_client(limits: Limits, dialect: Dialect, driver: Driver, reads: &[Vec<u8>]) -> bool {
    let mut link = ClientLink::ready(limits, dialect);
    let params = || format!(r#"{{"name":"{}"}}"#, "x".repeat(500)).parse().ok();
    while link.call(params()).is_some() {}
    for bytes in reads {
        if !link.client.wants_input(StreamId::DUPLEX) {
            link.poll(driver);
        }
        if !link.client.wants_input(StreamId::DUPLEX) {
            break;
        }
        link.feed(Input::bytes(bytes));
        if driver != Driver::Slow {
            link.poll(driver);
        }
    }
    // The peer reads again. It answers the calls that fill the client, which makes room for one more.
    link.feed(Input::sent(link.unsent));
    for _ in 0..10 {
        link.poll(Driver::Prompt);
        link.feed(Input::bytes(b"\n"));
        for id in core::mem::take(&mut link.asked) {
            link.reply(id, "{}");
        }
    }
    let last = link.call(None);
    link.poll(Driver::Prompt);
    for id in core::mem::take(&mut link.asked) {
        link.reply(id, r#"{"last":true}"#);
    }
    link.poll(Driver::Prompt);
    last.is_some() && link.replied == last
}

/// A client, and the memory of its driver and its server.
struct ClientLink {
    client: Client,
    epoch: Epoch,
    buf: Vec<u8>,
    /// Bytes that are not reported as sent.
    unsent: usize,
    /// The ids of requests that the server has not answered.
    asked: Vec<u64>,
    /// The last call with a reply.
    replied: Option<CallId>,
}

impl ClientLink {
    fn ready(limits: Limits, dialect: Dialect) -> ClientLink {
        let mut config = Config::socket("small", "1.0");
        config.dialect = dialect;
        config.capabilities = ClientCapabilities::default().with_sampling();
        config.watch = Watch::none().and_logs(LogLevel::Debug);
        config.limits = limits;
        let mut client = Client::new(config);
        client.connect(NOW);
        let mut link = ClientLink {
            epoch: client.epoch(),
            client,
            buf: Vec::new(),
            unsent: 0,
            asked: Vec::new(),
            replied: None,
        };
        link.feed(Input::Opened);
        link.poll(Driver::Prompt);
        let result = if dialect == Dialect::Legacy {
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}"#
        } else {
            r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#
        };
        for id in core::mem::take(&mut link.asked) {
            link.reply(id, result);
        }
        link.poll(Driver::Prompt);
        assert_eq!(link.client.state(), State::Ready);
        link
    }

    fn feed(&mut self, input: Input<'_>) {
        self.client.handle(NOW, self.epoch, input);
    }

    fn call(&mut self, params: Option<Payload>) -> Option<CallId> {
        let call = self
            .client
            .call(NOW, "tools/call", params, CallOptions::new());
        call.ok()
    }

    fn reply(&mut self, id: u64, result: &str) {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
        self.feed(Input::bytes(line.as_bytes()));
    }

    fn poll(&mut self, driver: Driver) {
        self.buf.clear();
        while let Some(output) = self.client.poll_output(&mut self.buf) {
            if let Output::Write { len, .. } = output {
                if driver == Driver::Stuck {
                    self.unsent += len;
                } else {
                    self.feed(Input::sent(len));
                }
            } else if let Output::Event(Event::Done {
                call,
                outcome: Outcome::Reply(_),
                ..
            }) = output
            {
                self.replied = Some(call);
            }
        }
        self.asked.extend(request_ids(&self.buf));
    }
}

/// The numeric ids of the requests in these lines.
fn request_ids(lines: &[u8]) -> Vec<u64> {
    let messages = serde_json::Deserializer::from_slice(lines).into_iter::<Value>();
    messages
        .map_while(Result::ok)
        .filter(|message| message.get("method").is_some())
        .filter_map(|message| message["id"].as_u64())
        .collect()
}

// ---- the server ----

/// Fills a server with noise, and answers nothing meanwhile. Returns whether the next request gets its reply.
fn flood_server(limits: server::Limits, driver: Driver, reads: &[Vec<u8>]) -> bool {
    let all = ServerCapabilities::default()
        .with_logging()
        .with_resources(true, true)
        .with_tools(true);
    let offer = Offer::new("small", "1.0").with_capabilities(all);
    let mut config = server::Config::new(offer, [0; 16]);
    config.limits = limits;
    let mut service = Service {
        server: Server::new(config),
        buf: Vec::new(),
        unsent: 0,
        open: Vec::new(),
    };
    service.feed(br#"{"jsonrpc":"2.0","id":"first","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}"#);
    service.feed(b"\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    service.poll(Driver::Prompt);
    for bytes in reads {
        if !service.server.wants_input(StreamId::DUPLEX) {
            service.poll(driver);
        }
        if !service.server.wants_input(StreamId::DUPLEX) {
            break;
        }
        service.feed(bytes);
        if driver != Driver::Slow {
            service.poll(driver);
        }
    }
    // The client reads again, and the application answers what is open.
    service.server.handle(NOW, Input::sent(service.unsent));
    for _ in 0..10 {
        service.poll(Driver::Prompt);
        service.answer_all();
    }
    service.poll(Driver::Prompt);
    service.feed(b"\n{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"method\":\"tools/call\",\"params\":{\"name\":\"t\"}}\n");
    service.poll(Driver::Prompt);
    service.answer_all();
    service.poll(Driver::Prompt);
    let written = String::from_utf8_lossy(&service.buf);
    written.contains(r#""id":"last","result""#)
}

/// A server, and the memory of its driver and its application.
struct Service {
    server: Server,
    buf: Vec<u8>,
    /// Bytes that are not reported as sent.
    unsent: usize,
    /// Requests without an answer.
    open: Vec<RequestId>,
}

impl Service {
    fn feed(&mut self, bytes: &[u8]) {
        self.server.handle(NOW, Input::bytes(bytes));
    }

    fn poll(&mut self, driver: Driver) {
        self.buf.clear();
        while let Some(output) = self.server.poll_output(&mut self.buf) {
            if let Output::Write { len, .. } = output {
                if driver == Driver::Stuck {
                    self.unsent += len;
                } else {
                    self.server.handle(NOW, Input::sent(len));
                }
            } else if let Output::Event(server::Event::Request(request)) = output {
                self.open.push(request.request);
            }
        }
    }

    fn answer_all(&mut self) {
        for request in core::mem::take(&mut self.open) {
            let result = "{}".parse().expect("this is JSON");
            // A request that was cancelled in the meantime needs no answer.
            let _ = self.server.respond(NOW, request, result);
        }
    }
}
