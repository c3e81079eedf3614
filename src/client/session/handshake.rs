//! Negotiates the protocol version: the modern `server/discover` probe, the legacy `initialize`, and which of the two eras the server speaks. It
//! knows neither bytes nor time; the caller reports replies, timeouts and the end of the server.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::client::config::Dialect;
use crate::client::event::Session;
use crate::json::{Json, Payload};
use crate::protocol::{Era, Implementation, ServerCapabilities, Version, Versions, code};
use crate::util::noise::excerpt;
use crate::wire::ErrorObject;

/// A request that the handshake sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum HandshakeRequest {
    /// `server/discover` in this modern version.
    Discover(Version),
    /// `initialize` with this legacy version.
    Initialize(Version),
}

/// The next step of the handshake.
#[derive(Debug)]
pub(in crate::client) enum HandshakeStep {
    Agreed(Box<Terms>),
    Refused(Box<str>),
    Send(HandshakeRequest),
}

/// The result of a successful handshake.
#[derive(Debug)]
pub(in crate::client) struct Terms {
    pub(in crate::client) version: Version,
    pub(in crate::client) server: Option<Implementation>,
    pub(in crate::client) capabilities: ServerCapabilities,
    pub(in crate::client) instructions: Option<Box<str>>,
    /// The server's complete reply.
    pub(in crate::client) introduction: Option<Payload>,
}

impl Terms {
    /// The agreement of a session that continues.
    pub(in crate::client) fn of(session: &Session) -> Terms {
        Terms {
            version: session.version,
            server: session.server.clone(),
            capabilities: session.capabilities.clone(),
            instructions: session.instructions.clone(),
            introduction: session.introduction.clone(),
        }
    }
}

#[derive(Debug)]
pub(in crate::client) struct Handshake {
    dialect: Dialect,
    versions: Versions,
    belief: Option<Belief>,
    /// The version of the client that the link speaks for.
    preferred: Option<Version>,
    /// Whether the link has spoken for clients of both eras.
    has_met_both_eras: bool,
    /// Whether the last handshake in the preferred era failed, so that the preference is ignored.
    is_preference_refuted: bool,
    /// Whether an epoch that the probe killed was already excused from the retry budget. This is granted once until the next agreement, because some
    /// servers simply die.
    has_excused_an_end: bool,
    /// Whether the probe was sent in this epoch.
    probed: bool,
    /// Whether the first choice was already corrected in this epoch. That happens at most once (S-VER-02).
    corrected: bool,
    /// Whether the probe of this epoch failed in a way that says nothing about the era (S-HTTP-43).
    is_inconclusive: bool,
    /// The server's reply to the first handshake request, if the second one was tried after it.
    first_try: Option<Box<str>>,
    /// The server's error reply to `server/discover`, or a substitute for it.
    refusal: Option<Box<ErrorObject>>,
    introduction: Introduction,
}

/// Whether `initialize` waits for a relay's client to send its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Introduction {
    /// `initialize` was not needed yet in this epoch.
    Unasked,
    /// `initialize` is needed, and the client may send its own soon.
    Awaited,
    /// `initialize` is sent without further waiting.
    Given,
}

/// The era that the server is believed to speak.
#[derive(Clone, Copy, Debug)]
struct Belief {
    era: Era,
    /// Whether it has worked before. Then one failure does not refute it.
    proven: bool,
}

impl Belief {
    fn is_known_modern(self) -> bool {
        self.era == Era::Modern && self.proven
    }
}

impl Handshake {
    pub(in crate::client) fn new(
        dialect: Dialect,
        versions: Versions,
        remembered: Option<Era>,
    ) -> Handshake {
        Handshake {
            dialect,
            versions,
            belief: remembered.map(|era| Belief { era, proven: false }),
            preferred: None,
            has_met_both_eras: false,
            is_preference_refuted: false,
            has_excused_an_end: false,
            probed: false,
            corrected: false,
            is_inconclusive: false,
            first_try: None,
            refusal: None,
            introduction: Introduction::Unasked,
        }
    }

