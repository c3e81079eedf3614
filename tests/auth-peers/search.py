"""Checks that no secret is in anything that the program writes, after a full run: login, call, guard, refresh, device, client credentials, logout.

The authorization server prints every secret that it makes, so the script knows them. The page of a sign-in has `state` and the challenge, and nothing else.
"""

import json
import os
import stat
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import person
import servers
from common import Result, check, free_port, main, say

# Registers with a secret, so that there is one to look for.
WITH_SECRET = ["--client-metadata", '{"token_endpoint_auth_method":"client_secret_post"}']


class Search:
    """What the program wrote, by the name of the output."""

    def __init__(self):
        self.written: dict[str, str] = {}

    def add(self, where: str, text: str) -> None:
        self.written[where] = self.written.get(where, "") + text

    def add_result(self, where: str, result) -> None:
        self.add(f"{where}, stdout", result.stdout)
        self.add(f"{where}, stderr", result.stderr)

    def check(self, secrets: dict[str, str], states: set[str]) -> None:
        for where, text in self.written.items():
            for secret, kind in secrets.items():
                check(secret not in text, f"{kind} is in {where}: …{around(text, secret)}…")
            for state in states:
                rest = without_pages(text)
                check(state not in rest, f"the state is in {where}, not in a sign-in page: …{around(rest, state)}…")


def around(text: str, part: str) -> str:
    at = max(0, text.find(part))
    return text[max(0, at - 80) : at + 20]


def without_pages(text: str) -> str:
    """The text without the URLs of sign-in pages, which must have the state."""
    return " ".join(word for word in text.replace('"', " ").split() if "code_challenge=" not in word)


def secrets_of(place) -> dict[str, str]:
    found = {}
    for event in place.issuer.events("grant"):
        for kind in ("access", "refresh", "identity", "code", "verifier", "device"):
            if event.get(kind):
                found[event[kind]] = kind
    for event in place.issuer.events("registered"):
        if event.get("secret"):
            found[event["secret"]] = "client secret"
    found["program-secret"] = "client secret"
    return found


def search_all(setup, directory):
    with servers.with_oidc(setup, directory, 3600) as place:
        search, stores = Search(), []
        commands(place, setup, directory, search, stores)
        guards(place, setup, directory, search, stores)
        other_grants(place, setup, directory, search, stores)
        secrets = secrets_of(place)
        kinds = set(secrets.values())
        # No identity token is required: not every sign-in gives one.
        missing = {"access", "refresh", "code", "verifier", "device", "client secret"} - kinds
        check(not missing, f"the server made no secret of these kinds, so none can be found: {missing}")
        states = set()
        for everlink in stores:
            check_visits(everlink, secrets, search, states)
            check_modes(everlink.store)
        check(states, "no sign-in page was visited")
        search.check(secrets, states)
        size = sum(len(text) for text in search.written.values())
        say(f"{len(secrets)} secrets ({', '.join(sorted(kinds))}) and {len(states)} states are in none of {len(search.written)} outputs ({size} bytes):")
        say(", ".join(sorted(search.written)))


def commands(place, setup, directory, search, stores):
    everlink = place.everlink(setup, directory, WITH_SECRET)
    stores.append(everlink)
    search.add_result("login", everlink.at_terminal("login").must_work("login"))
    search.add_result("status", everlink.run("status"))
    search.add_result("status --json", everlink.run("status", "--json"))
    for words in (["call", *place.call], ["inspect"], ["inspect", "--json"]):
        everlink.expire()
        recording = everlink.directory / f"{words[0]}.jsonl"
        recording.unlink(missing_ok=True)
        search.add_result(" ".join(words), everlink.run(*words, "--record", str(recording)).must_work(words[0]))
        search.add(f"recording of {words[0]}", recording.read_text())
        search.add_result("replay", everlink_replay(everlink, recording))
    search.add_result("logout", everlink.run("logout", "--json"))
    search.add_result("call after logout", everlink.run("call", *place.call))


def everlink_replay(everlink, recording):
    command = [everlink.program, "replay", str(recording)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=everlink.env)
    return Result(done.returncode, done.stdout, done.stderr)


def guards(place, setup, directory, search, stores):
    for log in ("text", "json"):
        everlink = place.everlink(setup, directory, WITH_SECRET)
        stores.append(everlink)
        recording = everlink.directory / "guard.jsonl"
        port = free_port()
        host = person.Host(everlink, "--log", log, "--record", str(recording), "--status", f"127.0.0.1:{port}")
        reply = host.initialize()
        check("result" in reply, f"{reply} {host.log}")
        search.add(f"guard --log {log}, replies", json.dumps(reply) + json.dumps(host.call(2)))
        search.add(f"guard --log {log}, replies", json.dumps(host.ask(3, "tools/list", {})))
        for path in ("", "metrics"):
            search.add(f"guard --log {log}, status page", read(f"http://127.0.0.1:{port}/{path}"))
        search.add(f"guard --log {log}, argv", Path(f"/proc/{host.process.pid}/cmdline").read_text())
        host.end()
        time.sleep(0.2)
        search.add(f"guard --log {log}, log", "\n".join(host.log))
        search.add(f"guard --log {log}, recording", recording.read_text())


def read(url: str) -> str:
    return urllib.request.urlopen(url, timeout=5).read().decode()


def other_grants(place, setup, directory, search, stores):
    everlink = place.everlink(setup, directory)
    stores.append(everlink)

    def types_code(screen):
        if " or at " not in screen or "\n" not in screen.split(" or at ")[1]:
            return None
        person.visit_later(screen.split(" or at ")[1].split()[0])
        return ""

    search.add_result("login --device", everlink.at_terminal("login", "--device", types=types_code).must_work("--device"))
    options = ["--client-credentials", "--client-id", "program", "--client-secret-env", "PROGRAM_SECRET"]
    program = place.everlink(setup, directory, options)
    stores.append(program)
    recording = program.directory / "program.jsonl"
    result = program.run("call", *place.call, "--record", str(recording), env={"PROGRAM_SECRET": "program-secret"})
    search.add_result("call --client-credentials", result.must_work("--client-credentials"))
    search.add("recording of call --client-credentials", recording.read_text())


def check_visits(everlink, secrets, search, states) -> None:
    """What the browser was given: one URL, and no secret in the environment."""
    for visit in everlink.visits():
        [url] = visit["argv"]
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
        allowed = {"response_type", "client_id", "redirect_uri", "state", "code_challenge", "code_challenge_method", "scope", "resource", "prompt"}
        check(set(query) <= allowed, f"the sign-in page has {set(query) - allowed}")
        states.add(query["state"])
        search.add("browser, environment", json.dumps(visit["env"]))
        search.add("browser, arguments", url)
        check(set(visit["env"]) <= set(everlink.env) | {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}, f"environment: {set(visit['env']) - set(everlink.env)}")


def check_modes(store: Path) -> None:
    """Only the owner can read the store."""
    check(stat.S_IMODE(store.stat().st_mode) == 0o700, f"{store} has the mode {stat.S_IMODE(store.stat().st_mode):o}")
    for path in store.iterdir():
        check(stat.S_IMODE(path.stat().st_mode) == 0o600, f"{path.name} has the mode {stat.S_IMODE(path.stat().st_mode):o}")


if __name__ == "__main__":
    os.umask(0)
    main("search", {"secrets": search_all})
