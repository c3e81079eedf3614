"""Plays every scenario direct and through the guard, compares what each end sees, and writes the page.

    suite.py --program EVERLINK --work DIRECTORY --libraries FILE [--quick] [--page FILE] [--only TEXT]... [--findings FILE]

FILE is JSON: the interpreters and directories of the libraries, by name, as `cargo xtask transparent` has installed them.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compare import bridged, compared, outcomes_compared
from differences import DIFFERENCES, reason
from messages import read
from page import page

HERE = Path(__file__).parent
# So many pairs are played at once. Most of the time they wait.
AT_ONCE = 3
# One whole play takes about a minute at most. Where it takes longer, something hangs.
PLAY_LIMIT = 400

# Name, how the page calls it, the library it is installed with, its script or a word for its program, the era that it is asked to speak.
HOSTS = [
    ("python-1.26", "Python `mcp` 1.26.0", "python-1.26", "host_python1.py", "legacy"),
    ("python-1.30", "Python `mcp` 1.30.0", "python-1.30", "host_python1.py", "legacy"),
    ("python-2.3-legacy", "Python `mcp` 2.3.0, `legacy`", "python-2.3", "host_python2.py", "legacy"),
    ("python-2.3", "Python `mcp` 2.3.0", "python-2.3", "host_python2.py", "auto"),
    ("node-1.17", "TypeScript SDK 1.17.5", "node-1.17", "host_node1.mjs", "legacy"),
    ("node-2.4-legacy", "TypeScript SDK 2.4.0, `legacy`", "node-2.4", "host_node2.mjs", "legacy"),
    ("node-2.4", "TypeScript SDK 2.4.0", "node-2.4", "host_node2.mjs", "auto"),
    ("rmcp-3.8-legacy", "rmcp 3.8.0, `Initialize`", "rmcp-3.8", "host", "legacy"),
    ("rmcp-3.8", "rmcp 3.8.0, `Auto`", "rmcp-3.8", "host", "auto"),
]
SERVERS = [
    ("python-1.26", "Python `mcp` 1.26.0", "python-1.26", "server_python1.py"),
    ("python-1.30", "Python `mcp` 1.30.0", "python-1.30", "server_python1.py"),
    ("python-2.3", "Python `mcp` 2.3.0", "python-2.3", "server_python2.py"),
    ("fastmcp-4.1", "FastMCP 4.1.2", "fastmcp-4.1", "server_fastmcp.py"),
    ("node-1.17", "TypeScript SDK 1.17.5", "node-1.17", "server_node1.mjs"),
    ("node-2.4", "TypeScript SDK 2.4.0", "node-2.4", "server_node2.mjs"),
    ("rmcp-3.8", "rmcp 3.8.0", "rmcp-3.8", "server"),
]
TRANSPORTS = ["stdio", "http"]
# Without a library: the only one that can write every value. It is a pair of its own, on stdio.
RAW = (("raw", "no library", "python-1.30", "host_raw.py", "legacy"), ("raw", "no library", "python-1.30", "server_raw.py"), "stdio")
# For every run of the tests: packages that other steps install anyway.
QUICK = [("raw", "raw", "stdio"), ("python-1.30", "python-1.30", "stdio"), ("node-2.4", "node-2.4", "stdio")]


class Play:
    """One host and one server, direct or through the guard."""

    def __init__(self, options, libraries, host, server, transport, guarded):
        self.options, self.libraries, self.transport, self.guarded = options, libraries, transport, guarded
        self.host, self.server = host, server
        self.directory = Path(options.work) / f"{host[0]}--{server[0]}--{transport}" / ("guarded" if guarded else "direct")
        self.outcomes = self.directory / "outcomes.json"
        self.children = []

    def run(self):
        """What the host's application saw, by scenario."""
        if not self.options.again:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory.mkdir(parents=True)
            self.outcomes.write_text(json.dumps(self.play()))
        return json.loads(self.outcomes.read_text())

    def play(self):
        errors = open(self.directory / "stderr", "wb")
        try:
            target = self.stdio() if self.transport == "stdio" else self.http(errors)
            # The largest messages take long, and what they show does not depend on who sends them.
            size = "WHOLE" if self.host[2] == self.server[2] and not self.options.quick else "QUICK"
            command = [*self.script(self.host[2], self.host[3]), size, self.host[4], self.transport, *target]
            # A group of its own, so that nothing outlives the play.
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
            self.children.append(child)
            try:
                output, _ = child.communicate(timeout=PLAY_LIMIT)
            except subprocess.TimeoutExpired:
                raise SystemExit(f"{self.directory}: the host hangs") from None
        finally:
            for child in reversed(self.children):
                end(child)
        outcomes = {}
        for line in output.decode("utf-8", "surrogatepass").strip("\n").split("\n"):
            told = json.loads(line or "{}")
            if told:
                outcomes[told["scenario"]] = told["outcomes"]
        if not outcomes:
            words = (self.directory / "stderr").read_text(errors="replace")[-2000:]
            raise PlayedNothing(f"{self.directory}: the host played nothing:\n{words}")
        return outcomes

    def views(self, played):
        """What the host saw, and what the server saw. They are the same where nothing is between them."""

        def view(name):
            return [item for item in read(self.directory / name) if item.scenario in played]

        front = view("front.log")
        return front, view("back.log") if self.guarded else front

    def script(self, library, script):
        before, after = self.libraries[library]
        path = HERE / script
        return [*before, str(path) if path.exists() else script, *after]

    def server_command(self):
        library, script = self.server[2:4]
        return self.script(library, script)

    def tap(self, kind, name, *rest):
        return [sys.executable, str(HERE / "tap.py"), kind, str(self.directory / f"{name}.log"), *rest]

    def guard(self, *arguments):
        return [self.options.program, "guard", "--remember", "off", "--log", "off", *arguments]

    def stdio(self):
        server = [*self.server_command(), "stdio"]
        if self.guarded:
            server = self.guard("--", *self.tap("stdio", "back", "--", *server))
        return self.tap("stdio", "front", "--", *server)

    def http(self, errors):
        def start(command):
            self.children.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True))

        port = free_port()
        start([*self.server_command(), "http", str(port)])
        wait_for(port)
        if self.guarded:
            back, inner = free_port(), free_port()
            start(self.tap("http", "back", str(back), str(port)))
            wait_for(back)
            start(self.guard("--listen", f"http://127.0.0.1:{inner}/mcp", "--url", f"http://127.0.0.1:{back}/mcp"))
            wait_for(inner)
            port = inner
        front = free_port()
        start(self.tap("http", "front", str(front), str(port)))
        wait_for(front)
        return [f"http://127.0.0.1:{front}/mcp"]