    /// Sets the version of the client that the link speaks for, and prefers its era. If the server is known to speak the other era, it is probed
    /// again.
    pub(in crate::client) fn prefer(&mut self, version: Version) {
        if self.preferred == Some(version) {
            return;
        }
        let before = self.preferred.replace(version);
        self.has_met_both_eras |= before.is_some_and(|before| before.era() != version.era());
        self.is_preference_refuted = false;
        self.belief = self.belief.filter(|known| known.era == version.era());
    }

    /// Whether the link speaks for a client of this era. `has_many_clients`: the earlier clients are still there.
    pub(in crate::client) fn has_met(&self, era: Era, has_many_clients: bool) -> bool {
        let is_last = self.preferred.map(Version::era) == Some(era);
        is_last || has_many_clients && self.has_met_both_eras
    }

    /// The preferred version.
    pub(in crate::client) const fn preferred(&self) -> Option<Version> {
        self.preferred
    }

    /// The era that the server is believed to speak.
    pub(in crate::client) fn era(&self) -> Option<Era> {
        self.belief.map(|belief| belief.era)
    }

    /// Whether the server has proved to be modern and has not failed since.
    pub(in crate::client) fn is_known_modern(&self) -> bool {
        self.belief.is_some_and(Belief::is_known_modern)
    }

    /// Whether this handshake can agree on a legacy version.
    pub(in crate::client) fn may_be_legacy(&self) -> bool {
        self.dialect != Dialect::Modern && !self.is_known_modern() && self.initialize().is_some()
    }

    /// Ends the handshake with its transport. The next epoch may begin with something else, such as the session of an earlier one.
    pub(in crate::client) fn end(&mut self) {
        self.introduction = Introduction::Unasked;
        self.probed = false;
        self.corrected = false;
        self.is_inconclusive = false;
        self.first_try = None;
    }

    /// Starts the handshake on a new transport.
    pub(in crate::client) fn begin(&mut self) -> HandshakeStep {
        let legacy = match self.dialect {
            Dialect::Automatic => {
                let preferred = self.preferred.filter(|_| !self.is_preference_refuted);
                let era = self.era().or(preferred.map(Version::era));
                era == Some(Era::Legacy)
            }
            Dialect::Legacy => true,
            Dialect::Modern => false,
        };
        if !legacy {
            if let Some(version) = self.versions.newest_of(Era::Modern) {
                return self.discover(version);
            }
        }
        let first = match self.dialect {
            Dialect::Automatic | Dialect::Legacy => self.initialize(),
            Dialect::Modern => None,
        };
        first.unwrap_or_else(|| HandshakeStep::Refused("no version to speak is configured".into()))
    }

    /// Handles the reply to `server/discover`.
    pub(in crate::client) fn discovered(
        &mut self,
        reply: Result<Json<'_>, &ErrorObject>,
    ) -> HandshakeStep {
        self.refusal = reply.err().cloned().map(Box::new);
        match reply {
            Ok(result) => match Discovered::read(result) {
                Some(found) => self.choose(found, result),
                None => self.fall_back("its answer to server/discover is none"),
            },
            Err(error) if error.code == code::UNSUPPORTED_PROTOCOL_VERSION => self.correct(error),
            Err(error) if code::is_modern_evidence(error.code) => HandshakeStep::Refused(
                format!("the server answered server/discover with: {error}").into(),
            ),
            // S-STDIO-25: any other error means that the server is a legacy one.
            Err(error) => self.fall_back(&format!("the server said: {error}")),
        }
    }

