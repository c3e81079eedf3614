//! Extracts the params that concern the server end itself: version, capabilities, tokens and rounds. Judges nothing.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use serde::Deserialize;

use crate::json::object::{self, Part, Plan};
use crate::json::{Json, Payload};
use crate::protocol::{TraceContext, meta, round};
use crate::wire::Id;

const META: &str = "_meta";

/// The members with the terms of a modern request, and with its client.
const TERMS: [&str; 3] = [
    meta::PROTOCOL_VERSION,
    meta::CLIENT_CAPABILITIES,
    meta::CLIENT_INFO,
];

// The server, the HTTP header fields and the application all name these members. All must read the same values.
const ARGUMENTS: &str = "arguments";
const NAME: &str = "name";
const TASK_ID: &str = "taskId";
const URI: &str = "uri";

/// The params of one request, split into their members.
#[derive(Clone, Copy, Default)]
pub(crate) struct Params<'a> {
    whole: Option<Json<'a>>,
    meta: Option<Json<'a>>,
    /// `_meta` with its key, as written.
    meta_member: Option<&'a str>,
    arguments: Option<Json<'a>>,
    name: Option<Json<'a>>,
    task: Option<Json<'a>>,
    uri: Option<Json<'a>>,
    pub(crate) version: Option<Json<'a>>,
    pub(crate) capabilities: Option<Json<'a>>,
    pub(crate) client: Option<Json<'a>>,
    pub(crate) log_level: Option<Json<'a>>,
    pub(crate) token: Option<Json<'a>>,
    pub(crate) answers: Option<Json<'a>>,
    pub(crate) state: Option<Json<'a>>,
    /// Whether a member that both ends must read alike is present twice.
    pub(crate) is_ambiguous: bool,
    /// Whether the terms have the same text as those that are known.
    pub(crate) are_terms_known: bool,
    /// Whether `_meta` has other members, too.
    has_other_meta: bool,
    /// Whether members of a round are present, even if they are null.
    has_round: bool,
}

