"""A guard between a real host under load and a real server that is killed every 300 ms.

    load.py PROGRAM [--seconds N] --client COMMAND... --server COMMAND...

PROGRAM is `everlink`; `{diary}` in the command of the server stands for a file in which it writes down what it runs. There are two rounds of
a minute or so, with kill -9 in both:

- by the clock: whatever process is there every 300 ms, ready or not, with a guard as it comes;
- alive: every server 300 ms after it is ready, with a guard that forgives a death after 0.1 s of a good life.

In both the host's connection must stay, every call must be answered once, and by its own answer; nothing that is not safe to repeat may
run twice, nor run at all where the answer says that it did not; and when the killing is over a call must work. Needs only Python, and /proc.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

EVERY = 0.3
# The host gives a call up after 90 s; whatever is answered so late was not answered by the guard.
DEADLINE = 89
ROUNDS = {"by the clock": [], "alive": ["--stable-after", "0.1"]}


class Host:
    """A host under load, its guard, and all that was told of both."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.asked, self.answers, self.heard = {}, {}, Counter()
        self.twice, self.closed, self.garbage, self.words = [], [], [], []
        self.longest, self.connected = 0, None
        self.ready, self.met, self.done = threading.Event(), threading.Event(), threading.Event()
        self.readers = [threading.Thread(target=read) for read in (self.read_facts, self.read_log)]
        for reader in self.readers:
            reader.start()

    def read_facts(self):
        for line in self.process.stdout:
            fact = json.loads(line)
            now = time.monotonic()
            if "asked" in fact:
                self.asked[fact["asked"]] = (now, fact["tool"])
            elif "answered" in fact:
                token = fact["answered"]
                if token in self.answers:
                    self.twice.append(token)
                self.answers[token] = fact
                self.longest = max(self.longest, now - self.asked[token][0])
            elif "heard" in fact:
                self.heard[json.dumps(fact["heard"])] += 1
            elif "connected" in fact:
                self.connected = fact["connected"]
                self.met.set()
            elif "done" in fact:
                self.done.set()
            elif "closed" in fact:
                self.closed.append(fact["closed"])
            elif "garbage" in fact:
                self.garbage.append(fact["garbage"])
        if not self.done.is_set() and not self.closed:
            self.closed.append("the host ended before it was told to")
        self.met.set()
        self.done.set()

    def read_log(self):
        """What the guard says of itself; the words of the host itself come the same way."""
        for line in self.process.stderr:
            self.words.append(line)
            if line.startswith("{") and json.loads(line).get("state") == "ready":
                self.ready.set()

    def say(self):
        """Tells the host to go on. One that is dead is found out by what it has not told."""
        with suppress(BrokenPipeError):
            self.process.stdin.write("\n")
            self.process.stdin.flush()

    def end(self):
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        for reader in self.readers:
            reader.join()


