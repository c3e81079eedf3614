//! Streams of a session that break at any moment, with any part unread, and are resumed early, late or twice. The client must receive
//! every message of each stream exactly once and in order.

use everlink::protocol::LogLevel;
use everlink::server::Config;
use everlink::{RequestId, StreamId};
use serde_json::{Value, json};

use crate::server_http::{Session, Site, config, payload, seconds};

/// A pseudo-random generator; the same seed gives the same choices.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most.max(1)
    }
}

/// One stream from its client's view, over all exchanges that carried it.
struct Stream {
    /// The exchange that carries the stream now.
    now: Option<StreamId>,
    /// Exchanges that the client has left without telling the server.
    left: Vec<StreamId>,
    /// The number of events that the client took from the present exchange.
    taken: usize,
    last_event_id: Option<String>,
    heard: Vec<u64>,
    /// The request that the stream belongs to, if any.
    request: Option<RequestId>,
    said: u64,
    is_answered: bool,
}

impl Stream {
    fn new(now: StreamId, request: Option<RequestId>) -> Stream {
        Stream {
            now: Some(now),
            left: Vec::new(),
            taken: 0,
            last_event_id: None,
            heard: Vec::new(),
            request,
            said: 0,
            is_answered: false,
        }
    }

    /// Takes up to `most` new events.
    fn take(&mut self, site: &Site, most: usize) {
        let Some(now) = self.now else {
            return;
        };
        let events = site.exchange(now).sse_or_nothing().into_iter();
        for event in events.skip(self.taken).take(most) {
            self.taken += 1;
            self.last_event_id = event.id.or(self.last_event_id.take());
            if let Some(data) = event.data.filter(|data| !data.is_empty()) {
                let message: Value = serde_json::from_str(&data).expect("a message is JSON");
                let number = &message["params"]["data"];
                let number = number.as_u64().or(message["result"]["number"].as_u64());
                self.heard.push(number.expect("each has its number"));
            }
        }
    }

    /// Makes the server send the reply or a log message on the stream.
    fn say(&mut self, site: &mut Site, is_answer: bool) {
        if self.is_answered {
            return;
        }
        self.said += 1;
        let number = self.said;
        match self.request.filter(|_| is_answer) {
            Some(request) => {
                self.is_answered = true;
                site.respond(request, json!({"number": number}));
            }
            None => {
                let (request, data) = (self.request, payload(&json!(number)));
                site.verb(|server, now| server.log(now, request, LogLevel::Error, None, data))
                    .expect("logging is offered");
            }
        }
    }

    /// Breaks the exchange. The server learns of it by a failed write, by a failed read, or not at all.
    fn cut(&mut self, site: &mut Site, dice: &mut Dice) {
        self.take(site, dice.below(4));
        let Some(now) = self.now.filter(|_| self.last_event_id.is_some()) else {
            return;
        };
        self.now = None;
        match dice.below(3) {
            0 => site.hangs_up(now),
            1 => site.breaks(now),
            _ => self.left.push(now),
        }
    }

    fn resume(&mut self, site: &mut Site, session: &Session, reads: bool) {
        let (None, Some(last)) = (self.now, &self.last_event_id) else {
            return;
        };
        let ask = session.resume(last);
        let stream = site.begin(&ask);
        if !reads {
            site.stops_reading(stream);
        }
        site.end(stream);
        assert_eq!(site.status(stream), 200, "{}", site.text(stream));
        self.now = Some(stream);
        self.taken = 0;
    }

    /// Forgets the exchange if the server aborted it because the client did not read.
    fn notice_abort(&mut self, site: &Site) {
        let now = self.now;
        self.now = now.filter(|now| !site.exchange(*now).is_aborted());
    }

    fn read_or_not(&self, site: &mut Site, reads: bool) {
        match self.now {
            Some(now) if reads => site.reads_again(now),
            Some(now) => site.stops_reading(now),
            None => {}
        }
    }

    /// Resumes the stream if possible, reads all of it, and checks that every message arrived once.
    fn hear_out(&mut self, site: &mut Site, session: &Session) {
        if self.request.is_some() {
            self.say(site, true);
        }
        self.notice_abort(site);
        self.resume(site, session, true);
        if self.now.is_none() {
            return; // The client never had an event id and cannot resume.
        }
        self.read_or_not(site, true);
        self.take(site, usize::MAX);
        let said: Vec<u64> = (1..=self.said).collect();
        assert_eq!(self.heard, said);
    }
}

fn live(config: Config, version: &str, mut dice: Dice) {
    let mut site = Site::new(config);
    let session = site.session(version);
    let mut streams = vec![Stream::new(site.send(session.get()), None)];
    for id in 1..=3 {
        let call = site.send(session.post(id, "tools/call", json!({"name": "x"})));
        streams.push(Stream::new(call, Some(site.newest())));
    }
    for _ in 0..60 {
        let which = dice.below(streams.len());
        let stream = &mut streams[which];
        stream.notice_abort(&site);
        match dice.below(14) {
            0..=4 => stream.say(&mut site, false),
            5 => stream.say(&mut site, true),
            6 => stream.take(&site, usize::MAX),
            7 => stream.cut(&mut site, &mut dice),
            8..=10 => stream.resume(&mut site, &session, dice.below(3) > 0),
            11 => stream.read_or_not(&mut site, dice.below(2) > 0),
            12 => match (stream.left.pop(), dice.below(2)) {
                (Some(left), 0) => site.hangs_up(left),
                (Some(left), _) => site.reads_again(left),
                (None, _) => {}
            },
            _ => site.pass(seconds(20)),
        }
    }
    for stream in &mut streams {
        stream.hear_out(&mut site, &session);
    }
    site.finish();
}

#[test]
fn nothing_is_lost_or_doubled_over_cuts() {
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
        live(config, version, Dice(seed));
    }
}
