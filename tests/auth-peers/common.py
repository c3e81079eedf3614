"""What the scripts have in common: servers that are started and stopped, and the program with a store and a browser of its own. Knows no server."""

import json
import os
import pty
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

# Nothing here takes longer. Where it does, something hangs.
DEADLINE = 60


class Wrong(Exception):
    """Something is not as it must be."""


def check(condition: object, text: str) -> None:
    if not condition:
        raise Wrong(text)


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A process that listens. Its standard output is a list of lines."""

    def __init__(self, command: list[str], url: str, directory: Path, env: dict | None = None):
        self.lines: list[str] = []
        self.errors = open(directory / f"server-{free_port()}.stderr", "w+")
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **(env or {})},
        )
        threading.Thread(target=self._read, daemon=True).start()
        self._wait(url)

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            self.errors.write(line)

    def _wait(self, url: str) -> None:
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(url, timeout=5).close()
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                check(self.process.poll() is None, f"the server ended at once: {self.log()}")
                time.sleep(0.05)
        raise Wrong(f"the server does not listen at {url}: {self.log()}")

    def log(self) -> str:
        self.errors.seek(0)
        return self.errors.read()[-2000:]

    def events(self, name: str) -> list[dict]:
        """The lines of JSON with this name."""
        events = [json.loads(line) for line in list(self.lines) if line.startswith("{")]
        return [event for event in events if event.get("event") == name]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Result:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str

    def must_work(self, what: str) -> "Result":
        check(self.status == 0, f"{what}: status {self.status}: {self.stderr or self.stdout}")
        return self

    def text(self) -> str:
        return " | ".join((self.stdout + self.stderr).strip().splitlines())


class Everlink:
    """The program, with a store of its own and the browser of these tests."""

    def __init__(self, program: str, directory: Path, url: str, options: list[str] = ()):
        self.program, self.url, self.options = program, url, list(options)
        self.directory = Path(tempfile.mkdtemp(dir=directory))
        self.store = self.directory / "state"
        self.browser_log = self.directory / "browser.jsonl"
        self.env = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            "EVERLINK_AUTH_DIRECTORY": str(self.store),
            "XDG_CACHE_HOME": str(self.directory / "cache"),
            "BROWSER": self._browser(),
            "AUTH_PEERS_BROWSER_LOG": str(self.browser_log),
            "DISPLAY": ":0",
        }

    def _browser(self) -> str:
        script = self.directory / "browser"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "browser.py"}" "$@" >>"{self.directory}/browser.out" 2>&1\n')
        script.chmod(0o755)
        return str(script)

    def command(self, *words: str, target: bool = True) -> list[str]:
        where = [] if not target else ([self.url] if words[0] in ("login", "logout", "status") else ["--url", self.url])
        return [self.program, words[0], *where, *self.options, *words[1:]]

    def start(self, *words: str, env: dict | None = None, **options) -> subprocess.Popen:
        """Starts a command without a terminal."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        return subprocess.Popen(self.command(*words), env={**self.env, **(env or {})}, **options)

    def run(self, *words: str, env: dict | None = None) -> Result:
        """Runs a command without a terminal, so that nobody can be asked."""
        return finish(self.start(*words, env=env))

    def at_terminal(self, *words: str, env: dict | None = None, types: "callable | None" = None) -> Result:
        """Runs a command at a terminal. `types` gets what is on the screen, and returns a line to type or `None`."""
        terminal = TerminalRun(self, *words, env=env)
        return terminal.finish(types)

    def records(self) -> list[Path]:
        return sorted(self.store.glob("tokens-*.json"))

    def record(self) -> dict:
        [path] = self.records()
        return json.loads(path.read_text())

    def expire(self) -> None:
        """Lets the access token expire, as this program sees it."""
        [path] = self.records()
        record = json.loads(path.read_text())
        record["tokens"]["expires"] = 1
        path.write_text(json.dumps(record))

    def visits(self) -> list[dict]:
        """What each browser was given."""
        if not self.browser_log.exists():
            return []
        return [json.loads(line) for line in self.browser_log.read_text().splitlines()]


def finish(process: subprocess.Popen, timeout: float = DEADLINE) -> Result:
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        raise Wrong(f"no end of {process.args}: {stdout} {stderr}") from None
    return Result(process.returncode, stdout, stderr)


class TerminalRun:
    """A command whose standard input and error are a terminal."""

    def __init__(self, everlink: Everlink, *words: str, env: dict | None = None):
        self.controller, program = pty.openpty()
        self.process = everlink.start(*words, env=env, stdin=program, stderr=program)
        os.close(program)
        self.screen = ""

    def read(self, timeout: float) -> bool:
        """Reads what comes within this time. Returns whether the terminal is still open."""
        ready, _, _ = select.select([self.controller], [], [], timeout)
        if not ready:
            return True
        try:
            data = os.read(self.controller, 65536)
        except OSError:
            return False
        self.screen += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def type(self, line: str) -> None:
        os.write(self.controller, (line + "\n").encode())

    def finish(self, types=None, timeout: float = DEADLINE) -> Result:
        end = time.monotonic() + timeout
        while self.read(0.05):
            if types and (line := types(self.screen)) is not None:
                self.type(line)
                types = None
            if time.monotonic() > end:
                self.process.kill()
                raise Wrong(f"no end of {self.process.args}: {self.screen}")
        result = finish(self.process)
        os.close(self.controller)
        return Result(result.status, result.stdout, self.screen)


def main(program_name: str, parts: dict) -> None:
    """Runs the parts, each with a directory of its own. Ends with status 1 if one fails."""
    arguments = sys.argv[1:]
    setup = dict(zip(("everlink", "node_modules", "examples"), arguments))
    wanted = arguments[3:]
    failed = 0
    for name, run in parts.items():
        if wanted and name not in wanted:
            continue
        print(f"{program_name}: {name}", flush=True)
        directory = Path(tempfile.mkdtemp(prefix="auth-peers-"))
        start = time.monotonic()
        try:
            run(setup, directory)
            print(f"  ok, {time.monotonic() - start:.0f} s", flush=True)
            shutil.rmtree(directory, ignore_errors=True)
        except Wrong as wrong:
            failed += 1
            print(f"  wrong: {wrong}\n  (the files are in {directory})", flush=True)
    sys.exit(1 if failed else 0)
