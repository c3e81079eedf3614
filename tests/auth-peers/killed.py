"""`kill -9` at random moments during 200 refreshes: the next start answers without a browser, or says what to do.

A sign-in is needed only if the token endpoint had answered already and the answer was lost with the process: then the authorization server has replaced
the refresh token, and nobody has the new one. The script knows this, because the authorization server prints each refresh token that it makes. It cannot
tell an answer that was still under way from one that the process had and did not yet store, except if the process died during the save: that leaves a file.

The authorization server delays each answer by up to 30 ms, so that many are lost. The rate says nothing about other servers.
"""

import random
import time

import servers
from common import Wrong, check, main, say

REFRESHES = 200


def killed(setup, directory):
    random.seed(8414)
    with servers.with_oidc(setup, directory, 3600, {"ANSWER_DELAY_MS": "30"}) as place:
        everlink = place.everlink(setup, directory)
        everlink.at_terminal("login").must_work("login")
        whole = typical_time(place, everlink)
        counts = {"not begun": 0, "renewed": 0, "answer lost": 0}
        deaths = sign_ins = 0
        unfinished: set[str] = set()
        for number in range(REFRESHES):
            everlink.expire()
            before = newest(place)
            process = everlink.start("call", *place.call)
            time.sleep(random.uniform(0, whole))
            deaths += process.poll() is None
            process.kill()
            process.communicate()
            # The authorization server may still be answering.
            time.sleep(0.06)
            stored, made = everlink.record()["tokens"]["refresh"], newest(place)
            state = "not begun" if made == before else "renewed" if stored == made else "answer lost"
            counts[state] += 1
            unfinished.update(path.name for path in everlink.store.iterdir() if path.name.endswith(".new"))
            result = everlink.run("call", *place.call)
            if result.status == 0 and place.answer in result.stdout:
                check(state != "answer lost", f"{number}: a lost token worked")
                continue
            if state != "answer lost":
                raise Wrong(f"{number}, {state}: a sign-in is needed: {result.text()}")
            check("everlink login" in result.stderr, f"{number}: the text does not say what to do: {result.text()}")
            if sign_ins == 0:
                say(f"the text after a lost answer: {result.text()}")
            sign_ins += 1
            everlink.at_terminal("login").must_work("login after a lost answer")
        say(f"{REFRESHES} refreshes, {deaths} processes killed while they ran: {counts}")
        say(f"{sign_ins} sign-ins were needed, each because the answer was lost; {len(everlink.visits())} browsers in all")
        say(f"{len(unfinished)} processes died during the save")
        check(len(everlink.visits()) == sign_ins + 1, "another browser was started")
        everlink.run("logout").must_work("logout")
        left = [path.name for path in everlink.store.iterdir() if not path.name.endswith(".lock")]
        check(not left, f"files are left after the sign-out: {left}")


def newest(place) -> str:
    return place.issuer.events("grant")[-1]["refresh"]


def typical_time(place, everlink) -> float:
    """How long a call with a refresh takes."""
    times = []
    for _ in range(5):
        everlink.expire()
        start = time.monotonic()
        everlink.run("call", *place.call).must_work("call")
        times.append(time.monotonic() - start)
    say(f"a call with a refresh takes {sorted(times)[2] * 1000:.0f} ms")
    return sorted(times)[2]


if __name__ == "__main__":
    main("killed", {"killed": killed})
