//! The keys of `_meta`, and the grammar of these keys and of extension identifiers.

use super::version::Version;

/// Request: the token under which the receiver may report progress. Every version.
pub const PROGRESS_TOKEN: &str = "progressToken";
/// Request, required: the protocol version of the request. Modern.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Request, required: the client's capabilities for this request. Modern.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Request: the client's name and version. Modern.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// Request: the minimum severity of log messages. Modern.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Result: the server's name and version. Modern.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Notification or result: the `subscriptions/listen` request that it belongs to. Modern.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// Any message: the W3C trace parent. Needs no prefix.
pub const TRACEPARENT: &str = "traceparent";
/// Any message: the W3C trace state. Needs no prefix.
pub const TRACESTATE: &str = "tracestate";
/// Any message: the W3C baggage. Needs no prefix.
pub const BAGGAGE: &str = "baggage";
/// Any message of a task: the task that it belongs to. Only in 2025-11-25.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// Result that created a task: a message for the model meanwhile. Only in 2025-11-25, provisional.
pub const MODEL_IMMEDIATE_RESPONSE: &str = "io.modelcontextprotocol/model-immediate-response";

/// `initialize`, and requests that a relay sends on its own: the name and version of the relay.
pub const VIA: &str = "everlink/via";

/// The `_meta` keys of a request that belong to the link, and not to the applications.
pub const OF_THE_LINK: [&str; 5] = [
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
];

/// The identifier of the tasks extension of the modern era.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Whether `key` follows the grammar of `_meta` keys: an optional prefix of labels, then a name.
///
/// The name may be empty, as the grammar says, even without a prefix.
#[must_use]
pub fn is_valid_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => prefix.split('.').all(is_label) && is_name(name),
        None => is_name(key),
    }
}

/// Whether `id` is valid in `capabilities.extensions`: a valid key with a prefix.
#[must_use]
pub fn is_valid_extension_id(id: &str) -> bool {
    id.contains('/') && is_valid_key(id)
}

/// Whether `version` reserves the prefix of `key` for MCP itself.
///
/// The rule changed. 2025-06-18 reserves every prefix in which `mcp` or `modelcontextprotocol` is followed by another label. Later versions
/// reserve the prefixes whose second label is one of the two. Earlier versions have no such rule.
#[must_use]
pub fn is_reserved_prefix(version: Version, key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else {
        return false;
    };
    let mut labels = prefix.split('.');
    match version {
        Version::V2024_11_05 | Version::V2025_03_26 => false,
        Version::V2025_06_18 => labels.any(is_own_label) && labels.next().is_some(),
        Version::V2025_11_25 | Version::V2026_07_28 => labels.nth(1).is_some_and(is_own_label),
    }
}

fn is_own_label(label: &str) -> bool {
    matches!(label, "mcp" | "modelcontextprotocol")
}

fn is_label(label: &str) -> bool {
    label.starts_with(|first: char| first.is_ascii_alphabetic())
        && label.ends_with(|last: char| last.is_ascii_alphanumeric())
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_name(name: &str) -> bool {
    let is_end = |end: char| end.is_ascii_alphanumeric();
    name.is_empty()
        || name.starts_with(is_end)
            && name.ends_with(is_end)
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_the_grammar() {
        let valid = [
            "",
            "a",
            "7",
            "progressToken",
            "a-b_c.d",
            "com.example/",
            "com.example/name",
            "x/y",
            "a1.b-2/c",
            "io.modelcontextprotocol/related-task",
            "a--b/c..d",
        ];
        let invalid = [
            "-a",
            "a-",
            "_a",
            "a.",
            "a b",
            "é",
            "/",
            "/name",
            "1a/name",
            "a-/name",
            "-a/name",
            "a..b/name",
            ".a/name",
            "a./name",
            "a_b/name",
            "a/b/c",
            "a/-b",
            "a/b_",
            "a/é",
            "é/a",
            "a/ b",
        ];
        for key in valid {
            assert!(is_valid_key(key), "{key:?} is valid");
        }
        for key in invalid {
            assert!(!is_valid_key(key), "{key:?} is invalid");
        }
    }

    #[test]
    fn every_key_here_is_valid() {
        for key in [
            PROGRESS_TOKEN,
            PROTOCOL_VERSION,
            CLIENT_CAPABILITIES,
            CLIENT_INFO,
            LOG_LEVEL,
            SERVER_INFO,
            SUBSCRIPTION_ID,
            TRACEPARENT,
            TRACESTATE,
            BAGGAGE,
            RELATED_TASK,
            MODEL_IMMEDIATE_RESPONSE,
        ] {
            assert!(is_valid_key(key), "{key}");
            let ours = key.contains('/');
            assert_eq!(
                is_reserved_prefix(Version::LATEST_MODERN, key),
                ours,
                "{key}"
            );
        }
        assert!(is_valid_extension_id(TASKS_EXTENSION));
    }

    #[test]
    fn an_extension_identifier_needs_its_prefix() {
        for id in ["com.example/thing", "x/y", "com.example/"] {
            assert!(is_valid_extension_id(id), "{id:?} is valid");
        }
        for id in ["", "thing", "com.example", "/thing", "com.example/a/b"] {
            assert!(!is_valid_extension_id(id), "{id:?} is invalid");
        }
    }

    #[test]
    fn the_reserved_prefixes_differ_by_version() {
        // Key, reserved in 2025-06-18, reserved in 2025-11-25 and later.
        let table = [
            ("mcp.dev/x", true, false),
            ("modelcontextprotocol.io/x", true, false),
            ("tools.mcp.com/x", true, true),
            ("api.modelcontextprotocol.org/x", true, true),
            ("a.b.mcp.c/x", true, false),
            ("io.modelcontextprotocol/x", false, true),
            ("dev.mcp/x", false, true),
            ("com.example.mcp/x", false, false),
            ("mcp/x", false, false),
            ("mcp.mcp/x", true, true),
            ("com.mcpx.tools/x", false, false),
            ("com.example/mcp.x", false, false),
            ("io.mcp", false, false),
            ("progressToken", false, false),
        ];
        for (key, in_june, later) in table {
            assert!(!is_reserved_prefix(Version::V2024_11_05, key), "{key}");
            assert!(!is_reserved_prefix(Version::V2025_03_26, key), "{key}");
            assert_eq!(
                is_reserved_prefix(Version::V2025_06_18, key),
                in_june,
                "{key}"
            );
            assert_eq!(
                is_reserved_prefix(Version::V2025_11_25, key),
                later,
                "{key}"
            );
            assert_eq!(
                is_reserved_prefix(Version::V2026_07_28, key),
                later,
                "{key}"
            );
        }
    }
}
