"""Reads the log of a tap: which messages belong to which scenario, and which reply to which request.

Ids, progress tokens and cursors of subscriptions are what a connection chooses freely. They are replaced by what they refer to. Everything else
stays as it was written, numbers to the last digit.
"""

import hashlib
import json
from dataclasses import dataclass, field

# Longer texts are compared by their length and digest.
LONG = 2000
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Number(str):
    """A number as it was spelled."""


@dataclass
class Item:
    """A request with its reply and its progress, or a notification, or something that is no message."""

    sender: str
    method: str
    body: dict
    scenario: str
    replies: int = 0
    # The messages in the order in which they passed, by number.
    places: list = field(default_factory=list)


def records(path):
    data = path.read_bytes()
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        sender, length = data[at:end].split()
        at = end + 1 + int(length)
        yield sender.decode(), data[end + 1 : at]
        at += 1


def parsed(text):
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=members)


def members(pairs):
    made = {}
    for name, value in pairs:
        while name in made:
            name += " (again)"
        made[name] = value
    return made


def shortened(value):
    match value:
        case Number():
            return value
        case str() if len(value) > LONG:
            return f"<{len(value)} characters, {hashlib.sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}>"
        case list():
            return [shortened(each) for each in value]
        case dict():
            return {name: shortened(each) for name, each in value.items()}
    return value


def spelled(value):
    """JSON again, with every number as it was."""
    match value:
        case Number():
            return str(value)
        case dict():
            return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{spelled(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ",".join(map(spelled, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def messages(path):
    for sender, text in records(path):
        try:
            value = parsed(text)
        except ValueError:
            yield sender, {"unreadable": text.decode("utf-8", "replace")[:LONG]}
            continue
        for each in value if isinstance(value, list) else [value]:
            yield sender, each if isinstance(each, dict) else {"unreadable": spelled(each)}


class Reader:
    def __init__(self):
        self.scenario = "start"
        self.items = []
        self.open = {}
        self.tokens = {}
        self.tasks = {}

    def take(self, place, sender, message):
        message = self.renamed(shortened(message))
        method, number = message.get("method"), message.get("id")
        if method is None and ("result" in message or "error" in message):
            return self.take_reply(place, sender, message)
        if method is None:
            return self.add(place, sender, "(no message)", message)
        if method == "tools/call" and message.get("params", {}).get("name") == "mark":
            self.scenario = message["params"]["arguments"]["scenario"]
        body = {name: value for name, value in message.items() if name not in ("id", "method", "jsonrpc")}
        if method == "notifications/progress":
            return self.take_progress(place, sender, body)
        item = self.add(place, sender, method, self.referring(sender, body))
        if method == "notifications/cancelled":
            # It belongs to its request, also where the next scenario has begun.
            request = self.open.get((sender, spelled(body.get("params", {}).get("requestId"))))
            item.scenario = request.scenario if request else item.scenario
        if number is not None:
            self.open[sender, spelled(number)] = item

    def add(self, place, sender, method, body):
        item = Item(sender, method, body, self.scenario, places=[place])
        self.items.append(item)
        return item

    def take_reply(self, place, sender, message):
        other = "server" if sender == "host" else "host"
        item = self.open.get((other, spelled(message.get("id"))))
        outcome = {name: value for name, value in message.items() if name not in ("id", "jsonrpc")}
        if item is None:
            return self.add(place, sender, "(reply to nothing)", outcome)
        item.replies += 1
        name = "reply" if item.replies == 1 else f"reply {item.replies}"
        item.body = item.body | {name: self.referring(other, outcome)}
        item.places.append(place)

    def take_progress(self, place, sender, body):
        params = body.get("params", {})
        item = self.tokens.get((("server" if sender == "host" else "host"), spelled(params.get("progressToken"))))
        if item is None:
            return self.add(place, sender, "notifications/progress", body)
        reports = item.body.get("progress", [])
        late = "reply" in item.body
        report = {name: value for name, value in params.items() if name != "progressToken"}
        item.body = item.body | {"progress": [*reports, report | ({"after": "the reply"} if late else {})]}
        item.places.append(place)

    def referring(self, asker, body):
        """Replaces ids by what they refer to."""
        params = body.get("params")
        if not isinstance(params, dict):
            params = {}
        changed = {}
        if "requestId" in params:
            changed["requestId"] = self.name_of((asker, spelled(params["requestId"])))
        meta = params.get("_meta")
        if isinstance(meta, dict):
            if "progressToken" in meta:
                self.tokens[asker, spelled(meta["progressToken"])] = _Later(self)
                meta = meta | {"progressToken": "token"}
            if SUBSCRIPTION in meta:
                meta = meta | {SUBSCRIPTION: self.name_of(("host", spelled(meta[SUBSCRIPTION])))}
            changed["_meta"] = meta
        return body | {"params": params | changed} if changed else body

    def renamed(self, value):
        """Replaces what a server chooses for a task anew each time: its id, by a number, and its times."""
        match value:
            case list():
                return [self.renamed(each) for each in value]
            case dict():
                value = {name: self.renamed(each) for name, each in value.items()}
                for name in value.keys() & {"taskId"}:
                    value[name] = self.tasks.setdefault(value[name], f"task {len(self.tasks) + 1}")
                for name in value.keys() & {"createdAt", "lastUpdatedAt"}:
                    value[name] = "a time"
        return value

    def name_of(self, key):
        return f"the id of {self.open[key].method}" if key in self.open else "an unknown id"


class _Later:
    """Stands for the item that is about to be added, since a token is seen before its item is made."""

    def __init__(self, reader):
        self.__dict__["_of"] = (reader, len(reader.items))

    def __getattr__(self, name):
        reader, at = self._of
        return getattr(reader.items[at], name)

    def __setattr__(self, name, value):
        reader, at = self._of
        setattr(reader.items[at], name, value)


def read(path):
    reader = Reader()
    for place, (sender, message) in enumerate(messages(path)):
        if reader.scenario == "end":
            # What comes now is how the connection ends, which depends on timing.
            break
        reader.take(place, sender, message)
    return [item for item in reader.items if not is_mark(item)]


def is_mark(item):
    return item.method == "tools/call" and item.body.get("params", {}).get("name") == "mark"
