//! The machines that are explored: their setups, their actions, and their endings.
//!
//! Spans are few and short, so that what can happen in either order does so soon; limits are so low that they are met.
//! There is no jitter: a random number from before would tell states apart.

use std::time::Duration;

use everlink::client::CallOptions;
use everlink::protocol::ClientCapabilities;
use everlink::{
    Config, FaultKind, Instant, Keepalive, Limit, List, Watch, WhenSpent, relay, server,
};

use super::StateView;
use super::search::{Action, Explored, Machine};
use crate::client::app::Which;
use crate::client::http::{Cut, Form, On, Op as HttpOp, Web};
use crate::client::pipe::{Op as PipeOp, Pipe};
use crate::client::{Link, ORIGIN, Peer, Reply, ServerMessage};
use crate::relay::{Guarded, Op as RelayOp, RelayConfig};
use crate::script::Elapse;
use crate::server::http::{Op as SiteOp, Site, SiteConfig};
use crate::server::pipe::{Op as ServerOp, Pipe as ServerPipe};
use crate::server::{ClientMessage, Kept, ServerConfig, offer};
use crate::world::{Case, PAYLOAD, SECRET, Setup, Transcript, World, assert_nothing_secret};

impl<C: Case> Explored for World<C> {
    fn look(&self, view: &mut StateView) {
        assert_nothing_secret(view.shown(&self.machine));
        let next = crate::machine::Timed::poll_timeout(&self.machine);
        view.due(self.now, next.map(|next| next.at));
        view.since(self.now, Some(self.told), Duration::MAX);
        C::look(self, view);
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn transcript(&mut self) -> &mut Transcript {
        &mut self.transcript
    }

    fn was_touched(&mut self) -> bool {
        std::mem::take(&mut self.is_touched)
    }
}

/// An action of some operations.
fn act<C: Case + 'static>(name: &'static str, ops: Vec<C::Op>) -> Action<World<C>>
where
    C::Op: Sync + 'static,
{
    let act = move |world: &mut World<C>| ops.iter().for_each(|op| world.step(op));
    (name, Box::new(act))
}

fn ending<C: Case + 'static>(name: &'static str, end: fn(&mut World<C>)) -> Action<World<C>> {
    (name, Box::new(end))
}

/// A link calls a server that was silent before, and waits. How long it waits depends on what servers replied to earlier.
fn calls_late<P: Peer + 'static>(call: P::Op) -> Action<World<Link<P>>>
where
    P::Op: Sync,
{
    let act = move |world: &mut World<Link<P>>| {
        world.elapse(Elapse::ToDeadline);
        world.step(&call);
        world.leave_alone();
    };
    ("calls a silent server and is left alone", Box::new(act))
}

fn endings<C: Case + 'static>(last: Action<World<C>>) -> Vec<Action<World<C>>> {
    let alone = ending("is left alone", World::leave_alone);
    vec![alone, ending("is shut down and must end", C::close), last]
}

/// All actions of a machine: a name, and one or more operations.
macro_rules! actions {
    ($of:ty: $($name:literal => $($op:expr),+;)+) => {
        vec![$(act::<$of>($name, vec![$($op),+])),+]
    };
}

fn small_client(mut config: Config) -> Config {
    let seconds = Duration::from_secs;
    config.capabilities = ClientCapabilities::default().with_roots(true);
    config.watch = Watch::none();
    let policy = &mut config.policy;
    policy.open_timeout = seconds(40);
    policy.probe_timeout = seconds(5);
    policy.handshake_notice = Duration::MAX;
    policy.handshake_timeout = seconds(40);
    policy.call_idle = Limit::After(seconds(20));
    policy.call_total = Limit::After(seconds(50));
    policy.ask_timeout = seconds(20);
    policy.pause_total = seconds(40);
    policy.resends = 1;
    policy.drain = seconds(10);
    policy.close_grace = seconds(5);
    policy.terminate_grace = seconds(5);
    policy.kill_grace = seconds(5);
    let mut keepalive = Keepalive::every(seconds(30));
    keepalive.timeout = seconds(10);
    policy.keepalive = Some(keepalive);
    policy.retry.budget = 1;
    policy.retry.first = Duration::ZERO;
    policy.retry.cap = Duration::ZERO;
    policy.retry.floor = seconds(1);
    policy.retry.stable_after = seconds(60);
    policy.retry.call_patience = seconds(5);
    policy.retry.call_pace = seconds(2);
    let probe = Duration::MAX;
    policy.retry.when_spent = WhenSpent::Park { probe };
    config.limits.queued_calls = 1;
    config.limits.calls_in_flight = 1;
    config.limits.asks = 1;
    config.limits.input_rounds = 1;
    config
}