def end(child):
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            child.wait(3)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port):
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


class PlayedNothing(SystemExit):
    """The host did not get through its first scenario."""


class Pair:
    """A host and a server over one transport, and what differs with a guard between them."""

    def __init__(self, host, server, transport):
        self.host, self.server, self.transport = host, server, transport
        self.found = []
        self.works_direct = True

    @property
    def name(self):
        return f"{self.host[0]} -> {self.server[0]} over {self.transport}"

    def compare(self, options, libraries):
        plays = [Play(options, libraries, self.host, self.server, self.transport, guarded) for guarded in (False, True)]
        try:
            direct = plays[0].run()
        except PlayedNothing:
            self.works_direct = False
            print(f"{self.name}: they do not understand each other without a guard", flush=True)
            return
        guarded = plays[1].run()
        # Where a scenario ends the host without a guard, there is nothing to compare it with.
        played = {"start", *direct}
        (host_direct, server_direct), (host_guarded, server_guarded) = [play.views(played) for play in plays]
        guarded = {scenario: outcomes for scenario, outcomes in guarded.items() if scenario in played}
        differences = [*bridged("host", host_direct, host_guarded), *bridged("server", server_direct, server_guarded)]
        if differences:
            return self.sum_up(options, plays, direct, host_direct, differences)
        at_host = list(compared("host", host_direct, host_guarded))
        # What the application saw follows from what its host saw, so it is told only where that was the same.
        told = {difference.scenario for difference in at_host}
        in_application = [difference for difference in outcomes_compared(direct, guarded) if difference.scenario not in told]
        differences = [*at_host, *compared("server", server_direct, server_guarded), *in_application]
        self.sum_up(options, plays, direct, host_direct, differences)

    def sum_up(self, options, plays, direct, host_direct, differences):
        self.messages = len(host_direct)
        for difference in differences:
            self.found.append((difference, reason(f"{self.name}: {difference}", str(difference))))
        unknown = sum(1 for _, row in self.found if row is None)
        print(f"{self.name}: {len(direct)} scenarios, {self.messages} exchanges, {len(self.found)} differences, {unknown} of them unknown", flush=True)
        if not (options.keep or options.again):
            for play in plays:
                for log in play.directory.glob("*.log"):
                    log.unlink()