    /// Handles a probe without a JSON-RPC reply: the server or an intermediary sent an HTTP status or cut the connection. Returns the request to send
    /// instead, if any.
    ///
    /// `is_its_own`: the server itself failed. Then the next epoch begins with `initialize`, unless the server turns out to be modern.
    pub(in crate::client) fn probe_failed(
        &mut self,
        how: &str,
        is_its_own: bool,
    ) -> Option<HandshakeStep> {
        if self.corrected {
            return None;
        }
        let then = self.legacy_instead()?;
        self.is_inconclusive = !is_its_own;
        if is_its_own {
            self.believe_legacy();
        }
        self.note_first_try("server/discover", how);
        Some(then)
    }

    /// Holds `initialize` back for the relay's client, once per epoch. Returns whether the link waits.
    ///
    /// That client began in the modern era, which the server does not know. It may fall back to its own `initialize`, as it would without the relay.
    pub(in crate::client) fn hold(&mut self) -> bool {
        let is_first = self.introduction == Introduction::Unasked;
        if is_first && self.preferred.map(Version::era) == Some(Era::Modern) {
            self.refusal.get_or_insert_with(|| Box::new(no_discover()));
            self.introduction = Introduction::Awaited;
        }
        self.introduction == Introduction::Awaited
    }

    /// Whether `initialize` waits for the relay's client.
    pub(in crate::client) fn is_held(&self) -> bool {
        self.introduction == Introduction::Awaited
    }

    /// Stops waiting for the relay's client. Returns the request to send, if the link was waiting.
    pub(in crate::client) fn release(&mut self) -> Option<HandshakeStep> {
        let then = self.initialize().filter(|_| self.is_held())?;
        self.introduction = Introduction::Given;
        Some(then)
    }

    /// The error to use for a server without `server/discover`.
    pub(in crate::client) fn refusal(&self) -> Option<&ErrorObject> {
        self.refusal.as_deref()
    }

    /// Handles a refused connection after an inconclusive probe: the server died of the probe. The next epoch begins with `initialize`.
    pub(in crate::client) fn server_vanished(&mut self) {
        if self.is_inconclusive {
            self.believe_legacy();
        }
    }

    /// Takes the server's reply to the first handshake request, if a second one was tried.
    pub(in crate::client) fn take_first_try(&mut self) -> Option<Box<str>> {
        self.first_try.take()
    }

    /// Handles a probe without a reply in time. Returns the request to send instead, if any.
    pub(in crate::client) fn probe_timed_out(&mut self) -> Option<HandshakeStep> {
        let then = self.legacy_instead()?;
        self.note_first_try("server/discover", "no answer came in time");
        Some(then)
    }

    /// Returns `initialize` for a server that has not replied to the probe, unless it is known to be modern.
    fn legacy_instead(&self) -> Option<HandshakeStep> {
        match self.dialect {
            // A server that is known to be modern is only slow, so the link waits.
            Dialect::Automatic if !self.is_known_modern() => self.initialize(),
            Dialect::Automatic | Dialect::Legacy | Dialect::Modern => None,
        }
    }

    /// Handles a reply to the probe that comes after `initialize` was sent. It changes nothing in this epoch (S-STDIO-26). If the server is modern
    /// and only slow, the next epoch begins with the probe.
    pub(in crate::client) fn discovered_late(&mut self, reply: Result<Json<'_>, &ErrorObject>) {
        let Some(found) = reply.ok().and_then(Discovered::read) else {
            return;
        };
        let offered = found.supported_versions.iter().map(String::as_str);
        if self.versions.newest_common(offered, Era::Modern).is_some() {
            self.belief = Some(Belief {
                era: Era::Modern,
                proven: true,
            });
        }
    }

