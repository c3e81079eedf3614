//! Lists the parts of a message that are shown or linked because a machine reads them. Changes nothing.

/// How much of a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Shows nothing. The names of arguments stay equal to those that the tool declares.
    Arguments,
    /// Shows nothing. Equal names of header fields stay equal, regardless of case.
    Header,
    /// Shows nothing. Equal names, texts and numbers stay equal.
    Linked,
    /// Shows a method of the protocol. Equal other methods stay equal.
    Method,
    Nothing,
    /// Shows the beginning of a state that the machine signed for a client, but not its proof.
    Seal,
    /// Shows numbers and literals. Equal texts stay equal.
    Shape,
    /// Shows words and versions of the protocol, numbers and literals.
    Word,
}

/// The parts of messages that a machine reads or compares, as paths from the message down. Arrays do not count as a level. `**` stands for any path,
/// `*` for one member of any name. Everything inside a linked part is linked.
const SHOWN: &[(Shown, &[&str])] = &[
    (Shown::Word, &["jsonrpc"]),
    (Shown::Shape, &["id"]),
    (Shown::Method, &["method"]),
    (Shown::Shape, &["error", "code"]),
    (Shown::Word, &["error", "data", "requested"]),
    (Shown::Word, &["error", "data", "supported"]),
    (Shown::Shape, &["error", "data", "requiredCapabilities"]),
    // Header fields may repeat arguments, under names that the tool declares.
    (Shown::Arguments, &["params", "arguments"]),
    (Shown::Shape, &["params", "capabilities"]),
    // A machine compares `clientInfo` to recognise a client.
    (Shown::Linked, &["params", "clientInfo"]),
    (Shown::Linked, &["params", "cursor"]),
    (Shown::Linked, &["params", "elicitationId"]),
    (Shown::Word, &["params", "level"]),
    // A header field repeats the name or URI of a request.
    (Shown::Linked, &["params", "name"]),
    (Shown::Shape, &["params", "notifications"]),
    (Shown::Shape, &["params", "progress"]),
    (Shown::Shape, &["params", "progressToken"]),
    (Shown::Word, &["params", "protocolVersion"]),
    (Shown::Shape, &["params", "requestId"]),
    (Shown::Seal, &["params", "requestState"]),
    (Shown::Linked, &["params", "taskId"]),
    (Shown::Shape, &["params", "total"]),
    (Shown::Linked, &["params", "uri"]),
    (
        Shown::Shape,
        &[
            "params",
            "_meta",
            "io.modelcontextprotocol/clientCapabilities",
        ],
    ),
    (
        Shown::Linked,
        &["params", "_meta", "io.modelcontextprotocol/clientInfo"],
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
    (Shown::Method, &["result", "inputRequests", "*", "method"]),
    (Shown::Linked, &["result", "instructions"]),
    (Shown::Shape, &["result", "isError"]),
    (Shown::Linked, &["result", "nextCursor"]),
    // A machine compares lists with earlier ones.
    (Shown::Linked, &["result", "prompts"]),
    (Shown::Word, &["result", "protocolVersion"]),
    (Shown::Linked, &["result", "resources"]),
    (Shown::Linked, &["result", "resourceTemplates"]),
    (Shown::Word, &["result", "resultType"]),
    (Shown::Linked, &["result", "serverInfo"]),
    (Shown::Word, &["result", "supportedVersions"]),
    (Shown::Linked, &["result", "task", "taskId"]),
    (Shown::Linked, &["result", "taskId"]),
    (Shown::Linked, &["result", "tools"]),
    (
        Shown::Word,
        &["result", "tools", "inputSchema", "**", "type"],
    ),
    (
        Shown::Header,
        &["result", "tools", "inputSchema", "**", "x-mcp-header"],
    ),
    (Shown::Shape, &["result", "ttlMs"]),
    (
        Shown::Linked,
        &["result", "_meta", "io.modelcontextprotocol/serverInfo"],
    ),
    (
        Shown::Shape,
        &["result", "_meta", "io.modelcontextprotocol/subscriptionId"],
    ),
];

/// Other names of members in the protocol, which reveal nothing. They are shown wherever they occur, like the names in [`SHOWN`].
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

/// Names of capabilities of clients and servers.
const CAPABILITIES: &[&str] = &[
    "call",
    "cancel",
    "completions",
    "context",
    "create",
    "createMessage",
    "elicitation",
    "experimental",
    "extensions",
    "form",
    "io.modelcontextprotocol/tasks",
    "list",
    "listChanged",
    "logging",
    "requests",
    "roots",
    "sampling",
    "subscribe",
    "tasks",
    "url",
];

/// Texts of the protocol that reveal nothing. They are shown where the machine reads a [`Shown::Word`].
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

/// Whether the protocol has a member of this name.
pub(super) fn is_word(name: &[u8]) -> bool {
    let of_ways = SHOWN.iter().flat_map(|(_, way)| way.iter());
    let mut words = WORDS.iter().chain(CAPABILITIES).chain(of_ways);
    words.any(|word| word.as_bytes() == name && !word.starts_with('*'))
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
