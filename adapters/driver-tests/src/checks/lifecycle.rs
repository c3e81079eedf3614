//! Checks what a program sees of a link: its state, its events, and the features of each era.

use std::sync::mpsc::channel;

use everlink::client::{Cause, Event, State};
use everlink::protocol::{ClientCapabilities, Version};
use everlink::{Dialect, ExitStatus, Payload};
use everlink_handle::{Events, Link};
use rustix::process::Signal;
use serde_json::json;

use crate::check::{Check, check};
use crate::expect::{await_soon, expect, expect_eq, expect_ne, expect_parts};
use crate::harness::{
    Harness, LinkExt, expect_exit, failure, long_timeouts, millis, next_event, reply,
};

pub(super) const CHECKS: &[Check] = &[
    check!(
        f_117_state_matches_each_step_and_events_report_it_in_order,
        "The state of a link is true at each step, and its events report each change in order.",
    ),
    check!(
        calls_progress_and_asks_work_in_both_eras,
        "Calls, progress and questions of the server work with servers of both eras.",
    ),
    check!(
        f_119_dead_or_stopped_child_does_not_affect_other_links,
        "A link does not depend on other links in the same process.",
    ),
];

/// The next event with a state.
#[track_caller]
fn next_state(events: &mut Events<Event>) -> (State, u64) {
    loop {
        let Some(event) = next_event(events) else {
            panic!("expected another event with a state. The events have ended");
        };
        let epoch = match &*event {
            Event::Opening { epoch, .. }
            | Event::Handshaking { epoch }
            | Event::Closing { epoch, .. } => epoch.number(),
            Event::Ready(session) => session.epoch.number(),
            _ => 0,
        };
        if let Some(state) = event.state() {
            return (state, epoch);
        }
    }
}

/// The first event of which the function returns something.
#[track_caller]
fn find_event<T>(events: &mut Events<Event>, find: impl Fn(&Event) -> Option<T>) -> T {
    loop {
        match next_event(events) {
            Some(event) => match find(&event) {
                Some(found) => return found,
                None => continue,
            },
            None => panic!("expected another event. The events have ended"),
        }
    }
}

#[track_caller]
fn expect_states(events: &mut Events<Event>, expected: &[(State, u64)]) {
    for expected in expected {
        expect_eq(
            "the next state and its epoch",
            next_state(events),
            *expected,
        );
    }
}

fn f_117_state_matches_each_step_and_events_report_it_in_order(harness: &Harness<'_>) {
    let mut config = long_timeouts();
    // The pause between two epochs lasts until `wake`, so that the check can inspect it.
    config.policy.retry.first = config.policy.close_grace;
    config.policy.retry.cap = config.policy.close_grace;
    let link = harness.link(&["stderr=farewell\n"], config);
    let mut events = link.events();
    expect_eq("the state of an unused link", link.state(), State::Idle);
    let is_new = link.session().is_none() && link.last_end().is_none();
    expect("an unused link has no session and no end", is_new, &link);

    link.wait_ready();
    expect_eq("the state of a ready link", link.state(), State::Ready);
    let session = link.session().expect("a ready link has a session");
    expect_eq("the version", session.version, Version::V2026_07_28);
    let server = session.server.as_ref().expect("the server names itself");
    expect_eq("the name of the server", server.name(), "bad-child");
    let opens = |epoch| [State::Opening, State::Handshaking, State::Ready].map(|it| (it, epoch));
    expect_states(&mut events, &opens(1));

    failure(link.tool("die", json!({"how": "exit", "code": 9})));
    let is_down = matches!(link.state(), State::Closing | State::Waiting);
    expect("the link is closing or waiting", is_down, link.state());
    expect_no_session(&link);
    expect_states(&mut events, &[(State::Closing, 1)]);
    let ended = find_event(&mut events, |event| match event {
        Event::Ended(ended) => Some(ended.clone()),
        _ => None,
    });
    expect_eq("the epoch that ended", ended.epoch.number(), 1);
    expect_eq("the cause of the end", &ended.cause, &Cause::Died);
    expect_exit(&ended, ExitStatus::Code(9));
    expect_eq("standard error", &*ended.stderr, "farewell");
    let is_failure = ended.ready_for.is_some() && ended.counted && !ended.abandoned;
    expect("the end of a ready epoch is a failure", is_failure, &ended);

    expect_states(&mut events, &[(State::Waiting, 0)]);
    expect_eq("the state of the link", link.state(), State::Waiting);
    link.wake();
    expect_states(&mut events, &opens(2));
    let session = link.session().expect("a ready link has a session");
    expect_eq("the epoch of the session", session.epoch.number(), 2);
    expect_eq("the epoch that ended", link.ended().epoch.number(), 1);

    let ended = link.shut_down();
    expect_no_session(&link);
    expect_eq("the epoch that ended", ended.epoch.number(), 2);
    expect_states(&mut events, &[(State::Closing, 2), (State::Closed, 0)]);
    let next = next_event(&mut events);
    expect("`Closed` is the last event", next.is_none(), next);
    expect_eq("missed events", events.missed(), 0);
}

