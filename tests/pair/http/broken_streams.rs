//! A legacy session whose streams are cut again and again, with an event store: no message is lost, and none comes twice.

use std::collections::BTreeMap;

use everlink::client::{Event, Outcome, State};
use everlink::protocol::{LogLevel, Version};
use everlink::server::{self, Http, Progress, Replay};
use everlink::{CallId, RequestId};
use model::{Net, NetworkFaults};
use serde_json::{Value, json};

use crate::http::harness::{
    CallRecords, SequenceCheck, client, millis, payload, reply, seconds, server,
};

/// The line of messages that belong to no request.
const NO_REQUEST: u64 = u64::MAX;

/// A session with many messages, on the streams of its requests and on its own stream.
struct Session {
    net: Net,
    records: CallRecords,
    /// The open requests, with their marks and the number of messages for each.
    open: BTreeMap<RequestId, (u64, u64)>,
    /// The number of messages sent on each line.
    sent: BTreeMap<u64, u64>,
    received: SequenceCheck,
    replies: BTreeMap<CallId, u32>,
}

impl Session {
    fn new(version: Version, seed: u64) -> Session {
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
        Session {
            net,
            records: CallRecords::default(),
            open: BTreeMap::new(),
            sent: BTreeMap::new(),
            received: SequenceCheck::default(),
            replies: BTreeMap::new(),
        }
    }

    fn call(&mut self) {
        let (client, now) = self.net.client();
        let call = self.records.call(client, now, false);
        self.replies.insert(call, 0);
    }

    /// Sends the next message of a line.
    fn send_log(&mut self, request: Option<RequestId>, line: u64) {
        let number = self.sent.entry(line).or_default();
        let (server, now) = self.net.server();
        let data = json!({"line": line, "number": *number, "pad": "x".repeat((*number % 7) as usize * 40)});
        let data = payload(&data);
        let sent = server.log(now, request, LogLevel::Error, None, data);
        sent.expect("logging is offered");
        *number += 1;
    }

    fn advance(&mut self, span: core::time::Duration) {
        let (open, records) = (&mut self.open, &mut self.records);
        self.net.serve_for(span, |server, now, event| match event {
            server::Event::Request(request) => {
                let mark = records.record_request(&request);
                // From here on the response is an event stream.
                let sent = server.progress(now, request.request, Progress::new(1.0));
                sent.expect("the request is open");
                open.insert(request.request, (mark, 0));
            }
            server::Event::Cancelled { request, why } => panic!("{request}: {why:?}"),
            _ => {}
        });
        for event in self.net.take_client_events() {
            self.records.record_event(&event);
            match event {
                Event::Log { data, .. } => self.record_log(&data.parse().expect("JSON")),
                Event::Done { call, outcome } => {
                    assert!(matches!(outcome, Outcome::Reply(_)), "{outcome:?}");
                    *self.replies.get_mut(&call).expect("a known call") += 1;
                }
                Event::Closing { cause, .. } => panic!("the link went down: {cause}"),
                _ => {}
            }
        }
    }

    fn record_log(&mut self, data: &Value) {
        let line = data["line"].as_u64().expect("a line");
        let number = data["number"].as_u64().expect("a number");
        self.received.arrived(line, number);
    }

    /// One round of calls, messages and replies.
    fn round(&mut self) {
        for _ in 0..4 {
            self.call();
        }
        self.advance(millis(150));
        for _ in 0..3 {
            self.send_log(None, NO_REQUEST);
        }
        let open: Vec<(RequestId, u64)> = self.open.iter().map(|(r, (m, _))| (*r, *m)).collect();
        for (request, mark) in open {
            self.send_log(Some(request), mark);
            let (_, messages) = self.open.get_mut(&request).expect("an open request");
            *messages += 1;
            if *messages > mark % 5 {
                self.open.remove(&request);
                let (server, now) = self.net.server();
                let sent = server.respond(now, request, reply(mark));
                sent.expect("the request is open");
            }
        }
        self.advance(millis(150));
    }

    /// Finishes all requests on a good network, and checks the counts.
    fn finish_and_check(mut self) {
        self.net.set_faults(NetworkFaults::slow());
        for _ in 0..60 {
            let open: Vec<(RequestId, u64)> =
                self.open.iter().map(|(r, (m, _))| (*r, *m)).collect();
            for (request, mark) in open {
                self.open.remove(&request);
                let (server, now) = self.net.server();
                let sent = server.respond(now, request, reply(mark));
                sent.expect("the request is open");
            }
            self.advance(seconds(1));
        }
        assert_eq!(self.net.count("initialize"), 1);
        for (line, sent) in &self.sent {
            assert_eq!(self.received.count_of(*line), *sent, "on line {line}");
        }
        let all: u64 = self.sent.values().sum();
        assert_eq!(self.received.total() as u64, all);
        assert!(self.replies.values().all(|replies| *replies == 1));
        let runs = self.records.runs.values();
        assert!(runs.clone().all(|runs| *runs == 1) && runs.len() == self.replies.len());
        self.records.check_outcomes();
    }
}

#[test]
fn after_a_thousand_cuts_every_message_has_arrived_exactly_once() {
    for (version, seed) in [
        (Version::V2025_11_25, 1),
        (Version::V2025_11_25, 2),
        (Version::V2025_06_18, 3),
        (Version::V2025_03_26, 4),
    ] {
        let mut session = Session::new(version, seed);
        // Each stream delivers at least one event id, because a shorter one could not be resumed.
        let weather = NetworkFaults::slow().cutting(700, (150, 1_200));
        session.net.set_faults(weather);
        let mut rounds = 0;
        loop {
            let cuts = session.net.cuts();
            if cuts.posts + cuts.gets >= 1_000 && cuts.gets >= 100 && cuts.posts >= 100 {
                break;
            }
            rounds += 1;
            assert!(rounds < 5_000, "{cuts:?}");
            session.round();
        }
        session.finish_and_check();
    }
}
