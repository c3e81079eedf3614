//! A legacy session whose streams are cut again and again, with an event store: no message is lost, and none comes twice.

use std::collections::BTreeMap;

use everlink::client::{Event, Outcome, State};
use everlink::protocol::{LogLevel, Version};
use everlink::server::{self, Http, Progress, Replay};
use everlink::{CallId, RequestId};
use model::{Net, NetworkFaults};
use serde_json::{Value, json};

use crate::http::stage::{Ledger, Numbers, client, millis, payload, reply, seconds, server};

/// The line of messages that belong to no request.
const UNASKED: u64 = u64::MAX;

/// A session with many messages, on the streams of its requests and on its own stream.
struct Talk {
    net: Net,
    ledger: Ledger,
    /// The open requests, with their marks and the number of messages for each.
    open: BTreeMap<RequestId, (u64, u64)>,
    said: BTreeMap<u64, u64>,
    heard: Numbers,
    replies: BTreeMap<CallId, u32>,
}

impl Talk {
    fn new(version: Version, seed: u64) -> Talk {
        let mut http = Http::new();
        http.replay = Replay::new(100_000, 64 << 20);
        http.retry = millis(100);
        let mut config = client(version);
        config.watch = everlink::Watch::none().and_logs(LogLevel::Debug);
        let mut net = Net::new(config, server(http), NetworkFaults::slow(), seed);
        let (client, now) = net.client();
        client.connect(now);
        net.pass(seconds(3));
        assert_eq!(net.client().0.state(), State::Ready);
        net.take_client_events();
        net.take_server_events();
        Talk {
            net,
            ledger: Ledger::default(),
            open: BTreeMap::new(),
            said: BTreeMap::new(),
            heard: Numbers::default(),
            replies: BTreeMap::new(),
        }
    }

    fn call(&mut self) {
        let (client, now) = self.net.client();
        let call = self.ledger.call(client, now, false);
        self.replies.insert(call, 0);
    }

    /// Sends the next message of a line.
    fn say(&mut self, request: Option<RequestId>, line: u64) {
        let number = self.said.entry(line).or_default();
        let (server, now) = self.net.server();
        let data = json!({"line": line, "number": *number, "pad": "x".repeat((*number % 7) as usize * 40)});
        let data = payload(&data);
        let told = server.log(now, request, LogLevel::Error, None, data);
        told.expect("it is offered");
        *number += 1;
    }

    fn pass(&mut self, span: core::time::Duration) {
        let (open, ledger) = (&mut self.open, &mut self.ledger);
        self.net.serve_for(span, |server, now, event| match event {
            server::Event::Request(request) => {
                let mark = ledger.run(&request);
                // From here on the response is an event stream.
                let told = server.progress(now, request.request, Progress::new(1.0));
                told.expect("the request is open");
                open.insert(request.request, (mark, 0));
            }
            server::Event::Cancelled { request, why } => panic!("{request}: {why:?}"),
            _ => {}
        });
        for event in self.net.take_client_events() {
            self.ledger.hear(&event);
            match event {
                Event::Log { data, .. } => self.number(&data.parse().expect("JSON")),
                Event::Done { call, outcome } => {
                    assert!(matches!(outcome, Outcome::Reply(_)), "{outcome:?}");
                    *self.replies.get_mut(&call).expect("a call of ours") += 1;
                }
                Event::Closing { cause, .. } => panic!("the link went down: {cause}"),
                _ => {}
            }
        }
    }

    fn number(&mut self, said: &Value) {
        let line = said["line"].as_u64().expect("a line");
        let number = said["number"].as_u64().expect("a number");
        self.heard.arrived(line, number);
    }

    /// One round of calls, messages and replies.
    fn round(&mut self) {
        for _ in 0..4 {
            self.call();
        }
        self.pass(millis(150));
        for _ in 0..3 {
            self.say(None, UNASKED);
        }
        let open: Vec<(RequestId, u64)> = self.open.iter().map(|(r, (m, _))| (*r, *m)).collect();
        for (request, mark) in open {
            self.say(Some(request), mark);
            let (_, said) = self.open.get_mut(&request).expect("an open one");
            *said += 1;
            if *said > mark % 5 {
                self.open.remove(&request);
                let (server, now) = self.net.server();
                let given = server.respond(now, request, reply(mark));
                given.expect("the request is open");
            }
        }
        self.pass(millis(150));
    }

    /// Finishes all requests on a good network, and checks the counts.
    fn count(mut self) {
        self.net.set_faults(NetworkFaults::slow());
        for _ in 0..60 {
            let open: Vec<(RequestId, u64)> =
                self.open.iter().map(|(r, (m, _))| (*r, *m)).collect();
            for (request, mark) in open {
                self.open.remove(&request);
                let (server, now) = self.net.server();
                let given = server.respond(now, request, reply(mark));
                given.expect("the request is open");
            }
            self.pass(seconds(1));
        }
        assert_eq!(self.net.count("initialize"), 1);
        for (line, said) in &self.said {
            assert_eq!(self.heard.of(*line), *said, "of line {line}");
        }
        let all: u64 = self.said.values().sum();
        assert_eq!(self.heard.all() as u64, all);
        assert!(self.replies.values().all(|replies| *replies == 1));
        let runs = self.ledger.runs.values();
        assert!(runs.clone().all(|runs| *runs == 1) && runs.len() == self.replies.len());
        self.ledger.close();
    }
}

#[test]
fn over_a_thousand_cuts_nothing_is_lost_and_nothing_comes_twice() {
    for (version, seed) in [
        (Version::V2025_11_25, 1),
        (Version::V2025_11_25, 2),
        (Version::V2025_06_18, 3),
        (Version::V2025_03_26, 4),
    ] {
        let mut talk = Talk::new(version, seed);
        // Each stream delivers at least one event id, because a shorter one could not be resumed.
        let faults = NetworkFaults::slow().cutting(700, (150, 1_200));
        talk.net.set_faults(faults);
        let mut rounds = 0;
        loop {
            let cuts = talk.net.cuts();
            if cuts.posts + cuts.gets >= 1_000 && cuts.gets >= 100 && cuts.posts >= 100 {
                break;
            }
            rounds += 1;
            assert!(rounds < 5_000, "{cuts:?}");
            talk.round();
        }
        talk.count();
    }
}
