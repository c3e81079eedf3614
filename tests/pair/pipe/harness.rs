//! Support for every scenario: two machines that offer and declare everything, short methods, and events as text.
//! Asserts only rules that hold in every scenario.

use core::fmt::Debug;
use core::time::Duration;

use everlink::ErrorObject;
use everlink::client::{self, CallOptions, Outcome, State};
use everlink::protocol::{
    ClientCapabilities, ClientFeature, Era, Implementation, ServerCapabilities, ServerFeature,
    Version, Versions, meta,
};
use everlink::server::{self, Offer, Request};
use everlink::{AskId, CallId, Config, Dialect, List, Payload, RequestId, Watch};
use model::{Cut, Pair};
use serde_json::{Value, json};

/// Plays a scenario in every version, with bytes cut in every way. Its return value must be the same for every cut.
#[track_caller]
pub(crate) fn in_every_version<T: PartialEq + Debug>(
    scenario: impl Fn(Harness) -> T,
) -> Vec<(Version, T)> {
    let versions = Version::ALL.iter();
    versions
        .map(|&version| {
            let setup = Setup::new(version);
            (version, in_every_cut(|cut| scenario(setup.ready(cut))))
        })
        .collect()
}

/// Plays a scenario in every version from `first` on, with bytes cut in every way. Its return value must be the same in
/// all of them.
#[track_caller]
pub(crate) fn same_result_since<T: PartialEq + Debug>(
    first: Version,
    scenario: impl Fn(Harness) -> T,
) -> T {
    let mut seen =
        in_every_version(|harness| (harness.version >= first).then(|| scenario(harness)));
    let last = seen
        .pop()
        .and_then(|(_, last)| last)
        .expect("the scenario was played");
    for (version, one) in seen {
        if let Some(one) = one {
            assert_eq!(one, last, "{version} differs from the newest version");
        }
    }
    last
}

/// Plays a scenario in every version, with bytes cut in every way. Its return value must be the same in all of them.
#[track_caller]
pub(crate) fn same_result_in_every_version<T: PartialEq + Debug>(
    scenario: impl Fn(Harness) -> T,
) -> T {
    same_result_since(Version::V2024_11_05, scenario)
}

/// Plays a scenario with bytes cut in every way. Its return value must always be the same. Whole messages are played
/// twice, so that a repetition must give the same value, too.
#[track_caller]
pub(crate) fn in_every_cut<T: PartialEq + Debug>(scenario: impl Fn(Cut) -> T) -> T {
    let whole = scenario(Cut::Whole);
    for cut in Cut::ALL {
        assert_eq!(scenario(cut), whole, "{cut:?} differs from whole messages");
    }
    whole
}

/// The configurations with which two machines meet in a version.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) version: Version,
    pub(crate) client: Config,
    pub(crate) server: server::Config,
}

impl Setup {
    /// A client that supports only this version and declares everything, and a server that offers everything.
    pub(crate) fn new(version: Version) -> Setup {
        let mut client = Config::child("near", "1");
        client.versions = Versions::only(version);
        client.dialect = match version.era() {
            Era::Legacy => Dialect::Legacy,
            _ => Dialect::Modern,
        };
        client.capabilities = all_client_capabilities();
        client.watch = Watch::none();
        client.policy.keepalive = None;
        let offer = Offer::new("far", "2")
            .with_capabilities(all_server_capabilities())
            .with_instructions("Ask twice.");
        let server = server::Config::new(offer, [7; 16]);
        Setup {
            version,
            client,
            server,
        }
    }

    /// Two machines before any call of an application.
    pub(crate) fn idle(&self, cut: Cut) -> Harness {
        let pair = Pair::new(self.client.clone(), self.server.clone());
        Harness::new(self.version, pair.cut(cut).recorded())
    }

    /// Two machines after their handshake.
    #[track_caller]
    pub(crate) fn ready(&self, cut: Cut) -> Harness {
        let mut harness = self.idle(cut);
        harness.connect();
        harness
    }
}

