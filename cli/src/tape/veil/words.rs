//! Which parts of a message are shown because a machine reads them. Changes nothing.

/// How much of a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Nothing. What the arguments are called stays equal to how the tool calls them.
    Arguments,
    /// Nothing. Equal names of fields stay equal, also in capitals.
    Header,
    /// Nothing. Equal names, texts and numbers stay equal.
    Linked,
    /// A method of the protocol. Equal ones of others stay equal.
    Method,
    Nothing,
    /// How a state begins that the machine has sealed for whoever gives it back, but not the proof in it.
    Seal,
    /// Numbers and literals. Equal texts stay equal.
    Shape,
    /// Texts that are words of the protocol or its versions, numbers and literals.
    Word,
}

/// What a machine reads of messages, or compares with others, beside their form: the way to it, from the message down. Arrays are not counted; `**`
/// stands for any way, `*` for one member of any name. What is linked is so with all that is in it.
const SHOWN: &[(Shown, &[&str])] = &[
    (Shown::Word, &["jsonrpc"]),
    (Shown::Shape, &["id"]),
    (Shown::Method, &["method"]),
    (Shown::Shape, &["error", "code"]),
    (Shown::Word, &["error", "data", "requested"]),
    (Shown::Word, &["error", "data", "supported"]),
    (Shown::Shape, &["error", "data", "requiredCapabilities"]),
    // Arguments may be repeated in fields, by the names that the tool has for them.
    (Shown::Arguments, &["params", "arguments"]),
    (Shown::Shape, &["params", "capabilities"]),
    // A client is the same as before if it says the same of itself.
    (Shown::Linked, &["params", "clientInfo"]),
    (Shown::Linked, &["params", "cursor"]),
    (Shown::Linked, &["params", "elicitationId"]),
    (Shown::Word, &["params", "level"]),
    // What a request is about is repeated in a field.
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
    // Lists are compared with those that were seen before.
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

/// What clients and servers can say that they can.
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

/// Whether this is the name of a member in the protocol.
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
