//! Random runs of a server over HTTP. Clients of both eras connect, send requests, answer, stop reading, leave and return, in any
//! order. The rules of the harness must hold, and nothing may be left at the end.

use everlink::protocol::LogLevel;
use everlink::server::{Http, Replay, SsePaths, State};
use everlink::{AskId, Change, List, RequestId, StreamId};
use serde_json::{Value, json};

use crate::server_http::{
    self, Harness, HttpRequest, Session, get, http_config, initialize, modern, notification,
    payload, post,
};

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

    fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len())].clone())
    }
}

struct RandomRun {
    harness: Harness,
    rng: Rng,
    sessions: Vec<Session>,
    /// The paths that clients of 2024-11-05 post to.
    post_paths: Vec<String>,
    streams: Vec<StreamId>,
    asks: Vec<AskId>,
    /// The last id of a client of 2024-11-05, which gets all replies on one stream.
    last_id: u64,
}

impl RandomRun {
    fn step(&mut self) {
        match self.rng.below(24) {
            0 => self.open_session(),
            1 => self.open_sse(),
            2..=4 => self.send_modern(),
            5..=8 => self.send_legacy(),
            9 => self.send_sse(),
            10..=11 => self.get_stream(),
            12..=15 => self.respond(),
            16 => self.publish(),
            17 => self.send_ask(),
            18 => self.answer_ask(),
            19 => self.disconnect(),
            20 => self.toggle_reading(),
            21 => self.harness.advance(server_http::seconds(7)),
            22 => self.cancel(),
            _ => self.delete_session_or_shut_down(),
        }
    }

    fn send(&mut self, http_request: HttpRequest) -> StreamId {
        let accept = ["application/json", "text/event-stream", "*/*", "*/*", "*/*"];
        let accept = self.rng.pick(&accept).unwrap();
        let stream = if self.rng.below(9) == 0 {
            let stream = self.harness.begin(&http_request);
            self.harness
                .body(stream, &http_request.body[..http_request.body.len() / 2]);
            stream
        } else {
            self.harness.send(http_request.with("accept", accept))
        };
        self.streams.push(stream);
        stream
    }

    fn open_session(&mut self) {
        let version = ["2025-03-26", "2025-06-18", "2025-11-25"];
        let version = self.rng.pick(&version).unwrap();
        let begun = self.harness.send(initialize(version));
        if let Some(id) = self.harness.field(begun, "mcp-session-id") {
            let session = Session::new(id, version);
            if self.rng.below(4) > 0 {
                let done = session.notification("notifications/initialized", Value::Null);
                self.harness.send(done);
            }
            self.sessions.push(session);
        }
    }

    fn open_sse(&mut self) {
        let stream = self.harness.send(get().to("/sse"));
        self.streams.push(stream);
        if self.harness.status(stream) == 200 {
            let post_path = self.harness.sse(stream).remove(0).data.unwrap();
            self.harness.send(initialize("2024-11-05").to(&post_path));
            let done = notification("notifications/initialized", Value::Null);
            self.harness.send(done.to(&post_path));
            self.post_paths.push(post_path);
        }
    }

    fn random_request(&mut self) -> (&'static str, Value) {
        let meta = json!({"progressToken": self.rng.below(9)});
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
        self.rng.pick(&all).unwrap()
    }

    fn send_modern(&mut self) {
        let id = self.rng.below(3);
        if self.rng.below(4) == 0 {
            let wanted = json!({"notifications": {"toolsListChanged": true}});
            self.send(modern(id, "subscriptions/listen", wanted));
        } else {
            let (method, params) = self.random_request();
            self.send(modern(id, method, params));
        }
    }

    fn send_legacy(&mut self) {
        let Some(session) = self.rng.pick(&self.sessions) else {
            return;
        };
        let id = self.rng.below(4);
        let (method, params) = self.random_request();
        let http_request = if self.rng.below(5) == 0 {
            session.post_message(&json!([
                {"jsonrpc": "2.0", "id": id, "method": method, "params": params},
                {"jsonrpc": "2.0", "id": id + 4, "method": "ping"},
            ]))
        } else {
            session.post(id, method, params)
        };
        self.send(http_request);
    }

