//! Random runs of a server over HTTP. Clients of both eras connect, send requests, answer, stop reading, leave and return, in any
//! order. The rules of the site must hold, and nothing may be left at the end.

use everlink::protocol::LogLevel;
use everlink::server::{Http, Replay, SsePaths, State};
use everlink::{AskId, Change, List, RequestId, StreamId};
use serde_json::{Value, json};

use crate::server_http::{
    self, Ask, Session, Site, get, initialize, modern, notice, over, payload, post,
};

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

    fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len())].clone())
    }
}

struct Life {
    site: Site,
    dice: Dice,
    sessions: Vec<Session>,
    /// The paths that clients of 2024-11-05 post to.
    places: Vec<String>,
    streams: Vec<StreamId>,
    asks: Vec<AskId>,
    /// The last id of a client of 2024-11-05, which gets all replies on one stream.
    last_id: u64,
}

impl Life {
    fn step(&mut self) {
        match self.dice.below(24) {
            0 => self.open_session(),
            1 => self.open_sse(),
            2..=4 => self.send_modern(),
            5..=8 => self.send_legacy(),
            9 => self.send_sse(),
            10..=11 => self.get_stream(),
            12..=15 => self.answer(),
            16 => self.tell(),
            17 => self.ask(),
            18 => self.reply(),
            19 => self.leave(),
            20 => self.read_or_not(),
            21 => self.site.pass(server_http::seconds(7)),
            22 => self.cancel(),
            _ => self.end_something(),
        }
    }

    fn send(&mut self, ask: Ask) -> StreamId {
        let accept = ["application/json", "text/event-stream", "*/*", "*/*", "*/*"];
        let accept = self.dice.pick(&accept).unwrap();
        let stream = if self.dice.below(9) == 0 {
            let stream = self.site.begin(&ask);
            self.site.body(stream, &ask.body[..ask.body.len() / 2]);
            stream
        } else {
            self.site.send(ask.with("accept", accept))
        };
        self.streams.push(stream);
        stream
    }

    fn open_session(&mut self) {
        let version = ["2025-03-26", "2025-06-18", "2025-11-25"];
        let version = self.dice.pick(&version).unwrap();
        let begun = self.site.send(initialize(version));
        if let Some(id) = self.site.field(begun, "mcp-session-id") {
            let session = Session::new(id, version);
            if self.dice.below(4) > 0 {
                let done = session.notice("notifications/initialized", Value::Null);
                self.site.send(done);
            }
            self.sessions.push(session);
        }
    }

    fn open_sse(&mut self) {
        let stream = self.site.send(get().to("/sse"));
        self.streams.push(stream);
        if self.site.status(stream) == 200 {
            let place = self.site.sse(stream).remove(0).data.unwrap();
            self.site.send(initialize("2024-11-05").to(&place));
            let done = notice("notifications/initialized", Value::Null);
            self.site.send(done.to(&place));
            self.places.push(place);
        }
    }

    fn request(&mut self) -> (&'static str, Value) {
        let meta = json!({"progressToken": self.dice.below(9)});
        let call = json!({"name": "slow", "_meta": meta});
        let uri = json!({"uri": "file:///a"});
        let all = [
            ("tools/call", call.clone()),
            ("tools/call", call),
            ("tools/list", json!({})),
            ("resources/subscribe", uri),
            ("ping", json!({})),
            ("no/such", json!({})),
        ];
        self.dice.pick(&all).unwrap()
    }

    fn send_modern(&mut self) {
        let id = self.dice.below(3);
        if self.dice.below(4) == 0 {
            let wanted = json!({"notifications": {"toolsListChanged": true}});
            self.send(modern(id, "subscriptions/listen", wanted));
        } else {
            let (method, params) = self.request();
            self.send(modern(id, method, params));
        }
    }

    fn send_legacy(&mut self) {
        let Some(session) = self.dice.pick(&self.sessions) else {
            return;
        };
        let id = self.dice.below(4);
        let (method, params) = self.request();
        let ask = if self.dice.below(5) == 0 {
            session.say(&json!([
                {"jsonrpc": "2.0", "id": id, "method": method, "params": params},
                {"jsonrpc": "2.0", "id": id + 4, "method": "ping"},
            ]))
        } else {
            session.post(id, method, params)
        };
        self.send(ask);
    }

