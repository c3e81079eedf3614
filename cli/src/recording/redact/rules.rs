//! Lists the parts of a message that are shown or linked because a machine reads them. Changes nothing.

/// How much of a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visibility {
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
    SignedState,
    /// Shows numbers and literals. Equal texts stay equal.
    Shape,
    /// Shows words and versions of the protocol, numbers and literals.
    ProtocolText,
}

/// The parts of messages that a machine reads or compares, as paths from the message down. Arrays do not count as a level. `**` stands for any path,
/// `*` for one member of any name. Everything inside a linked part is linked.
const VISIBLE_PATHS: &[(Visibility, &[&str])] = &[
    (Visibility::ProtocolText, &["jsonrpc"]),
    (Visibility::Shape, &["id"]),
    (Visibility::Method, &["method"]),
    (Visibility::Shape, &["error", "code"]),
    (Visibility::ProtocolText, &["error", "data", "requested"]),
    (Visibility::ProtocolText, &["error", "data", "supported"]),
    (
        Visibility::Shape,
        &["error", "data", "requiredCapabilities"],
    ),
    // Header fields may repeat arguments, under names that the tool declares.
    (Visibility::Arguments, &["params", "arguments"]),
    (Visibility::Shape, &["params", "capabilities"]),
    // A machine compares `clientInfo` to recognise a client.
    (Visibility::Linked, &["params", "clientInfo"]),
    (Visibility::Linked, &["params", "cursor"]),
    (Visibility::Linked, &["params", "elicitationId"]),
    (Visibility::ProtocolText, &["params", "level"]),
    // A header field repeats the name or URI of a request.
    (Visibility::Linked, &["params", "name"]),
    (Visibility::Shape, &["params", "notifications"]),
    (Visibility::Shape, &["params", "progress"]),
    (Visibility::Shape, &["params", "progressToken"]),
    (Visibility::ProtocolText, &["params", "protocolVersion"]),
    (Visibility::Shape, &["params", "requestId"]),
    (Visibility::SignedState, &["params", "requestState"]),
    (Visibility::Linked, &["params", "taskId"]),
    (Visibility::Shape, &["params", "total"]),
    (Visibility::Linked, &["params", "uri"]),
    (
        Visibility::Shape,
        &[
            "params",
            "_meta",
            "io.modelcontextprotocol/clientCapabilities",
        ],
    ),
    (
        Visibility::Linked,
        &["params", "_meta", "io.modelcontextprotocol/clientInfo"],
    ),
    (
        Visibility::ProtocolText,
        &["params", "_meta", "io.modelcontextprotocol/logLevel"],
    ),
    (
        Visibility::ProtocolText,
        &["params", "_meta", "io.modelcontextprotocol/protocolVersion"],
    ),
    (
        Visibility::Shape,
        &["params", "_meta", "io.modelcontextprotocol/subscriptionId"],
    ),
    (Visibility::Shape, &["params", "_meta", "progressToken"]),
    (Visibility::ProtocolText, &["result", "cacheScope"]),
    (Visibility::Shape, &["result", "capabilities"]),
    (
        Visibility::Method,
        &["result", "inputRequests", "*", "method"],
    ),
    (Visibility::Linked, &["result", "instructions"]),
    (Visibility::Shape, &["result", "isError"]),
    (Visibility::Linked, &["result", "nextCursor"]),
    // A machine compares lists with earlier ones.
    (Visibility::Linked, &["result", "prompts"]),
    (Visibility::ProtocolText, &["result", "protocolVersion"]),
    (Visibility::Linked, &["result", "resources"]),
    (Visibility::Linked, &["result", "resourceTemplates"]),
    (Visibility::ProtocolText, &["result", "resultType"]),
    (Visibility::Linked, &["result", "serverInfo"]),
    (Visibility::ProtocolText, &["result", "supportedVersions"]),
    (Visibility::Linked, &["result", "task", "taskId"]),
    (Visibility::Linked, &["result", "taskId"]),
    (Visibility::Linked, &["result", "tools"]),
    (
        Visibility::ProtocolText,
        &["result", "tools", "inputSchema", "**", "type"],
    ),
    (
        Visibility::Header,
        &["result", "tools", "inputSchema", "**", "x-mcp-header"],
    ),
    (Visibility::Shape, &["result", "ttlMs"]),
    (
        Visibility::Linked,
        &["result", "_meta", "io.modelcontextprotocol/serverInfo"],
    ),
    (
        Visibility::Shape,
        &["result", "_meta", "io.modelcontextprotocol/subscriptionId"],
    ),
];

/// Other names of members in the protocol, which reveal nothing. They are shown wherever they occur, like the names in [`VISIBLE_PATHS`].
const PROTOCOL_NAMES: &[&str] = &[
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

/// Texts of the protocol that reveal nothing. They are shown where the machine reads a [`Visibility::ProtocolText`].
pub(super) const PROTOCOL_TEXTS: &[&str] = &[
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
pub(super) fn is_protocol_name(name: &[u8]) -> bool {
    let from_paths = VISIBLE_PATHS.iter().flat_map(|(_, path)| path.iter());
    let mut names = PROTOCOL_NAMES.iter().chain(CAPABILITIES).chain(from_paths);
    names.any(|known| known.as_bytes() == name && !known.starts_with('*'))
}

/// Returns how much is shown of the value at this path.
pub(super) fn visibility(path: &[&[u8]]) -> Visibility {
    fn matches_path(pattern: &[&str], path: &[&[u8]]) -> bool {
        match (pattern.split_first(), path.split_first()) {
            (None, None) => true,
            (Some((&"**", rest)), _) => {
                (0..=path.len()).any(|skipped| matches_path(rest, &path[skipped..]))
            }
            (Some((expected, rest)), Some((name, deeper))) => {
                (*expected == "*" || expected.as_bytes() == *name) && matches_path(rest, deeper)
            }
            _ => false,
        }
    }
    let found = VISIBLE_PATHS
        .iter()
        .find(|(_, pattern)| matches_path(pattern, path));
    found.map_or(Visibility::Nothing, |(visibility, _)| *visibility)
}