const RECOVERS: &str = "meets a good server and must recover";

pub(super) fn client() -> Machine<World<Link<Pipe>>> {
    use FaultKind::{BrokenPipe, NotFound, Read};
    use PipeOp::{
        AnswerNewest, CancelOldest, Connect, End, Exited, List as ReadList, OpenFailed, Opened,
        Reconnect, ReplyToOldest, Serve, Shutdown, Wake, WriteFailed,
    };
    let here = Which::Current;
    let call = |method| PipeOp::Call {
        method,
        params: 0,
        options: 0,
    };
    let send = |message| PipeOp::Send {
        which: here,
        message,
        cut: 0,
    };
    let end = |which, faults| End { which, faults };
    let mut endings = endings(ending(RECOVERS, World::recover));
    endings.push(calls_late(call(2)));
    Machine {
        name: "client",
        merges: true,
        start: || World::new(Setup::prompt(small_client(Config::child("explore", "1")))),
        endings,
        actions: actions! { Link<Pipe>:
            // the application
            "connect" => Connect;
            "call a tool" => call(0);
            "read a resource" => call(2);
            "list the tools" => ReadList { list: List::Tools, options: 0 };
            "cancel the oldest call" => CancelOldest;
            "answer the newest question" => AnswerNewest;
            "two want another server" => Reconnect(here), Reconnect(here);
            "wake" => Wake;
            "shutdown" => Shutdown;
            // the driver
            "it opens, and the one before it ends" => end(Which::Past(0), vec![Read]), Opened(here);
            "it cannot be opened" => OpenFailed { which: here, faults: vec![NotFound] };
            "its output ends" => end(here, vec![]);
            "it exits" => Exited { which: here, status: 3 };
            "it cannot be written to" => WriteFailed { which: here, faults: vec![BrokenPipe] };
            // the server
            "it serves" => Serve(0);
            "it replies" => ReplyToOldest(Reply::Good(0));
            "it replies with an error" => ReplyToOldest(Reply::Error(0));
            "it replies with a question" => ReplyToOldest(Reply::InputRequired(3));
            "it asks" => send(ServerMessage::Ask { id: 0, what: 0 });
            "it says that the tools changed" => send(ServerMessage::Changed(0));
            // the clock
            "time passes until something is due" => PipeOp::Elapse(Elapse::ToDeadline);
        },
    }
}

/// The variant of a server that has no other version than the last one with sessions.
const LEGACY_SERVER: u8 = 6;

pub(super) fn client_http() -> Machine<World<Link<Web>>> {
    use HttpOp::{AnswerNewest, Auth, CancelOldest, Connect, End, Opened, Rare, Reconnect, Serve};
    let here = Which::Current;
    let call = |method| HttpOp::Call {
        method,
        params: 0,
        options: 0,
    };
    let reply = |how, form, cut| HttpOp::Reply {
        on: On::OldestUnanswered,
        how,
        form,
        cut: Cut(cut),
    };
    let end = |on, faults| End { on, faults };
    // Shows what is sent, and in which order, once there are credentials.
    let goes_on = ending("has other credentials and is left alone", |world| {
        world.step(&Auth(1));
        World::leave_alone(world);
    });
    let mut endings = endings(ending(RECOVERS, World::recover));
    endings.extend([goes_on, calls_late(call(2))]);
    Machine {
        name: "client-http",
        merges: true,
        start: || {
            let config = Config::http("explore", "1", &format!("{ORIGIN}mcp?key={PAYLOAD}"));
            let mut config = small_client(config.expect("a URL"));
            let http = config.binding.http_mut().expect("over HTTP");
            http.falls_back = false;
            http.probe_timeout = Duration::from_secs(5);
            http.resumes = 1;
            http.auth_timeout = Duration::from_secs(20);
            http.retry_after_most = Duration::from_secs(10);
            World::new(Setup::prompt(config))
        },
        endings,
        actions: actions! { Link<Web>:
            // the application
            "connect" => Connect;
            "call a tool" => call(0);
            "read a resource" => call(2);
            "cancel the oldest call" => CancelOldest;
            "answer the newest question" => AnswerNewest;
            "two want another epoch" => Reconnect(here), Reconnect(here);
            "wake" => Rare(255);
            "shutdown" => Rare(0);
            "there are other credentials" => Auth(1);
            "there are no credentials" => Auth(0);
            // the driver
            "it opens" => Opened(here);
            "nobody is there" => end(On::OldestUnanswered, vec![FaultKind::Refused]);
            "the connection breaks" => end(On::OldestUnanswered, vec![FaultKind::Reset]);
            "a stream ends" => end(On::OldestStream, vec![]);
            // the server
            "it serves" => Serve(0);
            "it serves as a legacy one" => Serve(LEGACY_SERVER);
            "it replies with an error" => reply(Reply::Error(0), Form::Json, 0);
            "it replies with a question" => reply(Reply::InputRequired(3), Form::Json, 0);
            "its reply breaks off" => reply(Reply::Good(0), Form::Events(1), 160);
            "it knows no session" => reply(Reply::Empty, Form::Error(0), 0);
            "it wants credentials" => reply(Reply::Empty, Form::Error(2), 0);
            // the clock
            "time passes until something is due" => HttpOp::Elapse(Elapse::ToDeadline);
        },
    }
}