    fn send_sse(&mut self) {
        if let Some(place) = self.dice.pick(&self.places) {
            let (method, params) = self.request();
            self.last_id += 1;
            let id = self.last_id;
            let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            self.site.send(post(&message).to(&place));
        }
    }

    fn get_stream(&mut self) {
        let Some(session) = self.dice.pick(&self.sessions) else {
            return;
        };
        let seen = self.dice.pick(&self.streams);
        let seen = seen.filter(|_| self.dice.below(2) == 0);
        let seen = seen.and_then(|seen| {
            let events = self.site.exchange(seen).sse_or_nothing();
            events.into_iter().rev().find_map(|event| event.id)
        });
        let stream = match seen {
            Some(seen) => self.site.send(session.resume(&seen)),
            None => self.site.send(session.get()),
        };
        self.streams.push(stream);
    }

    fn open_requests(&self) -> Vec<RequestId> {
        let requests = self.site.requests();
        requests.iter().map(|request| request.request).collect()
    }

    fn answer(&mut self) {
        let requests = self.open_requests();
        let Some(request) = self.dice.pick(&requests) else {
            return;
        };
        let what = self.dice.below(4);
        self.site.verb(|server, now| match what {
            0 => {
                let _ = server.progress(now, request, everlink::server::Progress::new(1.0));
            }
            1 => {
                let data = payload(&json!("word"));
                let _ = server.log(now, Some(request), LogLevel::Error, None, data);
            }
            _ => {
                let _ = server.respond(now, request, payload(&json!({"content": []})));
            }
        });
    }

    fn tell(&mut self) {
        let changes = [
            Change::List(List::Tools),
            Change::Resource {
                uri: "file:///a".into(),
            },
        ];
        let change = self.dice.pick(&changes).unwrap();
        let data = payload(&json!("to all"));
        self.site.verb(|server, now| {
            let _ = server.publish(now, change);
            let _ = server.log(now, None, LogLevel::Error, None, data);
        });
    }

    fn ask(&mut self) {
        let requests = self.open_requests();
        if let Some(request) = self.dice.pick(&requests) {
            let asked = self
                .site
                .verb(|server, now| server.ask(now, request, "roots/list", None));
            self.asks.extend(asked);
        }
    }

    fn reply(&mut self) {
        let (Some(ask), Some(session)) =
            (self.dice.pick(&self.asks), self.dice.pick(&self.sessions))
        else {
            return;
        };
        let id = json!(ask.number());
        self.site.send(session.answer(&id, json!({"roots": []})));
    }

    fn leave(&mut self) {
        if let Some(stream) = self.dice.pick(&self.streams) {
            if self.dice.below(2) == 0 {
                self.site.hangs_up(stream);
            } else {
                self.site.breaks(stream);
            }
        }
    }

    fn read_or_not(&mut self) {
        if let Some(stream) = self.dice.pick(&self.streams) {
            if self.dice.below(2) == 0 {
                self.site.stops_reading(stream);
            } else {
                self.site.reads_again(stream);
            }
        }
    }

    fn cancel(&mut self) {
        if let Some(session) = self.dice.pick(&self.sessions) {
            let id = self.dice.below(4);
            let cancelled = session.notice("notifications/cancelled", json!({"requestId": id}));
            self.site.send(cancelled);
        }
    }

    fn end_something(&mut self) {
        match self.dice.below(40) {
            0 => self.site.shutdown(),
            1..=9 => self.site.pass(server_http::seconds(20 * 60)),
            _ => {
                if let Some(session) = self.dice.pick(&self.sessions) {
                    self.site.send(session.delete());
                }
            }
        }
    }
}

#[test]
fn random_lives_keep_to_the_rules() {
    for seed in 0..400 {
        let mut http = Http::new().with_sse(SsePaths::default());
        match seed % 4 {
            0 => http.replay = Replay::new(0, 0),
            1 => http.replay = Replay::new(3, 1_000),
            _ => {}
        }
        let mut config = over(http);
        if seed % 3 == 0 {
            config.limits.write_window = 1;
            config.limits.sessions = 3;
            config.limits.exchanges = 8;
        }
        let mut life = Life {
            site: Site::new(config),
            dice: Dice(seed),
            sessions: Vec::new(),
            places: Vec::new(),
            streams: Vec::new(),
            asks: Vec::new(),
            last_id: 0,
        };
        for _ in 0..150 {
            if life.site.server.state() != State::Closed {
                life.step();
            }
        }
        life.site.finish();
    }
}
