"""Makes the command line and the environment of a guard. Starts nothing, and depends on nothing but the standard library."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from ._program import find_program

_Parameters = TypeVar("_Parameters")

#: A name of a header field, as HTTP defines it.
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

#: The file name of this program, or the name of its package. A suffix may tell variants apart: `everlink-0.1`.
_NAME = re.compile(r"everlink($|[.\-_@=:])", re.IGNORECASE)

#: Scripts that hosts put before the command of a server, and that end as soon as their parent is not the host. The guard goes behind them: hermes-agent.
_WATCHDOGS = ("mcp_stdio_watchdog.py",)


def guarded(params: _Parameters, *, guard_options: Sequence[str] = ()) -> _Parameters:
    """Returns parameters of the same kind that start the server behind a guard.

    For hosts that take parameters and create the transport themselves. `params` is a `StdioServerParameters`, or a dictionary as in the configuration of hosts: with
    `command` and `args`, or with `url` and `headers`. A server with a URL becomes a command, so the host must start commands. Its headers go into `env`, because
    other users can see the arguments of a process. Parameters that are guarded already get no second guard.

    Args:
        params: The parameters of the server.
        guard_options: Options for `everlink guard`, such as `["--hang-timeout", "10"]`.
    """
    if isinstance(params, Mapping):
        return cast(_Parameters, _guarded_mapping(params, guard_options))
    command, args = getattr(params, "command", None), getattr(params, "args", None)
    copy = getattr(params, "model_copy", None)
    if not isinstance(command, str) or copy is None:
        raise TypeError(f"guarded() takes a StdioServerParameters or a dictionary, not {type(params).__name__}")
    command, args = child_command(command, args or (), guard_options)
    return cast(_Parameters, copy(update={"command": command, "args": args}))


def _guarded_mapping(params: Mapping[str, Any], guard_options: Sequence[str]) -> dict[str, Any]:
    guarded = dict(params)
    if "command" in params:
        guarded["command"], guarded["args"] = child_command(params["command"], params.get("args") or (), guard_options)
    elif "url" in params:
        arguments, variables = url_arguments(params["url"], params.get("headers"), guard_options)
        for key in ("url", "headers"):
            guarded.pop(key, None)
        for key in ("type", "transport"):
            if key in guarded:
                guarded[key] = "stdio"
        guarded["command"], guarded["args"] = find_program(), arguments
        if variables:
            guarded["env"] = {**(params.get("env") or {}), **variables}
    else:
        raise ValueError("guarded() needs a dictionary with `command` or with `url`")
    return guarded


def child_command(command: str, args: Sequence[str], guard_options: Sequence[str]) -> tuple[str, list[str]]:
    """The command of a guard for a server that this command starts, and its arguments."""
    present = guard_at(command, args)
    if present is not None:
        return command, [*args[: present + 1], *guard_options, *args[present + 1 :]]
    for position, word in enumerate(args):
        if Path(word).name in _WATCHDOGS and "--" in args[position:]:
            start = args.index("--", position) + 1
            return command, [*args[:start], find_program(), "guard", *guard_options, "--", *args[start:]]
    return find_program(), ["guard", *guard_options, "--", command, *args]


def guard_at(command: str, args: Sequence[str]) -> int | None:
    """Where the word `guard` is in the arguments of a command that is a guard already, however it is started: by name or path, or with uvx or npx."""
    words = [command, *args]
    for position, word in enumerate(args):
        if word == "--":
            return None
        if word == "guard" and _NAME.match(re.split(r"[/\\]", words[position])[-1]):
            return position
    return None


def url_arguments(url: str, headers: Mapping[str, Any] | None, guard_options: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The arguments of a guard for a server at this URL, and the environment variables that hold the headers."""
    options: list[str] = []
    variables: dict[str, str] = {}
    for number, (name, value) in enumerate((headers or {}).items(), start=1):
        value = str(value)
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"{name!r} is not a name of an HTTP header")
        if any(character in value for character in "\r\n\0"):
            # The value is not quoted: it may be a secret.
            raise ValueError(f"the value of the header {name!r} has a line break or a NUL")
        variable = f"EVERLINK_HEADER_{number}"
        options += ["--header-env", variable]
        variables[variable] = f"{name}: {value}"
    return ["guard", *options, *guard_options, "--url", os.fspath(url)], variables
