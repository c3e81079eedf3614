//! Proxies that buffer responses or cut silent connections.

use core::time::Duration;
use std::collections::BTreeMap;

use everlink::client::State;
use everlink::protocol::Version;
use everlink::server::{self, Http, Progress};
use everlink::{Limit, RequestId};
use model::{Net, NetworkFaults};

use crate::http::stage::{Ledger, client, finish, reply, seconds, server};

/// A ready link without an idle limit for calls.
fn ready(version: Version, http: Http, faults: NetworkFaults) -> Net {
    let mut config = client(version);
    config.policy.call_idle = Limit::Never;
    let mut net = Net::new(config, server(http), faults, 1);
    let (client, now) = net.client();
    client.connect(now);
    net.pass(seconds(5));
    assert_eq!(net.client().0.state(), State::Ready, "{version}");
    net
}

/// Makes three calls that take this long; the first reports progress. Returns the counts of the outcomes.
fn slow_calls(net: &mut Net, takes: Duration) -> BTreeMap<String, usize> {
    let mut ledger = Ledger::default();
    for _ in 0..3 {
        let (client, now) = net.client();
        ledger.call(client, now, false);
    }
    let mut open: BTreeMap<RequestId, u64> = BTreeMap::new();
    net.serve_for(takes, |server, now, event| match event {
        server::Event::Request(request) => {
            let mark = ledger.run(&request);
            if mark == 0 {
                let told = server.progress(now, request.request, Progress::new(1.0));
                told.expect("the request is open");
            }
            open.insert(request.request, mark);
        }
        server::Event::Cancelled { request, .. } => {
            open.remove(&request);
        }
        _ => {}
    });
    for (request, mark) in open {
        let (server, now) = net.server();
        drop(server.respond(now, request, reply(mark)));
    }
    finish(net, &mut ledger)
}

#[test]
fn a_proxy_that_holds_responses_back_delays_them_and_nothing_else() {
    for &version in Version::ALL {
        let mut faults = NetworkFaults::slow();
        faults.buffers = true;
        let mut net = ready(version, Http::new(), faults);
        let outcomes = slow_calls(&mut net, seconds(10));
        assert_eq!(outcomes["reply"], 3, "{version}: {outcomes:?}");
    }
}

#[test]
fn comments_hold_open_what_a_proxy_would_cut() {
    for &version in Version::ALL {
        let mut faults = NetworkFaults::slow();
        faults.cuts_idle = Some(seconds(20));
        // The default is a comment every 15 s.
        let mut net = ready(version, Http::new(), faults);
        let outcomes = slow_calls(&mut net, seconds(300));
        assert_eq!(outcomes["reply"], 3, "{version}: {outcomes:?}");
        assert_eq!(net.cuts().idle, 0, "{version}");
    }
}

#[test]
fn what_is_cut_for_its_silence_goes_on_in_the_legacy_era() {
    for version in [Version::V2025_11_25, Version::V2025_03_26] {
        let mut http = Http::new();
        // The stream begins before the proxy cuts it, and then stays silent.
        http.keepalive = seconds(50);
        let mut faults = NetworkFaults::slow();
        faults.cuts_idle = Some(seconds(60));
        let mut net = ready(version, http, faults);
        let mut faults = NetworkFaults::slow();
        faults.cuts_idle = Some(seconds(30));
        let mut ledger = Ledger::default();
        let (client, now) = net.client();
        ledger.call(client, now, false);
        let mut open = None;
        net.serve_for(seconds(1), |server, now, event| {
            if let server::Event::Request(request) = event {
                let mark = ledger.run(&request);
                let told = server.progress(now, request.request, Progress::new(1.0));
                told.expect("the request is open");
                open = Some((request.request, mark));
            }
        });
        net.set_faults(faults);
        net.pass(seconds(100));
        assert!(net.cuts().idle > 0, "{version}");
        let (request, mark) = open.expect("a request");
        let (server, now) = net.server();
        let given = server.respond(now, request, reply(mark));
        given.expect("a stream that is lost takes nothing back");
        let outcomes = finish(&mut net, &mut ledger);
        assert_eq!(outcomes["reply"], 1, "{version}: {outcomes:?}");
    }
}

#[test]
fn what_is_cut_for_its_silence_has_one_outcome_in_the_modern_era() {
    let mut http = Http::new();
    http.keepalive = seconds(50);
    let mut faults = NetworkFaults::slow();
    faults.cuts_idle = Some(seconds(30));
    let mut net = ready(Version::LATEST_MODERN, http, faults);
    let outcomes = slow_calls(&mut net, seconds(100));
    assert!(net.cuts().idle >= 3);
    assert!(!outcomes.contains_key("reply"), "{outcomes:?}");
}
