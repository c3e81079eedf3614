//! Exchanges that are cut anywhere. A modern call has no stream to resume.

use std::collections::BTreeMap;

use everlink::protocol::Version;
use everlink::server::{self, Http, Progress};
use everlink::{Instant, RequestId, Server};
use model::{Net, NetworkFaults};

use crate::http::stage::{Ledger, client, finish, millis, reply, seconds, server};

/// An application that reports progress for every second request, and replies later.
#[derive(Default)]
struct Slow {
    open: BTreeMap<RequestId, u64>,
}

impl Slow {
    fn hear(
        &mut self,
        server: &mut Server,
        now: Instant,
        event: server::Event,
        ledger: &mut Ledger,
    ) {
        match event {
            server::Event::Request(request) => {
                let mark = ledger.run(&request);
                if mark % 2 == 0 {
                    let told = server.progress(now, request.request, Progress::new(1.0));
                    told.expect("the request is open");
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

fn storm(version: Version, seed: u64) -> BTreeMap<String, usize> {
    let faults = NetworkFaults::slow()
        .cutting(500, (0, 150))
        .cutting_requests(30);
    let mut config = client(version);
    let retry = &mut config.policy.retry;
    (retry.budget, retry.cap) = (1_000, seconds(1));
    let mut net = Net::new(config, server(Http::new()), NetworkFaults::slow(), seed);
    let (client, now) = net.client();
    client.connect(now);
    net.pass(seconds(2));
    net.set_faults(faults);
    let (mut ledger, mut slow) = (Ledger::default(), Slow::default());
    for round in 0..40 {
        for nth in 0..5 {
            let (client, now) = net.client();
            ledger.call(client, now, (round + nth) % 2 == 0);
        }
        net.serve_for(millis(300), |server, now, event| {
            slow.hear(server, now, event, &mut ledger);
        });
        slow.answer_all(&mut net);
        if round % 10 == 9 {
            net.cut_all();
        }
        for event in net.take_client_events() {
            ledger.hear(&event);
        }
    }
    net.set_faults(NetworkFaults::none());
    slow.answer_all(&mut net);
    let cuts = net.cuts();
    assert!(cuts.requests > 0 && cuts.posts > 10, "{cuts:?}");
    finish(&mut net, &mut ledger)
}

#[test]
fn in_a_storm_every_modern_call_has_one_outcome_and_runs_once_unless_it_may_be_repeated() {
    for seed in 0..8 {
        let outcomes = storm(Version::LATEST_MODERN, seed);
        assert!(outcomes["reply"] > 100, "seed {seed}: {outcomes:?}");
    }
}

#[test]
fn in_a_storm_every_legacy_call_has_one_outcome_and_runs_once_unless_it_may_be_repeated() {
    for seed in 0..8 {
        let outcomes = storm(Version::V2025_11_25, seed);
        assert!(outcomes["reply"] > 100, "seed {seed}: {outcomes:?}");
    }
}
