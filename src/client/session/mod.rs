//! The handshake of an epoch, and what was agreed in it. It knows neither the transport nor calls in flight.

pub(in crate::client) mod handshake;
pub(in crate::client) mod result_head;
pub(in crate::client) mod writer;

use alloc::boxed::Box;
use alloc::format;
use core::time::Duration;

use crate::client::config::{Config, Policy};
use crate::client::context::Context;
use crate::client::event::Session;
use crate::client::failure::{Cause, Misuse};
use crate::client::frame::Frame;
use crate::client::requests::calls::Call;
use crate::driver::Epoch;
use crate::json::Json;
use crate::protocol::method::names;
use crate::protocol::{
    ClientCapabilities, ClientFeature, Era, LogLevel, Method, ServerFeature, Version, code,
};
use crate::util::Arc;
use crate::wire::{self, Inbound, Malformed};
use handshake::{Handshake, Terms};
use result_head::{KnownPrefix, ResultHead};
use writer::MessageWriter;

/// How long a relay's client may take to send its `initialize`, after it was told that the server has no `server/discover`. Clients in
/// use send it at once.
const INTRODUCTION_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct SessionState {
    /// The agreed session, as long as the server can still reply.
    agreed: Option<Arc<Session>>,
    handshake: Handshake,
    writer: MessageWriter,
    /// The capabilities to declare in the next handshake, if they differ from the present ones.
    next_capabilities: Option<Box<ClientCapabilities>>,
    /// The members with which the server usually begins its results.
    known_prefix: KnownPrefix,
}

impl SessionState {
    pub(super) fn new(config: &Config) -> SessionState {
        SessionState {
            agreed: None,
            handshake: Handshake::new(config.dialect, config.versions, config.remembered_era),
            writer: MessageWriter::new(config, Version::LATEST_LEGACY, None),
            next_capabilities: None,
            known_prefix: KnownPrefix::default(),
        }
    }

    pub(super) const fn agreed(&self) -> Option<&Arc<Session>> {
        self.agreed.as_ref()
    }

    /// The agreed version.
    pub(super) fn version(&self) -> Option<Version> {
        self.agreed.as_ref().map(|session| session.version)
    }

    /// The era of the agreed version.
    pub(super) fn era(&self) -> Option<Era> {
        self.version().map(Version::era)
    }

    /// Whether the server may send requests, as far as is known (S-STDIO-09).
    pub(super) fn speaks_legacy(&self) -> bool {
        match self.era() {
            Some(era) => era == Era::Legacy,
            None => self.handshake.may_be_legacy(),
        }
    }

    pub(super) fn allows_batches(&self) -> bool {
        self.version().is_some_and(Version::allows_batches)
    }

    /// What is known of the server from this handshake and the ones before.
    pub(super) const fn known(&self) -> &Handshake {
        &self.handshake
    }

    pub(super) const fn handshake(&mut self) -> &mut Handshake {
        &mut self.handshake
    }
}

/// Messages.
impl SessionState {
    pub(super) const fn writer(&self) -> &MessageWriter {
        &self.writer
    }

    /// Whether messages are written for a modern server.
    pub(super) fn writes_modern(&self) -> bool {
        self.writer.version().era() == Era::Modern
    }

    /// Encodes messages for this version from now on.
    pub(super) fn speak(&mut self, config: &Config, version: Version, logs: Option<LogLevel>) {
        self.writer = MessageWriter::new(config, version, logs);
    }

    pub(super) fn parse<'a>(&self, text: &'a str) -> Result<Inbound<'a>, Malformed> {
        wire::parse_after_run(text, self.known_prefix.text())
    }

    /// Reads the head of a result of a modern server. `None` if it cannot be read.
    pub(super) fn read_head<'a>(&mut self, result: Json<'a>) -> Option<ResultHead<'a>> {
        self.known_prefix.read(result)
    }
}