fn small_server() -> server::Config {
    let seconds = Duration::from_secs;
    let mut config = server::Config::new(offer(0), SECRET);
    config.ask_timeout = seconds(20);
    config.drain = seconds(10);
    config.flush = seconds(5);
    config.limits.requests = 2;
    config.limits.asks = 1;
    config.limits.input_rounds = 1;
    config.limits.listens = 1;
    config
}

/// An id that no request had before.
const FRESH: u8 = 128;
/// The terms of a request: all of them in it, with a token for progress; or none.
const MODERN: u8 = 16;
const LEGACY: u8 = 5;
/// `tools/call` and `subscriptions/listen` among the methods of a scripted client.
const CALL: u8 = 0;
const LISTEN: u8 = 111;

const fn request(method: u8, terms: u8) -> ClientMessage {
    ClientMessage::Request {
        id: FRESH,
        method,
        terms,
        params: 0,
    }
}

const REPLY: ClientMessage = ClientMessage::Reply { which: 0, how: 0 };

const RETRY: ClientMessage = ClientMessage::Retry {
    id: FRESH,
    which: 0,
    how: 0,
};

pub(super) fn server() -> Machine<World<ServerPipe>> {
    use ServerOp::{
        Ask, AskUnbidden, End, FailOldest, Progress, Publish, RequireInput, Respond, Shutdown,
        Withdraw, WriteFailed,
    };
    let send = |message| ServerOp::Send { message, cut: 0 };
    let rests = "has a good application and must owe nothing";
    Machine {
        name: "server",
        merges: true,
        start: || {
            let (config, later) = (small_server(), offer(0));
            World::new(Setup::prompt(ServerConfig { config, later }))
        },
        endings: endings(ending(rests, ServerPipe::rest)),
        actions: actions! { ServerPipe:
            // the client
            "it introduces itself" => send(ClientMessage::Introduce(0));
            "it calls a tool" => send(request(CALL, MODERN));
            "it calls a tool by older terms" => send(request(CALL, LEGACY));
            "it watches" => send(request(LISTEN, MODERN));
            "it cancels the newest" => send(ClientMessage::CancelNewest);
            "it answers the newest question" => send(REPLY);
            "it retries with what was wanted" => send(RETRY);
            "it sends nothing of use" => send(ClientMessage::Noise(10));
            "it ends" => End;
            "it cannot be written to" => WriteFailed;
            // the application
            "answer the newest" => Respond { which: 0, how: 0 };
            "answer the oldest with an error" => FailOldest;
            "ask for the newest" => Ask { which: 0, what: 0 };
            "ask for nothing" => AskUnbidden(0);
            "want input for the newest" => RequireInput { which: 0, how: 1 };
            "withdraw the newest question" => Withdraw(0);
            "report progress of the newest" => Progress { which: 0, how: 1 };
            "publish that the tools changed" => Publish(0);
            "shutdown" => Shutdown;
            // the clock
            "time passes until something is due" => ServerOp::Elapse(Elapse::ToDeadline);
        },
    }
}

