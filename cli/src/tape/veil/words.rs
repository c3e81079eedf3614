//! Which parts of a message are shown because a machine reads them. Changes nothing.

/// How much of a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    All,
    /// How a state begins that the machine has sealed for whoever gives it back, but not the proof in it.
    Seal,
    /// Names of members, numbers and literals, but no texts.
    Shape,
    Nothing,
    /// Texts, as far as they are words of the protocol or its versions, numbers and literals.
    Word,
}

/// What a machine reads of messages, beside their form: the way to it, from the message down. Arrays are not counted; `**` stands for any way,
/// `*` for one member of any name.
const SHOWN: &[(Shown, &[&str])] = &[
    (Shown::Word, &["jsonrpc"]),
    (Shown::Shape, &["id"]),
    (Shown::All, &["method"]),
    (Shown::Shape, &["error", "code"]),
    (Shown::Word, &["error", "data", "requested"]),
    (Shown::Word, &["error", "data", "supported"]),
    (Shown::Shape, &["error", "data", "requiredCapabilities"]),
    (Shown::Shape, &["params", "capabilities"]),
    (Shown::Word, &["params", "level"]),
    (Shown::Shape, &["params", "notifications"]),
    (Shown::Shape, &["params", "progress"]),
    (Shown::Shape, &["params", "progressToken"]),
    (Shown::Word, &["params", "protocolVersion"]),
    (Shown::Shape, &["params", "requestId"]),
    (Shown::Seal, &["params", "requestState"]),
    (Shown::Shape, &["params", "total"]),
    (
        Shown::Shape,
        &[
            "params",
            "_meta",
            "io.modelcontextprotocol/clientCapabilities",
        ],
    ),
    (
        Shown::Word,
        &["params", "_meta", "io.modelcontextprotocol/logLevel"],
    ),
    (
        Shown::Word,
        &["params", "_meta", "io.modelcontextprotocol/protocolVersion"],
    ),
    (
        Shown::Shape,
        &["params", "_meta", "io.modelcontextprotocol/subscriptionId"],
    ),
    (Shown::Shape, &["params", "_meta", "progressToken"]),
    (Shown::Word, &["result", "cacheScope"]),
    (Shown::Shape, &["result", "capabilities"]),
    (Shown::All, &["result", "inputRequests", "*", "method"]),
    (Shown::Shape, &["result", "isError"]),
    (Shown::Word, &["result", "protocolVersion"]),
    (Shown::Word, &["result", "resultType"]),
    (Shown::Word, &["result", "supportedVersions"]),
    (
        Shown::Word,
        &["result", "tools", "inputSchema", "**", "type"],
    ),
    (
        Shown::All,
        &["result", "tools", "inputSchema", "**", "x-mcp-header"],
    ),
    (Shown::Shape, &["result", "ttlMs"]),
    (
        Shown::Shape,
        &["result", "_meta", "io.modelcontextprotocol/subscriptionId"],
    ),
];

/// Names of members that say nothing about anybody, wherever they are: those of the protocol. All those above are, too.
const WORDS: &[&str] = &[
    "_meta",
    "action",
    "arguments",
    "content",
    "contents",
    "cursor",
    "description",
    "inputResponses",
    "inputSchema",
    "instructions",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/serverInfo",
    "items",
    "logger",
    "message",
    "messages",
    "name",
    "nextCursor",
    "params",
    "promptsListChanged",
    "prompts",
    "properties",
    "reason",
    "requestState",
    "resourceSubscriptions",
    "resourceTemplates",
    "resourcesListChanged",
    "resources",
    "result",
    "serverInfo",
    "clientInfo",
    "text",
    "title",
    "toolsListChanged",
    "tools",
    "uri",
    "uriTemplate",
    "version",
];

/// Texts that say nothing about anybody, where the machine reads some.
pub(super) const VALUES: &[&str] = &[
    "alert",
    "array",
    "boolean",
    "complete",
    "critical",
    "debug",
    "emergency",
    "error",
    "info",
    "input_required",
    "integer",
    "notice",
    "null",
    "number",
    "object",
    "private",
    "public",
    "string",
    "task",
    "warning",
];

/// Whether a name that begins like this is, or may become, one of the words of the protocol.
pub(super) fn begins_word(name: &[u8]) -> bool {
    let of_ways = SHOWN.iter().flat_map(|(_, way)| way.iter());
    let mut words = WORDS.iter().chain(of_ways);
    words.any(|word| word.as_bytes().starts_with(name))
}

pub(super) fn shown(way: &[&[u8]]) -> Shown {
    fn leads(pattern: &[&str], way: &[&[u8]]) -> bool {
        match (pattern.split_first(), way.split_first()) {
            (None, None) => true,
            (Some((&"**", rest)), _) => (0..=way.len()).any(|skipped| leads(rest, &way[skipped..])),
            (Some((word, rest)), Some((name, deeper))) => {
                (*word == "*" || word.as_bytes() == *name) && leads(rest, deeper)
            }
            _ => false,
        }
    }
    let found = SHOWN.iter().find(|(_, pattern)| leads(pattern, way));
    found.map_or(Shown::Nothing, |(shown, _)| *shown)
}
