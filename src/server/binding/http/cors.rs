//! Tells browsers which web pages may send requests and read the responses (CORS). Does not depend on exchanges or sessions.
//!
//! Credentials of a browser are never allowed: no response has `Access-Control-Allow-Credentials`.

use alloc::borrow::Cow;
use alloc::string::String;

use crate::http::{Fields, names};
use crate::server::binding::http::config::{Allowed, Http};
use crate::server::binding::http::validate::{FieldValue, allows_origin};

const ALLOW_HEADERS: &str = "access-control-allow-headers";
const ALLOW_METHODS: &str = "access-control-allow-methods";
const ALLOW_ORIGIN: &str = "access-control-allow-origin";
const EXPOSE_HEADERS: &str = "access-control-expose-headers";
const MAX_AGE: &str = "access-control-max-age";
const VARY: &str = "vary";

/// The request headers that a page may send. `*` is for `Mcp-Param-…`, whose names depend on the tools. It does not cover `Authorization`,
/// and older browsers do not know it.
const REQUEST_HEADERS: &str = "Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id, *";

/// The response headers that a page may read.
const RESPONSE_HEADERS: &str =
    "Mcp-Protocol-Version, Mcp-Session-Id, Retry-After, WWW-Authenticate";

/// How long a browser may cache the response to a preflight, in seconds. 2 h is the most that Chromium does.
const REMEMBERED: &str = "7200";

/// The value of `Access-Control-Allow-Origin` for this request, if its page may read the response.
pub(crate) fn granted(http: &Http, fields: &Fields<'_>) -> Option<Cow<'static, str>> {
    let allowed = http.cors.as_ref()?;
    match FieldValue::of(fields, names::ORIGIN) {
        FieldValue::This(_) if *allowed == Allowed::Any => Some(Cow::Borrowed("*")),
        FieldValue::This(origin) if allows_origin(allowed, origin) => {
            Some(Cow::Owned(String::from(origin)))
        }
        FieldValue::Absent | FieldValue::Unreadable | FieldValue::This(_) => None,
    }
}

/// The fields of a response that a page may read.
pub(crate) fn fields(granted: Cow<'static, str>) -> Fields<'static> {
    allow_origin(granted).and(EXPOSE_HEADERS, RESPONSE_HEADERS)
}

/// The fields of the response to a preflight.
pub(crate) fn preflight(granted: Cow<'static, str>) -> Fields<'static> {
    allow_origin(granted)
        .and(ALLOW_METHODS, "GET, POST, DELETE")
        .and(ALLOW_HEADERS, REQUEST_HEADERS)
        .and(MAX_AGE, REMEMBERED)
}

fn allow_origin(granted: Cow<'static, str>) -> Fields<'static> {
    let fields = Fields::new().and(VARY, "Origin");
    match granted {
        Cow::Borrowed(any) => fields.and(ALLOW_ORIGIN, any),
        Cow::Owned(origin) => fields.and(ALLOW_ORIGIN, origin),
    }
}
