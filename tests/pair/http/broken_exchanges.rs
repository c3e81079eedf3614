//! Exchanges that are cut anywhere. A modern call has no stream to resume.

use std::collections::BTreeMap;

use everlink::protocol::Version;
use everlink::server::{self, Http, Progress};
use everlink::{Instant, RequestId, Server};
use model::{Net, NetworkFaults};

use crate::http::harness::{CallRecords, client, finish, millis, reply, seconds, server};

/// An application that reports progress for every second request, and replies later.
#[derive(Default)]
struct SlowServer {
    open: BTreeMap<RequestId, u64>,
}

impl SlowServer {
    fn handle_event(
        &mut self,
        server: &mut Server,
        now: Instant,
        event: server::Event,
        records: &mut CallRecords,
    ) {
        match event {
            server::Event::Request(request) => {
                let mark = records.record_request(&request);
                if mark % 2 == 0 {
                    let sent = server.progress(now, request.request, Progress::new(1.0));
                    sent.expect("the request is open");
                }
                self.open.insert(request.request, mark);
            }
            server::Event::Cancelled { request, .. } => {
                self.open.remove(&request);
            }
            _ => {}
        }
    }

    fn answer_all(&mut self, net: &mut Net) {
        for (request, mark) in core::mem::take(&mut self.open) {
            let (server, now) = net.server();
            // The client may be gone without the application knowing yet.
            drop(server.respond(now, request, reply(mark)));
        }
    }
}

fn run_with_cuts(version: Version, seed: u64) -> BTreeMap<String, usize> {
    let weather = NetworkFaults::slow()
        .cutting(500, (0, 150))
        .cutting_requests(30);
    let mut config = client(version);
    let retry = &mut config.policy.retry;
    (retry.budget, retry.cap) = (1_000, seconds(1));
    let mut net = Net::new(config, server(Http::new()), NetworkFaults::slow(), seed);
    let (client, now) = net.client();
    client.connect(now);
    net.pass(seconds(2));
    net.set_faults(weather);
    let (mut records, mut slow_server) = (CallRecords::default(), SlowServer::default());
    for round in 0..40 {
        for nth in 0..5 {
            let (client, now) = net.client();
            records.call(client, now, (round + nth) % 2 == 0);
        }
        net.serve_for(millis(300), |server, now, event| {
            slow_server.handle_event(server, now, event, &mut records);
        });
        slow_server.answer_all(&mut net);
        if round % 10 == 9 {
            net.cut_all();
        }
        for event in net.take_client_events() {
            records.record_event(&event);
        }
    }
    net.set_faults(NetworkFaults::none());
    slow_server.answer_all(&mut net);
    let cuts = net.cuts();
    assert!(cuts.requests > 0 && cuts.posts > 10, "{cuts:?}");
    finish(&mut net, &mut records)
}

#[test]
fn with_random_cuts_every_modern_call_has_one_outcome_and_runs_once_unless_repeatable() {
    for seed in 0..8 {
        let outcomes = run_with_cuts(Version::LATEST_MODERN, seed);
        assert!(outcomes["reply"] > 100, "seed {seed}: {outcomes:?}");
    }
}

#[test]
fn with_random_cuts_every_legacy_call_has_one_outcome_and_runs_once_unless_repeatable() {
    for seed in 0..8 {
        let outcomes = run_with_cuts(Version::V2025_11_25, seed);
        assert!(outcomes["reply"] > 100, "seed {seed}: {outcomes:?}");
    }
}