    /// Handles the reply to `initialize`.
    pub(in crate::client) fn initialized(
        &mut self,
        reply: Result<Json<'_>, &ErrorObject>,
    ) -> HandshakeStep {
        let result = match reply {
            Ok(result) => result,
            Err(error) => return self.not_initialized(error),
        };
        let Ok(found) = serde_json::from_str::<Initialized>(result.as_str()) else {
            return HandshakeStep::Refused("its answer to initialize is none".into());
        };
        match Version::parse(&found.protocol_version) {
            Some(version) if version.era() == Era::Legacy && self.versions.contains(version) => {
                self.agree(Terms {
                    version,
                    server: found.server_info,
                    capabilities: found.capabilities,
                    instructions: found.instructions,
                    introduction: Some(Payload::from(result)),
                })
            }
            Some(_) | None => HandshakeStep::Refused(
                "it answered with a protocol version that is not supported here".into(),
            ),
        }
    }

    /// Handles the end of the server before agreement. If it died of the probe, the next epoch begins with `initialize`. Returns whether this end is
    /// excused from the retry budget, which happens once until the next agreement.
    pub(in crate::client) fn died(&mut self) -> bool {
        let of_the_probe = self.dialect == Dialect::Automatic
            && self.probed
            && !self.is_known_modern()
            && self.versions.newest_of(Era::Legacy).is_some();
        if !of_the_probe {
            self.failed();
            return false;
        }
        self.believe_legacy();
        !core::mem::replace(&mut self.has_excused_an_end, true)
    }

    /// Handles a failed handshake that the probe did not cause. A proven era becomes unproven, and an unproven one is forgotten.
    pub(in crate::client) fn failed(&mut self) {
        self.is_preference_refuted ^= self.belief.is_none();
        self.belief = self.belief.filter(|belief| belief.proven);
        if let Some(belief) = &mut self.belief {
            belief.proven = false;
        }
    }

    /// Forgets the era, because it proved wrong.
    pub(in crate::client) fn forget_era(&mut self) {
        self.belief = None;
    }

    fn note_first_try(&mut self, method: &str, how: &str) {
        let how = excerpt(how);
        self.first_try = Some(format!("{method} had failed before: {how}").into());
    }

    /// Makes the next epoch begin with `initialize`.
    fn believe_legacy(&mut self) {
        self.belief = Some(Belief {
            era: Era::Legacy,
            proven: false,
        });
    }

    fn discover(&mut self, version: Version) -> HandshakeStep {
        self.probed = true;
        HandshakeStep::Send(HandshakeRequest::Discover(version))
    }

    fn initialize(&self) -> Option<HandshakeStep> {
        let is_spoken =
            |version: &Version| version.era() == Era::Legacy && self.versions.contains(*version);
        let preferred = self.preferred.filter(is_spoken);
        let version = preferred.or_else(|| self.versions.newest_of(Era::Legacy))?;
        Some(HandshakeStep::Send(HandshakeRequest::Initialize(version)))
    }

    /// Chooses the newest version that both ends speak, with a server that has proved to be modern.
    fn choose(&mut self, found: Discovered, result: Json<'_>) -> HandshakeStep {
        let offered = || found.supported_versions.iter().map(String::as_str);
        if let Some(version) = self.versions.newest_common(offered(), Era::Modern) {
            return self.agree(Terms {
                version,
                server: found.meta.server_info,
                capabilities: found.capabilities,
                instructions: found.instructions,
                introduction: Some(Payload::from(result)),
            });
        }
        self.fall_back_if_offered(&found.supported_versions)
    }

    /// Repeats the probe in a version that the server names, because the server is modern but lacks the first one.
    fn correct(&mut self, error: &ErrorObject) -> HandshakeStep {
        let supported = error
            .data
            .as_ref()
            .and_then(|data| data.parse::<Supported>().ok())
            .map_or_else(Vec::new, |data| data.supported);
        let offered = supported.iter().map(String::as_str);
        match self.versions.newest_common(offered, Era::Modern) {
            Some(version) if !self.corrected => {
                self.corrected = true;
                self.discover(version)
            }
            Some(_) => HandshakeStep::Refused(
                format!("the server refused a version that it offered itself: {error}").into(),
            ),
            None => self.fall_back_if_offered(&supported),
        }
    }

