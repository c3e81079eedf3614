"""What every Python host shares: it plays the scenarios one after the other. A host script says how its SDK does each step.

    HOST_SCRIPT WHOLE|QUICK ERA stdio COMMAND...
    HOST_SCRIPT WHOLE|QUICK ERA http URL

Each scenario begins with a call of the tool `mark`, which divides the logs of the taps. One line of JSON is printed for each scenario: what the
host's application saw.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import anyio

# How long an expected notification may take. A scenario that waits in vain goes on without it.
PATIENCE = 3
# No step takes longer, whatever it waits for; with the largest messages, ten times as long.
STEP_LIMIT = 8

size, era, transport, *target = sys.argv[1:]

# What a host says when it is asked.
ROOTS = [{"uri": "file:///home/ada", "name": "home"}, {"uri": "file:///tmp/%C3%BC"}]
SAMPLE = {"role": "assistant", "content": {"type": "text", "text": "Ada 𝄞"}, "model": "test-model", "stopReason": "endTurn"}
ELICITED = {"action": "accept", "content": {"name": "Ada", "age": 36}}
INFO = {"name": "transparent-host", "title": "Gastgeber", "version": "3.2.1", "websiteUrl": "https://example.com/host"}


def scenarios(read=json.loads):
    every = read(Path(__file__).with_name("scenarios.json").read_text())
    return [one for one in every if size == "WHOLE" or not one.get("whole")]


class Host:
    """Methods that a host script has: `call`, `request`, `notify`, `cancel_call`. Each returns plain JSON or raises."""

    # Scenarios that this SDK cannot play.
    cannot = ()
    is_modern = False
    # How the scenarios are read from their file.
    read_json = staticmethod(json.loads)

    def __init__(self):
        self.failed = False
        self.heard = Counter()

    def hear(self, method):
        self.heard[method] += 1

    async def expect(self, method, count):
        # Nothing is to come if a step has failed, and a modern host hears of nothing that it did not listen for.
        with anyio.move_on_after(0.3 if self.failed or self.is_modern else PATIENCE):
            while self.heard[method] < count:
                await anyio.sleep(0.01)
        return f"{min(self.heard[method], count)} of {count} {method}"

    async def listen(self, wanted, steps):
        return "not of this era"

    async def step(self, step):
        match step:
            case {"expect": method}:
                return await self.expect(method, int(step.get("count", 1)))
            case {"listen": wanted, "steps": steps}:
                return await self.listen(wanted, steps)
            case {"task": tool}:
                return await self.run_task(tool)
            case {"parallel": number, "call": tool}:
                async with anyio.create_task_group() as tasks:
                    for n in range(int(number)):
                        tasks.start_soon(self.call, tool, {"number": n}, None, None)
                return "all answered"
            case {"call": tool, "cancel": reason}:
                return await self.cancel_call(tool, step["arguments"], reason)
            case {"call": tool, "fill": length}:
                return await self.call(tool, {"text": "x" * int(length)}, None, None)
            case {"call": tool}:
                reports = []
                progress = reports.append if step.get("progress") else None
                answer = await self.call(tool, step.get("arguments"), step.get("meta"), progress)
                return [answer, reports] if reports else answer
            case {"request": method}:
                return await self.request(method, step.get("params"))
            case {"notify": method}:
                return await self.notify(method, step.get("params"))

    async def run_task(self, tool):
        try:
            made = await self.request("tools/call", {"name": tool, "arguments": {}, "task": {"ttl": 60000}})
        except Exception as error:
            # The text may name the id of the task, which is another one each time.
            return type(error).__name__
        wanted = {"taskId": made.get("task", {}).get("taskId", "no such task")}
        # The result comes when the task is done, so what is asked after it does not depend on timing.
        await self.request("tasks/result", wanted)
        await self.request("tasks/get", wanted)
        await self.request("tasks/list", None)
        # The notification that the task is complete may follow the replies.
        await anyio.sleep(0.5)

    async def play(self):
        for scenario in scenarios(self.read_json):
            if scenario["name"] in self.cannot:
                continue
            self.heard.clear()
            self.failed = False
            outcomes = []
            await self.call("mark", {"scenario": scenario["name"]}, None, None)
            for step in scenario["steps"]:
                try:
                    with anyio.fail_after(STEP_LIMIT * (10 if scenario.get("whole") else 1)):
                        outcome = await self.step(step)
                    self.failed |= isinstance(outcome, dict) and outcome.get("isError", False)
                    outcomes.append(outcome)
                except Exception as error:
                    self.failed = True
                    outcomes.append(f"{type(error).__name__}: {error}"[:300])
            if transport == "http":
                # Messages on other streams may arrive after the reply.
                await anyio.sleep(0.15)
            print(json.dumps({"scenario": scenario["name"], "outcomes": shortened(outcomes)}), flush=True)
        await self.call("mark", {"scenario": "end"}, None, None)


def shortened(value):
    match value:
        case str() if len(value) > 300:
            return f"{len(value)} characters"
        case list():
            return [shortened(each) for each in value]
        case dict():
            return {key: shortened(each) for key, each in value.items()}
    return value
