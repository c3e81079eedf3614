//! Builds the config of each machine from the setup of a script. Must not depend on steps.

use std::time::Duration;

use everlink::client::CallOptions;
use everlink::protocol::{ClientCapabilities, ServerCapabilities};
use everlink::server::{self, Offer};
use everlink::{Config, Hang, Keepalive, Limit, Policy, Watch, WhenSpent, relay};

use crate::script::{Dialect, Pace, Room, Setup, Shape};

/// The URL of every server over HTTP.
pub(super) const URL: &str = "http://localhost:8080/mcp?key=s3cr3t";

/// The resource that the application watches besides lists.
pub(super) const WATCHED: &str = "file:///watched";

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The config of the application's client.
pub(super) fn client(setup: &Setup) -> Config {
    let is_http = setup.shape.legs()[0];
    let mut config = link(setup, is_http, setup.shape == Shape::Socket);
    config.capabilities = ClientCapabilities::default()
        .with_roots(true)
        .with_sampling()
        .with_elicitation_form();
    config.watch = Watch::lists().and_uri(WATCHED);
    if setup.room == Room::Tight {
        let limits = &mut config.limits;
        (limits.queued_calls, limits.calls_in_flight) = (3, 2);
        (limits.queued_bytes, limits.message_bytes) = (600, 4_000);
        (limits.write_window, limits.undelivered_bytes) = (512, 2_000);
        (limits.asks, limits.stderr_tail, limits.noise_run) = (1, 64, Some(20));
    }
    config
}

/// The config of the relay.
pub(super) fn relay(setup: &Setup) -> relay::Config {
    let legs = setup.shape.legs();
    let mut config = relay::Config::new(link(setup, legs[1], false), [3; 16]);
    config.calls = everlink::client::CallOptions::new()
        .with_idle(everlink::Limit::After(Duration::from_secs(300)))
        .with_total(everlink::Limit::After(Duration::from_secs(3_600)));
    if legs[0] {
        config.downstream.http = Some(server::Http::new());
    }
    if is_quick(setup) {
        let after = |span| Limit::After(millis(span));
        let calls = CallOptions::new().with_idle(after(1_500));
        config.calls = calls.with_total(after(4_000));
        (config.patience, config.drain) = (millis(1_000), Some(millis(500)));
    }
    config
}

/// The config of the server.
pub(super) fn server(setup: &Setup) -> server::Config {
    let capabilities = ServerCapabilities::default()
        .with_tools(true)
        .with_prompts(true)
        .with_resources(true, true)
        .with_logging();
    let offer = Offer::new("sim", "1").with_capabilities(capabilities);
    let config = server::Config::new(offer, [9; 16]);
    if setup.shape.legs().last() == Some(&true) {
        return config.with_http(server::Http::new());
    }
    config
}

fn link(setup: &Setup, is_http: bool, is_socket: bool) -> Config {
    let mut config = match (is_http, is_socket) {
        (true, _) => Config::http("sim", "1", URL).expect("a URL"),
        (false, true) => Config::socket("sim", "1"),
        (false, false) => Config::child("sim", "1"),
    };
    config.seed = setup.seed;
    config.dialect = match setup.dialect {
        Dialect::Automatic => everlink::Dialect::Automatic,
        Dialect::Legacy => everlink::Dialect::Legacy,
        Dialect::Modern => everlink::Dialect::Modern,
    };
    config.policy = match setup.pace {
        Pace::Background => Policy::background(),
        Pace::Interactive => Policy::interactive(),
        Pace::Brisk | Pace::Final => brisk(),
    };
    if setup.pace == Pace::Final {
        config.policy.retry.when_spent = WhenSpent::Close;
    }
    if let Some(http) = config.binding.http_mut().filter(|_| is_quick(setup)) {
        http.listen_patience = millis(200);
        http.probe_timeout = millis(500);
        http.endpoint_timeout = millis(1_000);
        (http.resume_after, http.resume_least) = (millis(100), millis(25));
        http.resume_most = millis(2_000);
        (http.auth_timeout, http.retry_after_most) = (millis(5_000), millis(3_000));
        (http.linger, http.message_timeout) = (millis(200), millis(1_000));
        http.stream_silence = millis(10_000);
    }
    config
}

/// Whether the client and the relay have short timeouts.
pub(super) fn is_quick(setup: &Setup) -> bool {
    matches!(setup.pace, Pace::Brisk | Pace::Final)
}

fn brisk() -> Policy {
    let mut policy = Policy::interactive();
    (policy.open_timeout, policy.probe_timeout) = (millis(1_000), millis(300));
    (policy.handshake_notice, policy.handshake_timeout) = (millis(700), millis(3_000));
    policy.call_idle = Limit::After(millis(2_000));
    policy.call_total = Limit::After(millis(6_000));
    (policy.ask_timeout, policy.pause_total) = (millis(2_000), millis(5_000));
    (policy.drain, policy.close_grace) = (millis(300), millis(100));
    (policy.terminate_grace, policy.kill_grace) = (millis(150), millis(100));
    let mut keepalive = Keepalive::every(millis(1_500));
    keepalive.timeout = millis(400);
    policy.keepalive = Some(keepalive);
    policy.hang = Some(Hang::after(millis(1_200)));
    let retry = &mut policy.retry;
    (retry.budget, retry.first, retry.cap) = (3, millis(40), millis(500));
    (retry.floor, retry.stable_after) = (millis(20), millis(3_000));
    (retry.call_patience, retry.call_pace) = (millis(700), millis(150));
    retry.start_for = millis(100);
    retry.when_spent = WhenSpent::Park {
        probe: millis(4_000),
    };
    (policy.watch_timeout, policy.watch_retry) = (millis(800), millis(300));
    policy
}
