//! The JSON-RPC error codes to which MCP gives a meaning.

use super::version::{Era, Version};

/// The text was not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// The JSON was not a valid message, or not one that is allowed here.
pub const INVALID_REQUEST: i64 = -32600;
/// The method is unknown, or needs a server capability that was not offered.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The params do not fit the method. In the modern era also "no such resource".
pub const INVALID_PARAMS: i64 = -32602;
/// The receiver failed through its own fault.
pub const INTERNAL_ERROR: i64 = -32603;
/// No such resource. Only legacy servers use it.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// A header and the body disagree, or a required header is missing. Modern only.
pub const HEADER_MISMATCH: i64 = -32020;
/// The request did not declare a client capability that it needs. Modern only.
pub const MISSING_REQUIRED_CLIENT_CAPABILITY: i64 = -32021;
/// The server does not speak the version that the request names. Modern only.
pub const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;
/// The user must visit a URL first. Only in 2025-11-25.
pub const URL_ELICITATION_REQUIRED: i64 = -32042;
/// The user declined the sampling request. Legacy only.
pub const USER_REJECTED: i64 = -1;

/// Whether an error with this code can only come from a modern server, over any transport.
///
/// `METHOD_NOT_FOUND` is not such a code: whether it proves anything depends on the transport and the probed method.
#[must_use]
pub const fn is_modern_evidence(code: i64) -> bool {
    matches!(
        code,
        HEADER_MISMATCH | MISSING_REQUIRED_CLIENT_CAPABILITY | UNSUPPORTED_PROTOCOL_VERSION
    )
}

/// Replaces a code that `version` must not use by one that it may use.
///
/// A modern server uses "invalid params" for a resource that does not exist. Of the reserved range it uses only the three
/// defined codes. In the legacy era, these three would prove a modern server. Only 2025-11-25 has URL elicitation.
#[must_use]
pub const fn in_version(code: i64, version: Version) -> i64 {
    match (version.era(), code) {
        (Era::Modern, RESOURCE_NOT_FOUND) => INVALID_PARAMS,
        (Era::Modern, UNSUPPORTED_PROTOCOL_VERSION..=HEADER_MISMATCH) => code,
        (Era::Modern, -32_099..=-32_020) => INTERNAL_ERROR,
        (Era::Legacy, HEADER_MISMATCH | MISSING_REQUIRED_CLIENT_CAPABILITY) => INVALID_REQUEST,
        (Era::Legacy, UNSUPPORTED_PROTOCOL_VERSION) => INVALID_PARAMS,
        (Era::Legacy, URL_ELICITATION_REQUIRED) if !matches!(version, Version::V2025_11_25) => {
            INTERNAL_ERROR
        }
        (Era::Legacy | Era::Modern, _) => code,
    }
}

/// The name of a code, for texts that people read. `None` if MCP gives the code no meaning.
#[must_use]
pub const fn name(code: i64) -> Option<&'static str> {
    Some(match code {
        PARSE_ERROR => "parse error",
        INVALID_REQUEST => "invalid request",
        METHOD_NOT_FOUND => "method not found",
        INVALID_PARAMS => "invalid params",
        INTERNAL_ERROR => "internal error",
        RESOURCE_NOT_FOUND => "resource not found",
        HEADER_MISMATCH => "header mismatch",
        MISSING_REQUIRED_CLIENT_CAPABILITY => "missing required client capability",
        UNSUPPORTED_PROTOCOL_VERSION => "unsupported protocol version",
        URL_ELICITATION_REQUIRED => "URL elicitation required",
        USER_REJECTED => "rejected by the user",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_codes_prove_a_modern_server() {
        let proofs = (-33000..=0).filter(|&code| is_modern_evidence(code));
        assert!(proofs.eq([-32022, -32021, -32020]));
    }

    #[test]
    fn codes_that_a_modern_server_must_not_use_are_replaced() {
        let modern = |code| in_version(code, Version::LATEST_MODERN);
        assert_eq!(modern(RESOURCE_NOT_FOUND), INVALID_PARAMS);
        assert_eq!(modern(URL_ELICITATION_REQUIRED), INTERNAL_ERROR);
        assert_eq!(modern(-32_099), INTERNAL_ERROR);
        for kept in [-32_700, -32_601, -32_022, -32_021, -32_020, -32_000, -1, 7] {
            assert_eq!(modern(kept), kept);
        }
    }

    #[test]
    fn codes_that_prove_a_modern_server_are_replaced_for_a_legacy_one() {
        for legacy in [RESOURCE_NOT_FOUND, URL_ELICITATION_REQUIRED, -32_050] {
            assert_eq!(in_version(legacy, Version::LATEST_LEGACY), legacy);
        }
        for &version in Version::LEGACY {
            assert!((-32_100..0).all(|code| !is_modern_evidence(in_version(code, version))));
        }
        let first = Version::V2024_11_05;
        assert_eq!(in_version(URL_ELICITATION_REQUIRED, first), INTERNAL_ERROR);
    }

    #[test]
    fn only_codes_with_a_meaning_have_a_name() {
        let named = (-33000..=0).filter(|&code| name(code).is_some());
        assert!(named.eq([
            -32700, -32603, -32602, -32601, -32600, -32042, -32022, -32021, -32020, -32002, -1
        ]));
    }
}
