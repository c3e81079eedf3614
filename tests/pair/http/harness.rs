//! Support for every scenario: the configurations of both ends, and records of each call, how often it ran, and its
//! outcome. Asserts only rules that hold in every scenario.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use everlink::client::{self, CallOptions, Outcome};
use everlink::protocol::{Era, ServerCapabilities, Version, Versions};
use everlink::server::{self, Http, Offer};
use everlink::{CallId, Client, Config, Dialect, Instant, Payload, Server, Watch};
use model::Net;
use serde_json::{Value, json};

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn payload(value: &Value) -> Payload {
    Payload::of(value).expect("a value is JSON")
}

/// A client that supports only this version.
pub(crate) fn client(version: Version) -> Config {
    let mut config = Net::client_config();
    config.versions = Versions::only(version);
    config.dialect = match version.era() {
        Era::Legacy => Dialect::Legacy,
        _ => Dialect::Modern,
    };
    config.watch = Watch::none();
    config
}

/// A server that offers everything.
pub(crate) fn server(http: Http) -> server::Config {
    let all = ServerCapabilities::default()
        .with_completions()
        .with_logging()
        .with_prompts(true)
        .with_resources(true, true)
        .with_tools(true);
    let offer = Offer::new("far", "2").with_capabilities(all);
    server::Config::new(offer, [7; 16]).with_http(http)
}

/// The records of both applications.
#[derive(Debug, Default)]
pub(crate) struct CallRecords {
    calls: BTreeMap<CallId, CallRecord>,
    /// The number of times that each mark reached the server's application.
    pub(crate) runs: BTreeMap<u64, u32>,
    marks: u64,
}

#[derive(Debug)]
struct CallRecord {
    mark: u64,
    may_repeat: bool,
    outcome: Option<String>,
}

impl CallRecords {
    /// Calls a tool with its own mark, which the reply must repeat.
    pub(crate) fn call(&mut self, client: &mut Client, now: Instant, may_repeat: bool) -> CallId {
        let mark = self.marks;
        self.marks += 1;
        let params = json!({"name": "tool", "arguments": {"mark": mark}});
        let options = CallOptions::new();
        let options = if may_repeat {
            options.idempotent()
        } else {
            options
        };
        let call = client.call(now, "tools/call", Some(payload(&params)), options);
        let call = call.expect("the link accepts the call");
        let record = CallRecord {
            mark,
            may_repeat,
            outcome: None,
        };
        self.calls.insert(call, record);
        call
    }

    /// Records an event of the client.
    pub(crate) fn record_event(&mut self, event: &client::Event) {
        if let client::Event::Done { call, outcome } = event {
            let record = self.calls.get_mut(call).expect("a known call");
            let text = match outcome {
                Outcome::Reply(result) => {
                    let result: Value = result.parse().expect("JSON");
                    assert_eq!(
                        result["mark"], record.mark,
                        "{call} has the reply of another call"
                    );
                    "reply".to_owned()
                }
                Outcome::Failed(failure) => format!("{:?} {:?}", failure.kind, failure.delivery),
                other => format!("{other:?}"),
            };
            let before = record.outcome.replace(text);
            assert_eq!(before, None, "{call} has a second outcome");
        }
    }

    /// Records a request that reached the server's application. Returns its mark.
    pub(crate) fn record_request(&mut self, request: &server::Request) -> u64 {
        let params = request.params.as_ref().expect("parameters");
        let params: Value = params.parse().expect("JSON");
        let mark = params["arguments"]["mark"].as_u64().expect("a mark");
        *self.runs.entry(mark).or_default() += 1;
        mark
    }

    /// Counts the outcomes. Every call must have one, and a call that must not be repeated must have run at most
    /// once.
    #[track_caller]
    pub(crate) fn check_outcomes(&self) -> BTreeMap<String, usize> {
        let mut outcomes = BTreeMap::new();
        for (call, record) in &self.calls {
            let outcome = record.outcome.clone();
            let outcome = outcome.unwrap_or_else(|| panic!("{call} has no outcome"));
            let runs = self.runs.get(&record.mark).copied().unwrap_or(0);
            let limit = if record.may_repeat { 3 } else { 1 };
            assert!(runs <= limit, "{call} ran {runs} times: {outcome}");
            let is_unsent = outcome.ends_with("NotSent");
            assert!(!is_unsent || runs == 0, "{call} ran: {outcome}");
            *outcomes.entry(outcome).or_default() += 1;
        }
        outcomes
    }

    pub(crate) fn open_calls(&self) -> usize {
        let open = self.calls.values().filter(|call| call.outcome.is_none());
        open.count()
    }
}

/// The reply to the call with this mark.
pub(crate) fn reply(mark: u64) -> Payload {
    payload(&json!({"content": [], "mark": mark}))
}

/// An application of the server that answers every request at once.
pub(crate) fn answer_all(
    records: &mut CallRecords,
) -> impl FnMut(&mut Server, Instant, server::Event) {
    move |server, now, event| {
        if let server::Event::Request(request) = event {
            let mark = records.record_request(&request);
            let sent = server.respond(now, request.request, reply(mark));
            sent.expect("the request is open");
        }
    }
}

/// Advances the clock until every call has its outcome. The server answers every request at once.
#[track_caller]
pub(crate) fn finish(net: &mut Net, records: &mut CallRecords) -> BTreeMap<String, usize> {
    for _ in 0..1_000 {
        net.serve_for(seconds(1), answer_all(records));
        for event in net.take_client_events() {
            records.record_event(&event);
        }
        if records.open_calls() == 0 {
            return records.check_outcomes();
        }
    }
    panic!("{} calls have no outcome", records.open_calls());
}

/// The numbers that arrived; checks that each arrives once and in order.
#[derive(Debug, Default)]
pub(crate) struct SequenceCheck(BTreeMap<u64, Vec<u64>>, BTreeSet<(u64, u64)>);

impl SequenceCheck {
    /// Records the next number of this line, which is a sequence of messages.
    #[track_caller]
    pub(crate) fn arrived(&mut self, line: u64, number: u64) {
        assert!(
            self.1.insert((line, number)),
            "{line}/{number} arrived twice"
        );
        let numbers = self.0.entry(line).or_default();
        assert_eq!(numbers.len() as u64, number, "{line} is out of order");
        numbers.push(number);
    }

    /// The number of arrivals on this line.
    pub(crate) fn count_of(&self, line: u64) -> u64 {
        self.0.get(&line).map_or(0, |numbers| numbers.len() as u64)
    }

    pub(crate) fn total(&self) -> usize {
        self.1.len()
    }
}
