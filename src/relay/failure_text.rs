//! Composes the texts and errors for a host whose request has no reply. Decides nothing.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::client::{Cause, Delivery, Ended, Failure};
use crate::http::Url;
use crate::json::Payload;
use crate::protocol::{Era, Implementation, code, meta, round};
use crate::util::Arc;
use crate::wire::ErrorObject;
use crate::wire::encode::Object;

/// The key in `_meta`, or in the data of an error, that says whether a call may have run.
const DELIVERY: &str = "everlink/delivery";

/// The story of a failure, with or without the server's standard error. Standard error is for operators, and not always for a model.
pub(super) fn story(failure: &Failure, with_stderr: bool) -> String {
    let ended = match &failure.ended {
        Some(ended) if !with_stderr && !ended.stderr.is_empty() => ended,
        Some(_) | None => return failure.to_string(),
    };
    let ended = Ended {
        stderr: Box::default(),
        ..Ended::clone(ended)
    };
    let brief = Failure {
        ended: Some(Arc::new(ended)),
        ..failure.clone()
    };
    brief.to_string()
}

/// Why there is no server, and what can be done about it. Shows only the origin of the URL, because the rest may be a secret.
pub(super) fn no_server(
    ended: Option<&Ended>,
    url: Option<&Url>,
    denial: Option<&str>,
    with_stderr: bool,
) -> String {
    let mut text = String::from("there is no MCP server to speak to");
    if let Some(url) = url {
        text.push_str(&format!(" at {}", url.origin()));
    }
    let Some(ended) = ended else {
        return text;
    };
    let mut ended = ended.clone();
    if !with_stderr {
        ended.stderr = Box::default();
    }
    text.push_str(&format!(": {ended}"));
    let denial = denial.filter(|_| ended.cause == Cause::Unauthorized);
    let by_faults = || ended.faults.iter().find_map(|fault| fault.kind().advice());
    let is_refused = url.is_some() && matches!(ended.cause, Cause::HandshakeRefused { .. });
    let by_cause = || is_refused.then_some("check the URL, and that an MCP server is there");
    if let Some(advice) = denial.or_else(by_faults).or_else(by_cause) {
        let is_line = text.ends_with('\n') || !ended.stderr.is_empty();
        text.push_str(if is_line { "\n" } else { "; " });
        text.push_str(advice);
    }
    text
}

/// Cuts a text so that the rest of its message fits into `message_bytes`.
pub(super) fn shorten(text: &str, message_bytes: usize) -> String {
    // A character may take six bytes when it is escaped.
    let most = (message_bytes / 6).saturating_sub(ROOM).min(text.len());
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_string()
}

/// The bytes of a message besides the text.
const ROOM: usize = 256;

/// A tool result that is marked as an error (S-ERR-09: its `_meta` shows that the relay made it). `server` is the name in a modern result (S-META-06).
pub(super) fn result(
    text: &str,
    delivery: Delivery,
    era: Era,
    server: Option<&Implementation>,
) -> Option<Payload> {
    let mut buf = Vec::new();
    let mut result = Object::open(&mut buf);
    if era == Era::Modern {
        result.text(round::RESULT_TYPE, round::COMPLETE);
    }
    result.object("_meta", |own| {
        own.text(DELIVERY, name(delivery));
        if let Some(server) = server.and_then(|server| Payload::of(server).ok()) {
            own.raw(meta::SERVER_INFO, server.as_str());
        }
    });
    let mut content = Vec::new();
    let mut part = Object::open(&mut content);
    part.text("type", "text").text("text", text);
    part.close();
    let part = String::from_utf8(content).ok()?;
    result.raw("content", &format!("[{part}]"));
    result.boolean("isError", true);
    result.close();
    Payload::from_text(String::from_utf8(buf).ok()?).ok()
}