impl<'a> Params<'a> {
    /// Returns which parts of the params the parser shows to [`Params::note`]. The terms of the last client are recognized as a whole if
    /// they are written in the same way.
    pub(crate) const fn plan(terms: &str) -> Plan<'_> {
        Plan {
            nested: META,
            run: terms,
        }
    }

    /// Splits params that were not noted while they were parsed.
    pub(crate) fn read(whole: Option<Json<'a>>, terms: &str) -> Params<'a> {
        let mut params = Params::default();
        if let Some(whole) = whole {
            object::show(whole, Params::plan(terms), |part| params.note(part));
        }
        params.complete(whole);
        params
    }

    /// Notes one part of the params.
    pub(crate) fn note(&mut self, part: Part<'a>) {
        let (place, value) = match part {
            Part::Run => {
                self.is_ambiguous |= self.are_terms_known;
                self.are_terms_known = true;
                return;
            }
            Part::Nested(key, value) => {
                let place = match &*key {
                    meta::PROTOCOL_VERSION => &mut self.version,
                    meta::CLIENT_CAPABILITIES => &mut self.capabilities,
                    meta::CLIENT_INFO => &mut self.client,
                    meta::LOG_LEVEL => &mut self.log_level,
                    meta::PROGRESS_TOKEN => &mut self.token,
                    _ => {
                        self.has_other_meta = true;
                        return;
                    }
                };
                (place, value)
            }
            Part::Nest(member, value) => {
                self.meta_member = Some(member);
                (&mut self.meta, value)
            }
            Part::Member(key, value) => {
                let place = match &*key {
                    META => &mut self.meta,
                    ARGUMENTS => &mut self.arguments,
                    NAME => &mut self.name,
                    TASK_ID => &mut self.task,
                    URI => &mut self.uri,
                    round::INPUT_RESPONSES => &mut self.answers,
                    round::REQUEST_STATE => &mut self.state,
                    _ => return,
                };
                (place, value)
            }
        };
        self.is_ambiguous |= place.replace(value).is_some();
    }

    /// Completes the params after all parts were noted.
    pub(crate) fn complete(&mut self, whole: Option<Json<'a>>) {
        self.whole = whole;
        self.is_ambiguous |= self.are_terms_known && self.has_terms();
        self.has_round = self.answers.is_some() || self.state.is_some();
        // Some peers write null for an absent member.
        let is_there = |value: &Json<'_>| !value.is_null();
        self.answers = self.answers.filter(is_there);
        self.state = self.state.filter(is_there);
    }

    /// Whether the request claims to be of the modern era (S-VER-07).
    pub(crate) const fn claims_modern(&self) -> bool {
        self.are_terms_known || self.version.is_some() || self.capabilities.is_some()
    }

    /// The terms as written, if they stand next to each other.
    pub(crate) fn terms(&self) -> Option<&'a str> {
        object::run_of(self.meta?, |key| TERMS.contains(&key))
    }

    const fn has_terms(&self) -> bool {
        self.version.is_some() || self.capabilities.is_some() || self.client.is_some()
    }

    /// Returns the params for the application. Unknown members are passed on (S-META-13). Answers and states are removed only if the method
    /// `has_rounds`, because elsewhere they mean something else.
    pub(crate) fn rest(&self, has_rounds: bool) -> Option<Payload> {
        let whole = self.whole?;
        let is_round = has_rounds && (self.answers.is_some() || self.state.is_some());
        let rest = match self.meta_member {
            None if !is_round => return Some(Payload::from(whole)),
            Some(member) if !(has_rounds && self.has_round || self.has_other_meta) => {
                object::cut(whole, member)
            }
            Some(_) | None => {
                let own = |key: &str| meta::OF_THE_LINK.contains(&key);
                let other_meta = self.meta.filter(|_| self.has_other_meta);
                let other_meta = other_meta.and_then(|meta| object::without(meta, own).ok());
                let rest = object::replaced(whole, |key, value| match key {
                    META => other_meta.as_ref().map(Payload::json),
                    round::INPUT_RESPONSES | round::REQUEST_STATE if has_rounds => None,
                    _ => Some(value),
                });
                rest.ok()?
            }
        };
        // If no other members are left, the application gets no params.
        Some(rest).filter(|rest| rest.as_str() != "{}")
    }

    /// The trace context in `_meta`.
    pub(crate) fn trace_context(&self) -> Option<TraceContext> {
        let meta = self.meta.filter(|_| self.has_other_meta)?;
        let text = |key| meta.member(key).ok()??.text();
        TraceContext::parse(&text(meta::TRACEPARENT)?, text(meta::TRACESTATE).as_deref())
    }

    /// The text of the member `key`, if it is a text.
    pub(crate) fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        self.member(key)?.text()
    }

    /// The member `key`.
    pub(crate) fn member(&self, key: &str) -> Option<Json<'a>> {
        match key {
            ARGUMENTS => self.arguments,
            NAME => self.name,
            TASK_ID => self.task,
            URI => self.uri,
            _ => self.whole?.member(key).ok()?,
        }
    }

    pub(crate) const fn whole(&self) -> Option<Json<'a>> {
        self.whole
    }
}

/// The params of `notifications/cancelled`.
pub(crate) struct CancelledParams {
    pub(crate) id: Id,
    pub(crate) reason: Option<Box<str>>,
    pub(crate) meta: Option<Payload>,
}