pub(crate) fn all_client_capabilities() -> ClientCapabilities {
    ClientCapabilities::default()
        .with_elicitation_form()
        .with_elicitation_url()
        .with_roots(true)
        .with_sampling_tools()
        .with(ClientFeature::TasksCancel)
        .with(ClientFeature::TasksList)
        .with(ClientFeature::TasksExtension)
}

pub(crate) fn all_server_capabilities() -> ServerCapabilities {
    ServerCapabilities::default()
        .with_completions()
        .with_logging()
        .with_prompts(true)
        .with_resources(true, true)
        .with_tools(true)
        .with(ServerFeature::TasksCancel)
        .with(ServerFeature::TasksList)
        .with(ServerFeature::TasksExtension)
}

/// Two machines, and their events that the scenario has not read yet.
pub(crate) struct Harness {
    pub(crate) version: Version,
    pub(crate) pair: Pair,
    client_events: Vec<client::Event>,
    server_events: Vec<server::Event>,
    /// The grants that the client was told of, accumulated.
    granted: Watch,
    /// The watches that the server was told of, accumulated.
    watched: Watch,
}

impl Harness {
    pub(crate) fn new(version: Version, pair: Pair) -> Harness {
        Harness {
            version,
            pair,
            client_events: Vec::new(),
            server_events: Vec::new(),
            granted: Watch::none(),
            watched: Watch::none(),
        }
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.version.era() == Era::Modern
    }

    /// Lets both machines run until neither can move, and collects their events. No time passes.
    pub(crate) fn settle(&mut self) {
        self.pair.settle();
        self.collect();
    }

    /// Advances the clock by `span` and carries out everything that is due.
    pub(crate) fn advance(&mut self, span: Duration) {
        self.pair.pass(span);
        self.collect();
    }

    /// Connects, and advances the clock until the link is ready.
    #[track_caller]
    pub(crate) fn connect(&mut self) {
        let (client, now) = self.pair.client();
        client.connect(now);
        self.until(State::Ready);
        let version = self.pair.client().0.session().map(|agreed| agreed.version);
        assert_eq!(version, Some(self.version));
        self.drop_events();
    }

    /// Advances the clock until the link is in this state.
    #[track_caller]
    pub(crate) fn until(&mut self, state: State) {
        self.settle();
        while self.pair.client().0.state() != state {
            assert!(self.pair.sleep(), "no deadline is left");
            self.settle();
        }
    }

    fn collect(&mut self) {
        self.client_events.extend(self.pair.take_client_events());
        self.server_events.extend(self.pair.take_server_events());
    }

    /// Drops all events so far.
    pub(crate) fn drop_events(&mut self) {
        self.settle();
        self.client_events.clear();
        self.server_events.clear();
    }

    /// Returns the client's unread events as text.
    pub(crate) fn client_event_texts(&mut self) -> Vec<String> {
        self.settle();
        let granted = &mut self.granted;
        let texts = self.client_events.drain(..).map(|event| {
            if let client::Event::Watching {
                granted: update, ..
            } = event
            {
                update.apply_to(granted);
                return format!("watching {granted:?}");
            }
            client_event_text(event)
        });
        texts.collect()
    }

    /// Returns the server's unread events as text.
    pub(crate) fn server_event_texts(&mut self) -> Vec<String> {
        self.settle();
        let watched = &mut self.watched;
        let texts = self.server_events.drain(..).map(|event| {
            if let server::Event::Watching(update) = event {
                update.apply_to(watched);
                return format!("Watching({watched:?})");
            }
            server_event_text(event)
        });
        texts.collect()
    }

    /// All messages that one side wrote (`>` the client, `<` the server).
    pub(crate) fn written(&self, by: char) -> Vec<Value> {
        let transcript = self.pair.transcript();
        let lines = transcript.lines();
        let lines = lines.filter_map(|line| line.strip_prefix(by));
        lines
            .map(|line| serde_json::from_str(line).expect("each line is a message"))
            .collect()
    }
}

