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
        "A Python server cannot write a lone surrogate: its response ends without a reply. The guard answers the host with an error, where it would wait for ever.",
        "host [surrogates] host: tools/call reply added",
    ),
    row(
        "error codes are rewritten",
        KNOWN,
        "A modern host gets another code than the server sent: -32050 becomes -32603, -32002 becomes -32602.",
        "host [errors] host: tools/call reply.error.code changed",
        "host [resources] host: resources/read reply.error.code changed",
    ),
    row(
        "methods of the other era are refused by the guard",
        KNOWN,
        "A method that the host's era does not have is answered by the guard. The code is the same, the text is not.",
        "host [ping] host: ping reply.error.*",
        "host [logging] host: logging/setLevel reply.error.*",
        "host [subscribe] host: resources/* reply.error.*",
        "server [logging] host: logging/setLevel missing",
    ),
    row(
        "the request state is the guard's own",
        BY_DESIGN,
        "Hosts give back `requestState` unread. The guard keeps that of the server and gives the host one of its own, so that a request survives the death of its server between two rounds.",
        "host [*] host: tools/call reply.result.requestState changed",
        "host [*] host: tools/call params.requestState changed",
    ),
    row(
        "a log level is always asked for",
        KNOWN,
        "The guard adds the log level `info` to every modern request, so a server sends messages that no host wants.",
        "server [*] host: * params._meta.io.modelcontextprotocol/logLevel added",
        "server [*] server: notifications/message added",
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
        "`everlink/via` in `_meta` of `initialize`, and of the requests of the guard itself, names the guard. `--hide-host` is the other way round.",
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
        "the guard ends what it listens to in its own words",
        BY_DESIGN,
        "The `subscriptions/listen` that the server sees is the guard's. So is its `notifications/cancelled`: `reason` and `_meta` of the host are about another one.",
        "server [listen] host: notifications/cancelled params.reason missing",
        "server [listen] host: notifications/cancelled params._meta missing",
    ),
    row(
        "cancellations lose their `_meta`",
        KNOWN,
        "`_meta` in `notifications/cancelled` of a host does not reach the server; `reason` does.",
        "server [*] host: notifications/cancelled params._meta missing",
    ),
    row(
        "extensions of the older era are dropped",
        KNOWN,
        "`capabilities.extensions` in `initialize` is not passed on, in either direction.",
        "host [start] host: initialize reply.result.capabilities.extensions missing",
        "server [start] host: initialize params.capabilities.extensions missing",
    ),
    row(
        "the newest version of the era is offered",
        KNOWN,
        "The guard offers the server 2025-11-25, whatever version the host offered, and tells the host 2025-11-25, whatever the server agreed to.",
        "server [start] host: initialize params.protocolVersion changed",
        "* [start] host: initialize reply.result.protocolVersion changed",
    ),
    row(
        "changed roots are not passed on",
        KNOWN,
        "`notifications/roots/list_changed` of a modern host does not reach the server.",
        "server [roots] host: notifications/roots/list_changed missing",
    ),
    row(
        "a handshake is begun before the era is known",
        KNOWN,
        "The guard sends `initialize` too, while it waits for the answer to `server/discover`.",
        "server [start] host: initialize added",
    ),
    row(
        "the guard introduces itself",
        KNOWN,
        "The server is told the name and version of the guard, not those of the host.",
        "server [start] host: initialize params.clientInfo.*",
        "server [*] host: * params._meta.io.modelcontextprotocol/clientInfo.*",
    ),
    row(
        "the guard asks `server/discover` itself",
        BY_DESIGN,
        "A host that speaks the modern era and begins without `server/discover` finds a guard that has asked it.",
        "server [start] host: server/discover added",
        "* over http: server [start] server: (reply to nothing) added",
    ),
    row(
        "progress is always asked for",
        KNOWN,
        "The guard adds a progress token to every request, so a server reports progress that no host wants.",
        "server [*] host: * params added",
        "server [*] host: * params._meta added",
        "server [*] host: * params._meta.progressToken added",
        "server [progress] host: tools/call progress added",
    ),
    row(
        "progress numbers are spelled anew",
        KNOWN,
        "`1.0` in a progress notification becomes `1`.",
        "host [*] host: * progress[*].* changed",
    ),
    row(
        "progress notifications lose members",
        KNOWN,
        "`_meta` and members that the specification does not have are dropped from `notifications/progress`.",
        "host [*] host: * progress[*]._meta missing",
        "host [*] host: * progress[*].x-unknown missing",
    ),
    row(
        "unknown members of errors and of the handshake are dropped",
        KNOWN,
        "A member beside `code`, `message` and `data` of an error, or one in the result of `initialize` that the specification does not have.",
        "host [start] host: initialize reply.result.x-unknown missing",
        "host [*] host: * reply.error.x-unknown missing",
    ),
    row(
        "undeclared subscriptions are refused",
        KNOWN,
        "A server that serves `resources/subscribe` without declaring it is not asked.",
        "host [subscribe] host: resources/* reply.*",
        "server [subscribe] host: resources/* missing",
        "host [subscribe] server: notifications/resources/updated missing",
    ),
    row(
        "other undeclared methods are refused",
        KNOWN,
        "A method of a feature that the server does not declare is answered by the guard. The code is the same if the server does not serve it either, the text is not.",
        "host [completion] host: completion/complete reply.*",
        "server [completion] host: completion/complete missing",
        "raw -> raw over *: host [*] host: resources/* reply.*",
        "raw -> raw over *: host [*] host: prompts/* reply.*",
        "raw -> raw over *: host [*] host: logging/setLevel reply.*",
        "raw -> raw over *: server [*] host: resources/* missing",
        "raw -> raw over *: server [*] host: prompts/* missing",
        "host [tasks] host: tasks/* reply.*",
        "server [tasks] host: tasks/* missing",
    ),
    row(
        "tasks are dropped before 2025-11-25",
        KNOWN,
        "A Python server declares and serves tasks in every version. A host that agreed on 2025-06-18 does not get them through the guard.",
        "host [start] host: initialize reply.result.capabilities.tasks missing",
        "* [tasks] * tasks/* missing",
        "host [tasks] server: notifications/tasks/status missing",
    ),
    row(
        "undeclared notifications are dropped",
        KNOWN,
        "Log messages of a server that does not declare `logging`, and changes of lists that it does not declare, do not reach the host.",
        "raw -> raw over *: host [*] server: notifications/* missing",
    ),
    row(
        "a cancellation that comes after the reply is dropped",
        BY_DESIGN,
        "The server is done with the request and would ignore it.",
        "raw -> raw over *: server [cancel] host: notifications/cancelled missing",
    ),
    row(
        "list changes that a modern host does not listen for are dropped",
        KNOWN,
        "FastMCP sends them to the host anyway, without `subscriptions/listen`.",
        "* -> fastmcp-4.1 over *: host [list-changed] server: notifications/*/list_changed missing",
    ),
    row(
        "updates that were not subscribed to are dropped",
        KNOWN,
        "`notifications/resources/updated` reaches only hosts that subscribed to that resource through the guard.",
        "host [updated-unasked] server: notifications/resources/updated missing",
    ),
    row(
        "debug messages are dropped before a level is set",
        KNOWN,
        "Before the host sets a level, log messages below `info` are not passed on.",
        "host [logging-unset] server: notifications/message missing",
    ),
    row(
        "the reply to a cancelled request is dropped",
        KNOWN,
        "Some servers answer a cancelled request with an error. The guard drops it, and a host that waits for it waits for ever.",
        "host [cancel] host: tools/call reply missing",
        # Over HTTP the host asks for the rest of that stream, some time later.
        "* over http: host [*] server: (reply to nothing) added",
    ),
    row(
        "a modern server must not send requests",
        BY_DESIGN,
        "Since 2026-07-28 a server sends no requests, and a client must not answer one. The guard keeps to that and says so in its log. In the older era such questions reach the host.",
        "* [custom-question] *",
    ),
    row(
        "unknown notifications of a server are dropped over HTTP",
        KNOWN,
        "Over stdio they are passed on, over HTTP they are not.",
        "* over http: host [custom-news] server: notifications/x-everlink/news missing",
    ),
    row(
        "missing members of modern results are added",
        KNOWN,
        "rmcp sends results without `resultType` and without its identity in `_meta`. The guard adds both.",
        "* -> rmcp-3.8 over *: host [*] host: * reply.result.resultType added",
        "* -> rmcp-3.8 over *: host [*] host: * reply.result._meta added",
        "* -> rmcp-3.8 over *: host [*] host: * reply.result._meta.io.modelcontextprotocol/serverInfo added",
    ),
    row(
        "the versions of `server/discover` are the guard's own",
        KNOWN,
        "A server that names versions of both eras is offered to the host with 2026-07-28 alone.",
        "host [start] host: server/discover reply.result.supportedVersions changed",
    ),
    row(
        "`logging/setLevel` loses `_meta`",
        KNOWN,
        "The guard sets the level of the server itself, without the `_meta` of the host.",
        "server [logging] host: logging/setLevel params._meta missing",
    ),
    row(
        "a server that refuses a large body by cutting the connection is connected to anew",
        BY_DESIGN,
        "The TypeScript server cuts the connection on arguments of 10 MB and more, also without a guard. The guard tells the host so, where it would wait, and begins a new session.",
        "* -> node-2.4 over http: * [up-*MB] *",
    ),
    row(
        "rmcp: not looked at one by one",
        KNOWN,
        "rmcp serves the methods of both eras in either of them; the rest of its differences has not been divided into rows yet.",
        "rmcp-3.8* -> * over *: *",
        "* -> rmcp-3.8 over *: *",
    ),
]


def reason(*texts):
    """The row that knows this difference, by any of its texts."""
    return next((row for row in DIFFERENCES if row.fits(texts)), None)
