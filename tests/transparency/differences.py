"""The differences that are known, each with its reason. Anything else that differs is a failure.

A row has a name, a status, a reason, and patterns for the texts of its differences, `VIEW [SCENARIO] SENDER: METHOD PATH KIND`, in which `*` stands for
anything. Before it may stand `HOST -> SERVER over TRANSPORT: `. The status is BY_DESIGN, or KNOWN for what is to be mended: delete such a row with the mend.
The first row that fits counts.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

BY_DESIGN = "by design"
KNOWN = "to be mended"


@dataclass(frozen=True)
class Row:
    name: str
    status: str
    reason: str
    patterns: tuple

    def fits(self, texts):
        # Brackets are no sets of letters here.
        patterns = [pattern.replace("[", "[[]") for pattern in self.patterns]
        return any(fnmatchcase(text, pattern) for pattern in patterns for text in texts)


def row(name, status, reason, *patterns):
    return Row(name, status, reason, patterns)


DIFFERENCES = [
    row(
        "list changes are announced",
        BY_DESIGN,
        "The guard compares the lists of each new process with those that the host has seen, and tells the host what changed. So it keeps the promise of `listChanged` itself.",
        "host [start] host: initialize reply.result.capabilities.*.listChanged *",
        "host [start] host: server/discover reply.result.capabilities.*.listChanged *",
        "* -> fastmcp-4.1 over *: * [listen] *",
    ),
    row(
        "pings are answered by the guard",
        BY_DESIGN,
        "A ping asks whether the other end of the connection is alive. That end is the guard.",
        "server [ping] host: ping missing",
        "host [ping-back] server: ping missing",
    ),
    row(
        "the guard probes a silent server",
        BY_DESIGN,
        "After 30 seconds of silence the guard asks whether the server is alive. The largest messages can take that long.",
        "server [*] host: ping added",
        "server [*MB] host: server/discover added",
    ),
    row(
        "a reply that breaks off is replaced",
        BY_DESIGN,
        "A Python server cannot write a lone surrogate: its response ends without a reply. The guard answers the host with an error. Without the guard, the host would wait for ever.",
        "host [surrogates] host: tools/call reply added",
    ),
    row(
        "the request state is the guard's own",
        BY_DESIGN,
        "Hosts give back `requestState` unread. The guard keeps the server's state and gives the host its own. So a request can continue at a new server if the server dies between two rounds.",
        "host [*] host: tools/call reply.result.requestState changed",
        "host [*] host: tools/call params.requestState changed",
    ),
    row(
        "requests of the guard itself declare what their version has",
        BY_DESIGN,
        "`server/discover` and `subscriptions/listen` are sent by the guard, with the capabilities of the host that 2026-07-28 knows. The requests of the host declare what the host declares.",
        "server [*] host: server/discover params._meta.io.modelcontextprotocol/clientCapabilities* *",
        "server [*] host: subscriptions/listen params._meta.io.modelcontextprotocol/clientCapabilities* *",
    ),
    row(
        "the guard names itself beside the host",
        BY_DESIGN,
        "`everlink/via` in `_meta` of `initialize`, and of the requests of the guard itself, names the guard. With `--hide-host`, the server sees only the name of the guard.",
        "server [start] host: initialize params._meta added",
        "server [*] host: initialize params._meta.everlink/via added",
        "server [*] host: server/discover params._meta.everlink/via added",
        "server [*] host: subscriptions/listen params._meta.everlink/via added",
    ),
    row(
        "the guard listens for changes",
        BY_DESIGN,
        "The guard has a `subscriptions/listen` of its own, to know when a list that it holds has changed.",
        "server [*] host: subscriptions/listen added",
        "server [*] server: notifications/subscriptions/acknowledged added",
        "server [*] server: notifications/*/list_changed added",
        "server [*] host: notifications/cancelled added",
    ),
    row(
        "over HTTP a stream is closed to end it",
        BY_DESIGN,
        "The TypeScript SDK also sends `notifications/cancelled` for a `subscriptions/listen` that it closes. The guard ends its own stream as the specification says for HTTP, by closing it.",
        "* over http: server [*] host: notifications/cancelled missing",
    ),
    row(
        "the guard cancels its own `subscriptions/listen`",
        BY_DESIGN,
        "The `subscriptions/listen` that the server sees is the guard's. So the server sees the guard's `notifications/cancelled`, not the `reason` and `_meta` of the host.",
        "server [listen] host: notifications/cancelled params.reason missing",
        "server [listen] host: notifications/cancelled params._meta missing",
    ),
    row(
        "the guard asks `server/discover` itself",
        BY_DESIGN,
        "A host that speaks the modern era and begins without `server/discover` finds a guard that has asked it.",
        "server [start] host: server/discover added",
        "* over http: server [start] server: (reply to nothing) added",
    ),
    row(
        "a cancellation that comes after the reply is dropped",
        BY_DESIGN,
        "The server is done with the request and would ignore it.",
        "raw -> raw over *: server [cancel] host: notifications/cancelled missing",
    ),
    row(
        "the reply to a cancelled request is dropped",
        BY_DESIGN,
        "The specification says that nobody replies to a cancelled request, and that a reply is ignored. Some servers send one, and a guard drops it. Over HTTP, a host may then try to resume that stream, and the guard answers that there is none. The host chooses when it does this. So in the last scenario, this answer can be matched with another error without an id.",
        "host [cancel] host: tools/call reply missing",
        "* over http: host [*] server: (reply to nothing) added",
        "node-* over http: host [surrogates] server: (reply to nothing) error.code changed",
        "node-* over http: host [surrogates] server: (reply to nothing) error.message changed",
    ),
    row(
        "a cancelled call is heard a little longer or shorter",
        BY_DESIGN,
        "Cancellation and reply cross each other on the way, and the guard adds a hop. A last progress notification or a reply may pass, or not.",
        "* -> rmcp-3.8 over http: * [cancel] host: tools/call progress changed",
        "rmcp-3.8* -> * over http: * [cancel] host: tools/call reply added",
    ),
    row(
        "unknown members of errors are dropped",
        BY_DESIGN,
        "JSON-RPC gives an error the members `code`, `message` and `data`. The guard passes on these three.",
        "host [*] host: * reply.error.x-unknown missing",
    ),
    row(
        "changes that a modern host does not listen for are dropped",
        BY_DESIGN,
        "Since 2026-07-28 changes are sent only to a client that asked for them with `subscriptions/listen`. FastMCP and rmcp send them to every client.",
        "* -> fastmcp-4.1 over *: host [list-changed] server: notifications/*/list_changed missing",
        "rmcp-3.8 -> rmcp-3.8 over *: host [list-changed] server: notifications/*/list_changed missing",
        "rmcp-3.8 -> rmcp-3.8 over *: host [updated-unasked] server: notifications/resources/updated missing",
        "rmcp-3.8 -> rmcp-3.8 over *: host [subscribe] server: notifications/resources/updated missing",
    ),
    row(
        "the guard serves `subscriptions/listen` itself",
        BY_DESIGN,
        "The server of rmcp refuses `subscriptions/listen`. The guard acknowledges it and sends the changes that it hears of.",
        "rmcp-3.8 -> rmcp-3.8 over *: * [listen] *",
        "rmcp-3.8 -> * over *: server [listen] host: subscriptions/listen params._meta.progressToken missing",
    ),
    row(
        "a modern server must not send requests",
        BY_DESIGN,
        "Since 2026-07-28 a server sends no requests, and a client must not answer one. The guard keeps to that and says so in its log. The server of rmcp sends such requests all the same. In the older era such questions reach the host.",
        "* [custom-question] *",
        "rmcp-3.8 -> rmcp-3.8 over stdio: * [sampling] *",
        "rmcp-3.8 -> rmcp-3.8 over stdio: * [elicitation] *",
        "rmcp-3.8 -> rmcp-3.8 over stdio: * [roots] *",
        "rmcp-3.8 -> rmcp-3.8 over stdio: * [ping-back] *",
    ),
    row(
        "an error without an id gets the id of its request",
        BY_DESIGN,
        "Over HTTP some servers refuse a request with an error that has no id, or with a text that is no message. The guard knows which request that response is for, and answers the host with its id. The guard writes the envelope of a message anew, so a column that the text names differs.",
        "* over http: host [start] host: server/discover reply added",
        "* over http: host [start] server: (reply to nothing) missing",
        "* over http: host [surrogates] server: (reply to nothing) missing",
        "* over http: server [surrogates] server: (reply to nothing) error.message changed",
        "* -> rmcp-3.8 over http: host [surrogates] server: (no message) missing",
        "* -> rmcp-3.8 over http: server [surrogates] server: (no message) unreadable changed",
    ),
    row(
        "the guard checks the header fields of a modern request",
        BY_DESIGN,
        "The specification says that a server refuses a request of HTTP whose `Mcp-Name` does not name what the message names. The guard does; Python 2.3 sends none for `tasks/cancel`. The server of rmcp wants one for `resources/subscribe`, where the specification has none.",
        "python-2.3 -> * over http: * [tasks] host: tasks/cancel *",
        "rmcp-3.8 -> rmcp-3.8 over http: * [subscribe] host: resources/* reply.error.*",
    ),
    row(
        "after a server cuts the connection because of a large body, the guard connects again",
        BY_DESIGN,
        "The servers of TypeScript and rmcp cut the connection on arguments of 10 MB and more (4 MiB for rmcp), also without a guard. The guard reports this to the host, which would wait without the guard, and begins a new session.",
        "* -> node-2.4 over http: * [up-*MB] *",
        "* -> node-1.17 over http: * [up-*MB] *",
        "* -> rmcp-3.8 over http: * [up-*MB] *",
    ),
    row(
        "a host that gives up on a large result gives up at another moment",
        BY_DESIGN,
        "A result of 10 MB or more can take longer than a host waits. Whether the reply, the cancellation or both are seen depends on the machine.",
        "* [down-*MB] host: tools/call reply added",
        "* [down-*MB] host: notifications/cancelled missing",
    ),
]


def reason(*texts):
    """The row that knows this difference, by any of its texts."""
    return next((row for row in DIFFERENCES if row.fits(texts)), None)
