"""Runs every command of the public Inspector's CLI that needs a server, direct and through the guard, and compares what it prints, byte by byte."""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

COMMANDS = [
    ["initialize"],
    ["initialize", "--advertise-apps"],
    ["tools/list"],
    ["tools/list", "--strict"],
    ["tools/list", "--app-info"],
    ["tools/call", "--tool-name", "echo", "--tool-arg", "message=Grüße 𝄞"],
    ["tools/call", "--tool-name", "echo", "--tool-args-json", '{"message": "x"}', "--tool-metadata", "a=1", "--metadata", "b=2"],
    ["tools/call", "--tool-name", "get-sum", "--tool-arg", "a=2", "b=3", "--format", "json"],
    ["tools/call", "--tool-name", "get-tiny-image"],
    ["tools/call", "--tool-name", "get-structured-content", "--tool-arg", "location=New York"],
    ["tools/call", "--tool-name", "get-annotated-message", "--tool-arg", "messageType=error", "includeImage=true"],
    ["tools/call", "--tool-name", "trigger-long-running-operation", "--tool-arg", "duration=1", "steps=2"],
    ["tools/call", "--tool-name", "no-such-tool"],
    ["resources/list"],
    ["resources/templates/list"],
    ["resources/read", "--uri", "demo://resource/static/document/features.md"],
    ["resources/read", "--uri", "no://such"],
    ["resources/directory/read", "--uri", "demo://resource"],
    ["prompts/list"],
    ["prompts/get", "--prompt-name", "simple-prompt"],
    ["prompts/get", "--prompt-name", "args-prompt", "--prompt-args", "city=Wien", "state=W"],
    ["prompts/get", "--prompt-name", "no-such-prompt"],
    ["logging/setLevel", "--log-level", "debug"],
    ["skills/list"],
    ["skills/get", "--uri", "skill://none"],
]

# Text that is another one each time, with a guard and without.
TIMES = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+Z|\d+(\.\d+)? ?ms\b|\d{2}:\d{2}:\d{2}(\.\d+)?")


def ran(inspector, config, command, era):
    target = ["--config", config, "--server", "one"]
    words = [*inspector, "--cli", "--protocol-era", era, "--connect-timeout", "60000", *target, "--method", *command]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    return done.returncode, TIMES.sub(b"TIME", done.stdout), TIMES.sub(b"TIME", done.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--modules", required=True, help="the directory with node_modules")
    options = parser.parse_args()
    found = Path(options.modules) / "node_modules/.bin"
    inspector = [str(found / "mcp-inspector")]
    server = [str(found / "mcp-server-everything"), "stdio"]
    guard = [options.program, "guard", "--remember", "off", "--log", "off", "--", *server]
    configs = []
    for name, (program, *arguments) in (("direct", server), ("guarded", guard)):
        config = Path(options.modules) / f"{name}.json"
        config.write_text(json.dumps({"mcpServers": {"one": {"type": "stdio", "command": program, "args": arguments}}}))
        configs.append(str(config))
    differ = worked = 0
    for era in ("legacy", "auto"):
        for command in COMMANDS:
            direct, guarded = (ran(inspector, config, command, era) for config in configs)
            worked += direct[0] == 0
            if direct != guarded:
                differ += 1
                print(f"{era}: {' '.join(command)}")
                for name, (status, output, errors) in (("direct", direct), ("guarded", guarded)):
                    print(f"  {name}: status {status}, {json.dumps(output.decode()[:2000])}, {json.dumps(errors.decode()[:1000])}")
    print(f"{2 * len(COMMANDS)} commands, {worked} of them work direct, {differ} differ")
    if differ or not worked:
        sys.exit(1)


if __name__ == "__main__":
    main()