/// A JSON-RPC error with this text.
pub(super) fn error(
    code: i64,
    text: impl Into<Cow<'static, str>>,
    delivery: Delivery,
) -> ErrorObject {
    let data = format!(r#"{{"{DELIVERY}":"{}"}}"#, name(delivery));
    ErrorObject {
        data: data.parse().ok(),
        ..ErrorObject::new(code, text.into())
    }
}

/// The error that asks the user of a host to visit a page first. `visit` is the name of the visit.
pub(super) fn visit_error(
    visit: &str,
    page: &Url,
    message: &str,
    delivery: Delivery,
) -> Option<ErrorObject> {
    let mut buf = Vec::new();
    let mut elicitation = Object::open(&mut buf);
    elicitation.text("mode", "url").text("elicitationId", visit);
    elicitation
        .text("url", page.as_str())
        .text("message", message);
    elicitation.close();
    let elicitation = String::from_utf8(buf).ok()?;
    let mut buf = Vec::new();
    let mut data = Object::open(&mut buf);
    data.text(DELIVERY, name(delivery));
    data.raw("elicitations", &format!("[{elicitation}]"));
    data.close();
    let data = String::from_utf8(buf).ok()?;
    Some(ErrorObject {
        data: Some(Payload::from_text(data).ok()?),
        ..ErrorObject::new(code::URL_ELICITATION_REQUIRED, message.to_string())
    })
}

const fn name(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Harmless => "harmless",
        Delivery::NotSent => "not_sent",
        Delivery::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::driver::{Epoch, Fault, FaultKind};

    #[test]
    fn a_text_is_cut_at_a_character() {
        assert_eq!(shorten("short", 1 << 20), "short");
        let long = "\u{e9}".repeat(1_000);
        let short = shorten(&long, 6 * (ROOM + 101));
        assert_eq!(short.len(), 100);
        assert_eq!(shorten(&long, 10), "");
    }

    fn ended(cause: Cause, faults: &[FaultKind], stderr: &str) -> Ended {
        Ended {
            epoch: Epoch::FIRST,
            cause,
            first_try: None,
            faults: faults.iter().copied().map(Fault::new).collect(),
            more_faults: 0,
            exit: None,
            stderr: stderr.into(),
            lived: Duration::ZERO,
            ready_for: None,
            abandoned: false,
            counted: true,
        }
    }

    #[test]
    fn missing_server_is_named_by_its_origin_only() {
        let url = Url::parse("https://mcp.example/secret?key=1").unwrap();
        let text = no_server(None, None, None, true);
        assert_eq!(text, "there is no MCP server to speak to");
        let text = no_server(None, Some(&url), None, true);
        assert!(text.contains(" at https://mcp.example"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn advice_about_a_missing_server_fits_its_end() {
        let url = Url::parse("https://mcp.example/mcp").unwrap();
        let denial = Some("sign in first");
        let refused = || Cause::HandshakeRefused { why: "no".into() };
        let by_fault = FaultKind::NotFound.advice().expect("there is advice");
        let by_url = "check the URL, and that an MCP server is there";
        for (cause, faults, url, advice) in [
            (Cause::Unauthorized, &[][..], Some(&url), denial),
            (Cause::Died, &[], Some(&url), None),
            (
                Cause::OpenFailed,
                &[FaultKind::NotFound],
                None,
                Some(by_fault),
            ),
            (refused(), &[], Some(&url), Some(by_url)),
            (refused(), &[], None, None),
        ] {
            for (stderr, with_stderr) in [("", true), ("it broke", true), ("it broke", false)] {
                let ended = ended(cause.clone(), faults, stderr);
                let text = no_server(Some(&ended), url, denial, with_stderr);
                let is_shown = with_stderr && !stderr.is_empty();
                assert_eq!(text.contains("it broke"), is_shown, "{text}");
                let Some(advice) = advice else {
                    assert!(!text.contains("sign in first"), "{text}");
                    assert!(!text.contains(by_url), "{text}");
                    continue;
                };
                // Standard error has lines of its own, so the advice begins a new one.
                let between = if is_shown { "\n" } else { "; " };
                assert!(text.ends_with(&format!("{between}{advice}")), "{text}");
            }
        }
    }

    #[test]
    fn lost_tool_call_is_answered_with_a_marked_result() {
        for (era, kind) in [
            (Era::Legacy, ""),
            (Era::Modern, r#""resultType":"complete","#),
        ] {
            let result = result("it \"died\"", Delivery::Unknown, era, None).unwrap();
            let expected = format!(
                r#"{{{kind}"_meta":{{"everlink/delivery":"unknown"}},"content":[{{"type":"text","text":"it \"died\""}}],"isError":true}}"#
            );
            assert_eq!(result.as_str(), expected);
        }
    }

    #[test]
    fn error_that_names_a_page_to_visit_says_whether_the_call_was_run() {
        let page = Url::parse("https://auth.example/go").unwrap();
        let error = visit_error("v1", &page, "sign in", Delivery::NotSent).unwrap();
        assert_eq!(error.code, code::URL_ELICITATION_REQUIRED);
        let data = error.data.expect("it has data");
        assert_eq!(
            data.as_str(),
            r#"{"everlink/delivery":"not_sent","elicitations":[{"mode":"url","elicitationId":"v1","url":"https://auth.example/go","message":"sign in"}]}"#
        );
    }
}
