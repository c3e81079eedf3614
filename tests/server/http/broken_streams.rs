//! Streams of a session that break at any moment, with any part unread, and are resumed early, late or twice. The client must receive
//! every message of each stream exactly once and in order.

use everlink::protocol::LogLevel;
use everlink::server::Config;
use everlink::{RequestId, StreamId};
use serde_json::{Value, json};

use crate::server_http::{Harness, Session, config, payload, seconds};

/// A pseudo-random generator; the same seed gives the same choices.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

/// One stream from its client's view, over all exchanges that carried it.
struct Stream {
    /// The exchange that carries the stream now.
    now: Option<StreamId>,
    /// Exchanges that the client has abandoned without a sign to the server.
    abandoned: Vec<StreamId>,
    /// The number of events that the client read from the present exchange.
    events_read: usize,
    last_event_id: Option<String>,
    received: Vec<u64>,
    /// The request that the stream belongs to, if any.
    request: Option<RequestId>,
    sent: u64,
    is_answered: bool,
}

impl Stream {
    fn new(now: StreamId, request: Option<RequestId>) -> Stream {
        Stream {
            now: Some(now),
            abandoned: Vec::new(),
            events_read: 0,
            last_event_id: None,
            received: Vec::new(),
            request,
            sent: 0,
            is_answered: false,
        }
    }

    /// Reads up to `most` new events.
    fn read_events(&mut self, harness: &Harness, most: usize) {
        let Some(now) = self.now else {
            return;
        };
        let events = harness.exchange(now).sse_or_empty().into_iter();
        for event in events.skip(self.events_read).take(most) {
            self.events_read += 1;
            self.last_event_id = event.id.or(self.last_event_id.take());
            if let Some(data) = event.data.filter(|data| !data.is_empty()) {
                let message: Value = serde_json::from_str(&data).expect("a message is JSON");
                let number = &message["params"]["data"];
                let number = number.as_u64().or(message["result"]["number"].as_u64());
                self.received
                    .push(number.expect("each message has a number"));
            }
        }
    }

    /// Makes the server send the reply or a log message on the stream.
    fn send_message(&mut self, harness: &mut Harness, is_reply: bool) {
        if self.is_answered {
            return;
        }
        self.sent += 1;
        let number = self.sent;
        match self.request.filter(|_| is_reply) {
            Some(request) => {
                self.is_answered = true;
                harness.respond(request, json!({"number": number}));
            }
            None => {
                let (request, data) = (self.request, payload(&json!(number)));
                harness
                    .with_server(|server, now| {
                        server.log(now, request, LogLevel::Error, None, data)
                    })
                    .expect("logging is offered");
            }
        }
    }

    /// Breaks the exchange. The server learns of it by a failed write, by a failed read, or not at all.
    fn break_off(&mut self, harness: &mut Harness, rng: &mut Rng) {
        self.read_events(harness, rng.below(4));
        let Some(now) = self.now.filter(|_| self.last_event_id.is_some()) else {
            return;
        };
        self.now = None;
        match rng.below(3) {
            0 => harness.disconnect(now),
            1 => harness.reset(now),
            _ => self.abandoned.push(now),
        }
    }

    fn resume(&mut self, harness: &mut Harness, session: &Session, reads: bool) {
        let (None, Some(last)) = (self.now, &self.last_event_id) else {
            return;
        };
        let http_request = session.resume(last);
        let stream = harness.begin(&http_request);
        if !reads {
            harness.stop_reading(stream);
        }
        harness.end(stream);
        assert_eq!(harness.status(stream), 200, "{}", harness.text(stream));
        self.now = Some(stream);
        self.events_read = 0;
    }

    /// Forgets the exchange if the server aborted it because the client did not read.
    fn forget_aborted(&mut self, harness: &Harness) {
        let now = self.now;
        self.now = now.filter(|now| !harness.exchange(*now).is_aborted());
    }

    fn set_reading(&self, harness: &mut Harness, reads: bool) {
        match self.now {
            Some(now) if reads => harness.resume_reading(now),
            Some(now) => harness.stop_reading(now),
            None => {}
        }
    }

    /// Resumes the stream if possible, reads all of it, and checks that every message arrived once.
    fn check_complete(&mut self, harness: &mut Harness, session: &Session) {
        if self.request.is_some() {
            self.send_message(harness, true);
        }
        self.forget_aborted(harness);
        self.resume(harness, session, true);
        if self.now.is_none() {
            return; // The client never had an event id and cannot resume.
        }
        self.set_reading(harness, true);
        self.read_events(harness, usize::MAX);
        let expected: Vec<u64> = (1..=self.sent).collect();
        assert_eq!(self.received, expected);
    }
}

fn run(config: Config, version: &str, mut rng: Rng) {
    let mut harness = Harness::new(config);
    let session = harness.open_session(version);
    let mut streams = vec![Stream::new(harness.send(session.get()), None)];
    for id in 1..=3 {
        let call = harness.send(session.post(id, "tools/call", json!({"name": "x"})));
        streams.push(Stream::new(call, Some(harness.newest_request())));
    }
    for _ in 0..60 {
        let which = rng.below(streams.len());
        let stream = &mut streams[which];
        stream.forget_aborted(&harness);
        match rng.below(14) {
            0..=4 => stream.send_message(&mut harness, false),
            5 => stream.send_message(&mut harness, true),
            6 => stream.read_events(&harness, usize::MAX),
            7 => stream.break_off(&mut harness, &mut rng),
            8..=10 => stream.resume(&mut harness, &session, rng.below(3) > 0),
            11 => stream.set_reading(&mut harness, rng.below(2) > 0),
            12 => match (stream.abandoned.pop(), rng.below(2)) {
                (Some(abandoned), 0) => harness.disconnect(abandoned),
                (Some(abandoned), _) => harness.resume_reading(abandoned),
                (None, _) => {}
            },
            _ => harness.advance(seconds(20)),
        }
    }
    for stream in &mut streams {
        stream.check_complete(&mut harness, &session);
    }
    harness.finish();
}

#[test]
fn resumed_streams_lose_and_repeat_no_message() {
    for seed in 0..1_000 {
        let mut config = config();
        if seed % 2 == 0 {
            config.limits.write_window = 200;
        }
        let version = if seed % 3 == 0 {
            "2025-06-18"
        } else {
            "2025-11-25"
        };
        run(config, version, Rng(seed));
    }
}
