//! How children end unasked, and how the link comes back.

use std::fs;

use everlink::client::{Cause, Delivery, FailureKind, State};
use everlink::{ExitStatus, FaultKind};
use ordeal::{resident_bytes, settles};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::json;

use crate::stage::{Use, failure, millis, ordeal, patient, stern};

#[test]
fn f_001_a_death_while_idle_is_seen_and_mended_unasked() {
    ordeal(|stage| {
        let link = stage.link(&["words=I was here\n"], patient());
        let pid = link.pid();
        stage.family.members()[0].signal(Signal::KILL);
        assert!(settles(
            || link.epoch().number() == 2 && link.state() == State::Ready
        ));
        let ended = link.last_end().expect("it ended");
        assert_eq!(ended.cause, Cause::Died);
        assert_eq!(ended.exit, Some(ExitStatus::Signal(9)));
        assert_eq!(&*ended.stderr, "I was here");
        assert_ne!(link.pid(), pid);
        link.ends();
    });
}

/// Every call is settled once, with all that is known, and the next one is answered by a new child without anybody's doing.
#[test]
fn f_002_a_child_killed_with_100_calls_in_flight_fails_each_once_and_is_replaced() {
    ordeal(|stage| {
        let link = stage.link(&["words=these are my last words\n"], patient());
        let first = link.pid();
        let calls: Vec<_> = (0..100).map(|_| link.tool("hang", json!({}))).collect();
        assert_eq!(link.pid(), first); // the others are read by now
        stage.family.members()[0].signal(Signal::KILL);
        for call in calls {
            let failure = failure(call.wait());
            assert_eq!(failure.kind, FailureKind::Lost);
            assert_eq!(failure.delivery, Delivery::Unknown);
            let text = failure.to_string();
            for word in [
                "`hang`",
                "may have run",
                "signal 9 (SIGKILL)",
                "these are my last words",
            ] {
                assert!(text.contains(word), "{word} is not in: {text}");
            }
        }
        let second = link.pid();
        assert_ne!(first, second);
        let stats = link.stats().wait().expect("the link is driven");
        assert_eq!((stats.opens, stats.failures), (2, 1));
        assert_eq!(stats.calls, stats.settled);
        link.ends();
    });
}

/// A reply that lies in the pipe when its server dies is a reply.
#[test]
fn what_is_said_before_death_is_heard() {
    ordeal(|stage| {
        let mut config = patient();
        config.policy.retry.stable_after = millis(0);
        let link = stage.link(&[], config);
        let says = "x".repeat(50_000);
        for life in 1..=20 {
            link.is_well();
            let die = json!({"how": "kill9", "says": says, "words": "that was all\n"});
            let said = link.tool("die", die).wait();
            assert_eq!(said.expect("it was said").text(), says);
            let ended = || link.last_end().filter(|ended| ended.epoch.number() == life);
            assert!(settles(|| ended().is_some()));
            let ended = ended().expect("it ended");
            assert_eq!(&*ended.stderr, "that was all");
        }
        link.ends();
    });
}

#[test]
fn f_002_calls_that_may_be_repeated_are_answered_by_the_next_child() {
    ordeal(|stage| {
        let link = stage.link(&[], patient());
        let first = link.pid();
        let again = everlink::client::CallOptions::new().idempotent();
        let sleep = link.with(again).tool("sleep", json!({"ms": 300}));
        assert_eq!(link.pid(), first);
        stage.family.members()[0].signal(Signal::KILL);
        assert_eq!(
            sleep.wait().expect("the next one sleeps, too").text(),
            "slept"
        );
        link.ends();
    });
}