/// A server over HTTP that keeps its sessions, or that shares a store with others.
pub(super) fn server_http(kept: Kept) -> Machine<World<Site>> {
    use SiteOp::{
        Ask, Fail, Gone, Progress, Publish, Rare, RequireInput, Respond, Sent, Serve, Want,
    };
    let post = |who, message, wrong| SiteOp::Post {
        who,
        message,
        wrong,
        cut: 0,
    };
    let want = |what| Want {
        who: 0,
        what,
        wrong: 0,
    };
    let rests = |world: &mut World<Site>| {
        [Serve, Sent(0)].iter().for_each(|op| world.step(op));
        World::leave_alone(world);
    };
    let (name, start): (_, fn() -> World<Site>) = match kept {
        Kept::ByServer => ("server-http", || small_site(Kept::ByServer)),
        _ => ("server-shared", || small_site(Kept::Shared)),
    };
    Machine {
        name,
        merges: false,
        start,
        endings: endings(ending("has a good application and is left alone", rests)),
        actions: actions! { Site:
            // the clients
            "it opens a session" => post(0, ClientMessage::Introduce(0), 0);
            "it calls a tool" => post(0, request(CALL, MODERN), 0);
            "it calls a tool in its session" => post(0, request(CALL, LEGACY), 0);
            "another calls a tool in that session" => post(1, request(CALL, LEGACY), OF_ANOTHER);
            "it watches" => post(0, request(LISTEN, MODERN), 0);
            "it cancels the newest" => post(0, ClientMessage::CancelNewest, 0);
            "it answers the newest question" => post(0, REPLY, 0);
            "it retries with what was wanted" => post(0, RETRY, 0);
            "it wants the stream of its session" => want(0);
            "it resumes a stream" => want(8);
            "it deletes its session" => want(5);
            "the oldest connection breaks" => Gone(0);
            // the application
            "answer the oldest" => Respond(0);
            "answer the oldest with an error" => Fail(0);
            "ask for the oldest" => Ask { which: 0, what: 0 };
            "want input for the oldest" => RequireInput(0);
            "report progress of the oldest" => Progress(0);
            "publish that the tools changed" => Publish(0);
            // whoever runs it
            "another server takes over" => Rare(1);
            "shutdown" => Rare(0);
            // the clock
            "time passes until something is due" => SiteOp::Elapse(Elapse::ToDeadline);
        },
    }
}

/// The fault of a request that names the session of another client.
const OF_ANOTHER: u8 = 201;

fn small_site(kept: Kept) -> World<Site> {
    let mut config = small_server();
    let mut http = server::Http::new().with_hosts(server::Allowed::Any);
    http.session_idle = Duration::from_secs(60);
    http.keepalive = Duration::from_secs(30);
    http.replay = server::Replay::new(3, 1_000);
    config.http = Some(http);
    config.limits.sessions = 2;
    World::new(Setup::prompt(SiteConfig { config, kept }))
}

pub(super) fn relay() -> Machine<World<Guarded>> {
    use RelayOp::{Ask, End, Kill, Notify, Operate, RequireInput, Respond};
    let send = |message| RelayOp::Send { message, cut: 0 };
    let end = |world: &mut World<Guarded>| {
        Guarded::rest(world);
        Guarded::close(world);
    };
    let ends = "has good peers, owes nothing, is shut down and must end";
    Machine {
        name: "relay",
        merges: true,
        start: || {
            let mut upstream = small_client(Config::child("explore", "1"));
            // When a server was heard last is not visible from here; the keepalive is for the client alone to show.
            upstream.policy.keepalive = None;
            let mut config = relay::Config::new(upstream, SECRET);
            // No limit restarts when a call goes on: its timer would be too early, which cannot be seen from outside.
            let total = Limit::After(Duration::from_secs(300));
            config.calls = CallOptions::new().with_idle(Limit::Never).with_total(total);
            let downstream = small_server();
            config.downstream.ask_timeout = downstream.ask_timeout;
            config.downstream.limits = downstream.limits;
            config.patience = Duration::from_secs(5);
            config.drain = Some(Duration::from_secs(10));
            World::new(Setup::prompt(RelayConfig {
                config,
                servers: vec![small_server()],
                cut: crate::Cut::Joined,
            }))
        },
        endings: vec![
            ending("is left alone", World::leave_alone),
            ending(ends, end),
        ],
        actions: actions! { Guarded:
            // the host
            "it introduces itself" => send(ClientMessage::Introduce(0));
            "it calls a tool" => send(request(CALL, MODERN));
            "it calls a tool by older terms" => send(request(CALL, LEGACY));
            "it watches" => send(request(LISTEN, MODERN));
            "it cancels the newest" => send(ClientMessage::CancelNewest);
            "it answers the newest question" => send(REPLY);
            "it retries with what was wanted" => send(RETRY);
            "it ends" => End;
            // the servers
            "a server answers the oldest" => Respond(0);
            "a server asks for the oldest" => Ask { which: 0, what: 0 };
            "a server wants input for the oldest" => RequireInput { which: 0, how: 0 };
            "a server says that the tools changed" => Notify { which: 0, what: 7 };
            "the server dies" => Kill(0);
            // whoever runs it
            "shutdown" => Operate(0);
            // the clock
            "time passes until something is due" => RelayOp::Elapse(Elapse::ToDeadline);
        },
    }
}

