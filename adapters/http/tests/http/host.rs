//! A server of the core itself: its machine runs on one thread and is fed by the connections.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant as Clock;

use everlink::http::{Fields, RequestHead, ResponseHead, Verb};
use everlink::protocol::ServerCapabilities;
use everlink::server::{self, Event, Http, Offer, Progress};
use everlink::{ErrorObject, Input, Instant, Output, Payload, Server, StreamId};
use serde_json::{Value, json};

use crate::quiet::PATIENCE;
use crate::site::{Request, Site, Then, speak};
use crate::words::text;

/// A server with one tool, which repeats its text and reports progress twice.
pub(crate) struct Host {
    /// Dropped first, which ends everything that connections wait for.
    _machine: Machine,
    site: Site,
}

impl Host {
    pub(crate) fn new() -> Host {
        let machine = Machine::start();
        let (post, numbers) = (machine.post.clone(), AtomicU64::new(1));
        let site = Site::new(move |socket| {
            let _ = speak(socket, &|request: &Request, out: &mut dyn Write| {
                let stream = StreamId::new(numbers.fetch_add(1, Ordering::SeqCst));
                let (say, said) = channel();
                let visit = Word::Visit(stream, head(request), request.body.clone(), say);
                let _ = post.send(visit);
                answer(out, &said)
            });
        });
        Host {
            _machine: machine,
            site,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.site.url()
    }
}

/// A message to the machine's thread.
enum Word {
    Stop,
    Visit(StreamId, RequestHead<'static>, Vec<u8>, Sender<Said>),
}

/// A message of the machine to one exchange.
enum Said {
    Head(Box<ResponseHead<'static>>, Vec<u8>, bool),
    More(Vec<u8>),
    End,
}

struct Machine {
    post: Sender<Word>,
    thread: Option<JoinHandle<()>>,
}

impl Machine {
    fn start() -> Machine {
        let (post, words) = channel();
        let thread = thread::spawn(move || run(&words));
        Machine {
            post,
            thread: Some(thread),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.post.send(Word::Stop);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn run(words: &Receiver<Word>) {
    let capabilities = ServerCapabilities::default().with_tools(true);
    let offer = Offer::new("host", "1").with_capabilities(capabilities);
    let mut server = Server::new(server::Config::new(offer, [7; 16]).with_http(Http::new()));
    let (clock, mut buf, mut visitors) = (Clock::now(), Vec::new(), HashMap::new());
    loop {
        let now = Instant::from_origin(clock.elapsed());
        server.handle_timeout(now);
        while let Some(output) = server.poll_output(&mut buf) {
            carry_out(&mut server, now, output, &mut buf, &mut visitors);
        }
        let due = server.poll_timeout();
        match words.recv_timeout(due.map_or(PATIENCE, |due| due.at.since(now))) {
            Ok(Word::Visit(stream, head, body, say)) => {
                visitors.insert(stream, say);
                let head = Box::new(head);
                server.handle(now, Input::Request { stream, head });
                let bytes = body.into();
                server.handle(now, Input::Bytes { stream, bytes });
                let faults = Vec::new().into();
                server.handle(now, Input::End { stream, faults });
            }
            Ok(Word::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn carry_out(
    server: &mut Server,
    now: Instant,
    output: Output<Event>,
    buf: &mut Vec<u8>,
    visitors: &mut HashMap<StreamId, Sender<Said>>,
) {
    let (stream, said, len) = match output {
        Output::Response {
            stream,
            head,
            len,
            is_whole,
            ..
        } => {
            let said = Said::Head(head, buf.split_off(buf.len() - len), is_whole);
            (stream, said, len)
        }
        Output::Write { stream, len, .. } => {
            (stream, Said::More(buf.split_off(buf.len() - len)), len)
        }
        Output::Abort { stream, .. } | Output::Finish { stream, .. } => (stream, Said::End, 0),
        Output::Event(Event::Request(request)) => return serve(server, now, &request),
        _ => return,
    };
    let visitor = visitors.get(&stream).expect("a visitor");
    let _ = visitor.send(said);
    server.handle(now, Input::Sent { stream, len });
}

fn serve(server: &mut Server, now: Instant, request: &server::Request) {
    let payload = |value: &Value| Payload::of(value).expect("JSON");
    let id = request.request;
    let done = match &*request.method {
        "tools/list" => {
            let tool = json!({"name": "echo", "inputSchema": {"type": "object"}});
            server.respond(now, id, payload(&json!({"tools": [tool]})))
        }
        "tools/call" => {
            for step in [1.0, 2.0] {
                server.progress(now, id, Progress::new(step)).expect("open");
            }
            let params = request.params.as_ref().expect("parameters");
            let params: Value = params.parse().expect("JSON");
            let told = text(params["arguments"]["say"].as_str().expect("a text"));
            server.respond(now, id, payload(&told))
        }
        other => server.fail(now, id, ErrorObject::new(-32_601, other)),
    };
    done.expect("an open request");
}

fn head(request: &Request) -> RequestHead<'static> {
    let fields = request.fields.iter().cloned();
    let fields = fields.map(|(name, value)| (name, value.into_bytes()));
    let verb = Verb::parse(&request.verb);
    RequestHead::new(verb, request.target.clone()).with_fields(Fields::from_iter(fields))
}

/// Writes the response of one exchange.
fn answer(out: &mut dyn Write, said: &Receiver<Said>) -> io::Result<Then> {
    for word in said {
        match word {
            Said::Head(head, body, is_whole) => {
                write!(out, "HTTP/1.1 {} Status\r\n", head.status)?;
                for (name, value) in head.fields.iter() {
                    write!(out, "{name}: {}\r\n", String::from_utf8_lossy(value))?;
                }
                if is_whole {
                    write!(out, "Content-Length: {}\r\n\r\n", body.len())?;
                    out.write_all(&body)?;
                    return Ok(Then::Another);
                }
                write!(out, "Transfer-Encoding: chunked\r\n\r\n")?;
                chunk(out, &body)?;
            }
            Said::More(bytes) => chunk(out, &bytes)?,
            Said::End => {
                out.write_all(b"0\r\n\r\n")?;
                return Ok(Then::Another);
            }
        }
    }
    Ok(Then::Close)
}

fn chunk(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    write!(out, "{:x}\r\n", bytes.len())?;
    out.write_all(bytes)?;
    out.write_all(b"\r\n")
}