def children(parent):
    """The processes whose parent this is."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, its_parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(its_parent) == parent and state != "Z":
                yield int(entry.name)


def kill_servers(guard):
    killed = 0
    for child in children(guard):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
            killed += 1
    return killed


def kill_by_the_clock(host, guard, until):
    kills = 0
    while time.monotonic() < until:
        time.sleep(EVERY)
        kills += kill_servers(guard)
    return kills


def kill_alive(host, guard, until):
    """The first server is ready already."""
    kills = 0
    while time.monotonic() < until:
        if host.ready.wait(until - time.monotonic()):
            host.ready.clear()
            time.sleep(EVERY)
            kills += kill_servers(guard)
    return kills


def kind(answer, token):
    """A name for what a call was answered with; of a failure the text, without what differs from call to call."""
    text = answer["text"]
    if answer.get("failed") is False:
        return "result" if text == f"Echo: {token}" else "a result of another call"
    code = f"{answer['code']} " if "code" in answer else ""
    text = re.sub(r"\d+(\.\d+)?( (ms|s|min))*", "N", text.splitlines()[0])
    return f"{code}{text}"


def run(name, program, client, server, seconds):
    """One round; what is wrong."""
    with tempfile.TemporaryDirectory() as directory:
        diary = Path(directory) / "diary"
        diary.touch()
        server = [word.replace("{diary}", str(diary)) for word in server]
        host = Host([*client, program, "guard", "--log", "json", *ROUNDS[name], "--", *server])
        try:
            return judge(name, host, program, seconds, diary)
        finally:
            host.process.kill()
            host.end()


def judge(name, host, program, seconds, diary):
    host.met.wait(60)
    guards = [child for child in children(host.process.pid) if os.path.samefile(f"/proc/{child}/exe", program)]
    if host.connected is None or len(guards) != 1:
        return [f"the host did not come up: {''.join(host.words[-20:])}"]
    guard = guards[0]
    killer = kill_by_the_clock if name == "by the clock" else kill_alive
    kills = killer(host, guard, time.monotonic() + seconds)
    in_time = len(host.answers)
    host.say()
    host.done.wait(DEADLINE + 120)
    same_guard = guard in children(host.process.pid)
    servers = list(children(guard))
    closed = len(host.closed)
    host.say()
    host.end()

    kinds = Counter(kind(answer, token) for token, answer in host.answers.items())
    results = kinds.pop("result", 0)
    ran = Counter(diary.read_text().splitlines())
    repeated = sum(times > 1 for line, times in ran.items() if line.startswith("echo "))
    ran_twice = [line for line, times in ran.items() if times > 1 and line.startswith("note ")]
    lies = [
        token
        for token, answer in host.answers.items()
        if "did not run" in answer["text"] and ran[f"{host.asked[token][1]} {token}"]
    ]
    unheard = [token for token in host.asked if token not in host.answers]
    twice = [number for number, times in host.heard.items() if times > 1]
    print(
        f"{name}, {host.connected}: {len(host.asked)} calls, {len(host.answers)} answered, {results} results, "
        f"{sum(kinds.values())} errors, {kills} kills, closed: {closed}, twice: {len(twice) + len(host.twice)}, "
        f"ran twice: {len(ran_twice)}, repeated where harmless: {repeated}, longest wait {host.longest:.1f} s"
    )
    for text, times in kinds.most_common():
        print(f"    {times} x {text}")

    worked = any(kind(answer, token) == "result" for token, answer in host.answers.items() if token.startswith("last-"))
    wrong = {
        "the host's connection was closed": closed,
        "the guard is another one, or gone": not same_guard,
        "lines that the host cannot read": host.garbage[:3],
        "calls without an answer": unheard[:3],
        "an answer came after the host's patience": host.longest >= DEADLINE,
        "responses that came twice": twice[:3] + host.twice[:3],
        "an answer reached a call that is not its own": kinds["a result of another call"],
        "ran twice": ran_twice[:3],
        "ran, and the answer says that it did not": lies[:3],
        "no call had a result": results == 0,
        "nothing was killed": kills == 0,
        "no call was answered while servers died": in_time == 0,
        "when the killing was over, no call worked": not worked,
        "the host did not end well": host.process.returncode,
        "processes are left behind": [process for process in [guard, *servers] if is_alive(process)],
    }
    return [f"{what}: {facts}" for what, facts in wrong.items() if facts]


def is_alive(process):
    """Whether it is still there after a while."""
    for _ in range(100):
        if not Path(f"/proc/{process}").exists():
            return False
        time.sleep(0.1)
    return True


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--client", nargs="+", required=True)
    arguments.add_argument("--server", nargs="+", required=True)
    arguments.add_argument("--seconds", type=float, default=60)
    given = arguments.parse_args()
    wrong = False
    for name in ROUNDS:
        for what in run(name, given.program, given.client, given.server, given.seconds):
            print(f"    WRONG: {what}")
            wrong = True
        sys.stdout.flush()
    sys.exit(wrong)


main()