impl CancelledParams {
    /// Reads the params. `None` if they name no request.
    pub(crate) fn read(params: Option<Json<'_>>) -> Option<CancelledParams> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Members<'a> {
            #[serde(borrow)]
            request_id: Option<Json<'a>>,
            #[serde(borrow)]
            reason: Option<Json<'a>>,
            #[serde(borrow, rename = "_meta")]
            meta: Option<Json<'a>>,
        }
        let params = params.map_or("{}", Json::as_str);
        let members: Members<'_> = serde_json::from_str(params).ok()?;
        let id = members.request_id?;
        // A malformed reason does not stop the cancellation.
        let reason = members.reason;
        let reason = reason.and_then(|reason| serde_json::from_str(reason.as_str()).ok());
        Some(CancelledParams {
            id: Id::from_json(id.as_str())?,
            reason,
            meta: members.meta.map(Payload::from),
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn rest(json: &str) -> Option<alloc::string::String> {
        let raw: Json<'_> = serde_json::from_str(json).unwrap();
        Params::read(Some(raw), "")
            .rest(true)
            .map(|rest| rest.as_str().to_string())
    }

    #[test]
    fn what_is_between_the_two_ends_is_taken_out() {
        for (params, left) in [
            (
                r#"{"name":"add","arguments":{}}"#,
                r#"{"name":"add","arguments":{}}"#,
            ),
            (r#"{ "name" : "add" }"#, r#"{ "name" : "add" }"#),
            (
                r#"{"_meta":{"progressToken":1},"name":"add"}"#,
                r#"{"name":"add"}"#,
            ),
            (
                r#"{"_meta":{"progressToken":1,"traceparent":"00-1"},"name":"add"}"#,
                r#"{"_meta":{"traceparent":"00-1"},"name":"add"}"#,
            ),
            (
                r#"{"_meta":{"com.example/x":{"a":1}},"inputResponses":{},"requestState":"s"}"#,
                r#"{"_meta":{"com.example/x":{"a":1}}}"#,
            ),
            (
                r#"{"_meta":{"progressToken":1},"name":"add","inputResponses":null}"#,
                r#"{"name":"add"}"#,
            ),
            // Without `_meta`, and with one member of a round alone.
            (r#"{"name":"add","inputResponses":{}}"#, r#"{"name":"add"}"#),
            (r#"{"name":"add","requestState":"s"}"#, r#"{"name":"add"}"#),
            (
                r#"{"name":"add","requestState":null}"#,
                r#"{"name":"add","requestState":null}"#,
            ),
        ] {
            assert_eq!(rest(params).as_deref(), Some(left), "{params}");
        }
        assert_eq!(Params::read(None, "").rest(true), None);
        let update = r#"{"taskId":"1","inputResponses":{"a":{}}}"#;
        let raw: Json<'_> = serde_json::from_str(update).unwrap();
        let left = Params::read(Some(raw), "").rest(false).unwrap();
        assert_eq!(left.as_str(), update, "here they are the application's");
    }

    #[test]
    fn terms_that_are_known_are_those_of_the_text_that_was_known() {
        let (version, client) = (meta::PROTOCOL_VERSION, meta::CLIENT_INFO);
        let terms = alloc::format!(r#""{version}":"v","{client}":{{}}"#);
        let read = |meta: &str| {
            let text = alloc::format!(r#"{{"_meta":{{{meta}}},"name":"add"}}"#);
            let params = Params::read(Some(Json::read(&text).unwrap()), &terms);
            let rest = params.rest(true).map(|rest| rest.as_str().to_string());
            assert_eq!(rest.as_deref(), Some(r#"{"name":"add"}"#), "{text}");
            let found = params.terms().map(ToString::to_string);
            (params.are_terms_known, params.is_ambiguous, found)
        };
        let all = Some(terms.clone());
        assert_eq!(read(&terms), (true, false, all.clone()));
        let before = alloc::format!(r#""progressToken":1,{terms}"#);
        assert_eq!(read(&before), (true, false, all));
        let other = alloc::format!(r#""{version}":"w","{client}":{{}}"#);
        assert_eq!(read(&other), (false, false, Some(other.clone())));
        let apart = alloc::format!(r#""{version}":"v","progressToken":1,"{client}":{{}}"#);
        assert_eq!(read(&apart), (false, false, None));
        let (known, ambiguous, _) = read(&alloc::format!("{terms},{terms}"));
        assert_eq!((known, ambiguous), (true, true));
        let (known, ambiguous, _) = read(&alloc::format!("{other},{terms}"));
        assert_eq!((known, ambiguous), (true, true));
    }

    #[test]
    fn what_is_there_twice_is_ambiguous() {
        let key = meta::PROTOCOL_VERSION;
        let twice = alloc::format!(r#"{{"_meta":{{"{key}":"a","{key}":"b"}}}}"#);
        let raw: Json<'_> = serde_json::from_str(&twice).unwrap();
        assert!(Params::read(Some(raw), "").is_ambiguous);
        let raw: Json<'_> =
            serde_json::from_str(r#"{"requestState":"a","requestState":"b"}"#).unwrap();
        assert!(Params::read(Some(raw), "").is_ambiguous);
    }

    #[test]
    fn members_are_found_by_name() {
        let text = r#"{"name":"a","arguments":{"b":1},"taskId":"c","uri":"d","level":"e"}"#;
        let params = Params::read(Some(Json::read(text).unwrap()), "");
        for (key, found) in [
            ("name", "\"a\""),
            ("arguments", r#"{"b":1}"#),
            ("taskId", "\"c\""),
            ("uri", "\"d\""),
            ("level", "\"e\""),
        ] {
            let member = params.member(key).map(|member| member.as_str());
            assert_eq!(member, Some(found), "{key}");
        }
        assert_eq!(params.text("uri").as_deref(), Some("d"));
        assert!(params.text("arguments").is_none() && params.member("none").is_none());
    }

    #[test]
    fn member_that_is_present_twice_is_ambiguous_however_often() {
        let (version, client) = (meta::PROTOCOL_VERSION, meta::CLIENT_INFO);
        let terms = alloc::format!(r#""{version}":"v""#);
        let is_ambiguous = |text: &str| {
            let params = Params::read(Some(Json::read(text).unwrap()), &terms);
            params.is_ambiguous
        };
        for name in ["_meta", "arguments", "name", "taskId", "uri"] {
            let member = alloc::format!(r#""{name}":{{}}"#);
            assert!(!is_ambiguous(&alloc::format!("{{{member}}}")));
            for times in 2..=5 {
                let members = [&*member].repeat(times).join(",");
                assert!(is_ambiguous(&alloc::format!("{{{members}}}")), "{members}");
            }
        }
        // The terms that are known, once, thrice, and beside another member of the terms.
        for (meta, expected) in [
            (terms.clone(), false),
            ([&*terms; 3].join(","), true),
            (alloc::format!(r#"{terms},"a":1,"{client}":{{}}"#), true),
        ] {
            let text = alloc::format!(r#"{{"_meta":{{{meta}}}}}"#);
            assert_eq!(is_ambiguous(&text), expected, "{text}");
        }
    }

    #[test]
    fn each_member_of_the_terms_claims_that_a_request_is_modern() {
        for (key, value, claims) in [
            (meta::PROTOCOL_VERSION, "\"v\"", true),
            (meta::CLIENT_CAPABILITIES, "{}", true),
            (meta::CLIENT_INFO, "{}", false),
            (meta::LOG_LEVEL, "\"info\"", false),
        ] {
            let text = alloc::format!(r#"{{"_meta":{{"{key}":{value}}}}}"#);
            let params = Params::read(Some(Json::read(&text).unwrap()), "");
            assert_eq!(params.claims_modern(), claims, "{key}");
        }
    }

    #[test]
    fn trace_context_is_read_from_meta() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let text = alloc::format!(r#"{{"_meta":{{"traceparent":"{parent}","tracestate":"a=b"}}}}"#);
        let params = Params::read(Some(Json::read(&text).unwrap()), "");
        let trace = params.trace_context().expect("it has one");
        assert_eq!(
            (&*trace.parent(), trace.state.as_deref()),
            (parent, Some("a=b"))
        );
        let without = Params::read(Some(Json::read("{}").unwrap()), "");
        assert!(without.trace_context().is_none());
    }

    #[test]
    fn member_of_the_terms_beside_those_that_are_known_is_ambiguous_however_often() {
        let members = [
            (meta::PROTOCOL_VERSION, r#""v""#),
            (meta::CLIENT_CAPABILITIES, "{}"),
            (meta::CLIENT_INFO, "{}"),
        ];
        let members = members.map(|(key, value)| alloc::format!(r#""{key}":{value}"#));
        let terms = members.join(",");
        let read = |beside: &str| {
            let text = alloc::format!(r#"{{"_meta":{{{terms}{beside}}}}}"#);
            let params = Params::read(Some(Json::read(&text).unwrap()), &terms);
            (params.are_terms_known, params.is_ambiguous)
        };
        assert_eq!(read(""), (true, false));
        for member in &members {
            for times in 1..=4 {
                let beside = alloc::format!(",{member}").repeat(times);
                assert_eq!(read(&beside), (true, true), "{beside}");
            }
        }
    }
}
