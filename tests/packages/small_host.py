"""A host for kills.py: small_host.py DIRECTORY COMMAND... connects, prints how long that took, and ends when its child has ended.

It does what a host does whose child dies: it closes the pipes. It must not signal anything, because a killed host cannot do that either.
"""

import json
import subprocess
import sys
import time

PARAMS = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "small-host", "version": "1"}}


def main(directory: str, *command: str) -> None:
    start = time.monotonic()
    child = subprocess.Popen(
        command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    send(child, {"id": 1, "method": "initialize", "params": PARAMS})
    answer = json.loads(child.stdout.readline())
    seconds = time.monotonic() - start
    if "result" not in answer:
        sys.exit(f"initialize was answered with {answer}")
    send(child, {"method": "notifications/initialized"})
    send(child, {"id": 2, "method": "tools/call", "params": {"name": "pid", "arguments": {}}})
    while json.loads(child.stdout.readline()).get("id") != 2:
        pass
    print(json.dumps({"seconds": seconds}), flush=True)
    child.wait()


def send(child: subprocess.Popen, message: dict) -> None:
    child.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    child.stdin.flush()


main(*sys.argv[1:])
