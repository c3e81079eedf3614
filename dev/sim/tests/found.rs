//! Scripts that broke a rule once, shrunk.

use everlink_sim::play;

/// A legacy server replaced a modern one. The client took it for alive, though it refused every request.
#[test]
fn client_follows_a_server_that_changes_its_era() {
    play(
        "
        seed 21 http modern automatic brisk wide
        +0 fail other-era 0
        +0 do connect 0
        +10 fail stale 0
        ",
    );
}

/// A relay forwarded the server's standard error to a client in front that had not called a tool.
#[test]
fn relay_does_not_forward_server_stderr_to_the_client() {
    play(
        "
        seed 8121 http-child legacy automatic brisk wide
        +0 do call 0
        +9 fail stderr 1
        +0 fail mute 1
        +0 do read 0
        +1276 do call 0
        +203 do notify 0
        +0 fail kill 0
        +72 do notify 0
        ",
    );
}

/// The client gave up the notification stream after a proxy redirected it once.
#[test]
fn notification_stream_survives_a_proxy_redirect() {
    play(
        "
        seed 18442 http-http everlink legacy-only interactive tight
        +0 do read 0
        +10 fail asks 0
        +0 fail proxy-status 300807
        +0 fail reset 1
        +112346 do notify 0
        ",
    );
}

/// The client gave up the notification stream after a temporary request for credentials.
#[test]
fn notification_stream_survives_a_request_for_credentials() {
    play(
        "
        seed 178686 http everlink legacy-only brisk wide
        +0 do connect 0
        +0 fail clock-back 13231631
        +0 fail clock-back 16642168
        +3592 fail cut-response 0
        +678 fail reset 0
        +0 fail challenge 0
        +1026 fail latency 0
        +1509 fail reset 0
        ",
    );
}

/// A proxy refused the end of the handshake. After that, the server sent no requests or notifications of its own.
#[test]
fn handshake_restarts_if_a_proxy_refuses_its_end() {
    for status in ["0", "3277141"] {
        play(&format!(
            "
            seed 97415 http everlink legacy-only brisk wide
            +0 do connect 0
            +503 fail clock-back 9934905
            +7988 fail app-error 1
            +0 do call 0
            +942 do call 0
            +5665 do call 0
            +100 do list 0
            +0 do read 0
            +10 fail stale 0
            +0 fail changes 0
            +0 fail clock-back 5722135
            +0 fail clock-back 16446416
            +0 fail down 7242890
            +1832 fail app-error 0
            +0 do call 0
            +0 fail clock-back 1992812
            +5115 do reconnect 0
            +5 fail proxy-status {status}
            +0 do call 0
            +0 do read 0
            +1 do cancel 0
            "
        ));
    }
}

/// The end of one subscription and the beginning of the next one travelled at the same time. The server handled the end last, and the host heard of no
/// change.
#[test]
fn relay_changes_a_subscription_only_after_the_change_before_is_answered() {
    play(
        "
        seed 67475 http-http everlink legacy-only brisk tight
        +0 do call 0
        +100 fail latency 3142245
        +0 do list 0
        +0 do reconnect 0
        +1481 fail stale 0
        ",
    );
}

/// A proxy answered the probe of a relay with a status or with a page. The relay then told its host for ever that the server is down.
#[test]
fn relay_that_could_not_discover_the_server_lets_its_host_fall_back_to_initialize() {
    for script in [
        "
        seed 3256 http-http everlink automatic background wide
        +0 do connect 0
        +0 fail proxy-status 4061183
        +10 fail proxy-status 0
        ",
        "
        seed 7675 http-http everlink automatic brisk wide
        +0 fail proxy-page 1
        +0 do call-idempotent 0
        +10 do list 0
        ",
    ] {
        play(script);
    }
}

/// A host subscribed while a legacy server was away, and a modern one came back. The relay told the host that there are no subscriptions.
#[test]
fn subscription_that_waited_for_a_legacy_server_holds_at_a_modern_one() {
    play(
        "
        seed 164988 http-http everlink automatic brisk tight
        +0 do connect 0
        +1003 fail slow 2125192
        +0 fail name-lost 6704995
        +2437 do call 0
        +0 do read 0
        +671 do list 0
        +10 fail proxy-page 0
        +0 fail proxy-page 1
        +0 fail refuse 1530623
        +8000 fail changes 0
        +10 do call 0
        +7000 fail refuse 13180651
        +74 fail name-lost 11404308
        +7676 do call 0
        +100 fail proxy-page 1
        +0 fail refuse 10477749
        +3787 fail name-lost 8727574
        +0 fail proxy-page 1
        +0 fail proxy-page 1
        +0 do read 0
        +0 fail name-lost 5681968
        +0 fail refuse 9117081
        +0 do reconnect 0
        +1661 do call 0
        +0 do cancel 15751756
        +321 do call 0
        +0 fail name-lost 3
        +95 do watch 0
        +0 fail name-lost 2791396
        +0 fail name-lost 13096579
        +3517 do call 0
        ",
    );
}

/// A relay told its only host why there is no server, with the lines that the server had written to standard error. The oracle counted that as a leak.
#[test]
fn relay_tells_its_only_host_what_the_server_wrote_to_stderr_before_it_died() {
    play(
        "
        seed 229564 child-child legacy automatic brisk wide
        +0 do read 0
        +10 do connect 0
        +0 fail latency 12351435
        +1 fail kill 0
        +158 fail stderr 1
        +0 fail kill 1
        ",
    );
}

/// The client gave up the notification stream of an epoch if a proxy redirected the first request for it.
#[test]
fn notification_stream_survives_a_redirect_of_its_first_request() {
    play(
        "
        seed 314833 http everlink legacy-only background tight
        +0 do list 0
        +0 do read 0
        +0 do watch 0
        +12397 do connect 0
        +0 do reconnect 0
        +1 do call 0
        +3 fail proxy-status 392119
        +10 fail clock-back 0
        ",
    );
}