    /// Falls back to `initialize` if there is no common modern version but a legacy one.
    fn fall_back_if_offered(&mut self, supported: &[String]) -> HandshakeStep {
        let offered = supported.iter().map(String::as_str);
        match self.versions.newest_common(offered, Era::Legacy) {
            Some(_) => self.fall_back("no modern version is spoken by both"),
            None => HandshakeStep::Refused("no version is spoken by both ends".into()),
        }
    }

    /// Falls back to `initialize`, because the reply to the probe is not that of a modern server.
    fn fall_back(&mut self, why: &str) -> HandshakeStep {
        self.belief = None;
        let refused = || HandshakeStep::Refused(format!("this is no modern server: {why}").into());
        match self.dialect {
            Dialect::Automatic if !self.corrected => {
                self.note_first_try("server/discover", why);
                self.initialize().unwrap_or_else(refused)
            }
            Dialect::Automatic | Dialect::Legacy | Dialect::Modern => refused(),
        }
    }

    /// Handles an error reply to `initialize`. If the server may be modern, it is probed, once.
    fn not_initialized(&mut self, error: &ErrorObject) -> HandshakeStep {
        let looks_modern =
            error.code == code::METHOD_NOT_FOUND || code::is_modern_evidence(error.code);
        if looks_modern && self.dialect == Dialect::Automatic && !self.corrected {
            if let Some(version) = self.versions.newest_of(Era::Modern) {
                self.corrected = true;
                self.belief = None;
                self.note_first_try("initialize", &format!("{error}"));
                return self.discover(version);
            }
        }
        HandshakeStep::Refused(format!("the server answered initialize with: {error}").into())
    }

    fn agree(&mut self, terms: Terms) -> HandshakeStep {
        let era = terms.version.era();
        // A legacy agreement holds for this epoch alone if the server has since proved to be modern, or if the probe was inconclusive.
        let is_doubtful = self.is_inconclusive || self.is_known_modern();
        let is_for_now = era == Era::Legacy && is_doubtful;
        if !is_for_now {
            self.belief = Some(Belief { era, proven: true });
        }
        self.has_excused_an_end = false;
        HandshakeStep::Agreed(Box::new(terms))
    }
}

/// The substitute for the error of a server without `server/discover`, if its own error is not known.
pub(crate) fn no_discover() -> ErrorObject {
    let text = "Method not found: the server knows only `initialize`";
    ErrorObject::new(code::METHOD_NOT_FOUND, text)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Discovered {
    #[serde(default, deserialize_with = "leniently")]
    result_type: Option<String>,
    supported_versions: Vec<String>,
    #[serde(default, deserialize_with = "leniently")]
    capabilities: ServerCapabilities,
    #[serde(default, deserialize_with = "leniently")]
    instructions: Option<Box<str>>,
    #[serde(default, rename = "_meta", deserialize_with = "leniently")]
    meta: DiscoveredMeta,
}

impl Discovered {
    fn read(result: Json<'_>) -> Option<Discovered> {
        let found: Discovered = serde_json::from_str(result.as_str()).ok()?;
        // S-RPC-19, S-RPC-20
        let is_complete = found
            .result_type
            .as_deref()
            .is_none_or(|kind| kind == "complete");
        is_complete.then_some(found)
    }
}

#[derive(Default, Deserialize)]
struct DiscoveredMeta {
    #[serde(
        default,
        rename = "io.modelcontextprotocol/serverInfo",
        deserialize_with = "leniently"
    )]
    server_info: Option<Implementation>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialized {
    protocol_version: String,
    #[serde(default, deserialize_with = "leniently")]
    capabilities: ServerCapabilities,
    #[serde(default, deserialize_with = "leniently")]
    server_info: Option<Implementation>,
    #[serde(default, deserialize_with = "leniently")]
    instructions: Option<Box<str>>,
}