/// # The client's application
impl Harness {
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: Value) -> CallId {
        self.call_with(method, params, CallOptions::new())
    }

    #[track_caller]
    pub(crate) fn call_with(
        &mut self,
        method: &str,
        params: Value,
        options: CallOptions,
    ) -> CallId {
        let (client, now) = self.pair.client();
        let params = (!params.is_null()).then(|| payload(&params));
        let call = client.call(now, method.to_owned(), params, options);
        call.expect("the call is accepted")
    }

    /// A call of a tool.
    #[track_caller]
    pub(crate) fn tool(&mut self, name: &str) -> CallId {
        self.call("tools/call", json!({"name": name, "arguments": {}}))
    }

    #[track_caller]
    pub(crate) fn list(&mut self, list: List) -> CallId {
        let (client, now) = self.pair.client();
        let call = client.list(now, list, CallOptions::new());
        call.expect("the call is accepted")
    }

    pub(crate) fn watch(&mut self, watch: Watch) {
        let (client, now) = self.pair.client();
        client.watch(now, watch);
        self.settle();
    }

    /// The outcome of a call, as text.
    #[track_caller]
    pub(crate) fn outcome(&mut self, call: CallId) -> String {
        outcome_text(&self.done(call))
    }

    /// The outcome of a call.
    #[track_caller]
    pub(crate) fn done(&mut self, call: CallId) -> Outcome {
        let done = self.try_done(call);
        done.unwrap_or_else(|| panic!("{call} is not done"))
    }

    pub(crate) fn try_done(&mut self, call: CallId) -> Option<Outcome> {
        self.settle();
        let is_it = |event: &client::Event| matches!(event, client::Event::Done { call: of, .. } if *of == call);
        let at = self.client_events.iter().position(is_it)?;
        match self.client_events.remove(at) {
            client::Event::Done { outcome, .. } => Some(outcome),
            _ => None,
        }
    }

    /// The next ask that the client received.
    #[track_caller]
    pub(crate) fn next_ask(&mut self) -> client::Ask {
        self.settle();
        let is_ask = |event: &client::Event| matches!(event, client::Event::Ask(_));
        let at = self.client_events.iter().position(is_ask);
        let at = at.expect("the client received an ask");
        match self.client_events.remove(at) {
            client::Event::Ask(ask) => ask,
            other => panic!("{other:?} is no ask"),
        }
    }

    #[track_caller]
    pub(crate) fn answer(&mut self, ask: AskId, answer: Value) {
        let (client, now) = self.pair.client();
        let sent = client.answer(now, ask, Ok(payload(&answer)));
        sent.expect("the ask is open");
    }

    #[track_caller]
    pub(crate) fn decline(&mut self, ask: AskId) {
        let (client, now) = self.pair.client();
        let sent = client.answer(now, ask, Err(ErrorObject::new(-1, "not now")));
        sent.expect("the ask is open");
    }
}

/// # The server's application
impl Harness {
    /// The next request that the server received.
    #[track_caller]
    pub(crate) fn request(&mut self) -> Request {
        self.try_request().expect("the server received a request")
    }

    pub(crate) fn try_request(&mut self) -> Option<Request> {
        self.settle();
        let is_it = |event: &server::Event| matches!(event, server::Event::Request(_));
        let at = self.server_events.iter().position(is_it)?;
        match self.server_events.remove(at) {
            server::Event::Request(request) => Some(request),
            _ => None,
        }
    }

    #[track_caller]
    pub(crate) fn respond(&mut self, request: RequestId, result: Value) {
        let (server, now) = self.pair.server();
        let sent = server.respond(now, request, payload(&result));
        sent.expect("the request is open");
    }

    #[track_caller]
    pub(crate) fn fail(&mut self, request: RequestId, error: ErrorObject) {
        let (server, now) = self.pair.server();
        let sent = server.fail(now, request, error);
        sent.expect("the request is open");
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, request: RequestId, method: &str, params: Value) -> AskId {
        let (server, now) = self.pair.server();
        let params = (!params.is_null()).then(|| payload(&params));
        let ask = server.ask(now, request, method.to_owned(), params);
        ask.expect("the client can be asked")
    }

    /// The outcome of an ask, as text.
    #[track_caller]
    pub(crate) fn ask_outcome(&mut self, ask: AskId) -> String {
        self.settle();
        let is_it = |event: &server::Event| matches!(event, server::Event::Answered { ask: of, .. } if *of == ask);
        let at = self.server_events.iter().position(is_it);
        let at = at.unwrap_or_else(|| panic!("{ask} has no outcome"));
        match self.server_events.remove(at) {
            server::Event::Answered { outcome, .. } => answer_text(&outcome),
            other => panic!("{other:?} is no answer"),
        }
    }