/// The agreement.
impl SessionState {
    /// Begins a session. New capabilities apply at once with a modern server, which gets them with its first request. A legacy server keeps those of
    /// the handshake.
    pub(super) fn agree(
        &mut self,
        cx: &mut Context,
        epoch: Epoch,
        terms: Terms,
        logs: Option<LogLevel>,
        is_revived: bool,
    ) {
        let version = terms.version;
        if version.era() == Era::Modern {
            self.take_capabilities(cx);
        }
        self.speak(&cx.config, version, logs);
        if version.era() == Era::Legacy && !is_revived {
            cx.frames.push(Frame::Initialized);
        }
        let is_relayed = cx.config.relayed.is_some();
        self.agreed = Some(Arc::new(Session {
            epoch,
            version,
            server: terms.server,
            capabilities: terms.capabilities,
            instructions: terms.instructions,
            introduction: terms.introduction.filter(|_| is_relayed),
        }));
    }

    /// Ends the session.
    pub(super) fn end(&mut self) {
        self.agreed = None;
        self.known_prefix = KnownPrefix::default();
        self.handshake.end();
    }

    /// Declares other capabilities: at once to a modern server, and otherwise in the next handshake.
    pub(super) fn declare(
        &mut self,
        cx: &mut Context,
        capabilities: ClientCapabilities,
        logs: Option<LogLevel>,
    ) {
        match self.version() {
            Some(version) if version.era() == Era::Modern => {
                cx.config.capabilities = capabilities;
                self.speak(&cx.config, version, logs);
            }
            Some(_) | None => {
                let is_new = cx.config.capabilities != capabilities;
                self.next_capabilities = is_new.then(|| Box::new(capabilities));
            }
        }
    }

    /// Makes the new capabilities the present ones. Returns false if there are none.
    pub(super) fn take_capabilities(&mut self, cx: &mut Context) -> bool {
        let next = self.next_capabilities.take();
        let is_new = next.is_some();
        if let Some(capabilities) = next {
            cx.config.capabilities = *capabilities;
        }
        is_new
    }

    /// Records what the end of a handshake says about the server's era. Returns the cause to report, and the server's reply to the first request if a
    /// second one was tried. `dies_of_messages`: an end shows that the server could not bear a message.
    pub(super) fn judge(
        &mut self,
        cause: Cause,
        dies_of_messages: bool,
    ) -> (Cause, Option<Box<str>>) {
        // S-HTTP-43: an unreachable server says nothing about its era.
        if !cause.is_out_of_reach() {
            if cause == Cause::Died && dies_of_messages {
                let died_of_the_probe = self.handshake.died();
                if died_of_the_probe {
                    return (Cause::EraProbe, None);
                }
            } else if !cause.is_planned() {
                self.handshake.failed();
            }
        }
        if cause == Cause::EraProbe {
            return (cause, None);
        }
        (cause, self.handshake.take_first_try())
    }

    /// How long the server may take to reply to the `server/discover` probe. The time is four times as long if a relay's client is
    /// modern: without the relay, the server would receive nothing else.
    pub(super) fn probe_patience(&self, policy: &Policy, patience: Duration) -> Duration {
        let preferred = self.handshake.preferred().map(Version::era);
        let times = if preferred == Some(Era::Modern) { 4 } else { 1 };
        (patience * times).min(policy.handshake_timeout / 2)
    }

    /// How long `initialize` waits for that of the relay's client. `None` if it does not wait.
    pub(super) fn introduction_patience(&mut self, config: &Config) -> Option<Duration> {
        let relayed = config.relayed.as_ref();
        let waits = relayed.is_some_and(|relayed| relayed.passes_refusals) && self.handshake.hold();
        let most = config.policy.handshake_timeout / 2;
        waits.then(|| INTRODUCTION_PATIENCE.min(most))
    }
}

