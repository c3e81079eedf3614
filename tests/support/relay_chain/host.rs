//! The host in front of the relay: a real client end that answers asks, or a script that writes lines. Depends on
//! nothing behind the relay.

use core::time::Duration;
use std::collections::BTreeMap;

use everlink::client::{Ask, Client, Event, Outcome};
use everlink::protocol::{ClientCapabilities, ClientFeature, Era};
use everlink::{CallId, Config, Dialect, ErrorObject, Instant, Limit};
use serde_json::{Value, json};

use super::payload;

/// The host's answer to an ask: a result, an error, or none for now.
pub(crate) type AskHandler = Box<dyn FnMut(&Ask) -> Option<Result<Value, ErrorObject>>>;

pub(super) struct Host {
    /// The client end. Without one, a script writes the lines.
    pub(super) client: Option<Client>,
    pub(super) events: Vec<(Instant, Event)>,
    pub(super) outcomes: BTreeMap<CallId, usize>,
    pub(super) ask_handler: AskHandler,
    /// The method of every call.
    pub(super) calls: BTreeMap<CallId, &'static str>,
    /// The time from which the host reads.
    pub(super) reads_from: Instant,
}

/// The configuration of a host of this era that supports every ask. It has no timeouts, so that only the relay's apply,
/// and no keepalive.
pub(crate) fn host_config(era: Era) -> Config {
    let mut config = Config::child("host", "1");
    config.dialect = match era {
        Era::Modern => Dialect::Modern,
        _ => Dialect::Legacy,
    };
    config.capabilities = ClientCapabilities::default()
        .with_elicitation_form()
        .with_roots(true)
        .with_sampling()
        .with(ClientFeature::TasksExtension);
    config.policy.keepalive = None;
    config.policy.call_idle = Limit::Never;
    config.policy.call_total = Limit::Never;
    config.policy.handshake_timeout = Duration::MAX;
    config.policy.probe_timeout = Duration::MAX;
    config
}

impl Host {
    pub(super) fn new(config: Option<Config>) -> Host {
        Host {
            client: config.map(Client::new),
            events: Vec::new(),
            outcomes: BTreeMap::new(),
            ask_handler: Box::new(answer_every_ask),
            calls: BTreeMap::new(),
            reads_from: Instant::ZERO,
        }
    }

    #[track_caller]
    pub(super) fn client(&mut self) -> &mut Client {
        self.client.as_mut().expect("the host is a client end")
    }

    /// Records an event, and answers it if it is an ask.
    pub(super) fn event(&mut self, now: Instant, event: Event) {
        match &event {
            Event::Ask(ask) => {
                if let Some(answer) = (self.ask_handler)(ask) {
                    let answer = answer.map(|answer| payload(&answer));
                    let answered = self.client().answer(now, ask.ask, answer);
                    answered.expect("the ask is open");
                }
            }
            Event::Done { call, .. } => {
                let before = self.outcomes.insert(*call, self.events.len());
                assert!(before.is_none(), "{call} is done twice");
            }
            _ => {}
        }
        self.events.push((now, event));
    }

    #[track_caller]
    pub(super) fn outcome(&self, call: CallId) -> &Outcome {
        let at = self.outcomes.get(&call).expect("the call is done");
        match &self.events[*at].1 {
            Event::Done { outcome, .. } => outcome,
            other => panic!("{other:?} is no outcome"),
        }
    }
}

/// Answers every ask at once.
pub(crate) fn answer_every_ask(ask: &Ask) -> Option<Result<Value, ErrorObject>> {
    Some(Ok(match &*ask.method {
        "elicitation/create" => json!({"action": "accept", "content": {"name": "Ada"}}),
        "sampling/createMessage" => json!({
            "role": "assistant",
            "content": {"type": "text", "text": "Word."},
            "model": "m",
        }),
        "roots/list" => json!({"roots": [{"uri": "file:///home"}]}),
        _ => return Some(Err(ErrorObject::new(-32_601, "what?"))),
    }))
}

/// Answers no ask.
pub(crate) fn answer_no_ask(_: &Ask) -> Option<Result<Value, ErrorObject>> {
    None
}
