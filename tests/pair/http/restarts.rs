//! Servers that are replaced by others, with lost or shared sessions.

use everlink::Server;
use everlink::client::State;
use everlink::protocol::Version;
use everlink::server::{DriverStorage, Http, SessionStorage};
use model::{Net, NetworkFaults};

use crate::http::harness::{CallRecords, client, finish, seconds, server};

fn connect(net: &mut Net) {
    let (client, now) = net.client();
    client.connect(now);
    net.pass(seconds(2));
    assert_eq!(net.client().0.state(), State::Ready);
    net.take_client_events();
}

#[test]
fn restart_with_200_calls_in_flight_takes_one_handshake_and_gives_each_call_one_outcome() {
    for seed in 0..4 {
        let config = client(Version::V2025_11_25);
        let mut net = Net::new(config, server(Http::new()), NetworkFaults::slow(), seed);
        connect(&mut net);
        let mut records = CallRecords::default();
        for nth in 0..200 {
            let (client, now) = net.client();
            records.call(client, now, nth % 2 == 0);
        }
        // All calls run, and none is answered.
        net.serve_for(seconds(1), |_, _, event| {
            if let everlink::server::Event::Request(request) = event {
                records.record_request(&request);
            }
        });
        assert_eq!(records.runs.len(), 200);
        net.restart();
        let outcomes = finish(&mut net, &mut records);
        assert_eq!(net.count("initialize"), 2, "seed {seed}");
        assert_eq!(outcomes["reply"], 100, "seed {seed}: {outcomes:?}");
        assert_eq!(outcomes.len(), 2, "seed {seed}: {outcomes:?}");
    }
}

#[test]
fn calls_into_a_session_that_a_restart_ended_are_all_served_after_one_handshake() {
    for seed in 0..4 {
        let config = client(Version::V2025_06_18);
        let mut net = Net::new(config, server(Http::new()), NetworkFaults::slow(), seed);
        connect(&mut net);
        net.restart();
        let mut records = CallRecords::default();
        for _ in 0..200 {
            let (client, now) = net.client();
            records.call(client, now, false);
        }
        let outcomes = finish(&mut net, &mut records);
        assert_eq!(net.count("initialize"), 2, "seed {seed}");
        assert_eq!(outcomes["reply"], 200, "seed {seed}: {outcomes:?}");
    }
}

#[test]
fn calls_of_a_modern_client_after_a_restart_need_no_second_discover() {
    for seed in 0..4 {
        let config = client(Version::LATEST_MODERN);
        let mut net = Net::new(config, server(Http::new()), NetworkFaults::slow(), seed);
        connect(&mut net);
        net.restart();
        let mut records = CallRecords::default();
        for _ in 0..200 {
            let (client, now) = net.client();
            records.call(client, now, false);
        }
        let outcomes = finish(&mut net, &mut records);
        assert_eq!(outcomes["reply"], 200, "seed {seed}: {outcomes:?}");
        assert_eq!(net.count("server/discover"), 1, "seed {seed}");
    }
}

#[test]
fn server_with_shared_stores_continues_the_session_after_a_restart() {
    for (seed, sessions) in [
        (0, SessionStorage::Driver),
        (1, SessionStorage::Shared),
        (2, SessionStorage::Driver),
        (3, SessionStorage::Shared),
    ] {
        let new_server = move |restarts| {
            let mut storage = DriverStorage::new(restarts);
            storage.sessions = sessions;
            Server::new(server(Http::new().with_storage(storage)))
        };
        let config = client(Version::V2025_11_25);
        let mut net = Net::served_by(config, new_server, NetworkFaults::slow(), seed);
        connect(&mut net);
        net.restart();
        let mut records = CallRecords::default();
        for _ in 0..50 {
            let (client, now) = net.client();
            records.call(client, now, false);
        }
        let outcomes = finish(&mut net, &mut records);
        assert_eq!(net.count("initialize"), 1, "seed {seed}");
        assert_eq!(outcomes["reply"], 50, "seed {seed}: {outcomes:?}");
    }
}

#[test]
fn calls_wait_for_a_server_that_refuses_connections_for_3_s() {
    for version in [Version::V2025_11_25, Version::LATEST_MODERN] {
        for seed in 0..4 {
            let mut net = Net::new(
                client(version),
                server(Http::new()),
                NetworkFaults::slow(),
                seed,
            );
            connect(&mut net);
            net.restart();
            net.refuse_for(seconds(3));
            let mut records = CallRecords::default();
            for _ in 0..50 {
                let (client, now) = net.client();
                records.call(client, now, false);
            }
            let outcomes = finish(&mut net, &mut records);
            assert_eq!(
                outcomes["reply"], 50,
                "{version}, seed {seed}: {outcomes:?}"
            );
        }
    }
}