#[track_caller]
fn expect_no_session(link: &Link) {
    let session = link.session();
    expect("the link has no session", session.is_none(), session);
}

fn calls_progress_and_asks_work_in_both_eras(harness: &Harness<'_>) {
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
        let session = link.session().expect("a ready link has a session");
        let pid = u32::try_from(link.server_pid()).ok();
        expect_eq("the id of the server's process", link.pid(), pid);
        expect_eq("the version", session.version, version);

        let listing = await_soon("the list of tools", link.list_tools().start());
        let listing = listing.expect("the bad child has tools");
        let mut tools = listing.items.iter();
        let has_echo = tools.any(|tool| tool.as_str().contains("echo"));
        expect("the tools include `echo`", has_echo, &listing.items);

        let (report, reports) = channel();
        let call = link.call_tool("progress", json!({"n": 5}));
        let call = call.on_progress(move |progress| {
            report.send(progress.progress).expect("the receiver lives");
        });
        expect_eq("the reply", reply(call.start()).text(), "done");
        let reports: Vec<_> = reports.into_iter().collect();
        expect_eq("the progress", reports, [1.0, 2.0, 3.0, 4.0, 5.0]);

        answer_ask(&link);
        link.shut_down();
    }
}

/// Calls a tool that asks for the roots of the client, and answers.
fn answer_ask(link: &Link) {
    let mut events = link.events();
    let call = link.tool("ask", json!({}));
    let ask = find_event(&mut events, |event| match event {
        Event::Ask(ask) => Some(ask.ask),
        _ => None,
    });
    let roots = Payload::of(&json!({"roots": [{"uri": "file:///srv"}]}));
    let roots = roots.expect("the answer is JSON");
    let answer = await_soon("the answer is accepted", link.answer(ask, Ok(roots)));
    let is_accepted = answer.is_ok();
    expect("the answer is accepted", is_accepted, answer);
    expect_parts("the reply", reply(call).text(), &["file:///srv"]);
}

fn f_119_dead_or_stopped_child_does_not_affect_other_links(harness: &Harness<'_>) {
    let links: Vec<_> = (0..8).map(|_| harness.link(&[], long_timeouts())).collect();
    let pids: Vec<i32> = links.iter().map(|link| link.server_pid()).collect();
    failure(links[0].tool("die", json!({"how": "kill9"})));
    failure(links[1].tool_within(millis(50), "stop", json!({})));
    for (link, pid) in links.iter().zip(&pids).skip(2) {
        expect_eq("the process of another link", link.server_pid(), *pid);
    }
    expect_ne("the process that answers", links[0].server_pid(), pids[0]);
    for process in harness.processes.alive() {
        process.signal(Signal::CONT);
    }
    for link in &links {
        expect_exit(&link.shut_down(), ExitStatus::Code(0));
    }
}
