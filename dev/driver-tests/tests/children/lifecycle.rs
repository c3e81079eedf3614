//! What a program sees of the life of a link: its state, its events, and what each era can do.

use std::sync::mpsc::channel;

use everlink::client::{Cause, Event, State};
use everlink::protocol::{ClientCapabilities, Version};
use everlink::{Dialect, ExitStatus, Payload};
use everlink_handle::Events;
use serde_json::json;

use crate::stage::{Use, failure, ordeal, patient};

/// The next event that tells of a state.
fn next(events: &mut Events<Event>) -> (State, u64) {
    let event = events.find(|event| event.state().is_some());
    let event = event.expect("there is more to come");
    let epoch = match &*event {
        Event::Opening { epoch, .. }
        | Event::Handshaking { epoch }
        | Event::Closing { epoch, .. } => epoch.number(),
        Event::Ready(session) => session.epoch.number(),
        _ => 0,
    };
    (event.state().expect("it is such an event"), epoch)
}

#[test]
fn f_117_the_state_is_true_at_each_step_and_the_events_tell_the_life_in_order() {
    ordeal(|stage| {
        let mut config = patient();
        // It is looked at between two lives, for as long as that takes.
        config.policy.retry.first = config.policy.close_grace;
        config.policy.retry.cap = config.policy.close_grace;
        let link = stage.link(&["words=farewell\n"], config);
        let mut events = link.events();
        assert_eq!(link.state(), State::Idle);
        assert!(link.session().is_none() && link.last_end().is_none());

        link.is_well();
        assert_eq!(link.state(), State::Ready);
        let session = link.session().expect("it is ready");
        assert_eq!(session.version, Version::V2026_07_28);
        let server = session.server.as_ref().expect("it said who it is");
        assert_eq!(server.name(), "rascal");
        for state in [State::Opening, State::Handshaking, State::Ready] {
            assert_eq!(next(&mut events), (state, 1));
        }

        failure(link.tool("die", json!({"how": "exit", "code": 9})).wait());
        assert!(matches!(link.state(), State::Closing | State::Waiting));
        assert!(link.session().is_none());
        assert_eq!(next(&mut events), (State::Closing, 1));
        let ended = events.find_map(|event| match &*event {
            Event::Ended(ended) => Some(ended.clone()),
            _ => None,
        });
        let ended = ended.expect("it ended");
        assert_eq!((ended.epoch.number(), &ended.cause), (1, &Cause::Died));
        assert_eq!(ended.exit, Some(ExitStatus::Code(9)));
        assert_eq!(&*ended.stderr, "farewell");
        assert!(ended.ready_for.is_some() && ended.counted && !ended.abandoned);

        assert_eq!(next(&mut events), (State::Waiting, 0));
        assert_eq!(link.state(), State::Waiting);
        link.wake();
        for state in [State::Opening, State::Handshaking, State::Ready] {
            assert_eq!(next(&mut events), (state, 2));
        }
        assert_eq!(link.session().expect("it is ready").epoch.number(), 2);
        let last = link.last_end().expect("it ended");
        assert_eq!(last.epoch.number(), 1);

        link.ends();
        assert!(link.session().is_none());
        assert_eq!(link.last_end().expect("it ended").epoch.number(), 2);
        assert_eq!(next(&mut events), (State::Closing, 2));
        assert_eq!(next(&mut events), (State::Closed, 0));
        assert!(events.next().is_none(), "that was the last one");
        assert_eq!(events.missed(), 0);
    });
}

#[test]
fn both_eras_serve_report_progress_and_ask() {
    ordeal(|stage| {
        let versions = [
            ("era=legacy", Dialect::Automatic, Version::V2025_11_25),
            ("era=modern", Dialect::Automatic, Version::V2026_07_28),
            ("era=both", Dialect::Legacy, Version::V2025_11_25),
            ("era=both", Dialect::Modern, Version::V2026_07_28),
        ];
        for (era, dialect, version) in versions {
            let mut config = patient();
            config.dialect = dialect;
            config.capabilities = ClientCapabilities::default().with_roots(false);
            let link = stage.link(&[era], config);
            link.is_well();
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
                report.send(progress.progress).expect("somebody listens");
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
            let roots = roots.expect("this is JSON");
            let answer = link.answer(ask.expect("it asks"), Ok(roots)).wait();
            answer.expect("the link is driven").expect("it is open");
            let said = call.wait().expect("it was answered").text();
            assert!(said.contains("file:///srv"), "{said}");
            link.ends();
        }
    });
}

/// Many programs, many links: what becomes of one concerns no other.
#[test]
fn f_119_the_death_of_one_child_concerns_no_other_link() {
    ordeal(|stage| {
        let links: Vec<_> = (0..8).map(|_| stage.link(&[], patient())).collect();
        let pids: Vec<i32> = links.iter().map(|link| link.pid()).collect();
        failure(links[0].tool("die", json!({"how": "kill9"})).wait());
        failure(
            links[1]
                .within(crate::stage::millis(50))
                .tool("stop", json!({}))
                .wait(),
        );
        for (link, pid) in links.iter().zip(&pids).skip(2) {
            assert_eq!(link.pid(), *pid);
        }
        assert_ne!(links[0].pid(), pids[0]);
        for member in stage.family.members() {
            member.signal(rustix::process::Signal::CONT);
        }
        for link in &links {
            assert_eq!(link.ends().exit, Some(ExitStatus::Code(0)));
        }
    });
}
