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


def guarded(params: _Parameters, *, guard_options: Sequence[str] = ()) -> _Parameters:
    """Returns parameters of the same kind that start the server behind a guard.

    For hosts that take parameters and create the transport themselves. `params` is a `StdioServerParameters`, or a dictionary as in the configuration of hosts: with
    `command` and `args`, or with `url` and `headers`. A server with a URL becomes a command, so the host must start commands. Its headers go into `env`, because
    other users can see the arguments of a process. Parameters that are guarded already are returned unchanged.

    Args:
        params: The parameters of the server.
        guard_options: Options for `everlink guard`, such as `["--hang-timeout", "10"]`.
    """
    if isinstance(params, Mapping):
        return cast(_Parameters, _guarded_mapping(params, guard_options))
    command, args = _command_of(params)
    if _is_guard(command, args):
        return params
    update = {"command": find_program(), "args": child_arguments(command, args, guard_options)}
    if hasattr(params, "model_copy"):
        return cast(_Parameters, params.model_copy(update=update))
    raise TypeError(f"guarded() takes a StdioServerParameters or a dictionary, not {type(params).__name__}")


def _guarded_mapping(params: Mapping[str, Any], guard_options: Sequence[str]) -> dict[str, Any]:
    guarded = dict(params)
    if "command" in params:
        command, args = params["command"], list(params.get("args") or ())
        if _is_guard(command, args):
            return guarded
        guarded["args"] = child_arguments(command, args, guard_options)
    elif "url" in params:
        arguments, variables = url_arguments(params["url"], params.get("headers"), guard_options)
        for key in ("url", "headers"):
            guarded.pop(key, None)
        for key in ("type", "transport"):
            if key in guarded:
                guarded[key] = "stdio"
        guarded["args"] = arguments
        if variables:
            guarded["env"] = {**(params.get("env") or {}), **variables}
    else:
        raise ValueError("guarded() needs a dictionary with `command` or with `url`")
    guarded["command"] = find_program()
    return guarded


def _command_of(params: object) -> tuple[str, list[str]]:
    command = getattr(params, "command", None)
    if not isinstance(command, str):
        raise TypeError(f"guarded() takes a StdioServerParameters or a dictionary, not {type(params).__name__}")
    return command, list(getattr(params, "args", None) or ())


def _is_guard(command: str, args: Sequence[str]) -> bool:
    return Path(command).stem == "everlink" and bool(args) and args[0] == "guard"


def child_arguments(command: str, args: Sequence[str], guard_options: Sequence[str]) -> list[str]:
    """The arguments of a guard for a server that this command starts."""
    return ["guard", *guard_options, "--", command, *args]


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