/// Reads a value, or takes the default if it cannot be read, so that no server is refused for a detail.
fn leniently<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    let raw = <Json<'_>>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.as_str()).unwrap_or_default())
}

#[derive(Deserialize)]
struct Supported {
    supported: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Payload;

    fn handshake(remembered: Option<Era>) -> Handshake {
        Handshake::new(Dialect::Automatic, Versions::ALL, remembered)
    }

    fn raw(text: &str) -> Payload {
        text.parse().unwrap()
    }

    fn discovery() -> Payload {
        raw(r#"{"supportedVersions": ["2026-07-28"]}"#)
    }

    fn introduction() -> Payload {
        raw(r#"{"protocolVersion": "2025-11-25"}"#)
    }

    /// The era of the request that is sent.
    fn said(next: Option<HandshakeStep>) -> Option<Era> {
        match next? {
            HandshakeStep::Agreed(_) | HandshakeStep::Refused(_) => None,
            HandshakeStep::Send(HandshakeRequest::Discover(_)) => Some(Era::Modern),
            HandshakeStep::Send(HandshakeRequest::Initialize(_)) => Some(Era::Legacy),
        }
    }

    /// A handshake that has agreed in the modern era.
    fn modern() -> Handshake {
        let mut handshake = handshake(None);
        handshake.begin();
        let agreed = handshake.discovered(Ok(discovery().json()));
        assert!(matches!(agreed, HandshakeStep::Agreed(_)));
        handshake
    }

    #[test]
    fn silence_refutes_what_was_only_remembered_and_not_what_has_worked() {
        let mut remembered = handshake(Some(Era::Modern));
        assert_eq!(said(Some(remembered.begin())), Some(Era::Modern));
        assert_eq!(said(remembered.probe_timed_out()), Some(Era::Legacy));

        let mut proven = modern();
        assert_eq!(said(Some(proven.begin())), Some(Era::Modern));
        assert_eq!(said(proven.probe_timed_out()), None);
    }

    #[test]
    fn a_modern_server_that_was_only_slow_is_met_as_one_in_the_next_life() {
        let mut handshake = handshake(None);
        handshake.begin();
        assert_eq!(said(handshake.probe_timed_out()), Some(Era::Legacy));
        handshake.discovered_late(Ok(discovery().json()));
        let agreed = handshake.initialized(Ok(introduction().json()));
        assert!(
            matches!(agreed, HandshakeStep::Agreed(_)),
            "this record is as it is"
        );
        assert_eq!(said(Some(handshake.begin())), Some(Era::Modern));
        assert_eq!(
            said(handshake.probe_timed_out()),
            None,
            "it is known to be slow"
        );
    }

    #[test]
    fn a_server_that_was_not_probed_did_not_die_of_the_probe() {
        let mut handshake = handshake(Some(Era::Legacy));
        assert_eq!(said(Some(handshake.begin())), Some(Era::Legacy));
        assert!(!handshake.died());
        assert_eq!(handshake.era(), None, "what was only believed is dropped");
    }

    #[test]
    fn what_has_worked_is_refuted_by_the_second_failure() {
        let mut handshake = modern();
        handshake.failed();
        assert_eq!(handshake.era(), Some(Era::Modern));
        handshake.failed();
        assert_eq!(handshake.era(), None);
    }

    #[test]
    fn what_has_worked_is_not_believed_any_more_when_it_is_doubted() {
        let mut handshake = modern();
        handshake.forget_era();
        handshake.begin();
        assert_eq!(said(handshake.probe_timed_out()), Some(Era::Legacy));
    }

    #[test]
    fn server_that_fails_at_the_probe_itself_is_not_probed_in_the_next_life() {
        let mut handshake = handshake(None);
        handshake.begin();
        let then = handshake.probe_failed("HTTP status 500", true);
        assert_eq!(said(then), Some(Era::Legacy));
        handshake.end();
        assert_eq!(handshake.take_first_try(), None, "that was another epoch");
        assert_eq!(said(Some(handshake.begin())), Some(Era::Legacy));
    }

    #[test]
    fn legacy_agreement_after_a_fault_is_for_this_life_alone() {
        for is_gone in [false, true] {
            let mut handshake = handshake(None);
            handshake.begin();
            let then = handshake.probe_failed("the connection was cut", false);
            assert_eq!(said(then), Some(Era::Legacy));
            if is_gone {
                handshake.server_vanished();
            } else {
                let agreed = handshake.initialized(Ok(introduction().json()));
                assert!(matches!(agreed, HandshakeStep::Agreed(_)));
            }
            let next = if is_gone { Era::Legacy } else { Era::Modern };
            assert_eq!(said(Some(handshake.begin())), Some(next));
        }
    }

    #[test]
    fn known_modern_server_is_not_spoken_to_in_legacy_after_a_failed_probe() {
        let mut proven = modern();
        proven.begin();
        assert!(proven.probe_failed("HTTP status 500", true).is_none());
        assert_eq!(proven.take_first_try(), None);
    }

    #[test]
    fn first_try_is_told_with_the_second() {
        let mut legacy_first = handshake(Some(Era::Legacy));
        legacy_first.begin();
        let error = ErrorObject::new(code::METHOD_NOT_FOUND, "what?");
        legacy_first.initialized(Err(&error));
        let told = legacy_first.take_first_try().expect("a first try");
        assert!(
            told.contains("initialize") && told.contains("what?"),
            "{told}"
        );

        let mut silent = handshake(None);
        silent.begin();
        silent.probe_timed_out();
        let told = silent.take_first_try().expect("a first try");
        assert!(told.contains("server/discover"), "{told}");
    }

    #[test]
    fn a_server_is_probed_after_initialize_only_if_it_may_be_modern() {
        for (code, then) in [
            (code::METHOD_NOT_FOUND, Some(Era::Modern)),
            (code::UNSUPPORTED_PROTOCOL_VERSION, Some(Era::Modern)),
            (code::INTERNAL_ERROR, None),
        ] {
            let mut handshake = handshake(Some(Era::Legacy));
            handshake.begin();
            let error = ErrorObject::new(code, "no");
            assert_eq!(said(Some(handshake.initialized(Err(&error)))), then);
        }
    }

    /// The failure may have nothing to do with the era, so the preferred one is tried again.
    #[test]
    fn unknown_server_is_met_in_the_other_era_after_each_failure() {
        let mut handshake = handshake(None);
        handshake.prefer(Version::LATEST_LEGACY);
        for era in [Era::Legacy, Era::Modern, Era::Legacy, Era::Modern] {
            assert_eq!(said(Some(handshake.begin())), Some(era));
            handshake.end();
            handshake.failed();
        }
    }

    #[test]
    fn preferred_version_of_another_era_makes_the_server_unknown() {
        for (version, era) in [
            (Version::LATEST_LEGACY, Era::Legacy),
            (Version::LATEST_MODERN, Era::Modern),
        ] {
            for remembered in [Era::Legacy, Era::Modern] {
                let mut handshake = handshake(Some(remembered));
                handshake.prefer(version);
                let known = Some(remembered).filter(|known| *known == era);
                assert_eq!(handshake.era(), known, "{version}");
            }
        }
    }

    /// Its `server/discover` gets this error.
    #[test]
    fn handshake_that_waits_for_a_modern_client_says_that_the_server_knows_no_discover() {
        let mut handshake = handshake(Some(Era::Legacy));
        assert!(!handshake.hold() && handshake.refusal().is_none());
        handshake.prefer(Version::LATEST_MODERN);
        assert!(handshake.hold());
        let refusal = handshake.refusal().map(|error| error.code);
        assert_eq!(refusal, Some(code::METHOD_NOT_FOUND));
    }
}
