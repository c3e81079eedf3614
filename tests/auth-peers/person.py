"""Uses the program as a person would at a terminal, or as a host does, and prints the texts. Checks what each must say."""

import json
import queue
import subprocess
import threading
import time
import urllib.parse

import browser
import servers
from common import Everlink, Wrong, check, free_port, main, say


class Host:
    """A host at the standard streams of a guard."""

    def __init__(self, everlink: Everlink, *options: str, env: dict | None = None):
        self.process = everlink.start("guard", *options, env=env, stdin=subprocess.PIPE)
        self.replies: queue.Queue = queue.Queue()
        self.log: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._read_log, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.replies.put(json.loads(line))

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))

    def ask(self, number: int, method: str, params: dict, timeout: float = 70) -> dict:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            try:
                reply = self.replies.get(timeout=0.2)
            except queue.Empty:
                continue
            if reply.get("id") == number:
                return reply
        raise Wrong(f"no answer to {method} within {timeout} s; log: {self.log}")

    def initialize(self, number: int = 1) -> dict:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
        reply = self.ask(number, "initialize", hello)
        if "result" in reply:
            self.process.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            self.process.stdin.flush()
        return reply

    def call(self, number: int) -> dict:
        return self.ask(number, "tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})

    def end(self) -> None:
        self.process.stdin.close()
        check(self.process.wait(20) == 0, f"the guard ended with {self.process.returncode}: {self.log}")


def text_of(reply: dict) -> str:
    if "error" in reply:
        return reply["error"]["message"]
    return " ".join(block.get("text", "") for block in reply["result"]["content"])


def visit_later(url: str) -> None:
    browser.visit(url)


def url_in(text: str) -> str:
    [url] = {word for word in text.split() if "/auth?" in word}
    return url


def host_initialize(setup, directory):
    """A host starts a guard while nobody has signed in: `initialize` is answered in time, and the next one works after the sign-in."""
    with servers.with_oidc(setup, directory, 3600) as place:
        everlink = place.everlink(setup, directory, ["--no-browser"])
        host = Host(everlink)
        start = time.monotonic()
        reply = host.initialize()
        seconds = time.monotonic() - start
        text = text_of(reply)
        say(f"initialize after {seconds:.0f} s: {text}")
        # It waits nearly as long as most hosts do, because a host that gets an error drops the server.
        check(45 < seconds < 60 and "call again" in text, text)
        say(f"log: {host.log}")
        visit_later(url_in(text))
        time.sleep(0.5)
        reply = host.initialize(2)
        check("result" in reply, f"initialize after the sign-in: {reply}")
        check(text_of(host.call(3)) == "5", "the call after the sign-in")
        say("after the sign-in: initialize and call work")
        host.end()


def host_call(setup, directory):
    """The sign-in is over (revoked) in the middle of a host's session: the call is answered in time, and works after the sign-in."""
    with servers.with_oidc(setup, directory, 3600) as place:
        everlink = place.everlink(setup, directory, ["--no-browser"])
        browserful = place.everlink(setup, directory)
        browserful.env["EVERLINK_AUTH_DIRECTORY"] = str(everlink.store)
        browserful.at_terminal("login").must_work("login")
        host = Host(everlink)
        check("result" in host.initialize(), "initialize with tokens")
        check(text_of(host.call(2)) == "5", "a call with tokens")
        host.end()
        # The store loses the tokens; the server remembers the guard's offer.
        for path in everlink.store.glob("*.json"):
            path.unlink()
        host = Host(everlink)
        start = time.monotonic()
        first = host.initialize()
        say(f"initialize, remembered or not, after {time.monotonic() - start:.0f} s: {'result' if 'result' in first else text_of(first)}")
        start = time.monotonic()
        reply = host.call(2)
        seconds = time.monotonic() - start
        text = text_of(reply)
        say(f"call after {seconds:.0f} s: {text}")
        check(seconds < 25 and "call again" in text, text)
        visit_later(url_in(text))
        time.sleep(0.5)
        reply = host.call(3)
        check(text_of(reply) == "5", f"the call after the sign-in: {reply}")
        say("after the sign-in: the next call works")
        host.end()


def terminal(setup, directory):
    """--no-browser, --paste, --device, --client-credentials and two accounts, at a terminal."""
    with servers.with_oidc(setup, directory, 3600) as place:
        no_browser(place, setup, directory)
        paste(place, setup, directory)
        device(place, setup, directory)
        program(place, setup, directory)
        accounts(place, setup, directory)


def no_browser(place, setup, directory):
    everlink = place.everlink(setup, directory)

    def visits(screen):
        if "/auth?" in screen and "\n" in screen.split("/auth?")[1]:
            visit_later(url_in(screen))
            return ""
        return None

    result = everlink.at_terminal("login", "--no-browser", types=visits).must_work("login --no-browser")
    check(not everlink.visits(), "a browser was started")
    say(f"--no-browser: {result.text()}")


def paste(place, setup, directory):
    everlink = place.everlink(setup, directory)

    def pastes(screen):
        if "paste its URL" not in screen:
            return None
        try:
            visit_later(url_in(screen))
        except OSError as error:
            # Nothing listens at the last URL; a browser shows it in its address bar.
            return LastUrl.found or str(error)
        return "?"

    with LastUrl():
        result = everlink.at_terminal("login", "--paste", types=pastes).must_work("login --paste")
    say(f"--paste: {result.text()}")


class LastUrl:
    """Notes the last URL that the browser tried to open."""

    found: str | None = None

    def __enter__(self):
        handler = browser.urllib.request.HTTPRedirectHandler
        self.original = handler.redirect_request

        def redirect_request(this, request, fp, code, msg, headers, newurl):
            LastUrl.found = newurl
            return self.original(this, request, fp, code, msg, headers, newurl)

        handler.redirect_request = redirect_request

    def __exit__(self, *_):
        browser.urllib.request.HTTPRedirectHandler.redirect_request = self.original


def device(place, setup, directory):
    everlink = place.everlink(setup, directory)

    def types_code(screen):
        if " or at " not in screen or "\n" not in screen.split(" or at ")[1]:
            return None
        visit_later(screen.split(" or at ")[1].split()[0])
        return ""

    result = everlink.at_terminal("login", "--device", types=types_code).must_work("login --device")
    say(f"--device: {result.text()}")
    everlink.run("call", *place.call, "--device").must_work("call after --device")
    check(not everlink.visits(), "a browser was started")


def program(place, setup, directory):
    options = ["--client-credentials", "--client-id", "program", "--client-secret-env", "PROGRAM_SECRET"]
    everlink = place.everlink(setup, directory, options)
    result = everlink.run("call", *place.call, env={"PROGRAM_SECRET": "program-secret"})
    check(place.answer in result.stdout, f"--client-credentials: {result.text()}")
    say(f"--client-credentials: {result.text()}")
    result = place.everlink(setup, directory, options).run("call", *place.call, env={"PROGRAM_SECRET": "wrong"})
    check(result.status != 0 and "invalid_client" in result.text(), result.text())
    say(f"--client-credentials with a wrong secret: {result.text()}")
    result = everlink.run("call", *place.call)
    check(result.status == 2, result.text())
    say(f"--client-secret-env without the variable: {result.text()}")


def accounts(place, setup, directory):
    everlink = place.everlink(setup, directory)
    for name in ("work", "home"):
        everlink.at_terminal("login", "--account", name).must_work(f"login --account {name}")
    check(len(everlink.records()) == 2, "not two records")
    result = everlink.run("call", *place.call)
    check(result.status != 0, "the account without a name is signed in")
    say(f"--account: without a name: {result.text()}")
    result = everlink.run("call", *place.call, "--account", "away")
    say(f"--account: one that is not signed in: {result.text()}")
    check("--account away" in result.text(), "the advice has no --account")
    everlink.run("call", *place.call, "--account", "work").must_work("call --account work")
    everlink.run("logout", "--account", "work").must_work("logout --account work")
    check(everlink.run("call", *place.call, "--account", "work").status != 0, "still signed in")
    everlink.run("call", *place.call, "--account", "home").must_work("call --account home")
    say("--account: work and home are signed in and out separately")


def trouble(setup, directory):
    """Mistakes and broken surroundings."""
    with servers.with_oidc(setup, directory, 3600) as place:
        everlink = place.everlink(setup, directory)
        result = everlink.at_terminal("login", "--client-id", "nobody", "--auth-timeout", "3")
        check(result.status != 0, "a wrong client id works")
        say(f"--client-id nobody: {result.text()}")
        page = (everlink.directory / "browser.out").read_text().strip().splitlines()[-1:]
        say(f"  its browser: {page}")
        store_trouble(place, setup, directory)
        browser_trouble(place, setup, directory)
        everlink.at_terminal("login").must_work("login")
        place.issuer.process.send_signal(19)
        everlink.expire()
        start = time.monotonic()
        # The authorization server hangs.
        result = everlink.run("call", *place.call)
        say(f"authorization server hangs, after {time.monotonic() - start:.0f} s: {result.text()}")
        check(result.status != 0 and place.issuer.issuer in result.text(), result.text())
        place.issuer.process.send_signal(18)
        place.issuer.stop()
        result = everlink.run("call", *place.call)
        check(result.status != 0 and "cannot be reached" in result.text(), result.text())
        say(f"authorization server down: {result.text()}")
        check(everlink.record()["tokens"]["refresh"], "the tokens are lost")
    server_down(setup, directory)


def server_down(setup, directory):
    everlink = Everlink(setup["everlink"], directory, f"http://127.0.0.1:{free_port()}/mcp")
    for words in (["login"], ["call", "add"]):
        start = time.monotonic()
        result = everlink.at_terminal(*words)
        check(result.status != 0, f"{words} works without a server")
        say(f"server down, {words[0]}, after {time.monotonic() - start:.1f} s: {result.text()}")
    say(f"server down, status: {everlink.run('status').text()}")
    say(f"server down, logout: {everlink.run('logout').text()}")


def store_trouble(place, setup, directory):
    everlink = place.everlink(setup, directory)
    # Root may write anywhere, but not below a file.
    file = everlink.directory / "file"
    file.write_text("")
    everlink.env["EVERLINK_AUTH_DIRECTORY"] = str(file / "auth")
    result = everlink.at_terminal("login")
    say(f"store not writable, login: {result.text()}")
    check(result.status == 4 and "cannot be used" in result.text() and str(file) in result.text(), "the text does not name the directory")
    result = everlink.at_terminal("call", *place.call)
    say(f"store not writable, call: {result.text()}")
    check(place.answer in result.stdout, "the call does not work without a store")
    say(f"store not writable, status: {everlink.run('status').text()}")
    say(f"store not writable, logout: {everlink.run('logout').text()}")
    damaged = place.everlink(setup, directory)
    damaged.at_terminal("login").must_work("login")
    damaged.records()[0].write_text("{")
    result = damaged.at_terminal("call", *place.call)
    check(place.answer in result.stdout, "the call does not work with a damaged record")
    say(f"damaged record, call: {result.text()}")


def browser_trouble(place, setup, directory):
    everlink = place.everlink(setup, directory)
    everlink.env["BROWSER"] = "/no/such/browser"
    everlink.env["PATH"] = "/nowhere"
    for name in ("DISPLAY", "WSL_DISTRO_NAME"):
        everlink.env.pop(name, None)
    result = everlink.at_terminal("login", "--auth-timeout", "4")
    say(f"no browser can be started: {result.text()}")
    check("browser" in result.text(), "the text does not say that there is no browser")


if __name__ == "__main__":
    main("person", {"host-initialize": host_initialize, "host-call": host_call, "terminal": terminal, "trouble": trouble})
