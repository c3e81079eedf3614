"""Several processes at once: eight calls with an expired token, and eight calls without a token."""

import servers
from common import TerminalRun, check, finish, main, say

PROCESSES = 8
ROUNDS = 20


def expired(setup, directory):
    """oidc-provider rotates refresh tokens, and revokes the grant when one is used twice."""
    with servers.with_oidc(setup, directory, 3600, {"ANSWER_DELAY_MS": "50"}) as place:
        everlink = place.everlink(setup, directory)
        everlink.at_terminal("login").must_work("login")
        for round_number in range(ROUNDS):
            everlink.expire()
            before = len(refreshes(place))
            running = [everlink.start("call", *place.call) for _ in range(PROCESSES)]
            for process in running:
                result = finish(process)
                check(result.status == 0 and place.answer in result.stdout, f"round {round_number}: {result.text()}")
            count = len(refreshes(place)) - before
            check(count == 1, f"round {round_number}: {count} refreshes")
        check(len(everlink.visits()) == 1, "a browser was started")
        check(not place.issuer.events("grant-error"), f"refused: {place.issuer.events('grant-error')}")
        check(not place.issuer.events("grant-revoked"), "the grant was revoked")
        say(f"{ROUNDS} times {PROCESSES} calls at once with an expired token: {len(refreshes(place))} refreshes, {ROUNDS * PROCESSES} answers, no refusal")


def refreshes(place) -> list:
    return [event for event in place.issuer.events("grant") if event["grant"] == "refresh_token"]


def without_token(setup, directory):
    rounds = 5
    with servers.with_oidc(setup, directory, 3600) as place:
        for _ in range(rounds):
            everlink = place.everlink(setup, directory)
            env = {"AUTH_PEERS_BROWSER_DELAY": "1"}
            running = [TerminalRun(everlink, "call", *place.call, env=env) for _ in range(PROCESSES)]
            for terminal in running:
                result = terminal.finish()
                check(result.status == 0 and place.answer in result.stdout, result.text())
            check(len(everlink.visits()) == 1, f"{len(everlink.visits())} browsers")
        grants = place.issuer.events("grant")
        check(len(grants) == rounds, f"{len(grants)} grants")
        registered = place.issuer.events("registered")
        check(len(registered) == rounds, f"{len(registered)} registrations")
        say(f"{rounds} times {PROCESSES} calls at once without a token: {rounds} browser windows, {rounds * PROCESSES} answers, {len(registered)} registrations")


if __name__ == "__main__":
    main("together", {"expired": expired, "without-token": without_token})
