//! How children end that do not want to, when the link or its program does.

use std::thread;

use everlink::ExitStatus;
use everlink::client::{Cause, Delivery, FailureKind, Misuse, State};
use everlink_handle::CallError;
use ordeal::{Adapter, settles};
use serde_json::json;

use crate::stage::{Use, failure, ordeal, patient, stern};

#[test]
fn s_stdio_15_a_child_that_can_end_is_left_to_end_by_itself() {
    ordeal(|stage| {
        let link = stage.link(&[], patient());
        link.is_well();
        let ended = link.ends();
        assert_eq!(ended.exit, Some(ExitStatus::Code(0)), "{ended}");
        assert_eq!(ended.cause, Cause::Shutdown);
        assert!(!ended.counted && !ended.abandoned, "{ended:?}");
        // Whoever waited for the shutdown finds nothing left.
        stage.nobody_is_left();
    });
}

#[test]
fn f_011_a_child_that_ignores_the_end_of_its_input_is_asked_to_end() {
    ordeal(|stage| {
        let mut config = stern();
        config.policy.terminate_grace = patient().policy.terminate_grace;
        let link = stage.link(&["ignore-eof"], config);
        link.is_well();
        let ended = link.ends();
        assert_eq!(ended.exit, Some(ExitStatus::Signal(15)), "{ended}");
        stage.nobody_is_left();
    });
}

#[test]
fn f_011_a_child_that_ignores_sigterm_too_is_killed() {
    ordeal(|stage| {
        let link = stage.link(&["ignore-eof", "ignore-term"], stern());
        link.is_well();
        let ended = link.ends();
        assert_eq!(ended.exit, Some(ExitStatus::Signal(9)), "{ended}");
        assert!(!ended.abandoned, "{ended}");
        stage.nobody_is_left();
    });
}

#[test]
fn f_014_a_child_that_is_still_starting_is_taken_down_too() {
    ordeal(|stage| {
        let link = stage.link(&["deaf", "ignore-term"], stern());
        let call = link.tool("echo", json!({}));
        stage.member("deaf");
        assert!(settles(|| link.state() == State::Handshaking));
        let ended = link.ends();
        assert_eq!(ended.exit, Some(ExitStatus::Signal(9)), "{ended}");
        stage.nobody_is_left();
        let failure = failure(call.wait());
        assert_eq!(failure.kind, FailureKind::Closed);
        assert_eq!(failure.delivery, Delivery::NotSent);
    });
}

#[test]
fn calls_in_flight_end_with_the_link_and_say_so() {
    ordeal(|stage| {
        let link = stage.link(&["ignore-eof", "ignore-term"], stern());
        link.is_well();
        let calls: Vec<_> = (0..10).map(|_| link.tool("hang", json!({}))).collect();
        link.pid(); // those before are read by now
        link.ends();
        for call in calls {
            let failure = failure(call.wait());
            assert_eq!(failure.delivery, Delivery::Unknown, "{failure}");
            assert!(
                failure.to_string().contains("the link was shut down"),
                "{failure}"
            );
        }
        let late = link.tool("echo", json!({})).wait();
        assert!(
            matches!(late, Err(CallError::Misuse(Misuse::Closed))),
            "{late:?}"
        );
    });
}

/// Nobody waits, nobody asked for anything: the last handle is gone, and so must all of it be.
#[test]
fn f_104_dropping_the_last_handle_with_calls_in_flight_leaves_nothing() {
    ordeal(|stage| {
        let link = stage.link(&["ignore-eof", "ignore-term", "kin"], stern());
        let clone = link.clone();
        link.is_well();
        let calls: Vec<_> = (0..10).map(|_| link.tool("hang", json!({}))).collect();
        drop(link);
        assert_eq!(clone.state(), State::Ready, "a clone is as good");
        drop(clone);
        for call in calls {
            failure(call.wait());
        }
    });
}

#[test]
fn a_shutdown_is_waited_for_by_as_many_as_want_to() {
    ordeal(|stage| {
        let link = stage.link(&["heir", "ignore-eof"], stern());
        link.is_well();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| link.shutdown().wait().expect("the link is driven"));
            }
        });
        stage.nobody_is_left();
        link.shutdown().wait().expect("it is closed already");
    });
}

#[test]
fn a_link_that_was_never_wanted_starts_nothing() {
    ordeal(|stage| {
        let link = stage.link(&[], patient());
        assert_eq!(link.state(), State::Idle);
        link.shutdown().wait().expect("the link is driven");
        assert!(link.last_end().is_none());
        drop(stage.link(&[], patient()));
    });
}

/// The runtime under a link ends before the link does: whoever waits is told, and the child goes with it.
#[test]
fn f_104_a_runtime_that_ends_takes_its_children_with_it() {
    ordeal(|stage| {
        if !stage.adapter.starts_with("tokio") {
            return; // a thread that drives a link is not ended by anybody else
        }
        let (mut links, mut calls) = (Vec::new(), Vec::new());
        let tokio = Adapter::named(stage.adapter).expect("it is one of them");
        tokio.run(|connect| {
            for _ in 0..4 {
                let rascal = stage.family.rascal(&["ignore-eof", "ignore-term", "kin"]);
                let link = connect(rascal, patient()).expect("there is room for a link");
                calls.push(link.tool("hang", json!({})));
                link.pid(); // the one before is read by now
                links.push(link);
            }
        });
        for call in calls {
            let gone = call.wait();
            assert!(matches!(gone, Err(CallError::Gone)), "{gone:?}");
        }
        for link in links {
            assert_eq!(link.state(), State::Closed);
            link.shutdown().wait().expect("that is done");
        }
        stage.everybody_leaves();
    });
}