#[cfg(test)]
mod tests {
    use everlink::client::State;

    use super::super::Bounds;
    use super::super::search::{are_merged, search};
    use super::*;

    /// Nothing can be sent while credentials are awaited, so a wake has nothing to do.
    #[test]
    fn wake_while_credentials_are_awaited_leads_nowhere() {
        let sequence = [
            "it serves as a legacy one",
            "wake",
            "read a resource",
            "it wants credentials",
            "wake",
        ];
        assert!(are_merged(&client_http(), [&sequence[..4], &sequence]));
    }

    /// What a relay itself answers depends on what the last server offered.
    #[test]
    fn era_of_the_server_that_died_tells_states_of_a_relay_apart() {
        let sequences: [&[&str]; 2] = [
            &[
                "it introduces itself",
                "it watches",
                "it introduces itself",
                "it calls a tool",
                "the server dies",
            ],
            &[
                "it calls a tool",
                "it introduces itself",
                "it watches",
                "it introduces itself",
                "it calls a tool",
                "a server answers the oldest",
                "the server dies",
            ],
        ];
        assert!(!are_merged(&relay(), sequences));
    }

    #[test]
    fn bytes_of_a_host_that_ended_tell_no_states_of_a_relay_apart() {
        let ended: [&[&str]; 2] = [
            &[
                "it calls a tool",
                "it calls a tool",
                "time passes until something is due",
            ],
            &[
                "it calls a tool",
                "a server asks for the oldest",
                "time passes until something is due",
                "it calls a tool",
                "time passes until something is due",
            ],
        ];
        let after = [
            "it ends",
            "it calls a tool by older terms",
            "a server answers the oldest",
            "it answers the newest question",
        ];
        let [one, other] = ended.map(|before| [&["it introduces itself"], before, &after].concat());
        assert!(are_merged(&relay(), [&one, &other]));
    }

    /// Both streams are due at the same time, and are opened in the order in which they ended.
    #[test]
    fn order_of_streams_that_wait_for_credentials_tells_states_apart() {
        let first = [
            "it serves as a legacy one",
            "time passes until something is due",
            "call a tool",
        ];
        let listening_ends_first = [
            "a stream ends",
            "its reply breaks off",
            "it wants credentials",
        ];
        let reply_ends_first = [
            "its reply breaks off",
            "it wants credentials",
            "it replies with an error",
        ];
        let sequences = [listening_ends_first, reply_ends_first].map(|then| [first, then].concat());
        let sequences = sequences.each_ref().map(Vec::as_slice);
        assert!(!are_merged(&client_http(), sequences));
    }

    #[test]
    fn credentials_that_are_newer_than_a_call_tell_states_apart() {
        let first = ["it serves", "time passes until something is due"];
        let then = ["read a resource", "there are other credentials"];
        let mut other = then;
        other.reverse();
        let sequences = [then, other].map(|then| [first, then].concat());
        let sequences = sequences.each_ref().map(Vec::as_slice);
        assert!(!are_merged(&client_http(), sequences));
    }

    #[test]
    fn reply_to_a_call_tells_states_of_a_client_apart() {
        let sequences: [&[&str]; 2] = [
            &["it serves", "call a tool", "cancel the oldest call"],
            &["it serves", "read a resource", "it serves as a legacy one"],
        ];
        assert!(!are_merged(&client_http(), sequences));
    }

    /// A host that answers a question again is not silent.
    #[test]
    fn question_that_is_over_tells_states_of_a_relay_apart() {
        let call = ["it introduces itself", "it calls a tool"];
        let ask = [
            "a server asks for the oldest",
            "it answers the newest question",
        ];
        let asked = [call, ask].concat();
        assert!(!are_merged(&relay(), [&call, &asked]));
    }

    #[test]
    fn a_broken_rule_is_found_by_the_shortest_sequence() {
        let expected = [
            "it serves",
            "call a tool",
            "two want another server",
            "judge",
        ];
        let mut machine = client();
        let is_needed = |name: &&str| *name == "connect" || expected.contains(name);
        machine.actions.retain(|(name, _)| is_needed(name));
        let judge = |world: &mut World<Link<Pipe>>| {
            assert_ne!(
                world.machine.state(),
                State::Draining,
                "nothing ever drains"
            );
        };
        machine.actions.push(("judge", Box::new(judge)));
        let found = search(&machine, Bounds::depth(6)).unwrap_err();
        assert_eq!(found.sequence, expected);
        assert!(found.what.contains("nothing ever drains"), "{found}");
    }
}