#[test]
fn f_116_a_child_that_exits_at_once_is_told_with_its_status_and_words() {
    ordeal(|stage| {
        let link = stage.link(&["exit=42", "words=no such module: rascal\n"], patient());
        let call = link.tool("echo", json!({}));
        let not_ready = link.ready().wait().expect("the link is driven");
        let not_ready = not_ready.expect_err("there is no server");
        assert_eq!(not_ready.state, State::Parked);
        let failed = failure(call.wait());
        assert_eq!(failed.kind, FailureKind::Down);
        assert_eq!(failed.delivery, Delivery::NotSent);
        for text in [not_ready.to_string(), failed.to_string()] {
            for word in ["exit status 42", "no such module: rascal"] {
                assert!(text.contains(word), "{word} is not in: {text}");
            }
        }
        // Another call has the same to say, at once.
        let failed = failure(link.tool("echo", json!({})).wait());
        assert!(failed.to_string().contains("exit status 42"), "{failed}");
        assert_eq!(link.state(), State::Parked);
        link.ends();
    });
}

#[test]
fn a_program_that_is_not_there_is_said_by_its_name() {
    ordeal(|stage| {
        let link = stage.link_to(stage.family.command("no-such-server"), patient());
        let not_ready = link.ready().wait().expect("the link is driven");
        let not_ready = not_ready.expect_err("there is no server");
        assert_eq!(not_ready.state, State::Parked);
        let ended = not_ready.last_end.clone().expect("it was tried");
        assert_eq!(ended.cause, Cause::OpenFailed);
        assert_eq!(ended.faults[0].kind(), FaultKind::NotFound);
        assert!(
            not_ready.to_string().contains("`no-such-server`"),
            "{not_ready}"
        );
        let failed = failure(link.tool("echo", json!({})).wait());
        assert_eq!(failed.delivery, Delivery::NotSent);
        assert!(failed.to_string().contains("`no-such-server`"), "{failed}");
        link.ends();
    });
}

#[test]
fn a_program_that_may_not_be_run_is_said_so() {
    ordeal(|stage| {
        let place = stage.scratch("text");
        fs::write(&place, "this is no program").expect("there is room");
        let link = stage.link_to(stage.family.command(&place), patient());
        let not_ready = link.ready().wait().expect("the link is driven");
        let ended = not_ready.expect_err("there is no server").last_end;
        let ended = ended.expect("it was tried");
        assert_eq!(ended.faults[0].kind(), FaultKind::PermissionDenied);
        let name = format!("`{}`", place.display());
        assert!(ended.to_string().contains(&name), "{ended}");
        link.ends();
    });
}

/// Whatever it is that there is no room for, it is said, nothing of the attempt is left, and the link comes back when there is room.
#[test]
fn a_system_that_is_full_is_told_and_outlived() {
    ordeal(|stage| {
        let roomy = getrlimit(Resource::Nofile);
        let mut failures = 0;
        for full in 3..40 {
            let mut config = patient();
            config.policy.retry.budget = 0;
            let link = stage.link(&[], config);
            let tight = Rlimit {
                current: Some(full),
                ..roomy
            };
            setrlimit(Resource::Nofile, tight).expect("less is always granted");
            let ready = link.ready().wait().expect("the link is driven");
            setrlimit(Resource::Nofile, roomy).expect("it is as before");
            if let Err(not_ready) = ready {
                let ended = not_ready.last_end.clone().expect("it was tried");
                let kinds: Vec<_> = ended.faults.iter().map(|fault| fault.kind()).collect();
                assert_eq!(kinds, [FaultKind::ResourcesExhausted], "{not_ready}");
                failures += 1;
                link.wake();
            }
            link.is_well();
            link.ends();
        }
        assert!(failures > 0, "there was room in the smallest one");
    });
}

/// An update removes the program for a while.
#[test]
fn f_074_a_program_that_comes_back_is_found_by_who_looks() {
    ordeal(|stage| {
        let place = stage.scratch("rascal");
        let rascal = stage.family.rascal(&[]);
        let link = stage.link_to(stage.family.command(&place), patient());
        let not_ready = link.ready().wait().expect("the link is driven");
        assert_eq!(not_ready.expect_err("it is not there").state, State::Parked);
        fs::copy(rascal.get_program(), &place).expect("there is room");
        link.wake();
        assert!(settles(|| link.state() == State::Ready));
        link.pid();
        link.ends();
    });
}

