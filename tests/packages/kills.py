"""Kills each process between a host and the program, and measures what each way to start the program costs. Knows no SDK.

A way is a command that starts the program: directly, with the script of the npm package or with npx on two versions of Node, with uvx. In each round a host connects, and one process of the chain is
killed with `kill -9`. All processes of the round carry a mark in their environment. None may be left after five seconds.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path

# How long a process of a round may outlive the kill.
LIMIT = 5.0
# How long a host waits for the answer to `initialize`.
DEADLINE = 60
# The variable that marks the processes of a round.
MARK = "EVERLINK_KILLS_ROUND"
# Rounds of the measurement.
MEASURED = 15


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--project", required=True)
    parser.add_argument("--new-node", required=True)
    parser.add_argument("--uvx", required=True)
    parser.add_argument("--wheel", required=True)
    args = parser.parse_args()
    ways = ways_of(args)
    measure(ways)
    failures = sum(kill_rounds(way, victim, args.rounds) for way in ways for victim in way.victims)
    sys.exit(f"wrong: processes were left in {failures} rounds" if failures else 0)


class Way:
    """A command that starts the program, and the processes on its way."""

    def __init__(self, name: str, command: list[str], victims: list[str], cwd: str = "/", path: str | None = None):
        self.name = name
        self.command = command
        self.victims = victims
        self.cwd = cwd
        self.path = path

    def environment(self, mark: str) -> dict[str, str]:
        path = f"{self.path}:{os.environ['PATH']}" if self.path else os.environ["PATH"]
        return {**os.environ, "PATH": path, MARK: mark}


def ways_of(args: argparse.Namespace) -> list[Way]:
    server = ["guard", "--", str(Path(args.program).resolve()), "demo-server"]
    npx = ["npx", "--offline", "everlink", *server]
    old = subprocess.check_output(["node", "--version"], text=True).strip()
    new = subprocess.check_output([f"{args.new_node}/node", "--version"], text=True).strip()
    script = [f"{args.project}/node_modules/.bin/everlink", *server]
    uvx = [args.uvx, "--offline", "--from", args.wheel, "everlink", *server]
    return [
        Way("program", [args.program, *server], ["host", "program"]),
        Way(f"script, Node {old}", ["node", *script], ["host", "node", "program"]),
        Way(f"script, Node {new}", [f"{args.new_node}/node", *script], ["host", "program"]),
        Way(f"npx, Node {old}", npx, ["host", "npm", "node", "program"], args.project),
        Way(f"npx, Node {new}", npx, ["host", "npm", "program"], args.project, args.new_node),
        Way("uvx", uvx, ["host", "uvx", "program"]),
    ]


def kill_rounds(way: Way, victim: str, rounds: int) -> int:
    """Kills this process in each round. Returns the number of rounds after which a process was left."""
    times, failures = [], 0
    for _ in range(rounds):
        with started(way) as chain:
            os.kill(chain.find(victim), signal.SIGKILL)
            start = time.monotonic()
            while (left := chain.processes()) and time.monotonic() < start + LIMIT:
                time.sleep(0.01)
            times.append(time.monotonic() - start)
            if left:
                failures += 1
                for pid in left:
                    print(f"  left: {pid} {' '.join(command_of(pid))}")
    print(f"{way.name:<22} kill -9 of {victim:<8} {rounds - failures} of {rounds} rounds left nothing; slowest {max(times):.2f} s", flush=True)
    return failures


def measure(ways: list[Way]) -> None:
    """Prints the median time until `initialize` is answered, and the median memory of all processes but the server."""
    rows = {way.name: [] for way in ways}
    # The ways take turns, so that a busy moment of the machine hits all of them.
    for _ in range(MEASURED):
        for way in ways:
            with started(way) as chain:
                chain.find("program")
                rows[way.name].append((chain.seconds, *chain.memory()))
    print(f"\n{'way':<22} {'initialize':>10} {'memory':>9} {'processes':>9}")
    for name, values in rows.items():
        seconds, memory, count = (statistics.median(column) for column in zip(*values))
        print(f"{name:<22} {seconds * 1000:>7.0f} ms {memory / 1000:>6.1f} MB {count:>9.0f}")
    print(flush=True)


class Chain:
    """The processes of one round."""

    def __init__(self, host: int, mark: str, seconds: float):
        self.host = host
        self.mark = f"{MARK}={mark}".encode()
        self.seconds = seconds

    def processes(self) -> list[int]:
        """All processes with the mark that still run."""
        pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in pids if self.mark in environment_of(pid).split(b"\0") and not is_zombie(pid)]

    def find(self, role: str) -> int:
        """The process with this role. It may have to be started first."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            found = [pid for pid in self.processes() if self.role(pid) == role]
            if len(found) == 1:
                return found[0]
            time.sleep(0.01)
        raise SystemExit(f"wrong: there is no single {role} in {[command_of(pid) for pid in self.processes()]}")

    def role(self, pid: int) -> str:
        command = command_of(pid)
        words = [Path(word).name for word in command[:3]]
        if pid == self.host:
            return "host"
        # npm replaces its arguments by a title.
        if command[0].startswith("npm ") or words[1:2] == ["npx"]:
            return "npm"
        if "demo-server" in words[1:2]:
            return "server"
        if words[:2] == ["everlink", "guard"]:
            return "program"
        if words[0] == "uvx" or words[:2] == ["uv", "tool"]:
            return "uvx"
        if words[0] == "node" and words[1:2] == ["everlink"]:
            return "node"
        return words[0]

    def memory(self) -> tuple[int, int]:
        """The resident memory in kilobytes without shared pages counted twice, and the number of processes. Without the host and the server."""
        pids = [pid for pid in self.processes() if self.role(pid) not in ("host", "server")]
        return sum(resident(pid) for pid in pids), len(pids)


@contextlib.contextmanager
def started(way: Way):
    """A host that has connected through this way."""
    mark = uuid.uuid4().hex
    host = subprocess.Popen(
        [sys.executable, "-B", str(Path(__file__).with_name("small_host.py")), way.cwd, *way.command],
        env=way.environment(mark),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = host.stdout.readline()
        if not line:
            raise SystemExit(f"wrong: {way.name} did not connect")
        yield Chain(host.pid, mark, json.loads(line)["seconds"])
    finally:
        for pid in Chain(host.pid, mark, 0).processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        host.stdout.close()
        host.wait()


def command_of(pid: int) -> list[str]:
    return [word.decode() for word in read(pid, "cmdline").rstrip(b"\0").split(b"\0")]


def environment_of(pid: int) -> bytes:
    return read(pid, "environ")


def is_zombie(pid: int) -> bool:
    return read(pid, "stat").rpartition(b")")[2].split()[:1] in ([b"Z"], [])


def resident(pid: int) -> int:
    lines = read(pid, "smaps_rollup").decode().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def read(pid: int, file: str) -> bytes:
    """The contents of a file of a process, or nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    main()
