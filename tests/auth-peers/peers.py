"""Signs in at authorization servers of others: login, call, expiry, refresh without a browser, logout."""

import json
import re
import time

import servers
from common import check, main, say

# How long access tokens live, in seconds.
LIFETIME = 4


def whole_life(place: servers.Place, setup: dict, directory, refreshes: bool = True, revokes: bool = True) -> None:
    """One account from its first sign-in to its sign-out."""
    everlink = place.everlink(setup, directory)

    def call():
        return everlink.run("call", *place.call)

    result = call()
    check(result.status != 0 and "everlink login" in result.stderr, f"call without a token: {result.text()}")
    say(f"call without a token or a terminal: {result.text()}")
    result = everlink.at_terminal("login").must_work("login")
    say(f"login, with {len(everlink.visits())} browser: {shorten(result.stdout)}")
    check(len(everlink.visits()) == 1, "not one browser")
    status = json.loads(everlink.run("status", "--json").must_work("status").stdout)
    check(status["issuer"] and status["expires"], f"status: {status}")
    answer = call().must_work("call")
    check(place.answer in answer.stdout, answer.text())
    say(f"call: {shorten(answer.stdout)}")
    first = everlink.record()["tokens"]
    time.sleep(LIFETIME + 1)
    say(f"after {LIFETIME + 1} s: {shorten(everlink.run('status').stdout)}")
    result = call()
    if refreshes:
        result.must_work("call with an expired token")
        check(place.answer in result.stdout, result.text())
        second = everlink.record()["tokens"]
        check(first["access"] != second["access"], "the access token is the same")
        rotates = first["refresh"] != second["refresh"]
        say(f"call: {shorten(result.stdout)}; renewed without a browser, refresh token {'rotated' if rotates else 'kept'}")
    else:
        check(result.status != 0 and "everlink login" in result.stderr, f"call with an expired token: {result.text()}")
        say(f"call, without a refresh token: {result.text()}")
        everlink.at_terminal("login").must_work("second login")
        call().must_work("call after the second login")
        say("login again, call: works")
    check(len(everlink.visits()) == (1 if refreshes else 2), "another browser was started")
    result = everlink.run("logout").must_work("logout")
    check(("are revoked" in result.stdout) == revokes, result.text())
    say(f"logout: {result.text()}")
    check(not everlink.records(), "a record is left")
    check(everlink.run("status").status == 1, "still signed in")
    result = call()
    check(result.status != 0 and "everlink login" in result.stderr, f"call after the sign-out: {result.text()}")


def shorten(text: str) -> str:
    text = " ".join(text.split())
    return re.sub(r"(.{160}).*", r"\1…", text)


def fastmcp_memory(setup, directory):
    with servers.memory(setup, directory, LIFETIME) as place:
        whole_life(place, setup, directory)


def fastmcp_proxy(setup, directory):
    with servers.proxy(setup, directory, LIFETIME) as place:
        # Its revocation endpoint, which is that of the Python SDK, refuses clients without a secret: it wants `client_secret` in the body.
        whole_life(place, setup, directory, revokes=False)
        say(f"oidc-provider behind it: {[event['grant'] for event in place.issuer.events('grant')]}")


def oidc_provider(setup, directory):
    with servers.with_oidc(setup, directory, LIFETIME) as place:
        whole_life(place, setup, directory)
        say(f"oidc-provider: {[event['grant'] for event in place.issuer.events('grant')]}")


def python_sdk(setup, directory):
    with servers.sdk_example(setup, directory, LIFETIME) as place:
        whole_life(place, setup, directory, refreshes=False, revokes=False)


if __name__ == "__main__":
    main(
        "peers",
        {
            "fastmcp": fastmcp_memory,
            "fastmcp-proxy": fastmcp_proxy,
            "oidc-provider": oidc_provider,
            "python-sdk": python_sdk,
        },
    )
