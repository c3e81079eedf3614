"""What every host must get through the guard, whatever the eras. Knows no SDK."""

import sys

TOOLS = ["add", "count", "die", "fail", "where"]


def check(what, found, *wanted):
    if found not in wanted:
        sys.exit(f"WRONG: {what}: {found!r} instead of {' or '.join(map(repr, wanted))}")


async def everything(list_tools, call):
    """`call` takes a tool and its arguments, and gives whether it failed, the text, and the progress on the way."""
    check("the tools", sorted(await list_tools()), TOOLS)
    check("a result", await call("add", a=1, b=2), (False, "3", []))
    failed, text, _ = await call("fail")
    check("a failure of a tool", (failed, "this never works" in text), (True, True))
    check("progress", await call("count"), (False, "counted", [1, 2, 3]))
    _, first, _ = await call("where")
    failed, text, _ = await call("die")
    check("a call that its server does not survive", (failed, "may have run" in text), (True, True))
    print(f"    the server died: {text.splitlines()[0]}")
    failed, second, _ = await call("where")
    check("a call after that", failed, False)
    if first == second:
        sys.exit("WRONG: the server is still the one that died")
    check("the tools of the next server", sorted(await list_tools()), TOOLS)
