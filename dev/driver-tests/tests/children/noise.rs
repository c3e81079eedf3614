//! What children say that nobody asked for, and where they say it.

use everlink::ExitStatus;
use everlink::client::{Event, FailureKind};
use serde_json::json;

use crate::stage::{Use, failure, ordeal, patient, stern};

/// F-004
#[test]
fn f_005_a_child_that_shouts_from_its_first_byte_is_heard_and_serves() {
    ordeal(|stage| {
        let config = patient();
        let tail = config.limits.stderr_tail;
        let link = stage.link(&["loud"], config);
        let said = link.tool("echo", json!({"text": "over here"})).wait();
        assert_eq!(said.expect("it serves").text(), "over here");
        let died = failure(link.tool("die", json!({"how": "exit", "code": 4})).wait());
        let ended = died.ended.clone().expect("it ended");
        assert_eq!(ended.exit, Some(ExitStatus::Code(4)), "{died}");
        assert!(ended.stderr.contains("!!!") && ended.stderr.len() <= tail);
        assert!(died.to_string().contains("!!!"));
        link.ends();
    });
}

#[test]
fn f_004_a_child_that_shouts_for_ever_can_be_shut_down() {
    ordeal(|stage| {
        let link = stage.link(&["ignore-eof", "loud"], stern());
        link.is_well();
        link.ends();
        stage.nobody_is_left();
    });
}

#[test]
fn f_006_banners_before_the_handshake_are_passed_over_and_counted() {
    ordeal(|stage| {
        for era in ["era=legacy", "era=modern"] {
            let link = stage.link(&["banner", era], patient());
            let mut events = link.events();
            let said = link.tool("echo", json!({"text": "hello"})).wait();
            assert_eq!(said.expect("it serves").text(), "hello");
            let stats = link.stats().wait().expect("the link is driven");
            assert!(stats.noise >= 5, "{stats:?}");
            let noise = std::iter::from_fn(|| events.try_recv());
            let noise = noise.filter(|event| matches!(**event, Event::Noise(_)));
            assert!(noise.count() >= 1, "somebody is told of it");
            assert_eq!(link.ends().exit, Some(ExitStatus::Code(0)));
        }
    });
}

#[test]
fn f_008_a_reply_above_the_limit_costs_its_call_and_not_the_child() {
    ordeal(|stage| {
        let mut config = patient();
        config.limits.message_bytes = 1 << 20;
        let link = stage.link(&[], config);
        let pid = link.pid();
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
        assert_eq!(link.pid(), pid);
        link.ends();
    });
}

#[test]
fn large_replies_come_whole() {
    ordeal(|stage| {
        let link = stage.link(&[], patient());
        let flood = |bytes: usize| link.tool("flood", json!({ "bytes": bytes }));
        let sizes = [1, 65_535, 65_536, 65_537, 1 << 20, 8 << 20];
        let floods: Vec<_> = sizes.iter().map(|bytes| (flood(*bytes), *bytes)).collect();
        for (flood, bytes) in floods {
            assert_eq!(flood.wait().expect("it fits").text().len(), bytes);
        }
        link.ends();
    });
}

#[test]
fn half_a_line_and_then_death_is_a_death() {
    ordeal(|stage| {
        let link = stage.link(&[], patient());
        let pid = link.pid();
        let beside = link.tool("hang", json!({}));
        let died = failure(link.tool("half_line_then_die", json!({})).wait());
        assert_eq!(died.kind, FailureKind::Lost, "{died}");
        assert!(died.to_string().contains("exit status 3"), "{died}");
        assert_eq!(failure(beside.wait()).kind, FailureKind::Lost);
        assert_ne!(link.pid(), pid);
        link.ends();
    });
}

/// What is said on standard error is never taken for a reply, and each reply goes to who asked.
#[test]
fn the_three_streams_are_not_mixed() {
    ordeal(|stage| {
        let link = stage.link(&["mutter"], patient());
        let echo = |text: &str| link.tool("echo", json!({ "text": text }));
        let texts: Vec<String> = (0..100).map(|i| format!("{i} ").repeat(i * 20)).collect();
        let echoes: Vec<_> = texts.iter().map(|text| (echo(text), text)).collect();
        for (echo, text) in echoes {
            assert_eq!(&echo.wait().expect("it is no lie").text(), text);
        }
        let died = failure(link.tool("die", json!({"how": "abort"})).wait());
        let ended = died.ended.clone().expect("it ended");
        assert!(ended.stderr.contains("muttered"), "{died}");
        assert_eq!(ended.exit, Some(ExitStatus::Signal(6)));
        let stats = link.stats().wait().expect("the link is driven");
        assert_eq!(stats.noise, 0, "standard error is no standard output");
        link.ends();
    });
}
