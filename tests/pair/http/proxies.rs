//! Proxies that buffer responses or cut silent connections.

use core::time::Duration;
use std::collections::BTreeMap;

use everlink::client::State;
use everlink::protocol::Version;
use everlink::server::{self, Http, Progress};
use everlink::{Limit, RequestId};
use model::{Net, NetworkFaults};

use crate::http::harness::{CallRecords, client, finish, reply, seconds, server};

/// A ready link without an idle limit for calls.
fn ready_net(version: Version, http: Http, weather: NetworkFaults) -> Net {
    let mut config = client(version);
    config.policy.call_idle = Limit::Never;
    let mut net = Net::new(config, server(http), weather, 1);
    let (client, now) = net.client();
    client.connect(now);
    net.pass(seconds(5));
    assert_eq!(net.client().0.state(), State::Ready, "{version}");
    net
}

/// Makes three calls that take this long; the first reports progress. Returns the counts of the outcomes.
fn slow_calls(net: &mut Net, duration: Duration) -> BTreeMap<String, usize> {
    let mut records = CallRecords::default();
    for _ in 0..3 {
        let (client, now) = net.client();
        records.call(client, now, false);
    }
    let mut open: BTreeMap<RequestId, u64> = BTreeMap::new();
    net.serve_for(duration, |server, now, event| match event {
        server::Event::Request(request) => {
            let mark = records.record_request(&request);
            if mark == 0 {
                let sent = server.progress(now, request.request, Progress::new(1.0));
                sent.expect("the request is open");
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
    finish(net, &mut records)
}

#[test]
fn proxy_that_buffers_responses_loses_no_reply() {
    for &version in Version::ALL {
        let mut weather = NetworkFaults::slow();
        weather.buffers = true;
        let mut net = ready_net(version, Http::new(), weather);
        let outcomes = slow_calls(&mut net, seconds(10));
        assert_eq!(outcomes["reply"], 3, "{version}: {outcomes:?}");
    }
}

#[test]
fn sse_comments_keep_a_proxy_from_cutting_idle_streams() {
    for &version in Version::ALL {
        let mut weather = NetworkFaults::slow();
        weather.cuts_idle = Some(seconds(20));
        // The default is a comment every 15 s.
        let mut net = ready_net(version, Http::new(), weather);
        let outcomes = slow_calls(&mut net, seconds(300));
        assert_eq!(outcomes["reply"], 3, "{version}: {outcomes:?}");
        assert_eq!(net.cuts().idle, 0, "{version}");
    }
}

#[test]
fn legacy_call_gets_its_reply_after_a_proxy_cut_its_idle_stream() {
    for version in [Version::V2025_11_25, Version::V2025_03_26] {
        let mut http = Http::new();
        // The stream begins before the proxy cuts it, and then stays silent.
        http.keepalive = seconds(50);
        let mut weather = NetworkFaults::slow();
        weather.cuts_idle = Some(seconds(60));
        let mut net = ready_net(version, http, weather);
        let mut weather = NetworkFaults::slow();
        weather.cuts_idle = Some(seconds(30));
        let mut records = CallRecords::default();
        let (client, now) = net.client();
        records.call(client, now, false);
        let mut open = None;
        net.serve_for(seconds(1), |server, now, event| {
            if let server::Event::Request(request) = event {
                let mark = records.record_request(&request);
                let sent = server.progress(now, request.request, Progress::new(1.0));
                sent.expect("the request is open");
                open = Some((request.request, mark));
            }
        });
        net.set_faults(weather);
        net.pass(seconds(100));
        assert!(net.cuts().idle > 0, "{version}");
        let (request, mark) = open.expect("a request");
        let (server, now) = net.server();
        let sent = server.respond(now, request, reply(mark));
        sent.expect("the request is open although its stream is lost");
        let outcomes = finish(&mut net, &mut records);
        assert_eq!(outcomes["reply"], 1, "{version}: {outcomes:?}");
    }
}

#[test]
fn modern_call_fails_after_a_proxy_cut_its_idle_response() {
    let mut http = Http::new();
    http.keepalive = seconds(50);
    let mut weather = NetworkFaults::slow();
    weather.cuts_idle = Some(seconds(30));
    let mut net = ready_net(Version::LATEST_MODERN, http, weather);
    let outcomes = slow_calls(&mut net, seconds(100));
    assert!(net.cuts().idle >= 3);
    assert!(!outcomes.contains_key("reply"), "{outcomes:?}");
}