#[test]
fn f_016_a_child_that_dies_at_its_first_starts_comes_back_by_itself() {
    ordeal(|stage| {
        let link = stage.link(&["frail=3", &stage.diary()], patient());
        let said = link.tool("echo", json!({"text": "at last"})).wait();
        assert_eq!(said.expect("it is well in the end").text(), "at last");
        assert_eq!(stage.entries(), ["start"; 4]);
        assert_eq!(link.epoch().number(), 4);
        let ended = link.last_end().expect("it ended before");
        assert_eq!(ended.exit, Some(ExitStatus::Code(7)));
        link.ends();
    });
}

/// One that serves and dies is not started for ever, however well each of its starts went.
#[test]
fn f_016_a_child_that_is_ready_and_dies_spends_the_budget() {
    ordeal(|stage| {
        let config = patient();
        let lives = u64::from(config.policy.retry.budget) + 1;
        let link = stage.link(&[], config);
        for life in 1..=lives {
            link.is_well();
            assert_eq!(link.epoch().number(), life);
            failure(link.tool("die", json!({"how": "abort"})).wait());
        }
        assert!(settles(|| link.state() == State::Parked));
        let failed = failure(link.tool("echo", json!({})).wait());
        assert_eq!(failed.kind, FailureKind::Down);
        assert!(
            failed.to_string().contains("signal 6 (SIGABRT)"),
            "{failed}"
        );
        stage.nobody_is_left();
        link.ends();
    });
}

#[test]
fn f_010_a_child_that_closed_its_input_is_as_good_as_dead() {
    ordeal(|stage| {
        let link = stage.link(&["ignore-eof"], stern());
        let first = link.pid();
        link.tool("hang_up", json!({}))
            .wait()
            .expect("it hangs up after that");
        let failed = failure(link.tool("echo", json!({})).wait());
        assert_eq!(failed.kind, FailureKind::Lost);
        assert!(
            failed.to_string().contains("the server no longer reads"),
            "{failed}"
        );
        assert_ne!(link.pid(), first);
        link.ends();
    });
}

#[test]
fn f_015_twenty_reconnects_in_a_row_leave_nothing_and_never_overlap() {
    ordeal(|stage| {
        let link = stage.link(&[], patient());
        link.is_well();
        for epoch in 2..=21 {
            link.reconnect("once more");
            let is_there = || {
                let alive = stage.family.members();
                assert!(alive.len() <= 1, "two at once: {alive:?}");
                link.epoch().number() == epoch && link.state() == State::Ready
            };
            assert!(settles(is_there));
        }
        let stats = link.stats().wait().expect("the link is driven");
        assert_eq!((stats.opens, stats.failures, stats.abandoned), (21, 0, 0));
        assert_eq!(link.ends().exit, Some(ExitStatus::Code(0)));
    });
}

/// A life that kept what it was given would keep a megabyte; so would a link.
#[test]
fn lives_and_links_leave_no_memory() {
    ordeal(|stage| {
        let mut config = patient();
        config.policy.retry.stable_after = millis(0);
        let link = stage.link(&[], config.clone());
        let live_and_die = |lives: usize| {
            for _ in 0..lives {
                link.tool("flood", json!({"bytes": 1 << 20}))
                    .wait()
                    .expect("it serves");
                failure(link.tool("die", json!({"how": "exit"})).wait());
                let other = stage.link(&[], config.clone());
                other
                    .tool("flood", json!({"bytes": 1 << 20}))
                    .wait()
                    .expect("it serves");
                other.ends();
            }
        };
        live_and_die(4);
        let (_, before) = resident_bytes();
        live_and_die(20);
        let (_, after) = resident_bytes();
        assert!(after < before + (10 << 20), "{before} bytes became {after}");
        link.ends();
    });
}
