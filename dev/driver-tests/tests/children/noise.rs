//! Tests children with unwanted output on standard output and standard error.

use everlink::ExitStatus;
use everlink::client::{Event, FailureKind};
use serde_json::json;

use crate::harness::{LinkExt, failure, for_each_adapter, long_timeouts, short_grace};

/// F-004
#[test]
fn f_005_child_that_floods_stderr_from_its_first_byte_serves_calls() {
    for_each_adapter(|harness| {
        let config = long_timeouts();
        let tail = config.limits.stderr_tail;
        let link = harness.link(&["flood-stderr"], config);
        let reply = link.tool("echo", json!({"text": "over here"})).wait();
        assert_eq!(reply.expect("it serves").text(), "over here");
        let died = failure(link.tool("die", json!({"how": "exit", "code": 4})).wait());
        let ended = died.ended.clone().expect("it ended");
        assert_eq!(ended.exit, Some(ExitStatus::Code(4)), "{died}");
        assert!(ended.stderr.contains("!!!") && ended.stderr.len() <= tail);
        assert!(died.to_string().contains("!!!"));
        link.shut_down();
    });
}

#[test]
fn f_004_child_that_floods_stderr_forever_can_be_shut_down() {
    for_each_adapter(|harness| {
        let link = harness.link(&["ignore-eof", "flood-stderr"], short_grace());
        link.wait_ready();
        link.shut_down();
        harness.assert_no_processes();
    });
}

#[test]
fn f_006_banner_lines_before_the_handshake_are_skipped_and_counted() {
    for_each_adapter(|harness| {
        for era in ["era=legacy", "era=modern"] {
            let link = harness.link(&["banner", era], long_timeouts());
            let mut events = link.events();
            let reply = link.tool("echo", json!({"text": "hello"})).wait();
            assert_eq!(reply.expect("it serves").text(), "hello");
            let stats = link.stats().wait().expect("the link is driven");
            assert!(stats.noise >= 5, "{stats:?}");
            let noise = std::iter::from_fn(|| events.try_recv());
            let noise = noise.filter(|event| matches!(**event, Event::Noise(_)));
            assert!(noise.count() >= 1, "an event reports the noise");
            assert_eq!(link.shut_down().exit, Some(ExitStatus::Code(0)));
        }
    });
}

#[test]
fn f_008_reply_above_the_size_limit_fails_its_call_and_keeps_the_child() {
    for_each_adapter(|harness| {
        let mut config = long_timeouts();
        config.limits.message_bytes = 1 << 20;
        let link = harness.link(&[], config);
        let pid = link.server_pid();
        let flood = |bytes: usize| link.tool("flood", json!({ "bytes": bytes }));
        let beside = flood(1 << 19);
        let failed = failure(flood(5 << 20).wait());
        assert!(
            matches!(failed.kind, FailureKind::TooLarge { bytes } if bytes > 5 << 20),
            "{failed}"
        );
        assert_eq!(
            beside.wait().expect("it is not too large").text().len(),
            1 << 19
        );
        assert_eq!(link.server_pid(), pid);
        link.shut_down();
    });
}

#[test]
fn replies_up_to_8_mib_arrive_complete() {
    for_each_adapter(|harness| {
        let link = harness.link(&[], long_timeouts());
        let flood = |bytes: usize| link.tool("flood", json!({ "bytes": bytes }));
        let sizes = [1, 65_535, 65_536, 65_537, 1 << 20, 8 << 20];
        let floods: Vec<_> = sizes.iter().map(|bytes| (flood(*bytes), *bytes)).collect();
        for (flood, bytes) in floods {
            assert_eq!(flood.wait().expect("it fits").text().len(), bytes);
        }
        link.shut_down();
    });
}

#[test]
fn calls_fail_as_lost_when_the_child_dies_mid_line() {
    for_each_adapter(|harness| {
        let link = harness.link(&[], long_timeouts());
        let pid = link.server_pid();
        let beside = link.tool("hang", json!({}));
        let died = failure(link.tool("half_line_then_die", json!({})).wait());
        assert_eq!(died.kind, FailureKind::Lost, "{died}");
        assert!(died.to_string().contains("exit status 3"), "{died}");
        assert_eq!(failure(beside.wait()).kind, FailureKind::Lost);
        assert_ne!(link.server_pid(), pid);
        link.shut_down();
    });
}

/// Lines on standard error are never read as replies, and each reply reaches its own caller.
#[test]
fn stderr_is_never_read_as_replies() {
    for_each_adapter(|harness| {
        let link = harness.link(&["stderr-replies"], long_timeouts());
        let echo = |text: &str| link.tool("echo", json!({ "text": text }));
        let texts: Vec<String> = (0..100).map(|i| format!("{i} ").repeat(i * 20)).collect();
        let echoes: Vec<_> = texts.iter().map(|text| (echo(text), text)).collect();
        for (echo, text) in echoes {
            assert_eq!(
                &echo.wait().expect("the reply comes from stdout").text(),
                text
            );
        }
        let died = failure(link.tool("die", json!({"how": "abort"})).wait());
        let ended = died.ended.clone().expect("it ended");
        assert!(ended.stderr.contains("fake"), "{died}");
        assert_eq!(ended.exit, Some(ExitStatus::Signal(6)));
        let stats = link.stats().wait().expect("the link is driven");
        assert_eq!(stats.noise, 0, "stderr does not count as noise");
        link.shut_down();
    });
}
