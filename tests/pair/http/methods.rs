//! Every method that an application can call, in every version that has it, answered as JSON and as an event stream.

use everlink::client::{CallOptions, Event, Outcome, State};
use everlink::protocol::{
    ClientCapabilities, ClientFeature, Era, Kind, LogLevel, Method, Owner, ServerFeature, Version,
};
use everlink::server::{self, Http, Progress};
use everlink::{Change, List, Watch};
use model::{Net, NetworkFaults};
use serde_json::{Value, json};

use crate::http::harness::{client, payload, seconds, server};

fn ready_net(version: Version, weather: NetworkFaults) -> Net {
    let mut config = client(version);
    config.watch = Watch::lists()
        .and_uri("file:///a")
        .and_logs(LogLevel::Debug);
    config.capabilities = ClientCapabilities::default().with(ClientFeature::TasksExtension);
    let mut server_config = server(Http::new());
    let offer = server_config.offer.take().map(|offer| {
        let all = offer.capabilities.clone();
        let all = all
            .with(ServerFeature::TasksCancel)
            .with(ServerFeature::TasksList)
            .with(ServerFeature::TasksExtension);
        offer.with_capabilities(all)
    });
    server_config.offer = offer;
    let mut net = Net::new(config, server_config, weather, 1);
    let (client, now) = net.client();
    client.connect(now);
    net.pass(seconds(2));
    assert_eq!(net.client().0.state(), State::Ready, "{version}");
    let agreed = net.client().0.session().map(|session| session.version);
    assert_eq!(agreed, Some(version));
    net.take_client_events();
    net.take_server_events();
    net
}

fn requests(version: Version) -> impl Iterator<Item = &'static Method> {
    let all = Method::all().iter();
    all.filter(move |method| {
        method.kind == Kind::Request
            && method.owner == Owner::Application
            && method.to_server.contains(version)
    })
}

#[test]
fn every_method_of_every_version_is_answered_as_json_and_as_a_stream() {
    for &version in Version::ALL {
        for weather in [NetworkFaults::none(), NetworkFaults::slow()] {
            let mut net = ready_net(version, weather);
            let mut calls = 0;
            for method in requests(version) {
                for is_stream in [false, true] {
                    let params = json!({"name": "n", "uri": "file:///a", "taskId": "t", "x": [1, {"y": null}]});
                    let (client, now) = net.client();
                    let call =
                        client.call(now, method.name, Some(payload(&params)), CallOptions::new());
                    let call = call.expect("the link accepts the call");
                    calls += 1;
                    let mut was_received = false;
                    net.serve_for(seconds(1), |server, now, event| {
                        if let server::Event::Request(request) = event {
                            assert_eq!(request.method, method.name);
                            assert_eq!(request.params, Some(payload(&params)));
                            was_received = true;
                            if is_stream {
                                let sent =
                                    server.progress(now, request.request, Progress::new(0.5));
                                sent.expect("the request is open");
                            }
                            let result = payload(&json!({"x": "y", "_meta": {"z": 1}}));
                            let sent = server.respond(now, request.request, result);
                            sent.expect("the request is open");
                        }
                    });
                    assert!(was_received, "{} in {version}", method.name);
                    let events = net.take_client_events();
                    let progress = |event: &&Event| matches!(event, Event::Progress { .. });
                    let progress = events.iter().filter(progress).count();
                    assert_eq!(
                        progress,
                        usize::from(is_stream),
                        "{} in {version}",
                        method.name
                    );
                    let reply = events.iter().find_map(|event| match event {
                        Event::Done {
                            call: of,
                            outcome: Outcome::Reply(reply),
                        } if *of == call => Some(reply),
                        _ => None,
                    });
                    let reply =
                        reply.unwrap_or_else(|| panic!("{} in {version}: {events:?}", method.name));
                    let reply: Value = reply.parse().expect("JSON");
                    assert_eq!(reply["x"], "y", "{} in {version}", method.name);
                    assert_eq!(reply["_meta"]["z"], 1, "{} in {version}", method.name);
                }
            }
            assert!(calls >= 10, "{version}: {calls}");
        }
    }
}

#[test]
fn changes_reach_the_client_in_every_version() {
    for &version in Version::ALL {
        let mut net = ready_net(version, NetworkFaults::slow());
        let (server, now) = net.server();
        for list in List::ALL {
            // Templates have no change notification of their own.
            let sent = server.publish(now, Change::List(list));
            sent.expect("the server offers it");
        }
        let uri = "file:///a".into();
        let sent = server.publish(now, Change::Resource { uri });
        sent.expect("the server offers it");
        if version.era() == Era::Legacy {
            let sent = server.log(now, None, LogLevel::Error, None, payload(&json!(1)));
            sent.expect("the server offers it");
        }
        net.pass(seconds(1));
        let events = net.take_client_events();
        let changed = |event: &&Event| matches!(event, Event::Changed(_));
        let changed = events.iter().filter(changed).count();
        assert_eq!(changed, List::ALL.len() + 1, "{version}: {events:?}");
        let logs = |event: &&Event| matches!(event, Event::Log { .. });
        let logs = events.iter().filter(logs).count();
        assert_eq!(logs, usize::from(version.era() == Era::Legacy), "{version}");
    }
}

#[test]
fn client_shutdown_leaves_no_session_or_request_at_the_server() {
    for &version in Version::ALL {
        let mut net = ready_net(version, NetworkFaults::slow());
        let (client, now) = net.client();
        client.shutdown(now);
        net.pass(seconds(5));
        assert_eq!(net.client().0.state(), State::Closed, "{version}");
        let (server, _) = net.server();
        assert_eq!((server.sessions(), server.requests()), (0, 0), "{version}");
    }
}
