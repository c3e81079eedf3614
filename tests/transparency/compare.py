"""Finds what differs between two views of the same scenarios."""

from dataclasses import dataclass

from messages import Number, spelled

GONE = object()


@dataclass
class Difference:
    view: str
    scenario: str
    sender: str
    method: str
    path: str
    direct: str
    guarded: str

    @property
    def kind(self):
        if self.direct == "nothing":
            return "added"
        return "missing" if self.guarded == "nothing" else "changed"

    def __str__(self):
        return f"{self.view} [{self.scenario}] {self.sender}: {self.method}{' ' if self.path else ''}{self.path} {self.kind}"


def shown(value):
    text = "nothing" if value is GONE else spelled(value).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 400 else text[:397] + "..."


def paths(direct, guarded, path=""):
    """The smallest parts that differ."""
    if isinstance(direct, dict) and isinstance(guarded, dict):
        for name in [*direct, *(name for name in guarded if name not in direct)]:
            inner = f"{path}.{name}" if path else name
            yield from paths(direct.get(name, GONE), guarded.get(name, GONE), inner)
    elif isinstance(direct, list) and isinstance(guarded, list) and len(direct) == len(guarded):
        for at, (one, other) in enumerate(zip(direct, guarded)):
            yield from paths(one, other, f"{path}[{at}]")
    elif isinstance(direct, Number) != isinstance(guarded, Number) or direct != guarded or type(direct) is not type(guarded):
        yield path, direct, guarded


def era(items):
    """The era that was agreed on: in the handshake, or else by the first request that names a version."""
    for item in items:
        result = item.body.get("reply", {}).get("result", {})
        if item.method == "initialize" and "protocolVersion" in result:
            return "legacy"
        version = ((item.body.get("params") or {}).get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion")
        if item.method != "server/discover" and version:
            return "modern"
    return "none"


def bridged(view, direct, guarded):
    """Whether this end speaks another era with the guard. Then every message differs, which is one difference and not hundreds."""
    agreed = [era(items) for items in (direct, guarded)]
    return [] if agreed[0] == agreed[1] else [Difference(view, "start", "both", "agreed era", "", *agreed)]


def compared(view, direct, guarded):
    """Compares two lists of items. Notifications of one kind keep their order, and replies and progress belong to their requests; else the order is free."""
    kinds = {}
    for side, items in enumerate((direct, guarded)):
        for item in items:
            kinds.setdefault((item.scenario, item.sender, item.method), ([], []))[side].append(item)
    for (scenario, sender, method), (before, after) in kinds.items():
        # Each is compared with the one that is most like it, equal ones first.
        rest, left, pairs = list(after), list(before), []
        for most in (0, 1000):
            for item in list(left):
                apart, at = min(((len(list(paths(item.body, other.body))), at) for at, other in enumerate(rest)), default=(most + 1, 0))
                if apart <= most:
                    left.remove(item)
                    other = rest.pop(at)
                    pairs.append((item.places[0], other.places[0]))
                    for path, was, became in paths(item.body, other.body):
                        yield Difference(view, scenario, sender, method, path, shown(was), shown(became))
        in_order = [other for _, other in sorted(pairs)]
        if method.startswith("notifications/") and in_order != sorted(in_order):
            yield Difference(view, scenario, sender, method, "order", "as sent", "another")
        for item in left:
            yield Difference(view, scenario, sender, method, "", shown(item.body), "nothing")
        for item in rest:
            yield Difference(view, scenario, sender, method, "", "nothing", shown(item.body))
    yield from misplaced(view, direct, guarded)


def misplaced(view, direct, guarded):
    """Notifications about a request must not pass its reply."""
    for item in guarded:
        if item.replies > 1:
            yield Difference(view, item.scenario, item.sender, item.method, "reply", "one reply", f"{item.replies} replies")


def outcomes_compared(direct, guarded):
    """What the host's application saw."""
    for scenario in [*direct, *(name for name in guarded if name not in direct)]:
        one, other = direct.get(scenario, GONE), guarded.get(scenario, GONE)
        for path, was, became in paths(one, other):
            yield Difference("application", scenario, "host", "outcome", path, shown(was), shown(became))