    #[track_caller]
    pub(crate) fn publish(&mut self, change: everlink::Change) {
        let (server, now) = self.pair.server();
        server
            .publish(now, change)
            .expect("such changes are offered");
    }
}

pub(crate) fn payload(value: &Value) -> Payload {
    Payload::of(value).expect("a value can be written")
}

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A result without the members that the modern era adds to every result, so that both eras give the same text.
pub(crate) fn without_modern_members(result: &Payload) -> Value {
    let mut result: Value = result.parse().expect("a result is JSON");
    if let Some(members) = result.as_object_mut() {
        for added in ["resultType", "ttlMs", "cacheScope"] {
            members.remove(added);
        }
        if let Some(meta) = members.get_mut("_meta").and_then(Value::as_object_mut) {
            meta.remove(meta::SERVER_INFO);
            if meta.is_empty() {
                members.remove("_meta");
            }
        }
    }
    result
}

pub(crate) fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Error(error) => format!("error {}", error_text(error)),
        Outcome::Failed(failure) => format!("failed {:?} {:?}", failure.kind, failure.delivery),
        Outcome::Listed(listing) => {
            let items: Vec<&str> = listing.items.iter().map(Payload::as_str).collect();
            format!("listed {:?} [{}]", listing.list, items.join(","))
        }
        Outcome::Reply(result) => format!("reply {}", without_modern_members(result)),
        other => format!("{other:?}"),
    }
}

fn error_text(error: &ErrorObject) -> String {
    let data = error.data.as_ref().map(Payload::as_str);
    format!("{} {:?} {data:?}", error.code, error.message)
}

fn answer_text(outcome: &Result<Payload, server::Unanswered>) -> String {
    match outcome {
        Ok(answer) => answer.as_str().into(),
        Err(server::Unanswered::Error(error)) => format!("refused {}", error_text(error)),
        Err(why) => format!("{why:?}"),
    }
}

fn params_text(params: Option<&Payload>) -> &str {
    params.map_or("nothing", Payload::as_str)
}

fn client_event_text(event: client::Event) -> String {
    use client::Event;
    match event {
        Event::Done { call, outcome } => format!("{call} is done: {}", outcome_text(&outcome)),
        Event::Progress {
            call,
            progress,
            total,
            message,
        } => format!("{call} is at {progress} of {total:?}: {message:?}"),
        Event::Ask(ask) => format!(
            "{:?} {} {}",
            ask.ask,
            ask.method,
            params_text(ask.params.as_ref())
        ),
        Event::AskWithdrawn { ask, why } => format!("{ask:?} is withdrawn: {why:?}"),
        Event::Changed(change) => format!("changed {change:?}"),
        Event::Log {
            level,
            logger,
            data,
            ..
        } => format!("log {level:?} {logger:?} {}", data.as_str()),
        Event::Notified { method, params, .. } => {
            format!("notified {method} {}", params_text(params.as_ref()))
        }
        Event::Noise(noise) => format!("noise: {}", noise.what),
        Event::Ended(ended) => format!("ended: {} {:?}", ended.cause, ended.exit),
        other => other
            .state()
            .map_or_else(|| format!("{other:?}"), |state| state.to_string()),
    }
}

fn server_event_text(event: server::Event) -> String {
    use server::Event;
    match event {
        Event::Met(peer) => format!("met {:?}", peer.client.as_ref().map(Implementation::name)),
        Event::Request(request) => format!(
            "{} {} {}",
            request.request,
            request.method,
            params_text(request.params.as_ref())
        ),
        Event::Answered { ask, outcome, .. } => format!("{ask:?}: {}", answer_text(&outcome)),
        Event::Notified { method, params, .. } => {
            format!("notified {method} {}", params_text(params.as_ref()))
        }
        Event::Noise(noise) => format!("noise: {}", noise.what),
        Event::Closed { faults, .. } => format!("closed {faults:?}"),
        other => format!("{other:?}"),
    }
}