    fn send_sse(&mut self) {
        if let Some(post_path) = self.rng.pick(&self.post_paths) {
            let (method, params) = self.random_request();
            self.last_id += 1;
            let id = self.last_id;
            let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            self.harness.send(post(&message).to(&post_path));
        }
    }

    fn get_stream(&mut self) {
        let Some(session) = self.rng.pick(&self.sessions) else {
            return;
        };
        let seen = self.rng.pick(&self.streams);
        let seen = seen.filter(|_| self.rng.below(2) == 0);
        let seen = seen.and_then(|seen| {
            let events = self.harness.exchange(seen).sse_or_empty();
            events.into_iter().rev().find_map(|event| event.id)
        });
        let stream = match seen {
            Some(seen) => self.harness.send(session.resume(&seen)),
            None => self.harness.send(session.get()),
        };
        self.streams.push(stream);
    }

    fn known_requests(&self) -> Vec<RequestId> {
        let requests = self.harness.requests();
        requests.iter().map(|request| request.request).collect()
    }

    fn respond(&mut self) {
        let requests = self.known_requests();
        let Some(request) = self.rng.pick(&requests) else {
            return;
        };
        let what = self.rng.below(4);
        self.harness.with_server(|server, now| match what {
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

    fn publish(&mut self) {
        let changes = [
            Change::List(List::Tools),
            Change::Resource {
                uri: "file:///a".into(),
            },
        ];
        let change = self.rng.pick(&changes).unwrap();
        let data = payload(&json!("to all"));
        self.harness.with_server(|server, now| {
            let _ = server.publish(now, change);
            let _ = server.log(now, None, LogLevel::Error, None, data);
        });
    }

    fn send_ask(&mut self) {
        let requests = self.known_requests();
        if let Some(request) = self.rng.pick(&requests) {
            let asked = self
                .harness
                .with_server(|server, now| server.ask(now, request, "roots/list", None));
            self.asks.extend(asked);
        }
    }

    fn answer_ask(&mut self) {
        let (Some(ask), Some(session)) = (self.rng.pick(&self.asks), self.rng.pick(&self.sessions))
        else {
            return;
        };
        let id = json!(ask.number());
        self.harness.send(session.answer(&id, json!({"roots": []})));
    }

    fn disconnect(&mut self) {
        if let Some(stream) = self.rng.pick(&self.streams) {
            if self.rng.below(2) == 0 {
                self.harness.disconnect(stream);
            } else {
                self.harness.reset(stream);
            }
        }
    }

    fn toggle_reading(&mut self) {
        if let Some(stream) = self.rng.pick(&self.streams) {
            if self.rng.below(2) == 0 {
                self.harness.stop_reading(stream);
            } else {
                self.harness.resume_reading(stream);
            }
        }
    }

    fn cancel(&mut self) {
        if let Some(session) = self.rng.pick(&self.sessions) {
            let id = self.rng.below(4);
            let cancelled =
                session.notification("notifications/cancelled", json!({"requestId": id}));
            self.harness.send(cancelled);
        }
    }

    fn delete_session_or_shut_down(&mut self) {
        match self.rng.below(40) {
            0 => self.harness.shutdown(),
            1..=9 => self.harness.advance(server_http::seconds(20 * 60)),
            _ => {
                if let Some(session) = self.rng.pick(&self.sessions) {
                    self.harness.send(session.delete());
                }
            }
        }
    }
}

#[test]
fn random_runs_keep_the_exchange_rules() {
    for seed in 0..400 {
        let mut http = Http::new().with_sse(SsePaths::default());
        match seed % 4 {
            0 => http.replay = Replay::new(0, 0),
            1 => http.replay = Replay::new(3, 1_000),
            _ => {}
        }
        let mut config = http_config(http);
        if seed % 3 == 0 {
            config.limits.write_window = 1;
            config.limits.sessions = 3;
            config.limits.exchanges = 8;
        }
        let mut run = RandomRun {
            harness: Harness::new(config),
            rng: Rng(seed),
            sessions: Vec::new(),
            post_paths: Vec::new(),
            streams: Vec::new(),
            asks: Vec::new(),
            last_id: 0,
        };
        for _ in 0..150 {
            if run.harness.server.state() != State::Closed {
                run.step();
            }
        }
        run.harness.finish();
    }
}