/// What the two ends can do.
impl SessionState {
    /// Whether the server and a client of the relay speak the same era. If so, the link passes their messages on without checking them. A client of
    /// the other era changes nothing for the others.
    pub(super) fn passes(&self, config: &Config) -> bool {
        let many = config.has_many_clients();
        let has_met = |era| self.handshake.has_met(era, many);
        config.relayed.is_some() && self.era().is_some_and(has_met)
    }

    /// Like `passes`, for a call of a client that speaks this era.
    pub(super) fn passes_call(&self, era: Option<Era>) -> bool {
        era.is_some() && era == self.era()
    }

    /// Returns what the server lacks for a call of a relay's client that speaks this era. A server of the other era could take a request that
    /// this era does not have for something else.
    pub(super) fn missing_for(&self, era: Option<Era>, method: &Method) -> Option<Box<str>> {
        self.agreed.as_ref()?;
        if self.passes_call(era) {
            return None;
        }
        if era.is_some_and(|era| method.to_server.newest_of(era).is_none()) {
            let what = format!("`{}` to clients of another era", method.name);
            return Some(what.into());
        }
        self.missing(method)
    }

    /// Returns the feature or version that the server lacks for this method, if any.
    pub(super) fn missing(&self, method: &Method) -> Option<Box<str>> {
        let session = self.agreed.as_ref()?;
        if !method.to_server.contains(session.version) {
            let what = format!("`{}`, which {} does not have", method.name, session.version);
            return Some(what.into());
        }
        let gate: ServerFeature = method.gate(session.version)?;
        let offered = session.capabilities.offers(gate);
        (!offered).then(|| format!("`{gate}`, which `{}` needs", method.name).into())
    }

    /// Checks whether a notification may be sent to this server.
    pub(super) fn check_notification(
        &self,
        config: &Config,
        method: &'static Method,
    ) -> Result<(), Misuse> {
        let Some(version) = self.version().filter(|_| !self.passes(config)) else {
            return Ok(());
        };
        if !method.to_server.contains(version) {
            let method = method.name.into();
            return Err(Misuse::NotInVersion { method });
        }
        // S-CAP-03: a notification about an undeclared feature must not be sent.
        let gate = method.client_gate(version);
        if gate.is_some_and(|feature| !config.capabilities.declares(feature)) {
            let method = method.name.into();
            return Err(Misuse::NotDeclared { method });
        }
        Ok(())
    }

    /// Whether a call runs as a task, which is cancelled in another way (S-CANC-11). Only 2025-11-25 has such requests, and only with servers that
    /// declare them.
    pub(super) fn runs_as_task(&self, call: &Call) -> bool {
        let has_tasks = self.agreed.as_ref().is_some_and(|session| {
            session.version == Version::V2025_11_25
                && session.capabilities.offers(ServerFeature::TasksToolsCall)
        });
        has_tasks && call.asks_to_be_a_task()
    }

    /// Whether the result of a call may be a task. `declared`: the capabilities of the client that makes the call.
    pub(super) fn expects_task(declared: &ClientCapabilities, method: Option<&Method>) -> bool {
        method.is_some_and(|method| method.name == names::TOOLS_CALL)
            && declared.declares(ClientFeature::TasksExtension)
    }

    /// Whether this error reply to a probe proves that the server does not speak the agreed era. `may_change`: another server may have taken its place.
    /// That one refuses the probe like any unknown method.
    pub(super) fn proves_another_era(&self, refusal: Option<i64>, may_change: bool) -> bool {
        match refusal {
            Some(code::UNSUPPORTED_PROTOCOL_VERSION) => true,
            Some(code::METHOD_NOT_FOUND) => may_change && self.writes_modern(),
            Some(_) | None => false,
        }
    }

    /// Whether both ends declare extensions that this library does not know.
    pub(super) fn shares_an_extension(&self, declared: &ClientCapabilities) -> bool {
        let session = self.agreed.as_ref();
        declared.has_strange_extension()
            && session.is_some_and(|session| session.capabilities.has_strange_extension())
    }
}