def findings(pairs):
    """Every kind of difference with an example of its JSON, for those who mend."""
    kinds = {}
    for pair in pairs:
        for difference, row in pair.found:
            name = f"{row.status}: {row.name}" if row else "UNKNOWN"
            of_name = kinds.setdefault(name, {})
            text = str(difference).replace(f"[{difference.scenario}] ", "", 1)
            if difference.path.startswith("params._meta"):
                text = text.replace(difference.method, "every request", 1)
            places, _ = of_name.setdefault(re.sub(r"\[\d+\]", "[n]", text), ({}, difference))
            places.setdefault(pair.name, set()).add(difference.scenario)
    lines = []
    for name, of_name in sorted(kinds.items(), reverse=True):
        lines.append(f"\n## {name}\n")
        for text, (places, example) in of_name.items():
            scenarios = sorted(set().union(*places.values()))
            pairs = list(places) if len(places) < 4 else [*list(places)[:3], f"and {len(places) - 3} more pairs"]
            lines += [f"- {text}", f"  - in {', '.join(scenarios)}; {', '.join(pairs)}"]
            lines += [f"  - direct: `{example.direct}`", f"  - guarded: `{example.guarded}`"]
    return "\n".join(lines) + "\n"


def asked():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--libraries", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the logs of the taps")
    parser.add_argument("--again", action="store_true", help="play nothing: compare the logs that a run with --keep left")
    parser.add_argument("--page")
    parser.add_argument("--findings")
    parser.add_argument("--only", action="append", default=[])
    return parser.parse_args()


def main():
    options = asked()
    # A comparison that finds nothing would pass every pair.
    if not unittest.TextTestRunner(verbosity=0).run(unittest.defaultTestLoader.loadTestsFromName("test_compare")).wasSuccessful():
        raise SystemExit("the comparison itself is wrong")
    libraries = json.loads(Path(options.libraries).read_text())
    hosts, servers = ([one for one in ends if one[2] in libraries] for ends in (HOSTS, SERVERS))
    pairs = [Pair(host, server, transport) for transport in TRANSPORTS for host in hosts for server in servers]
    pairs.append(Pair(*RAW))
    if options.quick and not options.only:
        pairs = [pair for pair in pairs if (pair.host[0], pair.server[0], pair.transport) in QUICK]
    pairs = [pair for pair in pairs if all(word in pair.name for word in options.only)]
    if options.again:
        pairs = [pair for pair in pairs if Play(options, libraries, pair.host, pair.server, pair.transport, True).outcomes.exists()]
    with ThreadPoolExecutor(AT_ONCE) as workers:
        list(workers.map(lambda pair: pair.compare(options, libraries), pairs))
    if options.findings:
        Path(options.findings).write_text(findings(pairs))
    if options.page:
        scenarios = json.loads((HERE / "scenarios.json").read_text())
        Path(options.page).write_text(page(pairs, scenarios, hosts, servers, TRANSPORTS))
    unknown = [(pair, difference) for pair in pairs for difference, row in pair.found if row is None]
    for pair, difference in unknown if len(unknown) < 50 else []:
        print(f"\n{pair.name}: {difference}\n  direct:  {difference.direct}\n  guarded: {difference.guarded}")
    if not options.quick and not options.only:
        used = {row for pair in pairs for _, row in pair.found if row}
        for row in DIFFERENCES:
            if row not in used:
                print(f"\nno longer occurs, so delete it from differences.py: {row.name}")
    if unknown:
        raise SystemExit(f"\n{len(unknown)} differences have no reason in tests/transparency/differences.py")


if __name__ == "__main__":
    main()
