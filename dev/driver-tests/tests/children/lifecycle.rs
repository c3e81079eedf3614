//! Tests what a program sees of a link: its state, its events, and the features of each era.

use std::sync::mpsc::channel;

use everlink::client::{Cause, Event, State};
use everlink::protocol::{ClientCapabilities, Version};
use everlink::{Dialect, ExitStatus, Payload};
use everlink_handle::Events;
use serde_json::json;

use crate::harness::{LinkExt, failure, for_each_adapter, long_timeouts};

/// The next event with a state.
fn next_state(events: &mut Events<Event>) -> (State, u64) {
    let event = events.find(|event| event.state().is_some());
    let event = event.expect("another event comes");
    let epoch = match &*event {
        Event::Opening { epoch, .. }
        | Event::Handshaking { epoch }
        | Event::Closing { epoch, .. } => epoch.number(),
        Event::Ready(session) => session.epoch.number(),
        _ => 0,
    };
    (
        event.state().expect("`find` checks that there is a state"),
        epoch,
    )
}

#[test]
fn f_117_state_matches_each_step_and_events_report_it_in_order() {
    for_each_adapter(|harness| {
        let mut config = long_timeouts();
        // The pause between two epochs lasts until `wake`, so that the test can inspect it.
        config.policy.retry.first = config.policy.close_grace;
        config.policy.retry.cap = config.policy.close_grace;
        let link = harness.link(&["stderr=farewell\n"], config);
        let mut events = link.events();
        assert_eq!(link.state(), State::Idle);
        assert!(link.session().is_none() && link.last_end().is_none());

        link.wait_ready();
        assert_eq!(link.state(), State::Ready);
        let session = link.session().expect("it is ready");
        assert_eq!(session.version, Version::V2026_07_28);
        let server = session.server.as_ref().expect("the server names itself");
        assert_eq!(server.name(), "bad-child");
        for state in [State::Opening, State::Handshaking, State::Ready] {
            assert_eq!(next_state(&mut events), (state, 1));
        }

        failure(link.tool("die", json!({"how": "exit", "code": 9})).wait());
        assert!(matches!(link.state(), State::Closing | State::Waiting));
        assert!(link.session().is_none());
        assert_eq!(next_state(&mut events), (State::Closing, 1));
        let ended = events.find_map(|event| match &*event {
            Event::Ended(ended) => Some(ended.clone()),
            _ => None,
        });
        let ended = ended.expect("it ended");
        assert_eq!((ended.epoch.number(), &ended.cause), (1, &Cause::Died));
        assert_eq!(ended.exit, Some(ExitStatus::Code(9)));
        assert_eq!(&*ended.stderr, "farewell");
        assert!(ended.ready_for.is_some() && ended.counted && !ended.abandoned);

        assert_eq!(next_state(&mut events), (State::Waiting, 0));
        assert_eq!(link.state(), State::Waiting);
        link.wake();
        for state in [State::Opening, State::Handshaking, State::Ready] {
            assert_eq!(next_state(&mut events), (state, 2));
        }
        assert_eq!(link.session().expect("it is ready").epoch.number(), 2);
        let last = link.last_end().expect("it ended");
        assert_eq!(last.epoch.number(), 1);

        link.shut_down();
        assert!(link.session().is_none());
        assert_eq!(link.last_end().expect("it ended").epoch.number(), 2);
        assert_eq!(next_state(&mut events), (State::Closing, 2));
        assert_eq!(next_state(&mut events), (State::Closed, 0));
        assert!(events.next().is_none(), "`Closed` is the last event");
        assert_eq!(events.missed(), 0);
    });
}

#[test]
fn calls_progress_and_asks_work_in_both_eras() {
    for_each_adapter(|harness| {
        let versions = [
            ("era=legacy", Dialect::Automatic, Version::V2025_11_25),
            ("era=modern", Dialect::Automatic, Version::V2026_07_28),
            ("era=both", Dialect::Legacy, Version::V2025_11_25),
            ("era=both", Dialect::Modern, Version::V2026_07_28),
        ];
        for (era, dialect, version) in versions {
            let mut config = long_timeouts();
            config.dialect = dialect;
            config.capabilities = ClientCapabilities::default().with_roots(false);
            let link = harness.link(&[era], config);
            link.wait_ready();
            assert_eq!(link.session().expect("it is ready").version, version);

            let listing = link.list_tools().wait().expect("it has tools");
            assert!(
                listing
                    .items
                    .iter()
                    .any(|tool| tool.as_str().contains("echo"))
            );

            let (report, reports) = channel();
            let call = link.tool("progress", json!({"n": 5}));
            let call = call.on_progress(move |progress| {
                report.send(progress.progress).expect("the receiver lives");
            });
            assert_eq!(call.wait().expect("it serves").text(), "done");
            assert_eq!(
                reports.into_iter().collect::<Vec<_>>(),
                [1.0, 2.0, 3.0, 4.0, 5.0]
            );

            let mut events = link.events();
            let call = link.tool("ask", json!({}));
            let ask = events.find_map(|event| match &*event {
                Event::Ask(ask) => Some(ask.ask),
                _ => None,
            });
            let roots = Payload::of(&json!({"roots": [{"uri": "file:///srv"}]}));
            let roots = roots.expect("the answer is JSON");
            let answer = link.answer(ask.expect("it asks"), Ok(roots)).wait();
            answer.expect("the link is driven").expect("it is open");
            let reply = call.wait().expect("it was answered").text();
            assert!(reply.contains("file:///srv"), "{reply}");
            link.shut_down();
        }
    });
}

/// A link does not depend on other links in the same process.
#[test]
fn f_119_dead_or_stopped_child_does_not_affect_other_links() {
    for_each_adapter(|harness| {
        let links: Vec<_> = (0..8).map(|_| harness.link(&[], long_timeouts())).collect();
        let pids: Vec<i32> = links.iter().map(|link| link.server_pid()).collect();
        failure(links[0].tool("die", json!({"how": "kill9"})).wait());
        failure(
            links[1]
                .with_idle_limit(crate::harness::millis(50))
                .tool("stop", json!({}))
                .wait(),
        );
        for (link, pid) in links.iter().zip(&pids).skip(2) {
            assert_eq!(link.server_pid(), *pid);
        }
        assert_ne!(links[0].server_pid(), pids[0]);
        for process in harness.processes.alive() {
            process.signal(rustix::process::Signal::CONT);
        }
        for link in &links {
            assert_eq!(link.shut_down().exit, Some(ExitStatus::Code(0)));
        }
    });
}
